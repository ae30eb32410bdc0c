package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// stormStrikes is how often a storm strikes.
const stormStrikes = 20

// storms goes on with new rounds until there were enough strikes.
func (h *harness) storms(ctx context.Context, seed uint64, jobs, strikes int) {
	for strikes > 0 && ctx.Err() == nil {
		strikes = h.storm(ctx, seed, jobs, strikes)
		seed++
	}
}

// storm strikes the processes at random moments, and then lets them come to their end. It returns
// how many strikes are left to do, which all came too late.
func (h *harness) storm(ctx context.Context, seed uint64, jobs, strikes int) (left int) {
	r := h.begin(ctx, "storm", seed, jobs)
	rnd := rand.New(rand.NewPCG(seed, 1))
	lease := time.Duration(0)
	if !h.many() && seed%3 == 1 {
		lease = 2 * time.Second // renewals and their deadlines come into play
	}
	for left = strikes; left > 0 && !r.over(ctx); left-- {
		for i, p := range r.procs {
			if p == nil {
				r.start(ctx, i, "", lease)
			}
		}
		r.moment(rnd, float64(strikes-left)/float64(strikes+1), 1/float64(strikes+1))
		if r.strike(rnd, left) && left > 0 {
			h.printf("round %s: all jobs had ended %d strikes too early", r.name, left)
			break
		}
	}
	r.frozen.Wait()
	r.finish(ctx)
	if r.over(ctx) {
		return 0
	}
	return left
}

// moment waits for a random moment: that at which a share of the jobs has begun, or up to spread
// more of them. So moments are spread over the work, and none comes too late. One in four comes
// while a process is still opening the database.
func (r *round) moment(rnd *rand.Rand, share, spread float64) {
	p, late := r.procs[0], time.Duration(rnd.IntN(80))*time.Millisecond
	if rnd.IntN(4) > 0 {
		enough := int((share + rnd.Float64()*spread) * float64(r.jobs))
		p.Until(func() bool { return r.tally.count() >= enough }, 2*time.Second)
	}
	p.Until(nil, late)
}

// strike does something to one process, or to all of them. It reports whether all jobs had ended
// before.
func (r *round) strike(rnd *rand.Rand, left int) (tooLate bool) {
	struck := []int{rnd.IntN(len(r.procs))}
	way := r.kill
	if r.h.many() {
		switch left % 7 {
		case 0:
			struck = rnd.Perm(len(r.procs))
		case 3:
			way = r.drain
		case 5:
			way = r.freeze
		}
	}
	for _, i := range struck {
		way(r.procs[i])
	}
	for i, p := range r.procs {
		if p.Gone() && r.wait(i).ended {
			tooLate = true
		}
	}
	return tooLate
}

func (r *round) kill(p *proc) {
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}

// drain tells a process to stop, once it has begun, and waits until it has.
func (r *round) drain(p *proc) {
	if p.Until(func() bool { return p.Says("running") }, r.h.limit) {
		p.Told.Store(true)
		p.Signal(syscall.SIGTERM)
		p.Until(nil, r.h.limit)
	}
}

// freeze stops a process until its lease is over and others have its jobs, unless it is killed
// before. Then it goes on. The storm does so meanwhile.
func (r *round) freeze(p *proc) {
	p.Signal(syscall.SIGSTOP)
	r.freezes++
	r.frozen.Go(func() {
		p.Until(nil, r.h.lease*3/2)
		p.Signal(syscall.SIGCONT)
	})
}
