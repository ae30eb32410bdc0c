package claims

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// heard is what this process remembers of sessions that it heard of, so that it need not write of a
// worker again that it heard of a moment ago. To forget it costs a statement and nothing else.
type heard struct {
	mu sync.Mutex
	of map[job.ID]heardOf // guarded by mu
}

type heardOf struct {
	at      time.Time // when the lease was renewed
	lease   time.Duration
	mode    store.Mode
	process store.Process
	suspect bool // it may hold a suspect: see [Desk.slots]
}

// maxHeard is how many sessions are remembered.
const maxHeard = 10_000

func (h *heard) get(session job.ID) (heardOf, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of, ok := h.of[session]
	return of, ok
}

func (h *heard) put(session job.ID, of heardOf) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.of) >= maxHeard {
		clear(h.of)
	}
	h.of[session] = of
}

func (h *heard) forget(session job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, session)
}

// fresh reports whether the lease was renewed so short a time ago that it need not be renewed now.
func (of *heardOf) fresh() bool { return time.Since(of.at) < of.lease/6 }

// begin begins the session of a worker, unless it is there, and tells what the worker is.
func (d *Desk) begin(ctx context.Context, session job.ID, a *Ask) (store.Mode, error) {
	p := d.process(a)
	of, known := d.heard.get(session)
	// It asks for fewer jobs while it has some: its slots are the most that it has asked for.
	if known && of.process.Slots[job.LaneTask] > a.Slots {
		p.Slots = of.process.Slots
	}
	if known && of.lease == a.lease() && reflect.DeepEqual(of.process, p) {
		if of.fresh() {
			return of.mode, nil
		}
		return d.renewed(ctx, session, a.lease(), &p)
	}
	if err := d.cfg.Store.Begin(ctx, store.Session{ID: session, Process: p, Lease: a.lease()}); err != nil {
		return "", d.ended(session, err)
	}
	return d.renewed(ctx, session, a.lease(), &p)
}

// alive renews the lease of a worker whose claim begins to wait, so that it lasts for as long.
func (d *Desk) alive(ctx context.Context, session job.ID, a *Ask) (store.Mode, error) {
	if of, known := d.heard.get(session); known && of.fresh() {
		return of.mode, nil
	}
	return d.renewed(ctx, session, a.lease(), nil)
}

// touch renews the lease of a worker that reports, if this process knows for how long.
func (d *Desk) touch(ctx context.Context, session job.ID) {
	of, known := d.heard.get(session)
	if !known || time.Since(of.at) < of.lease/3 {
		return
	}
	if _, err := d.renewed(ctx, session, of.lease, nil); err != nil && job.KindOf(err) != job.Fenced {
		d.cfg.Log.Warn("lease of a worker not renewed", "session", session, "error", err)
	}
}

func (d *Desk) renewed(ctx context.Context, session job.ID, lease time.Duration, p *store.Process) (store.Mode, error) {
	a, err := d.renew(ctx, session, lease, p)
	return a.Mode, err
}

// renew renews the lease of a session. p tells what its worker is, unless it is nil.
func (d *Desk) renew(ctx context.Context, session job.ID, lease time.Duration, p *store.Process) (
	store.Renewal, error,
) {
	sent := time.Now()
	a, err := d.cfg.Store.Renew(ctx, store.Renew{Session: session, Lease: lease, Process: p})
	if err != nil {
		return a, d.ended(session, err)
	}
	of, known := d.heard.get(session)
	of.at, of.lease, of.mode = sent, lease, a.Mode
	if p != nil {
		of.process = *p
	}
	if p != nil || known {
		d.heard.put(session, of)
	}
	d.times.heard(a.Now, sent)
	if d.watches(ctx, session) {
		d.watch(ctx, session)
	}
	return a, nil
}

// ended says of an error that a session has ended what its worker is to do.
func (d *Desk) ended(session job.ID, err error) error {
	if job.KindOf(err) != job.Fenced {
		return err
	}
	d.heard.forget(session)
	return job.Errorf(job.Fenced, "the session %s of this worker has ended, or was not heard of for longer than its "+
		"lease: its jobs are others' now; stop them, make a new secret, and claim with that", session)
}

// End ends the session of a worker in good order. The jobs that it still holds go back as if they
// had never been claimed. It can be repeated.
func (d *Desk) End(ctx context.Context, session job.ID) error {
	eff, err := d.cfg.Store.End(ctx, session)
	if err != nil {
		return err
	}
	d.heard.forget(session)
	d.cfg.Engine.Follow(ctx, eff)
	return nil
}
