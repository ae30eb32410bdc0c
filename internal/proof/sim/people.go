package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// People submit jobs and wish for things, by way of any process, or of one that only asks. What
// fails they try again elsewhere. They remember what they were told.
type people struct {
	w    *world
	jobs int // to be submitted

	mu        sync.Mutex
	clients   int                  // guarded by mu: so far
	orders    map[job.ID]order     // guarded by mu
	promised  []promise            // guarded by mu: what was accepted, in order
	accepted  map[job.ID]time.Time // guarded by mu: when that was
	asked     map[job.ID]bool      // guarded by mu: jobs that somebody tried to cancel
	abandoned map[job.ID]bool      // guarded by mu: jobs that somebody gave up, with whatever runs of them
	canceled  map[job.ID]bool      // guarded by mu: jobs whose cancel was accepted before they had ended
	heard     map[job.ID][]heard   // guarded by mu: what each listener heard
}

// A promise is a job that was accepted.
type promise struct {
	id     job.ID
	after  []store.After
	order  order
	unique bool
}

// heard is an event as a listener heard of it.
type heard struct {
	n, sub int64
}

func newPeople(w *world, jobs int) *people {
	return &people{
		w: w, jobs: jobs, orders: map[job.ID]order{}, accepted: map[job.ID]time.Time{},
		asked: map[job.ID]bool{}, abandoned: map[job.ID]bool{}, canceled: map[job.ID]bool{},
		heard: map[job.ID][]heard{},
	}
}

func (q *people) order(id job.ID) order {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.orders[id]
}

func (q *people) known() (ids []job.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.promised {
		ids = append(ids, p.id)
	}
	return ids
}

// ask does something by way of one process after the other, until it succeeds or there is no use in
// trying.
func (q *people) ask(r *rand.Rand, what string, f func(ctx context.Context, s *service.Service) error) error {
	for try := 0; ; try++ {
		p := q.w.slots[r.IntN(len(q.w.slots))].process()
		if p == nil || oneIn(r, 3) {
			q.mu.Lock()
			q.clients++
			n := q.clients
			q.mu.Unlock()
			p = q.w.newProcess(fmt.Sprint("client", n), q.w.machines[r.IntN(len(q.w.machines))])
			p.client = true
		}
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		err := f(ctx, p.svc)
		stop()
		if p.client {
			q.w.hub.leave(p.broker)
			p.stop()
		}
		switch kind := job.KindOf(err); {
		case err == nil:
			return nil
		case kind != job.Unavailable && kind != job.Closed && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, context.Canceled), try == 200:
			q.w.note("people", "%s: %v", what, err)
			return err
		}
		time.Sleep(between(r, 10*time.Millisecond, 3*time.Second))
	}
}

// act is the day of people.
func (q *people) act() {
	gap := q.w.length / time.Duration(q.jobs)
	for n := range q.jobs {
		r := q.w.dice("people", n)
		time.Sleep(between(r, 0, 2*gap))
		if oneIn(r, 8) {
			r := q.w.dice("burst", n)
			q.submit(r, n, 1+r.IntN(12))
		} else {
			q.submit(r, n, 1)
		}
		for oneIn(r, 2) {
			q.wish(r)
		}
	}
}

// submit submits some jobs, at times twice.
func (q *people) submit(r *rand.Rand, n, count int) {
	made := make([]promise, count)
	reqs := make([]service.Request, count)
	for i := range reqs {
		made[i], reqs[i] = q.request(r, n*100+i)
	}
	key := ""
	if oneIn(r, 3) {
		key = fmt.Sprint("key", n)
	}
	var ids []job.ID
	call := func(reqs []service.Request) []job.ID {
		var got []store.Submitted
		err := q.ask(r, "submit", func(ctx context.Context, s *service.Service) (err error) {
			got, err = s.SubmitAll(ctx, service.Submission{Key: key, Jobs: reqs})
			return err
		})
		if err != nil {
			return nil
		}
		var ids []job.ID
		for _, g := range got {
			ids = append(ids, g.ID)
		}
		return ids
	}
	if ids = call(reqs); ids == nil {
		return
	}
	q.mu.Lock()
	for i, id := range ids {
		if made[i].id == id {
			q.promised = append(q.promised, made[i])
			q.accepted[id] = time.Now()
		} else if !made[i].unique {
			q.w.breaks(id, "job %s was submitted, and the answer is %s", made[i].id, id)
		}
	}
	q.mu.Unlock()
	if !oneIn(r, 4) || key == "" && slices.ContainsFunc(made, func(p promise) bool { return p.unique }) {
		return // a key that was free again may be taken anew
	}
	if key != "" { // under the key, the answer is the same, whatever ids it would have
		for i := range reqs {
			reqs[i].ID = q.newID(r)
		}
	}
	if again := call(reqs); again != nil && !slices.Equal(again, ids) {
		q.w.breaks(ids[0], "submitted once more (key %q), %v are %v", key, ids, again)
	}
}

func (q *people) newID(r *rand.Rand) job.ID {
	id := job.NewID()
	for i := 8; i < len(id); i++ {
		id[i] = byte(r.Uint32())
	}
	id[8] = id[8]&0x3f | 0x80
	return id
}

// request makes a request of a job of some kind.
func (q *people) request(r *rand.Rand, n int) (promise, service.Request) {
	o := order{
		Beats: 1 + r.IntN(6), Every: between(r, 10*time.Millisecond, 4*time.Second), Deaf: oneIn(r, 8),
		Panics: oneIn(r, 3),
	}
	if oneIn(r, 8) {
		o.Beats, o.Every = 6, 30*time.Second
	}
	if oneIn(r, 4) {
		o.Fails = 1 + r.IntN(3)
	}
	program := oneIn(r, 3)
	o.Kills = !q.w.calm && oneIn(r, 15)
	o.Bad = !program && !o.Kills && oneIn(r, 25)
	if !program {
		o.Needs = q.w.trouble.needs(n)
	}
	p := promise{id: q.newID(r), order: o}
	req := service.Request{ID: p.id, Spec: service.NewTask(taskKind, o)}
	if program {
		req.Spec = job.Spec{Command: []string{"program"}, Resources: &job.Resources{Minutes: 30}}
		if oneIn(r, 10) {
			req.Spec.Resources.Minutes = 0.5
		}
	}
	req.Spec.Retry = &job.RetryPolicy{
		MaxAttempts: 1 + r.IntN(4),
		Backoff:     job.Backoff{Base: job.Duration(between(r, time.Millisecond, 5*time.Second)), Jitter: oneIn(r, 2)},
	}
	priority := r.IntN(3)
	req.Spec.Priority = &priority
	if oneIn(r, 5) {
		req.Spec.Delay = job.Duration(between(r, time.Second, time.Minute))
	}
	if oneIn(r, 6) {
		req.Spec.ExternalID = fmt.Sprint("external", n)
	}
	if oneIn(r, 12) {
		p.unique = true
		req.Unique = []store.Unique{{
			Mode: []job.UniqueMode{job.UntilStart, job.UntilDone}[r.IntN(2)],
			Key:  fmt.Sprint("unique", r.IntN(2)),
		}}
	}
	q.w.trouble.patience(n, &req.Spec)
	q.w.turns.under(n, &req.Spec)
	q.w.turns.put(n, p.id, &req.Spec)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.promised) > 0 && oneIn(r, 3) {
		before := q.promised[max(0, len(q.promised)-1-r.IntN(5))]
		if !q.w.judge.gone(before.id) {
			p.after = append(p.after, store.After{
				Job:  before.id,
				Need: []job.Need{job.NeedFinished, job.NeedEnded}[r.IntN(2)],
			})
		}
	}
	req.After = p.after
	q.orders[p.id] = o
	if o.Bad {
		q.w.judge.refuse(p.id)
	}
	return p, req
}

// wish wishes for something of a job.
func (q *people) wish(r *rand.Rand) {
	time.Sleep(between(r, 0, 3*time.Second))
	ids := q.known()
	if len(ids) == 0 {
		return
	}
	id := ids[max(0, len(ids)-1-r.IntN(15))]
	switch r.IntN(7) {
	case 6:
		if oneIn(r, 2) {
			return
		}
		q.mu.Lock()
		q.asked[id], q.abandoned[id] = true, true
		q.mu.Unlock()
		_ = q.ask(r, "abandon", func(ctx context.Context, s *service.Service) error {
			_,
				err := s.Abandon(ctx, id)
			return err
		})
	case 0:
		q.mu.Lock()
		q.asked[id] = true
		q.mu.Unlock()
		_ = q.ask(r, "cancel", func(ctx context.Context, s *service.Service) error {
			a, err := s.Cancel(ctx, id)
			if err == nil && a[0].Err == nil {
				q.mu.Lock()
				q.canceled[id] = true
				q.mu.Unlock()
			}
			return err
		})
	case 1, 2:
		_ = q.ask(r, "pause", func(ctx context.Context, s *service.Service) error {
			_,
				err := s.Pause(ctx, id)
			return err
		})
	case 3:
		_ = q.ask(r, "resume", func(ctx context.Context, s *service.Service) error {
			_,
				err := s.Resume(ctx, id)
			return err
		})
	case 4:
		// Not one that was just submitted: a call that is repeated, or late, would make it once
		// more.
		q.mu.Lock()
		id = q.promised[r.IntN(len(q.promised))].id
		young := time.Since(q.accepted[id]) < 3*time.Minute
		q.mu.Unlock()
		if young {
			return
		}
		_ = q.ask(r, "delete", func(ctx context.Context, s *service.Service) error {
			errs, err := s.Delete(ctx, id)
			if err == nil {
				err = errs[0]
			}
			return err
		})
	case 5:
		_ = q.ask(r, "note", func(ctx context.Context, s *service.Service) error {
			_, err := s.AddEvent(ctx, id, job.CustomEvent{Name: "note", Message: "look at this"})
			return err
		})
	}
}

// settle lets all that is paused go on, until nothing is.
func (q *people) settle() {
	r := q.w.dice("settle", 0)
	if q.w.keeps {
		_ = q.ask(r, "retention", func(ctx context.Context, s *service.Service) error {
			_, _, err := s.Retentions().Apply(ctx,
				[]byte(`{"name":"default","keep":{"FINISHED":"1h","FAILED":"1h","CANCELED":"1h"}}`), 0)
			return err
		})
	}
	for range 3 {
		for _, id := range q.known() {
			_ = q.ask(r, "resume", func(ctx context.Context, s *service.Service) error {
				_,
					err := s.Resume(ctx, id)
				return err
			})
		}
		time.Sleep(40 * time.Second)
	}
}

// listen follows all events, at one process after the other, from where it was.
func (q *people) listen(ctx context.Context) {
	cursor := ""
	for n := 0; ctx.Err() == nil; n++ {
		r := q.w.dice("listen", n)
		p := q.w.slots[r.IntN(len(q.w.slots))].process()
		if p == nil {
			time.Sleep(between(r, time.Second, 2*time.Second))
			continue
		}
		some, stop := context.WithCancel(ctx)
		if !q.w.is(&q.w.over) && !q.w.is(&q.w.healed) { // it goes away by itself
			time.AfterFunc(between(r, time.Second, 3*time.Minute), stop)
		}
		left := context.AfterFunc(p.ctx, stop)
		for e, err := range p.svc.News(some, service.NewsQuery{Cursor: cursor}) {
			if err != nil {
				break
			}
			cursor = e.Cursor
			q.mu.Lock()
			q.heard[e.Job] = append(q.heard[e.Job], heard{e.N, e.Sub})
			q.mu.Unlock()
		}
		left()
		stop()
		if ctx.Err() == nil {
			time.Sleep(between(r, time.Millisecond, time.Second))
		}
	}
}
