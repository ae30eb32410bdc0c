package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// chaosCommand is the program that crash tests kill (internal/chaos): the service on a folder, with a load of mixed
// jobs. It is hidden, and everything but the load is the same code as that of the other commands.
func chaosCommand() *cobra.Command {
	var l load
	var lease time.Duration
	cmd := &cobra.Command{
		Use:    "chaos",
		Short:  "Run a load of mixed jobs for crash tests",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := dataDir(cmd)
			if err != nil {
				return err
			}
			return l.run(cmd.Context(), cmd.OutOrStdout(), dir, lease)
		},
	}
	cmd.Flags().StringVar(&l.ledger, "ledger", "", "file to which jobs append what they did")
	cmd.Flags().IntVar(&l.jobs, "jobs", 500, "how many jobs")
	cmd.Flags().Uint64Var(&l.seed, "seed", 1, "seed of the load")
	cmd.Flags().DurationVar(&lease, "lease", 0, "how long the session outlives its last renewal")
	return cmd
}

// load is the jobs of a crash test. The same seed makes the same jobs, so that each run submits what the one before
// did, under the same external ids.
//
// The ledger is what the world outside knows. Its lines are:
//
//	accepted <job> <external id> <state> <attempts> <prerequisite or -> <need or ->
//	cancel <job>                     about to ask for it
//	canceled <job>                   it was granted
//	launch <job> <attempt> <pid>     written by the program itself
//	task <job> <attempt> <epoch>     written by the handler, when it begins
//
// state and attempts are how the job ends if nobody cancels it and its prerequisite is met.
type load struct {
	ledger string
	jobs   int
	seed   uint64
}

// chaosBatch is how many jobs one call submits.
const chaosBatch = 25

// run submits the load, again with the same external ids after each crash, and runs until every job has ended.
func (l *load) run(ctx context.Context, out io.Writer, dir string, lease time.Duration) error {
	if err := os.WriteFile(l.input(), []byte("an input\n"), 0o600); err != nil {
		return err
	}
	n, err := openNode(ctx, dir, nodeOptions{
		slots: map[job.Lane]int{job.LaneFinish: 4, job.LaneLaunch: 4, job.LanePrepare: 8, job.LaneTask: 20},
		lease: lease,
	})
	if err != nil {
		return err
	}
	defer n.close()
	pawl.Handle(n.Service, "chaos", func(ctx context.Context, t *pawl.Task[chaosTask]) (struct{}, error) {
		return struct{}{}, t.Args.run(ctx, l, &t.Job)
	})
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := n.Run(running)
		stop(fmt.Errorf("the service stopped: %w", err))
		ended <- err
	}()
	ids, err := l.submit(running, n)
	if err != nil {
		return err
	}
	var people sync.WaitGroup
	people.Go(func() {
		if err := l.meddle(running, n, ids); err != nil && running.Err() == nil {
			stop(err)
		}
	})
	for i, id := range ids {
		act := l.end
		switch {
		case endless(i):
		case suspended(i):
			act = l.suspend
		default:
			continue
		}
		people.Go(func() {
			if err := act(running, n, id); err != nil && running.Err() == nil {
				stop(err)
			}
		})
	}
	for _, id := range ids {
		if _, err := n.Wait(running, id); err != nil {
			return err
		}
	}
	people.Wait()
	stop(nil)
	if err := <-ended; err != nil {
		return err
	}
	// The watcher does so once a minute.
	if err := n.app.Sweep(ctx, n.store); err != nil {
		return err
	}
	fmt.Fprintf(out, "all %d jobs have ended; repaired by the sweep: %d\n", len(ids), n.Repaired())
	return nil
}

// submit submits the load and notes what was acknowledged. Some jobs are canceled at once.
func (l *load) submit(ctx context.Context, n *node) ([]job.ID, error) {
	var ids []job.ID
	for len(ids) < l.jobs {
		from := len(ids)
		made := make([]chaosJob, min(chaosBatch, l.jobs-from))
		reqs := make([]pawl.Request, len(made))
		for i := range made {
			made[i] = l.job(from+i, ids)
			reqs[i] = made[i].Request
		}
		answers, err := n.Submit(ctx, reqs...)
		if err != nil {
			return nil, err
		}
		for i, a := range answers {
			m, after := &made[i], "- -"
			if len(m.After) > 0 {
				after = fmt.Sprintf("%s %s", m.After[0].Job, m.After[0].Need)
			}
			if err := l.note("accepted %s %s %s %d %s", a.ID, m.Spec.ExternalID, m.state, m.attempts, after); err != nil {
				return nil, err
			}
			ids = append(ids, a.ID)
			if (from+i)%29 == 11 {
				if _, err := l.cancel(ctx, n, a.ID); err != nil {
					return nil, err
				}
			}
		}
	}
	return ids, nil
}

// meddle is what people do meanwhile: they cancel some jobs, and pause others and let them go on.
func (l *load) meddle(ctx context.Context, n *node, ids []job.ID) error {
	rnd := rand.New(rand.NewPCG(l.seed, 1<<32))
	var paused []job.ID
	for _, i := range rnd.Perm(len(ids)) {
		granted := false
		var err error
		switch {
		case i%17 == 3:
			granted, err = l.cancel(ctx, n, ids[i])
		case i%13 == 6:
			var answers []store.Wished
			if answers, err = n.Pause(ctx, ids[i]); err == nil && answers[0].Err == nil {
				granted, paused = true, append(paused, ids[i])
			}
		}
		if err != nil {
			return err
		}
		if !granted { // it has ended, say
			continue
		}
		select {
		case <-time.After(time.Duration(rnd.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if len(paused) > 1 {
			if _, err := n.Resume(ctx, paused[0]); err != nil {
				return err
			}
			paused = paused[1:]
		}
	}
	if len(paused) == 0 {
		return nil
	}
	_, err := n.Resume(ctx, paused...)
	return err
}

// endless reports whether job number i is a program that ends only when somebody ends it.
func endless(i int) bool { return i%30 == 12 }

// overtime reports whether job number i is a program that runs longer than it may, at each attempt.
func overtime(i int) bool { return i%30 == 9 }

// suspended reports whether job number i is a program that somebody suspends and lets go on.
func suspended(i int) bool { return i%30 == 21 }

// suspend pauses a job once its program runs, and lets it go on once it is suspended, or has ended meanwhile.
func (l *load) suspend(ctx context.Context, n *node, id job.ID) error {
	asked := false
	for e, err := range n.Events(ctx, id, "") {
		if err != nil {
			return err
		}
		switch {
		case e.State == job.Running && !asked:
			asked = true
			if answers, err := n.Pause(ctx, id); err != nil || answers[0].Err != nil {
				return err // it has ended
			}
		case asked && (strings.HasPrefix(e.Message, "suspended") || e.State == job.Paused):
			_, err := n.Resume(ctx, id)
			return err
		}
	}
	return nil
}

// end cancels a job once its program runs.
func (l *load) end(ctx context.Context, n *node, id job.ID) error {
	for e, err := range n.Events(ctx, id, "") {
		if err != nil {
			return err
		}
		if e.State == job.Running {
			_, err := l.cancel(ctx, n, id)
			return err
		}
	}
	return nil
}

// cancel asks for the end of a job and reports whether that was granted.
func (l *load) cancel(ctx context.Context, n *node, id job.ID) (bool, error) {
	if err := l.note("cancel %s", id); err != nil {
		return false, err
	}
	answers, err := n.Cancel(ctx, id)
	if err != nil || answers[0].Err != nil {
		return false, err
	}
	return true, l.note("canceled %s", id)
}

// A chaosJob is one job of the load, and how it ends if it is left alone.
type chaosJob struct {
	pawl.Request
	state    job.State
	attempts int
}

// job makes job number i: programs that end well or badly, at once or at the second attempt, with and without inputs;
// tasks that end well or fail and are retried; of both, some that are delayed, hold keys, or wait for another.
func (l *load) job(i int, before []job.ID) chaosJob {
	rnd := rand.New(rand.NewPCG(l.seed, uint64(i)))
	c := chaosJob{state: job.Finished, attempts: 1}
	millis, delay := rnd.IntN(40), rnd.IntN(200)
	if i%3 == 0 {
		l.program(&c, i, millis)
	} else {
		t := chaosTask{Millis: millis, Fails: []int{0, 0, 0, 0, 0, 1, 9}[i%7]}
		c.Spec = pawl.NewTask("chaos", t)
		c.Spec.Retry = constant(3, 20*time.Millisecond)
		c.attempts = min(3, 1+t.Fails)
		if t.Fails >= 3 {
			c.state = job.Failed
		}
	}
	c.Spec.ExternalID = fmt.Sprintf("chaos-%d", i)
	if i%11 == 0 {
		c.Spec.Delay = job.Duration(time.Duration(delay) * time.Millisecond)
	}
	switch i % 8 {
	case 1:
		c.Unique = []store.Unique{{Mode: job.UntilDone, Key: c.Spec.ExternalID}}
	case 6:
		c.Unique = []store.Unique{{Mode: job.UntilStart, Key: c.Spec.ExternalID}}
	}
	if len(before) > 0 && i%5 == 2 {
		need := []job.Need{job.NeedFinished, job.NeedEnded}[rnd.IntN(2)]
		c.After = []store.After{{Job: before[rnd.IntN(len(before))], Need: need}}
	}
	return c
}

// program makes job number i a program. It tells the ledger that it was launched, and which attempt that is; O_APPEND makes
// lines whole.
func (l *load) program(c *chaosJob, i, millis int) {
	n := i / 3
	if n%5 == 3 {
		millis += 300
	}
	if endless(i) || overtime(i) {
		millis += 1_000_000
	}
	if suspended(i) {
		millis += 500
	}
	end := "0"
	switch n % 4 {
	case 1:
		end, c.attempts = "$((PAWL_ATTEMPT < 2))", 2
	case 3:
		end, c.state, c.attempts = "3", job.Failed, 2
	}
	if overtime(i) {
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
	script := fmt.Sprintf(`echo "launch $PAWL_JOB_ID $PAWL_ATTEMPT $$" >> "$LEDGER"; %ssleep %d.%03d; echo "$PAWL_JOB_ID $PAWL_ATTEMPT"; %s`+
		`mkdir -p made scratch; echo "$PAWL_ATTEMPT" > made/file; echo no > scratch/file; exit %s`, leave, millis/1000, millis%1000, read, end)
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
	if n%2 == 1 { // elsewhere than in the folder that the service has for it
		c.Spec.Archive.To = filepath.Join(filepath.Dir(l.ledger), "data", "archive", "default", "to-${PAWL_JOB_ID}")
	}
	c.Spec.Retry = constant(2, 10*time.Millisecond)
}

func (l *load) input() string { return l.ledger + ".input" }

func constant(attempts int, d time.Duration) *job.RetryPolicy {
	return &job.RetryPolicy{MaxAttempts: attempts, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(d)}}
}

// A chaosTask is the arguments of a task of the load.
type chaosTask struct {
	Millis int `json:"millis"` // how long it takes
	Fails  int `json:"fails"`  // how many attempts fail
}

func (c chaosTask) run(ctx context.Context, l *load, j *job.Job) error {
	if err := l.note("task %s %d %d", j.ID, j.Attempt, j.Epoch); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(c.Millis) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.Attempt <= c.Fails {
		return fmt.Errorf("attempt %d fails on purpose", j.Attempt)
	}
	return nil
}

// note appends a line to the ledger.
func (l *load) note(format string, args ...any) error {
	f, err := os.OpenFile(l.ledger, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return err
}
