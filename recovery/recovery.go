// Package recovery finds out whether what blocks jobs has cleared: it tests groups of blocked jobs
// when their policies say so, and writes down what came of that. Everything else about a group,
// such as who goes then and how fast, is decided by its row: see [groups.Group].
//
//   - A tester ([Tester]) finds out about one condition. Testers have names, in a map that is
//     handed in; jobs that are blocked name one. A group whose tester nobody knows here is told so,
//     which counts as a test.
//   - A probe is one call of a tester, which answers all groups that ask the same of the world,
//     whatever their conditions and tenants are. Who is blocked while it is under way is not meant
//     by its answer: it began before that. Where only some jobs may go ([Answer.May]) the groups
//     share that, and those have what cannot be shared, or is too little for all, that have waited
//     for the longest.
//   - A host is what a probe asks: that of the parameter "host" or "url". A probe that names none
//     stands for itself. At most [Config.PerHost] probes ask one host at the same time. Hosts that
//     answered the newest probe, hosts that did not and those of which nothing is known have
//     [Config.Parallel] places each for their probes. A tenant gets a further one while more are
//     free than it has, and tenants take turns.
//   - A probe is cut off after [Config.Timeout]: the groups are told that there was no answer, and
//     their policies go on. If the tester does not return within half a second more it is left
//     alone. It keeps its place at its host, so a host has at most PerHost of such probes, and
//     nobody else waits for it.
//   - Tests are a duty ([engine.Duty]): one process makes those of all groups, and one of each
//     machine those that can be made there only. Functions that some processes have registered
//     ([FuncPrefix]) are duties of their own, which go to those who have them. What a holder found
//     is written down under its fence; what it had not written down the next holder tests again.
//
// Nobody polls: a holder sleeps until the next test is due, or until it is told of one that is due
// earlier (see [engine.TestsTopic]).
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

// The names of testers that come with Pawl, with the parameters that they take.
const (
	Enabled = "enabled" // kind, name: what the document of that kind and name is about is enabled
	TCP     = "tcp"     // host, port: a connection can be made
	HTTP    = "http"    // url, method (GET, or HEAD): a server answers, with a status below 500 that is not 429
	Machine = "machine" // this process gets descriptors, and can start a process
	// path, bytes: so much is free on the file system, for who is not root; system tells groups
	// apart
	Space     = "space"
	Command   = "command"   // name, arg1, arg2, …: the program that is registered under the name ends with exit code 0
	SSH       = "ssh"       // host, user, port: a login succeeds, with the keys that Pawl has
	Scheduler = "scheduler" // system, queue: the scheduler of a system answers, and takes jobs
)

// FuncPrefix begins the names of testers that are Go functions, which only the processes know that
// have registered them.
const FuncPrefix = "go/"

// A Tester finds out whether a condition has cleared. It is called by many goroutines at once. It
// should return when ctx ends, and may be called anew at any time: a test changes nothing in the
// world.
type Tester interface {
	// Test returns what it found. An error says that it could not find out: jobs wait on, and
	// people are told what it says.
	Test(ctx context.Context, q Question) (Answer, error)
}

// A Private tester answers for one tenant: groups of another one are asked for by themselves.
type Private interface {
	Tester
	Private()
}

// A Question is what a tester is asked.
type Question struct {
	Tenant string // whose jobs wait; empty, unless the tester is [Private]
	Params map[string]string
}

// An Answer is what a tester found.
type Answer struct {
	Clear bool
	May   int    // where it is clear: how many jobs, of all groups together, may go before it is tested again; 0: all
	Says  string // one sentence, for people
	// After is, where it is not clear, how long it is not to be tested again: that is what was
	// asked for by who has the trouble.
	After time.Duration
}

// A Func is a tester that is a function. It has cleared when that returns no error; else the error
// says why not.
type Func func(ctx context.Context, params map[string]string) error

// Test implements [Tester].
func (f Func) Test(ctx context.Context, q Question) (Answer, error) {
	if err := f(ctx, q.Params); err != nil {
		return Answer{Says: err.Error()}, nil //nolint:nilerr // that is its answer
	}
	return Answer{Clear: true}, nil
}

// Outcome is what became of a probe, for those who count.
type Outcome string

// The outcomes.
const (
	Cleared  Outcome = "clear"
	NotClear Outcome = "not_clear"
	Failed   Outcome = "error"   // it could not be found out
	TimedOut Outcome = "timeout" // there was no answer in time
)

// Config configures tests. Store and Broker are required; the zero value of everything else works.
type Config struct {
	Store  store.Groups
	Broker broker.Broker
	// Testers are those that are known here, by name.
	Testers map[string]Tester
	// Machine is the machine on which this process runs; empty: nothing is tested here that can be
	// found out on one machine only.
	Machine string
	// Timeout is how long a probe may take; 30 s by default.
	Timeout time.Duration
	// PerHost is how many probes ask one host at the same time; 2 by default.
	PerHost int
	// Parallel is how many probes of a duty are under way at the same time: at hosts that answered
	// last, at those that did not, and as many at those of which nothing is known; 32 by default,
	// of which one tenant has no more than half.
	Parallel int
	// Follow acts on what a test means for others, see [engine.Engine.Follow]; nil: nobody does.
	Follow func(context.Context, store.Effects)
	// Probed is told of each probe; nil: nobody is.
	Probed func(tester string, o Outcome)
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
}

// Recovery tests what blocks jobs. Make one with New.
type Recovery struct{ cfg Config }

// New returns a Recovery; its duties do the work.
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

// Duties are what this process can test: what everybody can, what can be found out on its machine
// only, and what its own functions find out. A process that only watches over the programs of a
// machine tests what is to be tested there, and one that only works has its functions.
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
	case job.KindOf(err) == job.Fenced: // the next renewal tells whose it is
		r.cfg.Log.Info("tests are left to who has the duty now", "duty", f.Duty)
		return nil
	}
	return err
}
