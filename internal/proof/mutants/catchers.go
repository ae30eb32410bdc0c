package main

import "github.com/pawl-jobs/pawl/internal/guard"

// tests are some of a package.
type tests struct{ pkg, run string }

// both are tests of both databases, which have the guard each in its own way.
func both(run string) []tests { return []tests{{"store/sqlite", run}, {"store/postgres", run}} }

// zombie are those that freeze a worker.
func zombie(scene string) tests { return tests{"internal/proof/processes", "TestZombie/" + scene} }

// noticedBy are the tests that must notice when a guard is gone, all of them.
var noticedBy = map[guard.Guard][]tests{
	guard.Epoch:     append(both("TestStore/Apply"), zombie("task/log")),
	guard.Session:   append(both("TestStore/Apply"), zombie("task/heartbeat"), zombie("task/claim"), zombie("task/finish_of")),
	guard.Holder:    both("TestStore/Apply"),
	guard.Term:      append(both("TestStore/Apply"), both("TestStore/Group")...),
	guard.Place:     both("TestStore/Apply"),
	guard.Replay:    both("TestStore/Apply"),
	guard.Turn:      both("TestStore/Wish"),
	guard.Answered:  both("TestStore/Claim"),
	guard.Lock:      {{"store/postgres", "TestOrder"}},
	guard.Everyone:  both("TestStore/Lease"),
	guard.Quiet:     {{"store/postgres", "TestNothingExpiresAfterTrouble"}},
	guard.Key:       both("TestStore/Submit"),
	guard.Unique:    both("TestStore/Submit"),
	guard.Owed:      both("TestStore/(Gate|FollowUp)"),
	guard.Horizon:   {{"store/postgres", "TestStore/Read"}},
	guard.Tenant:    {{"store/sqlite", "TestStore/Read"}, {"store/postgres", "TestTenants"}},
	guard.Countdown: both("TestStore/(Gate|FollowUp)"),
	guard.Gate:      {{"store/postgres", "TestStore/Limit"}, {"internal/proof/processes", "TestLimitsSideBySide"}},
	guard.Held:      both("TestStore/Limit"),
	guard.Together:  both("TestStore/Limit"),
	guard.Ahead:     both("TestStore/Limit"),
	guard.Weight:    both("TestStore/Limit"),
	guard.HandOn:    both("TestStore/Limit"),
	guard.Kept:      both("TestStore/Limit"),
	guard.Known:     {{"store/postgres", "TestLimitTrips"}},
	guard.Mark:      {{"store/postgres", "TestWhereALineBegins"}},
	guard.Rank:      both("TestStore/Order"),
	guard.Block:     both("TestStore/Order"),
	guard.Moment:    both("TestStore/Moment"),
	guard.Joins:     both("TestStore/Group"),
	guard.Line:      both("TestStore/Group"),
	guard.Closing:   both("TestStore/Group"),
	guard.Began:     both("TestStore/Group"),
	guard.Patience:  both("TestStore/Group"),
	guard.Deadline:  both("TestStore/Group"),
	guard.Paced:     both("TestStore/Group"),
	guard.Fence:     {{"engine", "TestLeaseLost"}, zombie("watcher")},
	guard.Lapse:     {{"engine", "TestLapse"}},
	guard.Stuck:     {{"engine", "TestLeaseLost"}},
	guard.Stranger:  {{"engine", "TestLostAnswers"}},
	guard.Durable:   {{"engine", "TestCommands|TestSlots"}},
	guard.Halving:   {{"engine", "TestRefused/with"}},
	guard.Unpaid:    {{"engine", "TestForgotten"}},
	guard.Hint:      {{"engine", "TestHints"}},
	guard.Renewal:   {{"engine", "TestForgotten|TestDuties"}},
	guard.Alone:     {{"engine", "TestSuspects"}},
	guard.Comeback:  {{"engine", "TestComeBack"}, zombie("task/return")},
	guard.Reconnect: {{"broker/pgnotify", "TestServerGone|TestLostConnection"}},
	guard.Missed:    {{"engine", "TestMoments"}},
	guard.CutOff:    {{"recovery", "TestHungTests$"}},
	guard.Share:     {{"recovery", "TestHungTestsOfMany"}},
	guard.Apart:     {{"recovery", "TestHungTestsOfMany"}},
	guard.Round:     {{"recovery", "TestHungTestsOfMany"}},
	guard.PerHost:   {{"recovery", "TestTestsOfAHost"}},
	guard.Same:      {{"recovery", "TestOneProbe"}},
	guard.Intent:    {{"app", "TestIntent"}},
	guard.Settle:    {{"app", "TestLaunchOfADeadWorker"}, zombie("program/launch.started")},
	guard.Asked:     {{"app", "TestRestore/sqlite"}},
	guard.Marked:    {{"runner/process", "^Test$"}, {"app", "TestRestore/sqlite"}},
	guard.Armed:     {{"runner/process", "^Test$"}, zombie("program/launch.armfile")},
	guard.Taken:     {{"runner/process", "^Test$"}, zombie("program/launch.armed")},
	guard.Whole:     {{"app", "TestSpool"}},
	guard.Spool:     {{"app", "TestAnEndThatIsRefused"}},
	guard.List:      {{"app", "TestNewWatcher"}},
	guard.Boot:      {{"host/local", "^Test$"}},
	guard.Zombie:    {{"host/local", "^Test$"}},
	guard.Confirmed: {{"runner/process", "^Test$"}},
}
