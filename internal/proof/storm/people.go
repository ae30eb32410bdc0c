package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
)

// people do what they do while their jobs run.
func (s *storm) people(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 3 {
		all.Go(func() {
			rnd := s.random("person " + strconv.Itoa(i))
			for pause(ctx, between(rnd, 10*time.Millisecond, 150*time.Millisecond)) {
				p := s.book.pick(rnd)
				if p == nil {
					continue
				}
				servers := s.servers()
				c, err := servers[rnd.IntN(len(servers))].client(1 + rnd.IntN(2))
				if err != nil {
					continue // it has never served
				}
				s.act(ctx, rnd, c, p)
			}
		})
	}
}

// act does one thing with a job.
func (s *storm) act(ctx context.Context, rnd *rand.Rand, c *client.Client, p *promise) {
	switch n := rnd.IntN(10); {
	case n < 3:
		s.cancel(ctx, c, p, time.Duration(rnd.IntN(2))*10*time.Second)
	case n < 6:
		s.book.update(p, "pause", func(p *promise) { p.paused = true })
		c.Pause(ctx, p.id, 0) //nolint:errcheck // it may have ended
	case n < 8:
		for _, p := range s.book.where(func(p *promise) bool { return p.paused }) {
			if rnd.IntN(2) == 0 {
				s.resume(ctx, c, p)
			}
		}
	case n < 9:
		s.resubmit(ctx, c, p)
	default:
		s.remove(ctx, c, p)
	}
}

// cancel asks for the end of a job. When that is confirmed, nothing of its program may run any
// more.
func (s *storm) cancel(ctx context.Context, c *client.Client, p *promise, wait time.Duration) bool {
	s.book.update(p, "cancel", func(p *promise) { p.asked = true })
	v, obeyed, err := c.Cancel(ctx, p.id, wait)
	if err != nil {
		return false
	}
	if !v.State.Terminal() || v.State == job.Canceled {
		s.book.update(p, "canceled", func(p *promise) { p.granted = true })
	}
	if obeyed && p.program {
		s.confirmed(p.id, v.State)
	}
	return true
}

// confirmed: nothing runs of a program whose end was confirmed to whoever canceled it.
func (s *storm) confirmed(id job.ID, state job.State) {
	if left := programs(id); len(left) > 0 {
		s.breaks("cancel_unconfirmed: job %s is %s, and processes %v of it run", id, state, left)
		s.tell(id)
	}
}

func (s *storm) resume(ctx context.Context, c *client.Client, p *promise) bool {
	_, _, err := c.Resume(ctx, p.id, 0)
	if err == nil || answered(err) {
		s.book.update(p, "resumed", func(p *promise) { p.paused = false })
	}
	return err == nil || answered(err)
}

// resubmit submits the request of a job once more. Where the answer is lost, the new job is one
// that nobody knows.
func (s *storm) resubmit(ctx context.Context, c *client.Client, p *promise) {
	o := s.book.look(p).order
	o.since, o.begun = ledger.Now(), time.Now()
	s.book.update(p, "resubmit", func(p *promise) { p.again++ })
	v, err := c.Resubmit(ctx, p.id)
	if err == nil {
		o.again = 0
		s.met(o, &v)
	}
}

// remove deletes a job that has ended.
func (s *storm) remove(ctx context.Context, c *client.Client, p *promise) {
	s.book.update(p, "delete", func(p *promise) { p.deleting = true })
	switch err := c.Delete(ctx, p.id); {
	case err == nil:
		s.book.update(p, "deleted", func(p *promise) { p.deleted = true })
	case job.KindOf(err) == job.Conflict: // it has not ended
		s.book.update(p, "kept", func(p *promise) { p.deleting = p.deleted })
	}
}

// programs returns the processes of a job that are alive.
func programs(id job.ID) (pids []string) {
	mark := []byte("PAWL_JOB_ID=" + id.String())
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err == nil && bytes.Contains(env, mark) && alive(filepath.Dir(name)) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// alive reports whether a process is neither a zombie nor gone.
func alive(proc string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

// letGo resumes what is paused, and ends what does not end by itself or is known to nobody: whoever
// submitted it was not answered.
func (s *storm) letGo(ctx context.Context, rnd *rand.Rand, left []job.Job) {
	servers := s.servers()
	c, err := servers[rnd.IntN(len(servers))].client(1)
	if err != nil {
		return
	}
	known := map[job.ID]*promise{}
	for _, p := range s.book.where(func(*promise) bool { return true }) {
		known[p.id] = p
	}
	for _, j := range left {
		switch p := known[j.ID]; {
		case j.Wish == job.WishCancel:
		case p == nil:
			c.Cancel(ctx, j.ID, 0) //nolint:errcheck // it is tried again
		case p.endless:
			s.cancel(ctx, c, p, 0)
		case j.State == job.Paused, j.Wish == job.WishPause:
			c.Resume(ctx, j.ID, 0) //nolint:errcheck // it is tried again
		}
	}
}
