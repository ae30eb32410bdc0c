package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A watcher suspends programs, lets them go on, and ends them: because of a wish, or because their
// time is over.

// obey carries out the wish of a row. The row says that a program is suspended before it is, and
// until it goes on again. So after a crash the row shows what may have to be undone. A pause that
// was not carried out is tried again at each look at the program.
func (x *watch) obey(ctx context.Context, w *watched) error {
	was := w.wish
	w.wish = w.row.Wish
	switch {
	case w.wish == job.WishCancel && was != w.wish:
		x.kill(w)
	case w.wish == job.WishPause && was != w.wish:
		return x.suspend(ctx, w)
	case w.wish == "" && w.progress.SuspendedAt != 0:
		return x.resume(ctx, w)
	}
	return nil
}

func (x *watch) suspend(ctx context.Context, w *watched) error {
	if w.killing || w.suspended {
		return nil
	}
	x.lookIn(time.Second, w) // it is tried again unless it is suspended by then
	n := w.progress
	if n.SuspendedAt == 0 || w.awake {
		now, err := x.sys.Host.Uptime(ctx)
		if err != nil {
			return x.unreachable(ctx, err)
		}
		n.SuspendedAt = now
	}
	if w.progress.SuspendedAt == 0 {
		if written, err := x.record(ctx, w, n, "to be suspended"+by(&w.row)); err != nil || !written {
			return err
		}
		w.awake = true
	}
	but := map[job.State]string{job.Queued: ": it is held in the queue of its scheduler"}[w.row.State]
	err := x.sys.Runner.Suspend(ctx, w.handle)
	if deaf, ok := errors.AsType[*runner.Alive](err); ok {
		but = ", but for " + runner.Remnants(deaf.Left)
	} else if err != nil {
		return x.failed(ctx, w, "suspend", err)
	}
	w.suspended, w.awake = true, false
	crash.At("watch.suspended")
	_, err = x.record(ctx, w, n, "suspended"+by(&w.row)+but)
	return err
}

func (x *watch) resume(ctx context.Context, w *watched) error {
	w.suspended = false
	err := x.sys.Runner.Resume(ctx, w.handle)
	if _, deaf := errors.AsType[*runner.Alive](err); err != nil && !deaf { // these were not suspended either
		return x.failed(ctx, w, "resume", err)
	}
	crash.At("watch.resumed")
	now, err := x.sys.Host.Uptime(ctx)
	if err != nil {
		return x.unreachable(ctx, err)
	}
	n := w.progress
	halt := max(0, now-n.SuspendedAt)
	if w.awake {
		halt = 0
	}
	if n.SuspendedAt = 0; w.row.State != job.Queued { // there its time has not begun
		n.Suspended += halt
	}
	if written, err := x.record(ctx, w, n, "goes on after "+brief(halt)); err != nil || !written {
		return err
	}
	w.awake = false
	x.lookIn(0, w) // its time goes on, too
	return nil
}

func by(j *job.Job) string {
	if j.WishedBy == "" {
		return ""
	}
	return " by " + j.WishedBy
}

// failed shows in the history that a wish was not carried out, once for each reason.
func (x *watch) failed(ctx context.Context, w *watched, what string, err error) error {
	said := map[string]string{"resume": "suspended: "}[what] + "cannot " + what + " the program: " + err.Error()
	if ctx.Err() == nil && said != w.row.Message {
		x.kind.cfg.Log.Error("a wish was not carried out", "wish", what, "job", w.row.ID, "error", err)
		_, err = x.record(ctx, w, w.progress, said)
		return err
	}
	return nil
}

// The time of a program counts by the clock of its host, from the start of its launch, without the
// time for which it was suspended. The clock of this process only says when to look.

// time takes in when a program that goes on has begun. It sets the timer for the end of its time,
// or ends it. The reason is recorded first, because the end alone does not tell it.
func (x *watch) time(ctx context.Context, w *watched, started time.Time) error {
	n := w.progress
	w.until = time.Time{}
	if n.Limit == 0 || n.SuspendedAt != 0 && !w.awake || started.IsZero() || x.sys.Runner.Traits().Limits {
		return nil
	}
	w.until = started.Add(n.Limit + n.Suspended)
	if left := time.Until(w.until); left > 0 {
		x.lookAt(left)
		return nil
	}
	if !n.Overtime {
		n.Overtime = true
		written, err := x.record(ctx, w, n, fmt.Sprintf("has run for its %s: it is being ended", brief(n.Limit)))
		if err != nil || !written {
			return err
		}
	}
	crash.At("watch.overtime")
	x.kill(w)
	return nil
}

// lookAt sets the timer unless it is set to an earlier time.
func (x *watch) lookAt(left time.Duration) {
	if at := time.Now().Add(left); x.due.IsZero() || at.Before(x.due) {
		x.due = at
		x.late.Reset(left)
	}
}

// overdue looks at the programs whose time is over, and sets the timer for the next.
func (x *watch) overdue(ctx context.Context) error {
	x.due = time.Time{}
	var list []*watched
	for _, w := range x.all() {
		switch left := time.Until(w.until); {
		case w.until.IsZero() || w.killing || w.told != nil:
		case left > 0:
			x.lookAt(left)
		default:
			list = append(list, w)
		}
	}
	return x.probe(ctx, list)
}

// A kill is news of the end of a program: nothing of it is alive any more, or err.
type kill struct {
	key  runner.Key
	err  error
	over bool // nobody tries any more
}

// A doomed is a program to be ended. ctx ends if that is called off.
type doomed struct {
	ctx    context.Context
	handle runner.Handle
	row    job.Job
}

// maxKills is how many programs are ended at once. Each takes a goroutine, and a program that does
// not listen takes it for the grace time.
const maxKills = 1000

// kill ends a program beside the loop, and tells the loop.
func (x *watch) kill(w *watched) {
	if w.killing {
		return
	}
	w.killing = true
	d := doomed{handle: w.handle, row: w.row}
	d.ctx, w.spare = context.WithCancel(x.ctx)
	x.doomed = append(x.doomed, d)
	x.execute()
}

// execute begins to end programs, as many as there is room for.
func (x *watch) execute() {
	for len(x.doomed) > 0 && x.dying < maxKills {
		d := x.doomed[0]
		x.doomed = x.doomed[1:]
		x.dying++
		x.wg.Go(func() { x.end(d) })
	}
}

// end ends a program, however long that takes. It tells once of an error, and once of processes
// that cannot be ended.
func (x *watch) end(d doomed) {
	tell := func(k kill) {
		k.key = d.handle.Key
		select {
		case x.kills <- k:
		case <-x.ctx.Done():
		}
	}
	told := map[bool]bool{}
	for {
		err := x.sys.Runner.Kill(d.ctx, d.handle, x.kind.cfg.Grace)
		if err == nil {
			break
		}
		if d.ctx.Err() != nil {
			tell(kill{err: err, over: true})
			return
		}
		_, alive := errors.AsType[*runner.Alive](err)
		if !told[alive] {
			told[alive] = true
			x.kind.cfg.Log.Error("a program was not ended; trying again", "job", d.handle.Key.Job, "error", err)
			tell(kill{err: err})
		}
		select {
		case <-time.After(max(x.kind.cfg.Grace, time.Second)):
		case <-d.ctx.Done():
		}
	}
	crash.At("watch.killed")
	x.listenToEnd(d.ctx, d.row) // if it is canceled its end is next, and then no event of it is taken
	tell(kill{over: true})
}

// ended takes in the news of a kill and the news that wait behind it.
func (x *watch) ended(ctx context.Context, k kill) error {
	var gone []*watched
	stuck := map[*watched][]runner.Remnant{} // processes that cannot be ended
	for more := true; more; {
		w := x.jobs[k.key.Job]
		if k.over {
			x.dying--
		}
		alive, cannot := errors.AsType[*runner.Alive](k.err)
		switch {
		case w == nil || w.handle.Key != k.key || slices.Contains(gone, w) || k.over && k.err != nil:
		case cannot && w.row.Wish != job.WishCancel && w.ended():
			// The job goes on without them: its own program is over, and they are named.
			stuck[w] = alive.Left
			gone = append(gone, w)
		case k.err != nil:
			if err := x.failed(ctx, w, "end", fmt.Errorf("%w; trying again", k.err)); err != nil {
				return err
			}
		default:
			gone = append(gone, w)
		}
		select {
		case k = <-x.kills:
		default:
			more = false
		}
	}
	x.execute()
	if len(gone) == 0 {
		return nil
	}
	handles := make([]runner.Handle, len(gone))
	for i, w := range gone {
		handles[i] = w.handle
	}
	states, err := x.sys.Runner.Probe(ctx, handles)
	if err != nil { // the news of these kills does not come again
		for _, w := range gone {
			x.again(w)
		}
		return x.unreachable(ctx, err)
	}
	over := make([]ending, len(gone))
	for i, w := range gone {
		over[i] = w.ending(states[i])
		over[i].stuck = stuck[w]
	}
	return x.finish(ctx, over)
}

// ended reports whether the program itself is over. Then only processes that it left are being
// ended.
func (w *watched) ended() bool { return w.told != nil || len(w.behind) > 0 }

// brief writes a duration as precisely as people read it.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
