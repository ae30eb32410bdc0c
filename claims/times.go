package claims

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/store"
)

// times are when this process looks at the runs of sessions, because one of them may have no time
// left. Nothing of it is needed: when a run must end follows from its row and from the document of
// its kind, and each process that renews a session looks at its runs.
type times struct {
	mu   sync.Mutex
	skew time.Duration          // guarded by mu: how far the clock of the database is ahead
	of   map[job.ID]appointment // guarded by mu: by session
}

type appointment struct {
	at    time.Time // by the clock of the database
	timer *time.Timer
}

// heard is told the time of the database, which was asked for at a time.
func (t *times) heard(now, sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skew = now.Sub(sent.Add(time.Since(sent) / 2))
}

// now is the time of the database.
func (t *times) now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Add(t.skew)
}

// look calls f at a time, unless something is to be called for the session before that.
func (t *times) look(session job.ID, at time.Time, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, there := t.of[session]
	if there && !at.Before(was.at) || !there && len(t.of) >= maxHeard {
		return
	}
	if there {
		was.timer.Stop()
	}
	mine := &appointment{at: at}
	mine.timer = time.AfterFunc(at.Sub(time.Now().Add(t.skew)), func() {
		t.mu.Lock()
		if t.of[session].at.Equal(mine.at) {
			delete(t.of, session)
		}
		t.mu.Unlock()
		f()
	})
	t.of[session] = *mine
}

// A late is why a run must end.
type late struct {
	code job.Code
	stop Stop
	took time.Duration // all that its kind gives it
	text string
}

var (
	timedOut = late{
		code: job.TimeLimit, stop: StopTimedOut,
		text: "the worker did not end it within %s, which is all that kind %s gives a run",
	}
	stalled = late{
		code: job.TaskStalled, stop: StopStalled,
		text: "for %s, which is all that kind %s gives it, the worker reported neither progress nor a checkpoint",
	}
)

// ends returns when a run must end as things are, and why; the zero time: it has all the time.
func ends(j *job.Job, k *kinds.Declared) (at time.Time, why late) {
	if k == nil {
		return at, why
	}
	if d := time.Duration(k.Timeout); d > 0 {
		at, why = j.Since.Add(d), timedOut
		why.took = d
	}
	if d := time.Duration(k.Stall); d > 0 {
		last := j.Since
		if told := ReadWork(j).Told; told.After(last) { // else an earlier run told it
			last = told
		}
		if still := last.Add(d); at.IsZero() || still.Before(at) {
			at, why = still, stalled
			why.took = d
		}
	}
	return at, why
}

// outcome is what becomes of the run, as of a handler that was told to stop.
func (l late) outcome(kind string) engine.Outcome {
	return engine.Retry(job.Entry{Code: l.code, Message: fmt.Sprintf(l.text, l.took, kind)})
}

// lateOf returns why a run had to end; the zero value: an event is no such end.
func lateOf(e *job.Event) late {
	switch {
	case e == nil:
	case e.Code == job.TimeLimit:
		return timedOut
	case e.Code == job.TaskStalled:
		return stalled
	}
	return late{}
}

// declared returns the document of a kind; nil: it has none.
func (d *Desk) declared(ctx context.Context, kind string) (*kinds.Declared, error) {
	if d.cfg.Declared == nil {
		return nil, nil
	}
	return d.cfg.Declared(ctx, kind)
}

// timed reports whether a kind gives its runs so much time and no more.
func (d *Desk) timed(ctx context.Context, kind string) (bool, error) {
	k, err := d.declared(ctx, kind)
	return k != nil && (k.Timeout > 0 || k.Stall > 0), err
}

// watch ends the runs of a session that have no time left, and looks again when the next one may
// have none. What it cannot do now the next renewal does.
func (d *Desk) watch(ctx context.Context, session job.ID) {
	next, err := d.endLate(ctx, session)
	if err != nil && job.KindOf(err) != job.Closed && ctx.Err() == nil {
		d.cfg.Log.Warn("runs of a worker may be over their time", "session", session, "error", err)
		next = d.times.now().Add(time.Second)
	}
	if next.IsZero() {
		return
	}
	d.times.look(session, next, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		d.watch(ctx, session)
	})
}

// endLate ends the runs of a session that have no time left. next is when the next one may have
// none.
func (d *Desk) endLate(ctx context.Context, session job.ID) (next time.Time, err error) {
	rows, err := d.cfg.Store.Find(ctx, store.FindQuery{Session: session})
	if err != nil {
		return next, err
	}
	now := d.times.now()
	var changes []job.Change
	for i := range rows {
		j := &rows[i]
		k, err := d.declared(ctx, j.Kind)
		if err != nil {
			return next, err
		}
		at, why := ends(j, k)
		switch {
		case at.IsZero():
		case !now.Before(at):
			changes = append(changes, d.cfg.Engine.Change(why.outcome(j.Kind), j, session))
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if _, err = d.applyAll(ctx, changes); len(changes) > 0 && err == nil {
		d.cfg.Engine.Follow(ctx, store.Effects{Held: []job.ID{session}}) // a renewal may wait to hear of it
	}
	return next, err
}

// watches reports whether runs of a session may have a time to end, as far as this process knows.
func (d *Desk) watches(ctx context.Context, session job.ID) bool {
	of, known := d.heard.get(session)
	if !known || d.cfg.Declared == nil {
		return d.cfg.Declared != nil
	}
	for _, kind := range of.process.Kinds {
		if timed, err := d.timed(ctx, kind); timed || err != nil {
			return true
		}
	}
	return false
}
