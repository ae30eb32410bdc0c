// Package guard names the guards that hold Pawl's promises.
//
// A guard is code that does nothing on most days: it refuses the write of a worker that was frozen, or takes up what somebody
// who died has left. A test that sees all go well says nothing about it. So each has a switch: a binary that was built with
// the tag "mutants" goes without the guard that the variable PAWL_WITHOUT names. Package mutants switches one after the other
// off, and somebody must notice. In all other binaries a guard cannot be switched off, and costs nothing.
package guard

// A Guard is one of them.
type Guard string

// The guards of a store.
const (
	Epoch     Guard = "epoch"
	Session   Guard = "session"
	Holder    Guard = "holder"
	Term      Guard = "term"
	Place     Guard = "place"
	Replay    Guard = "replay"
	Turn      Guard = "turn"
	Answered  Guard = "answered"
	Lock      Guard = "lock"
	Everyone  Guard = "everyone"
	Quiet     Guard = "quiet"
	Key       Guard = "key"
	Unique    Guard = "unique"
	Owed      Guard = "owed"
	Horizon   Guard = "horizon"
	Tenant    Guard = "tenant"
	Countdown Guard = "countdown"
	Gate      Guard = "gate"
	Held      Guard = "held"
	Together  Guard = "together"
	Ahead     Guard = "ahead"
	Weight    Guard = "weight"
	HandOn    Guard = "handon"
	Kept      Guard = "kept"
	Known     Guard = "known"
	Mark      Guard = "mark"
	Rank      Guard = "rank"
	Block     Guard = "block"
	Moment    Guard = "moment"
	Joins     Guard = "joins"
	Line      Guard = "line"
	Closing   Guard = "closing"
	Began     Guard = "began"
	Patience  Guard = "patience"
	Deadline  Guard = "deadline"
	Paced     Guard = "paced"
)

// The guards of a process.
const (
	Fence     Guard = "fence"
	Lapse     Guard = "lapse"
	Stuck     Guard = "stuck"
	Stranger  Guard = "stranger"
	Durable   Guard = "durable"
	Halving   Guard = "halving"
	Unpaid    Guard = "unpaid"
	Hint      Guard = "hint"
	Renewal   Guard = "renewal"
	Alone     Guard = "alone"
	Comeback  Guard = "comeback"
	Reconnect Guard = "reconnect"
	Missed    Guard = "missed"
	CutOff    Guard = "cutoff"
	Share     Guard = "share"
	Apart     Guard = "apart"
	Round     Guard = "round"
	PerHost   Guard = "perhost"
	Same      Guard = "same"
)

// The guards of programs.
const (
	Intent    Guard = "intent"
	Settle    Guard = "settle"
	Asked     Guard = "asked"
	Marked    Guard = "marked"
	Armed     Guard = "armed"
	Taken     Guard = "taken"
	Whole     Guard = "whole"
	Spool     Guard = "spool"
	List      Guard = "list"
	Boot      Guard = "boot"
	Zombie    Guard = "zombie"
	Confirmed Guard = "confirmed"
)

// An Info is a guard with what holds because of it.
type Info struct {
	Guard
	Holds string
}

// All are the guards.
var All = []Info{
	{Epoch, "what is written for an epoch that is not the row's is refused"},
	{Session, "a session that is not alive changes nothing, claims nothing and is not renewed"},
	{Holder, "a session decides on the jobs that it holds, and on no others"},
	{Term, "a change of a duty that has gone to another is refused"},
	{Place, "a change that goes out from elsewhere than where the job stands is refused"},
	{Replay, "a change that was made before is answered as it was then"},
	{Turn, "a change that leaves a worker or the watcher obeys the wish on the row"},
	{Answered, "a claim that is repeated is answered with the jobs that it has claimed"},
	{Lock, "a claim holds its session, so that expiry sees what it has claimed"},
	{Everyone, "expiry takes the jobs of all sessions that are not alive, whoever closed them"},
	{Quiet, "after an outage nobody is expired for the length of a lease"},
	{Key, "an idempotency key makes its jobs once"},
	{Unique, "a job with a key that is taken is not made twice"},
	{Owed, "an end writes down what it owes to others"},
	{Horizon, "a cursor of events does not pass a transaction that is still open"},
	{Tenant, "what is read is of the tenant that asks"},
	{Countdown, "a job goes when the last of its prerequisites is met, and not before"},
	{Gate, "one at a time hands on turns of a tenant"},
	{Held, "no more get turns of a key than are left by those who have one"},
	{Together, "a job that needs several turns gets all of them or none"},
	{Ahead, "no more are made ready than may be ahead"},
	{Weight, "turns are fair between owners by their weights"},
	{HandOn, "who gives a turn back writes down that it is to be handed on"},
	{Kept, "a job keeps its turns when its process dies: what it began may run"},
	{Known, "a submission that goes by limits which were changed is refused"},
	{Mark, "who comes to stand at the beginning of a line is not passed over by who remembers where it began"},
	{Rank, "in an order that job goes next which is the first by its rank"},
	{Block, "a job in trouble keeps its place in its order"},
	{Moment, "a moment is given once"},
	{Joins, "who is blocked joins the group of what blocks it in the same change"},
	{Line, "a group closes the line of what is away"},
	{Closing, "nobody goes through a line that is about to be closed"},
	{Began, "who was blocked after a test began waits for the next"},
	{Patience, "while a test is due that was due in time, nobody fails for having waited too long"},
	{Deadline, "how long a job waits is counted from the moment at which it was blocked itself"},
	{Paced, "jobs that go on after trouble go no faster than the rate"},
	{Fence, "a process that cannot renew its lease stops before it runs out"},
	{Lapse, "a step that wakes up after its lease finds its context ended, however fast it looks"},
	{Stuck, "a process that cannot commit gives its lease up"},
	{Stranger, "a job that the process holds and does not know of is given back"},
	{Durable, "a slot is free when the end of its job is durable, and not before"},
	{Halving, "a change that cannot be written does not keep others from it"},
	{Unpaid, "what somebody who died has left unpaid is paid by others"},
	{Hint, "a hint that comes during a claim counts for the next"},
	{Renewal, "a renewal tells of ready work whose wake-up was lost"},
	{Alone, "a process has one suspect at a time"},
	{Comeback, "who comes back from a lost lease clears the jobs that it held"},
	{Reconnect, "a listener that has lost its connection takes everything for announced"},
	{Missed, "a moment that was missed is not used"},
	{CutOff, "a test that hangs is given up, and its groups are told"},
	{Share, "a tenant takes a further place for tests only while more are free than it has"},
	{Apart, "tests of hosts that answer, of those that do not and of those that nobody has asked have places of their own"},
	{Round, "tenants take turns at places for tests, and at a host"},
	{PerHost, "a host is asked by so many tests at once, and no more"},
	{Same, "groups that ask the same are answered by one test"},
	{Intent, "a launch is written down before its host is touched"},
	{Settle, "a launch of which nobody has heard is settled before there is another"},
	{Asked, "a host is asked what it knows of a job before anything of it is staged or launched"},
	{Marked, "a host remembers jobs whose folder is gone, and launches nothing of them"},
	{Armed, "a launch is armed once, and never after it was revoked"},
	{Taken, "a launch is taken once"},
	{Whole, "a message of an end counts when it is whole"},
	{Spool, "the message of an end is kept until what it says is durable"},
	{List, "a watcher looks for the messages that came before it"},
	{Boot, "a process of another boot is dead"},
	{Zombie, "a zombie is dead"},
	{Confirmed, "a program counts as ended when nothing of it is alive"},
}

// SQL returns a part of a statement, or what stands in its place where the guard is off.
func (g Guard) SQL(part, without string) string {
	if g.Off() {
		return without
	}
	return part
}
