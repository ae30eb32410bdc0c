// Package recovery finds out whether the conditions that block jobs have cleared. It tests groups
// of blocked jobs when their policies say so, and writes down the results. The row of a group
// decides the rest, such as which jobs go then and how fast: see [groups.Group].
//
//   - A tester ([Tester]) finds out about one kind of condition. The caller hands in a map of
//     testers by name, and a blocked job names one of them. If a name is not in the map, that
//     counts as a test, and the group is told.
//   - A probe is one call of a tester. It answers all groups that ask the same question,
//     with any condition and tenant. Its answer is not for a job that was blocked
//     after it began. If only some jobs may go ([Answer.May]), the groups share them. The rest,
//     and a number that is too small for all groups, goes to the groups that have waited
//     longest.
//   - A probe asks a host, which the parameter "host" or "url" names. A probe without these is
//     its own host. At most [Config.PerHost] probes ask one host at a time. There are three
//     pools of [Config.Parallel] places each: for hosts that answered their newest probe, for
//     hosts that did not, and for hosts that are not known yet. A tenant gets one more place
//     while more places are free than it has. Tenants are served round robin.
//   - A probe is cut off after [Config.Timeout]. Its groups are told that there was no answer,
//     and their policies go on. If the tester does not return within another half second, it is
//     left behind. It still counts for its host, so a host has at most PerHost such probes, and
//     nothing else waits for them.
//   - Tests are a duty ([engine.Duty]). One process makes the tests of all groups, and one
//     process of each machine makes the tests that are possible only there. Testers that are
//     functions of a program ([FuncPrefix]) are duties of their own, for the processes that
//     have registered them. The holder of a duty writes results under its fence. A test that it
//     has not written down is made again by the next holder.
//
// Nothing polls: a holder sleeps until the next test is due, or until it hears of an earlier one
// (see [engine.TestsTopic]).
//
// The package imports the contracts and package engine. Testers that reach out into the world are
// in package testers.
package recovery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Names of the testers that come with Pawl, and their parameters.
const (
	Enabled = "enabled" // kind, name: the document of that kind and name says that its subject is enabled
	TCP     = "tcp"     // host, port: a connection can be made
	HTTP    = "http"    // url, method (GET, or HEAD): a server answers, with a status below 500 that is not 429
	Machine = "machine" // this process gets descriptors, and can start a process
	// Space: path, bytes. So many bytes are free on the file system, for users other than root. A
	// parameter system tells groups apart.
	Space = "space"
	// Command: name, arg1, arg2, …. The program that is registered under the name ends with exit
	// code 0.
	Command   = "command"
	SSH       = "ssh"       // host, user, port: a login with Pawl's keys succeeds
	Scheduler = "scheduler" // system, queue: the scheduler of a system answers and takes jobs
)

// FuncPrefix begins the name of a tester that is a Go function. Only the processes that have
// registered it know it.
const FuncPrefix = "go/"

// A Tester finds out whether a condition has cleared. Many goroutines call it at once. It must
// change nothing in the world, because a test may be repeated at any time. It should return when
// ctx ends.
type Tester interface {
	// Test returns what it found. An error says that it could not find out: the jobs go on waiting,
	// and people see the text of the error.
	Test(ctx context.Context, q Question) (Answer, error)
}

// A Private tester answers for one tenant. Groups of different tenants are asked for one by one,
// even if their questions are the same.
type Private interface {
	Tester
	Private()
}

// A Question is what a tester is asked.
type Question struct {
	Tenant string // the tenant of the jobs that wait; set only if the tester is [Private]
	Params map[string]string
}

// An Answer is what a tester found.
type Answer struct {
	Clear bool
	// May is, if it is clear, how many jobs of all groups together may go before the next test; 0:
	// all.
	May int
	// Says is one sentence for people.
	Says string
	// After is, if it is not clear, the shortest time until the next test, as a server asks for it
	// with Retry-After.
	After time.Duration
}

// A Func is a tester that is a function. The condition has cleared if it returns nil. Otherwise its
// error says why not.
type Func func(ctx context.Context, params map[string]string) error

// Test implements [Tester].
func (f Func) Test(ctx context.Context, q Question) (Answer, error) {
	if err := f(ctx, q.Params); err != nil {
		return Answer{Says: err.Error()}, nil //nolint:nilerr // that is its answer
	}
	return Answer{Clear: true}, nil
}

// Outcome is what became of a probe. It is for metrics.
type Outcome string

// The outcomes.
const (
	Cleared  Outcome = "clear"
	NotClear Outcome = "not_clear"
	Failed   Outcome = "error"   // the tester could not find out
	TimedOut Outcome = "timeout" // the tester did not answer in time
)

// Config configures tests. Store and Broker are required.
type Config struct {
	Store  store.Groups
	Broker broker.Broker
	// Testers are the testers that this process knows, by name.
	Testers map[string]Tester
	// Machine is the machine on which this process runs. If it is empty, this process makes no test
	// that is possible on one machine only.
	Machine string
	// Timeout is how long a probe may take. Default: 30 s.
	Timeout time.Duration
	// PerHost is how many probes may ask one host at a time. Default: 2.
	PerHost int
	// Parallel is how many probes of a duty may be under way at a time in each of three pools: for
	// hosts that answered last, for hosts that did not, and for unknown hosts. One tenant has at
	// most half of a pool. Default: 32.
	Parallel int
	// Follow acts on the effects of a test, see [engine.Engine.Follow]. Default: nothing is called.
	Follow func(context.Context, store.Effects)
	// Probed is called for each probe, with the name of its tester. Default: nothing is called.
	Probed func(tester string, o Outcome)
	// Log receives what operators should know. Default: [slog.Default].
	Log *slog.Logger
}

// Recovery tests the conditions that block jobs. [New] makes one.
type Recovery struct{ cfg Config }

// New returns a Recovery. Its duties do the work.
func New(cfg Config) *Recovery {
	cfg.Testers = maps.Clone(cfg.Testers)
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.PerHost <= 0 {
		cfg.PerHost = 2
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 32
	}
	if cfg.Follow == nil {
		cfg.Follow = func(context.Context, store.Effects) {}
	}
	if cfg.Probed == nil {
		cfg.Probed = func(string, Outcome) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Recovery{cfg}
}

// Duties returns the duties that this process may hold: the tests that every process can make,
// those of its machine, and those of its own functions. A process with only the watcher role makes
// the tests of its machine. A process with only the worker role makes those of its functions.
func (r *Recovery) Duties() (all []engine.Duty) {
	add := func(tester string, roles ...store.Role) {
		all = append(all, r.duty(groups.DutyOf(tester, ""), roles...))
		if r.cfg.Machine != "" {
			all = append(all, r.duty(groups.DutyOf(tester, r.cfg.Machine), append(roles, store.RoleWatcher)...))
		}
	}
	add("", store.RoleRecovery)
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Testers)) {
		if strings.HasPrefix(name, FuncPrefix) {
			add(name, store.RoleRecovery, store.RoleWorker)
		}
	}
	return all
}

func (r *Recovery) duty(name string, roles ...store.Role) engine.Duty {
	return engine.Duty{Name: name, Roles: roles, Run: func(ctx context.Context, h *engine.Held) error {
		ctx, stop := h.Context(ctx)
		defer stop()
		return r.run(ctx, h.Fence())
	}}
}

// run makes the tests of a duty until ctx ends, or the duty is another's.
func (r *Recovery) run(ctx context.Context, f job.Fence) error {
	l := newLoop(r, f)
	defer l.end()
	err := l.run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case job.KindOf(err) == job.Fenced: // the next renewal ends ctx, unless only a clock has jumped
		return job.Errorf(job.Unavailable, "another process may have the duty %s: %w", f.Duty, err)
	}
	return err
}
