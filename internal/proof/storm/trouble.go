package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// Trouble is what tasks need and is away at times, and the system of programs, which people
// disable.
type trouble struct {
	s      *storm
	things []*thing
	given  atomic.Bool // somebody has given up, or released, a group
}

// A thing is a server that tasks need.
type thing struct {
	*http.Server
	url  string
	away atomic.Bool
}

// Policies of storms: an hour is too long here for anything.
var policies = []job.RecoveryPolicy{
	{Name: string(job.TaskBlocked), Stages: []job.Stage{{Every: job.Duration(300 * time.Millisecond)}}},
	{Name: string(job.SystemDisabled), Stages: []job.Stage{{Every: job.Duration(500 * time.Millisecond)}}},
	{Name: string(job.FilesystemFull), Stages: []job.Stage{{Every: job.Duration(500 * time.Millisecond)}}},
}

// releases is how many blocked jobs of one group go at a time.
var releases = job.Limit{Key: job.RateReleases + "/*", Most: 20, Per: job.Duration(time.Second)}

// lapsing is for how long jobs wait that do not wait for ever.
const lapsing = 3 * time.Second

// open starts what tasks need.
func (t *trouble) open() error {
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		h := &thing{url: "http://" + l.Addr().String() + "/"}
		h.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if h.away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
		go h.Serve(l) //nolint:errcheck // it is closed in the end
		t.things = append(t.things, h)
	}
	return nil
}

func (t *trouble) close() {
	for _, h := range t.things {
		h.Close()
	}
}

// needs returns what job number i needs, a task, and for how long it waits for it; empty: nothing.
func (t *trouble) needs(i int, spec *job.Spec) string {
	rnd := t.s.random(fmt.Sprintf("needs of job %d", i))
	if rnd.IntN(6) == 0 {
		spec.Recovery = &job.Patience{MaxWait: job.Duration(lapsing)}
	}
	if rnd.IntN(3) > 0 {
		return ""
	}
	return t.things[rnd.IntN(len(t.things))].url
}

// begin says how long jobs wait, and how fast they go.
func (t *trouble) begin(ctx context.Context) error {
	rnd := t.s.random("policies")
	for _, p := range policies {
		doc, err := job.Encode(p)
		if err != nil {
			return err
		}
		err = t.s.insist(ctx, rnd, func(c *client.Client) error {
			_, _, err := c.Policies().Apply(ctx, p.Name, doc, service.AnyVersion)
			return err
		})
		if err != nil {
			return fmt.Errorf("policy %s: %w", p.Name, err)
		}
	}
	return t.s.insist(ctx, rnd, func(c *client.Client) error { _, err := c.SetLimit(ctx, releases); return err })
}

// come lets things go away and come back, and people deal with that, until ctx ends. They are away
// at first, so that jobs are blocked, of however little of the storm the only process lives
// through.
func (t *trouble) come(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for i, h := range t.things {
		all.Go(func() {
			rnd := t.s.random(fmt.Sprint("thing ", i))
			for again := true; again; again = pause(ctx, between(rnd, time.Second, 8*time.Second)) {
				h.away.Store(true)
				t.s.count("thing_away")
				pause(ctx, between(rnd, time.Second, 5*time.Second))
				h.away.Store(false)
			}
		})
	}
	all.Go(func() {
		rnd := t.s.random("disable")
		for pause(ctx, between(rnd, 2*time.Second, 10*time.Second)) {
			t.s.count("system_disabled")
			t.disable(ctx, rnd, true)
			pause(ctx, between(rnd, 100*time.Millisecond, 4*time.Second))
			t.disable(ctx, rnd, false)
		}
	})
	all.Go(func() {
		rnd := t.s.random("steer")
		for pause(ctx, between(rnd, 500*time.Millisecond, 4*time.Second)) {
			t.steer(ctx, rnd)
		}
	})
}

func (t *trouble) disable(ctx context.Context, rnd *rand.Rand, disabled bool) {
	err := t.s.insist(ctx, rnd, func(c *client.Client) error {
		_, err := c.Systems().Disable(ctx, job.SystemLocal, disabled, service.AnyVersion)
		return err
	})
	if err != nil && ctx.Err() == nil {
		t.s.breaks("disable: system %s to %t: %v", job.SystemLocal, disabled, err)
	}
}

// steer does something with a group of blocked jobs.
func (t *trouble) steer(ctx context.Context, rnd *rand.Rand) {
	servers := t.s.servers()
	c, err := servers[rnd.IntN(len(servers))].client(1)
	if err != nil {
		return
	}
	gs, err := c.Blocked(ctx)
	if err != nil || len(gs) == 0 {
		return
	}
	g := gs[rnd.IntN(len(gs))].Key
	switch n := rnd.IntN(10); {
	case n < 5:
		c.ActOnGroup(ctx, groups.TryNow, g) //nolint:errcheck // it may be gone
	case n < 9:
		c.ActOnGroup(ctx, groups.Release, g) //nolint:errcheck // it may be gone
	default:
		t.given.Store(true)
		c.ActOnGroup(ctx, groups.GiveUp, g) //nolint:errcheck // it may be gone
	}
}

// settle leaves no trouble, where there was some.
func (t *trouble) settle(ctx context.Context) error {
	if len(t.things) == 0 {
		return nil
	}
	for _, h := range t.things {
		h.away.Store(false)
	}
	return t.s.insist(ctx, t.s.random("enable"), func(c *client.Client) error {
		_, err := c.Systems().Disable(ctx, job.SystemLocal, false, service.AnyVersion)
		return err
	})
}

// ended reports whether a job may have ended for the trouble that it had.
func (t *trouble) ended(j *job.Job, p *promise) bool {
	switch j.Code {
	case job.RecoveryTimeout:
		return p.lapses
	case job.RecoveryGivenUp:
		return t.given.Load()
	}
	return false
}

// blocked: who was blocked went on, or failed, for a reason; who failed had waited for as long as
// it was to wait; and of a group no more went at a time than may.
func (c *checker) blocked(ctx context.Context) {
	if c.restored() {
		return
	}
	var goes []time.Time // tasks: those of a system go faster and faster
	for _, j := range c.rows {
		var since store.Event
		for _, e := range c.history(ctx, j.ID) {
			if e.Sub > 0 {
				continue
			}
			if since.Custody == job.Recovery {
				c.sum.Blocked++
				c.unblocked(j, since, e)
				if since.Code == job.TaskBlocked && e.Cause == job.CauseClear && e.State != job.Failed {
					goes = append(goes, e.At)
				}
			}
			since = e
		}
	}
	if c.wrongTimes() {
		return
	}
	slices.SortFunc(goes, time.Time.Compare)
	// What was missed by a little is made up for, and a group may be found clear twice.
	most := len(c.trouble.things) * (releases.Most + 5)
	for i := most; i < len(goes); i++ {
		if d := goes[i].Sub(goes[i-most]); d < time.Duration(releases.Per) {
			c.breaks("releases: of %d groups %d jobs went within %s until %s", len(c.trouble.things), most+1, d, goes[i])
			return
		}
	}
}

// unblocked judges how a job ceased to be blocked.
func (c *checker) unblocked(j *job.Job, since, e store.Event) {
	switch {
	case e.Cause != job.CauseClear && e.Cause != job.CauseWish && e.Cause != job.CausePaid:
		c.broken(j.ID, "unblocked: job %s was blocked by %s and went on to %s by %s", j.ID, since.Code, e.State, e.Cause)
	case e.Code == job.RecoveryTimeout && !c.wrongTimes() && e.At.Sub(since.At) < lapsing:
		c.broken(j.ID, "lapsed: job %s failed after %s in which it was blocked by %s, and was to wait for %s",
			j.ID, e.At.Sub(since.At), since.Code, lapsing)
	case e.State == job.Failed && e.Code != job.RecoveryTimeout && e.Code != job.RecoveryGivenUp:
		c.broken(j.ID, "unblocked: job %s failed while it was blocked by %s: %s %s", j.ID, since.Code, e.Code, e.Message)
	}
}
