package main

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// people does what people do while jobs run, and returns when they are done. The first error is
// told to broke.
func (l *load) people(ctx context.Context, n *node.Node, ids []job.ID, broke func(error)) {
	var all sync.WaitGroup
	defer all.Wait()
	does := func(act func() error) {
		all.Go(func() {
			if err := act(); err != nil && ctx.Err() == nil {
				broke(err)
			}
		})
	}
	does(func() error { return l.meddle(ctx, n, ids) })
	for i, id := range ids {
		switch {
		case endless(i):
			does(func() error { return l.end(ctx, n, id) })
		case suspended(i):
			does(func() error { return l.suspend(ctx, n, id) })
		case stuck(i):
			does(func() error { return l.steer(ctx, n, id, i%2 == 0) })
		}
	}
}

// meddle cancels some jobs, and pauses others and lets them go on.
func (l *load) meddle(ctx context.Context, n *node.Node, ids []job.ID) error {
	rnd := rand.New(rand.NewPCG(l.seed, 1<<32))
	var paused []job.ID
	for _, i := range rnd.Perm(len(ids)) {
		granted := false
		var err error
		switch {
		case i%17 == 3:
			granted, err = l.cancel(ctx, n, ids[i])
		case i%13 == 6 && !suspended(i):
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

// suspend pauses a job once its program runs, and lets it go on once it is suspended. Then the
// program may end.
func (l *load) suspend(ctx context.Context, n *node.Node, id job.ID) error {
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
			if _, err := n.Resume(ctx, id); err != nil {
				return err
			}
			return l.letEnd(id)
		}
	}
	return nil
}

// letEnd makes the file for which the program of a suspended job waits.
func (l *load) letEnd(id job.ID) error {
	return os.WriteFile(l.ledger+".resumed-"+id.String(), nil, 0o644) //nolint:gosec // another account looks for it
}

// end cancels a job once its program runs.
func (l *load) end(ctx context.Context, n *node.Node, id job.ID) error {
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

// steer lets a job go on each time that it is blocked: by itself, after a test that finds nothing,
// or as the one job of its group.
func (l *load) steer(ctx context.Context, n *node.Node, id job.ID, alone bool) error {
	for e, err := range n.Events(ctx, id, "") {
		if err == nil && e.State == job.Blocked {
			err = l.release(ctx, n, id, alone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release lets a job go on that was blocked. It may have gone on since.
func (*load) release(ctx context.Context, n *node.Node, id job.ID, alone bool) error {
	if alone {
		for _, want := range []groups.Action{groups.TryNow, groups.Release} {
			if _, err := n.ActOnJobs(ctx, want, id); err != nil {
				return err
			}
		}
		return nil
	}
	j, err := n.Job(ctx, id)
	if err != nil || j.Group == "" {
		return err
	}
	if _, err = n.ActOnGroup(ctx, groups.Release, j.Group); job.KindOf(err) == job.NotFound {
		return nil
	}
	return err
}

// cancel asks for the end of a job and reports whether that was granted.
func (l *load) cancel(ctx context.Context, n *node.Node, id job.ID) (bool, error) {
	if err := l.note("cancel %s", id); err != nil {
		return false, err
	}
	answers, err := n.Cancel(ctx, id)
	if err != nil || answers[0].Err != nil {
		return false, err
	}
	return true, l.note("canceled %s", id)
}
