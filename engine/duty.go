package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Duty is something that one process does for all.
type Duty struct {
	Name string // unique in the service, such as watch/MACHINE
	// Roles lists roles: a process gets the duty only if it plays one of them. Empty: any process
	// may get it.
	Roles []store.Role
	// Run does the duty until ctx ends. ctx ends when the duty goes to another process. After an
	// error of kind Unavailable Run is called again, with backoff. Any other error ends the engine.
	Run func(ctx context.Context, h *Held) error
}

// Held is a duty that this process has. It is safe for concurrent use.
type Held struct {
	fence job.Fence
	s     *session
}

// Fence returns the fence under which the holder writes.
func (h *Held) Fence() job.Fence { return h.fence }

// Context returns a context that ends when ctx ends or the lease is over. Its Err says so at once,
// even if the process was frozen and has just woken up. A duty uses it for what it does to a host,
// where no fence refuses a late act.
func (h *Held) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return leased{ctx, h.s, cancel}, func() { cancel(nil) }
}

// Silent records, for all processes, that the machine of the duty does not answer, and why. A nil
// error says that it answers. The moment of the first error counts, until it answers.
func (h *Held) Silent(err error) { h.s.duties.silence(h.fence, err) }

// Apply makes the changes that the duty decided, and answers each of them. Their guards carry the
// fence of the duty. If the store refuses the changes, Apply sends them in halves until the bad one
// is alone, and answers that one as a conflict. An error means that nothing more can be written.
func (h *Held) Apply(ctx context.Context, changes []job.Change) ([]store.Applied, error) {
	answers, err := h.s.apply(ctx, changes)
	switch kind := job.KindOf(err); {
	case err == nil:
		return answers, nil
	case ctx.Err() != nil || kind == job.Closed || kind == job.Corrupt:
		return nil, err
	case len(changes) == 1:
		h.s.e.cfg.Log.Error("a change was refused for good", "job", changes[0].Job, "by", h.fence.Duty, "error", err)
		return []store.Applied{{Outcome: store.Conflict, Now: changes[0].From}}, nil
	}
	half := len(changes) / 2
	first, err := h.Apply(ctx, changes[:half])
	if err != nil {
		return nil, err
	}
	second, err := h.Apply(ctx, changes[half:])
	return append(first, second...), err
}

// AddEvent writes an event of the program that runs for j.
func (h *Held) AddEvent(ctx context.Context, j *job.Job, e job.CustomEvent) error {
	return h.s.e.addEvent(ctx, store.NewEvent{
		Tenant: j.Tenant, Job: j.ID, By: j.Owner, Cause: job.CauseJob, Launch: j.Launch, CustomEvent: e,
	})
}

// duties runs the configured duties that the session holds.
type duties struct {
	s  *session
	wg sync.WaitGroup

	mu     sync.Mutex
	active map[string]activeDuty // guarded by mu
	failed chan error
	news   flag // a machine has become silent, or answers again
}

type activeDuty struct {
	term   int64
	cancel context.CancelFunc
	silent store.Silence // zero: its machine answers
}

func newDuties(s *session) *duties {
	return &duties{s: s, active: map[string]activeDuty{}, failed: make(chan error, 1), news: newFlag()}
}

// silence notes what the holder of a duty says of its machine. If that is news it is told at once.
func (d *duties) silence(f job.Fence, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, held := d.active[f.Duty]
	if !held || a.term != f.Term {
		return
	}
	was := a.silent
	switch {
	case err == nil:
		a.silent = store.Silence{}
	case was.Since.IsZero():
		a.silent = store.Silence{Since: d.s.e.Now().UTC(), Message: message(err)}
	default:
		a.silent.Message = message(err)
	}
	if d.active[f.Duty] = a; a.silent != was {
		d.news.set()
	}
}

func message(err error) string { return job.Shorten(job.Text(err.Error()), maxSilence) }

// maxSilence is how many bytes of an error a process tells.
const maxSilence = 512

// silences returns the duties whose machine is silent.
func (d *duties) silences() (all map[string]store.Silence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, a := range d.active {
		if a.silent.Since.IsZero() {
			continue
		}
		if all == nil {
			all = map[string]store.Silence{}
		}
		all[name] = a.silent
	}
	return all
}

// wanted returns the duties that this process wants now. changed is closed when it wants others.
func (d *duties) wanted() (all []Duty, changed <-chan struct{}) {
	cfg := &d.s.e.cfg
	if cfg.VaryingDuties == nil {
		return cfg.Duties, nil
	}
	varying, changed := cfg.VaryingDuties()
	return slices.Concat(cfg.Duties, varying), changed
}

func (d *duties) names() []string {
	all, _ := d.wanted()
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.Name
	}
	return names
}

// hold starts the duties that the session has got and stops the duties that it has lost.
func (d *duties) hold(ctx context.Context, held []store.Duty) {
	d.mu.Lock()
	defer d.mu.Unlock()
	terms := map[string]int64{}
	for _, h := range held {
		terms[h.Name] = h.Term
	}
	for name, a := range d.active {
		if terms[name] != a.term {
			a.cancel()
			delete(d.active, name)
		}
	}
	all, _ := d.wanted()
	for _, x := range all {
		term, got := terms[x.Name]
		if _, runs := d.active[x.Name]; !got || runs {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		d.active[x.Name] = activeDuty{term: term, cancel: cancel}
		d.wg.Add(1)
		go func() {
			defer d.wg.Done()
			h := &Held{fence: job.Fence{Duty: x.Name, Term: term}, s: d.s}
			_, err := Try(ctx, d.s.e.cfg.Log, x.Name, func() (struct{}, error) { return struct{}{}, x.Run(ctx, h) })
			if ctx.Err() == nil && err != nil && !d.s.lapse() { // of a lease that is over the loop that renews tells
				select {
				case d.failed <- err:
				default:
				}
			}
		}()
	}
}

// watch returns the first error of a duty.
func (d *duties) watch(ctx context.Context) error {
	select {
	case err := <-d.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends all duties and waits for them.
func (d *duties) stop() {
	d.mu.Lock()
	for name, a := range d.active {
		a.cancel()
		delete(d.active, name)
	}
	d.mu.Unlock()
	d.wg.Wait()
}
