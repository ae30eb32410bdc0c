package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// An ear follows all events, goes away, and comes back behind the last one that it heard, at
// another server perhaps. Once the storm has settled it stays where it is.
type ear struct {
	s      *storm
	name   string
	rnd    *rand.Rand
	cursor string
	jobs   map[job.ID][]job.Event // that it heard
	events int
	quiet  chan struct{} // closed when it follows no more
	leave  context.CancelFunc
}

// listener lets a stream last: what people ask with would end it after a while, and with it the
// idleness that a storm ends in.
var listener = &http.Client{Transport: people.Transport}

func newEar(s *storm, i int) *ear {
	name := fmt.Sprintf("ear %d", i)
	return &ear{s: s, name: name, rnd: s.random(name), jobs: map[job.ID][]job.Event{}, quiet: make(chan struct{})}
}

// follow listens until it is told to leave.
func (e *ear) follow(ctx context.Context) {
	defer close(e.quiet)
	ctx, e.leave = context.WithCancel(ctx)
	for ctx.Err() == nil {
		stay, stop := context.WithCancel(ctx)
		goes := time.AfterFunc(between(e.rnd, time.Second, 20*time.Second), func() {
			if !e.s.settled.Load() {
				stop()
			}
		})
		err := e.listen(stay, true)
		goes.Stop()
		stop()
		if answered(err) {
			e.s.breaks("events: %s after %q: %v", e.name, e.cursor, err)
			return
		}
		pause(ctx, between(e.rnd, 0, time.Second))
	}
}

// rest hears what there is.
func (e *ear) rest(ctx context.Context) error {
	e.leave()
	<-e.quiet
	return e.listen(ctx, false)
}

func (e *ear) listen(ctx context.Context, follow bool) error {
	servers := e.s.servers()
	by := people
	if follow {
		by = listener
	}
	c, err := servers[e.rnd.IntN(len(servers))].dial(by, 1+e.rnd.IntN(3))
	if err != nil {
		return err
	}
	for event, err := range c.Events(ctx, client.EventQuery{After: e.cursor, Follow: follow}) {
		if err != nil {
			return err
		}
		e.hear(event)
	}
	return nil
}

func (e *ear) hear(event store.Event) {
	e.events++
	e.cursor = event.Cursor
	before := job.Event{}
	if n := len(e.jobs[event.Job]); n > 0 {
		before = e.jobs[event.Job][n-1]
	}
	if next := event.N == before.N+1 && event.Sub == 0 || event.N == before.N && event.Sub == before.Sub+1; !next {
		e.s.breaks("events: %s heard event %d.%d of job %s after event %d.%d",
			e.name, event.N, event.Sub, event.Job, before.N, before.Sub)
		e.s.tell(event.Job)
	}
	e.jobs[event.Job] = append(e.jobs[event.Job], event.Event)
}
