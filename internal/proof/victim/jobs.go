package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A loadJob is one job of the load, and how it ends if it is left alone.
type loadJob struct {
	service.Request
	state    job.State
	attempts int
}

// job makes job number i: programs that end well or badly, at once or at the second attempt, with
// and without inputs; tasks that end well or fail and are retried, and some of which are blocked
// before; of both, some that are delayed, hold keys, wait for another, or stand under limits or in
// an order.
func (l *load) job(i int, before []job.ID) loadJob {
	rnd := rand.New(rand.NewPCG(l.seed, uint64(i)))
	c := loadJob{state: job.Finished, attempts: 1}
	millis, delay := rnd.IntN(40), rnd.IntN(200)
	if i%3 == 0 {
		l.program(&c, i, millis)
	} else {
		t := loadTask{Millis: millis, Fails: []int{0, 0, 0, 0, 0, 1, 9}[i%7]}
		switch {
		case stuck(i):
			t.Blocks, t.Needs = 1, fmt.Sprintf("person %d", i)
		case i%6 == 1:
			t.Blocks, t.Needs = 1+i/6%2, fmt.Sprintf("thing %d", i/6%3)
		}
		c.Spec = service.NewTask(loadKind, t)
		c.Spec.Retry = constant(3, 20*time.Millisecond)
		c.attempts = min(3, 1+t.Fails)
		if t.Fails >= 3 {
			c.state = job.Failed
		}
	}
	c.Spec.ExternalID = fmt.Sprintf("load-%d", i)
	if i%11 == 0 {
		c.Spec.Delay = job.Duration(time.Duration(delay) * time.Millisecond)
	}
	switch i % 8 {
	case 1:
		c.Unique = []store.Unique{{Mode: job.UntilDone, Key: c.Spec.ExternalID}}
	case 6:
		c.Unique = []store.Unique{{Mode: job.UntilStart, Key: c.Spec.ExternalID}}
	}
	if i%4 == 2 {
		c.Spec.Limits = []string{[]string{"lab/a", "lab/b"}[i/4%2]}
		if i%12 == 2 {
			c.Spec.Limits = []string{"lab/a", "lab/b"}
		}
	}
	if i%10 == 4 {
		c.Spec.Order = &job.Order{Key: fmt.Sprint("row-", i/10%2)}
	}
	if len(before) > 0 && i%5 == 2 {
		need := []job.Need{job.NeedFinished, job.NeedEnded}[rnd.IntN(2)]
		c.After = []store.After{{Job: before[rnd.IntN(len(before))], Need: need}}
	}
	return c
}

// program makes job number i a program. It tells the ledger that it was launched, and which attempt
// that is; O_APPEND makes lines whole.
func (l *load) program(c *loadJob, i, millis int) {
	n := i / 3
	if n%5 == 3 {
		millis += 300
	}
	if endless(i) || l.overtime(i) {
		millis += 1_000_000
	}
	wait := ""
	if suspended(i) { // it still runs when somebody has seen that it does
		wait = `until [ -e "$LEDGER.resumed-$PAWL_JOB_ID" ]; do sleep 0.1; done; `
	}
	end := "0"
	switch n % 4 {
	case 1:
		end, c.attempts = "$((PAWL_ATTEMPT < 2))", 2
	case 3:
		end, c.state, c.attempts = "3", job.Failed, 2
	}
	if l.overtime(i) {
		c.state, c.attempts = job.Failed, 2
		c.Spec.Resources = &job.Resources{Minutes: 0.3 / 60}
	}
	leave := ""
	if n%7 == 5 { // it leaves a process behind
		leave = "sleep 1000 & "
	}
	read := ""
	if n%2 == 0 {
		c.Spec.Inputs = []job.Input{{From: l.input(), To: "in/a"}, {From: l.input(), To: "in/b"}}
		read = "cat in/a in/b; "
	}
	script := fmt.Sprintf(`echo "launch $PAWL_JOB_ID $PAWL_ATTEMPT $$" >> "$LEDGER"; `+
		`%s%ssleep %d.%03d; echo "$PAWL_JOB_ID $PAWL_ATTEMPT"; %s`+
		`mkdir -p made scratch; echo "$PAWL_ATTEMPT" > made/file; echo no > scratch/file; `+
		`echo "done $PAWL_JOB_ID $PAWL_ATTEMPT 0" >> "$LEDGER"; exit %s`, leave, wait, millis/1000, millis%1000, read, end)
	switch n % 3 {
	case 0:
		c.Spec.Script = script
	case 1:
		c.Spec.Script = "#!/bin/sh\n" + script
	default:
		c.Spec.Command = []string{"/bin/sh", "-c", script}
	}
	c.Spec.Env = map[string]string{"LEDGER": l.ledger}
	c.Spec.Archive = &job.Archive{Exclude: []string{"scratch"}, Required: []string{"made/*"}}
	if n%2 == 1 { // elsewhere than in the folder that the service of its machine has for it
		c.Spec.Archive.To = filepath.Join(filepath.Dir(l.ledger), "archive", "to-${PAWL_JOB_ID}")
	}
	c.Spec.Retry = constant(2, 10*time.Millisecond)
	if l.system != "" {
		c.Spec.System = farSystem
	}
}

// farSystem is the name of the system in the document that a load is given.
const farSystem = "far"

// endless reports whether job number i is a program that ends only when somebody ends it.
func endless(i int) bool { return i%30 == 12 }

// overtime reports whether job number i is a program that runs longer than it may, at each attempt.
// For a scheduler that would be a minute.
func (l *load) overtime(i int) bool { return i%30 == 9 && !l.scheduled }

// suspended reports whether job number i is a program that somebody suspends and lets go on.
func suspended(i int) bool { return i%30 == 21 }

// stuck reports whether job number i is a task that is blocked until a person lets it go on.
func stuck(i int) bool { return i%15 == 5 }

func (l *load) input() string { return l.ledger + ".input" }

func constant(attempts int, d time.Duration) *job.RetryPolicy {
	return &job.RetryPolicy{MaxAttempts: attempts, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(d)}}
}

// loadKind is the kind of the tasks.
const loadKind = "load"

// A loadTask is the arguments of a task of the load.
type loadTask struct {
	Millis int    `json:"millis"`           // how long it takes
	Fails  int    `json:"fails"`            // how many attempts fail
	Blocks int    `json:"blocks,omitempty"` // how many interruptions, by a block or a crash, it takes to be blocked no more
	Needs  string `json:"needs,omitempty"`  // what is away until then: a thing that others need too, or what a person has
}

// What blocks tasks is tested, in one of the processes, every 50 ms, and they go on at a rate that
// does not hold them up for long where some block again and again.
const loadTester = loadKind

var (
	policy   = job.Policy{Stages: []job.Stage{{Every: job.Duration(50 * time.Millisecond)}}}
	releases = job.Limit{Key: job.RateReleases + "/*", Most: 1000, Per: job.Duration(time.Second)}
)

// loadLimits are those of the load. They are so low that jobs wait for turns, and
// internal/proof/crashes knows them.
var loadLimits = []job.Limit{
	releases,
	{Key: "lab/*", Most: 2},
	{Key: job.SystemKey(job.SystemLocal), Most: 8},
	{Key: job.SystemKey(farSystem), Most: 8},
}

// test finds every other time, at random, that a thing is there again, and never what a person has.
func (*load) test(_ context.Context, params map[string]string) error {
	if needs := params["needs"]; strings.HasPrefix(needs, "person") || rand.IntN(2) == 0 {
		return fmt.Errorf("%s is away on purpose", needs)
	}
	return nil
}

func (c loadTask) run(ctx context.Context, l *load, j *job.Job) error {
	if err := l.note("task %s %d %d", j.ID, j.Attempt, j.Epoch); err != nil {
		return err
	}
	err := c.work(ctx, j)
	if noted := l.note("done %s %d %d", j.ID, j.Attempt, j.Epoch); noted != nil {
		return noted
	}
	return err
}

func (c loadTask) work(ctx context.Context, j *job.Job) error {
	select {
	case <-time.After(time.Duration(c.Millis) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.Recoveries < c.Blocks {
		return &job.Block{
			Code: job.TaskBlocked, Message: c.Needs + " is away",
			Tester: recovery.FuncPrefix + loadTester, Params: map[string]string{"needs": c.Needs},
			Policy: policy,
		}
	}
	if j.Attempt <= c.Fails {
		return fmt.Errorf("attempt %d fails on purpose", j.Attempt)
	}
	return nil
}
