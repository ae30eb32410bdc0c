package sim

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// dice returns the randomness for one thing that happens: it depends on the seed and on what it is
// for, and not on what happened before. So a world stays the same but for what a change of the code
// has changed.
func (w *world) dice(what string, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()^uint64(n)*0x9e3779b97f4a7c15))
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// A way is what becomes of one call to the world outside of a process.
type way struct {
	there, back time.Duration // for how long the request and the answer travel
	// if set, the caller hears of a lost connection after so long, whatever becomes of the request
	answer  time.Duration
	dropped bool          // the request never arrives
	pause   time.Duration // until the caller notices that it is to wait no longer
}

// everyCall has the trace tell of each call: that shows where two runs of a seed part, if they do.
var everyCall = os.Getenv("PAWL_SIM_CALLS") != ""

// errLost is what a process hears of a call of which it hears nothing else.
var errLost = job.Errorf(job.Unavailable, "the connection was lost")

// errDead is what a dead process hears. It does nothing with it any more that anybody could see.
var errDead = job.Errorf(job.Closed, "this process is dead")

// way decides what becomes of the next call of a process. Each takes a time of its own, so that two
// things hardly ever happen at the same moment: what comes first is a matter of the seed then, and
// not of the scheduler.
func (p *process) way(what string) way {
	p.w.shuffle()
	p.mu.Lock()
	p.calls[what]++
	n := p.calls[what]
	if everyCall {
		defer p.w.note(p.name, "calls %s for the %dth time", what, n)
	}
	cut, deaf, mute := p.cut, p.deaf, p.mute && what == "store.apply"
	p.mu.Unlock()
	r := p.w.dice(p.name+"/"+what, n)
	y := way{
		there: between(r, time.Microsecond, 400*time.Microsecond),
		back:  between(r, time.Microsecond, 400*time.Microsecond),
	}
	if strings.HasPrefix(what, "host.") || strings.HasPrefix(what, "runner.") {
		y.back /= 20
		y.there /= 20
	}
	if p.w.calm && strings.HasPrefix(what, "store.") { // what happens meanwhile must count all the same
		y.there, y.back = y.there*50, y.back*50
	}
	y.pause = between(r, 1, 100*time.Microsecond)
	soon := between(r, time.Millisecond, 3*time.Second)
	atStore := strings.HasPrefix(what, "store.")
	if atStore && (cut || mute || p.w.is(&p.w.away)) {
		return way{dropped: true, answer: soon, pause: y.pause}
	}
	if atStore && deaf {
		return way{there: y.there, answer: soon, pause: y.pause}
	}
	if p.w.calm || p.w.is(&p.w.healed) || !oneIn(r, p.w.wild) {
		return y
	}
	p.w.fault()
	switch r.IntN(7) {
	case 0:
		y.dropped, y.answer = true, soon
	case 1: // the answer is lost
		y.answer = soon
	case 2: // the request arrives when nobody counts on it any more
		y.answer, y.there = soon, between(r, time.Second, 40*time.Second)
	case 3:
		y.there = soon
	case 4:
		y.back = soon
	case 5:
		y.there, y.back = between(r, 0, 10*time.Second), between(r, 0, 10*time.Second)
	case 6:
		y.dropped, y.answer = true, between(r, 0, 20*time.Second)
	}
	return y
}

// An answer is one that is on its way back.
type answer[T any] struct {
	v   T
	err error
}

// through makes a call of a process to something outside of it. What the request does when it
// arrives is act; it does so also when the process has died meanwhile, or does not wait any more.
func through[T any](ctx context.Context, p *process, what string, act func(context.Context) (T, error)) (none T,
	_ error,
) {
	if !p.awake() {
		return none, errDead
	}
	y := p.way(what)
	if err := ctx.Err(); err != nil {
		return none, err
	}
	back := make(chan answer[T], 1)
	arrive := func() {
		v, err := act(context.WithoutCancel(ctx))
		time.Sleep(y.back)
		back <- answer[T]{v, err}
	}
	if !y.dropped {
		go func() {
			time.Sleep(y.there)
			arrive()
		}()
	}
	var lost <-chan time.Time
	if y.answer > 0 {
		t := time.NewTimer(y.answer)
		defer t.Stop()
		lost = t.C
	}
	a := answer[T]{}
	select {
	case a = <-back:
		if y.answer > 0 {
			a = answer[T]{err: errLost}
		}
	case <-lost:
		a.err = errLost
		p.w.note(p.name, "%s: no answer", what)
	case <-ctx.Done():
		time.Sleep(y.pause)
		a.err = ctx.Err()
	case <-p.death:
	}
	if !p.awake() {
		return none, errDead
	}
	p.w.shuffle()
	return a.v, a.err
}

// atHost is the way of calls of a process to its machine: what it asks for is done before it goes
// on.
func (p *process) atHost(ctx context.Context, name string, call func() error) error {
	if !p.awake() {
		return errDead
	}
	y := p.way("host." + name)
	pause := func(d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			time.Sleep(y.pause)
		}
		if !p.awake() {
			return errDead
		}
		return ctx.Err()
	}
	if err := pause(y.there); err != nil {
		return err
	}
	err := errLost
	if !y.dropped {
		err = call()
	}
	if late := pause(y.back + y.answer); late != nil {
		return late
	}
	if y.answer > 0 {
		p.w.note(p.name, "host.%s: no answer", name)
		return errLost
	}
	return err
}

// atRunner is the way of calls of a process to its runner, which makes several to the machine.
func (p *process) atRunner(ctx context.Context, name string, call func() error) error {
	_, err := through(ctx, p, "runner."+name, func(context.Context) (struct{}, error) { return struct{}{}, call() })
	return err
}

// storm lets things happen to the world until its time is over.
func (w *world) storm() {
	for n := 1; ; n++ {
		r := w.dice("storm", n)
		gap := between(r, 0, 2*w.lull)
		if time.Since(w.began)+gap > w.length {
			return
		}
		time.Sleep(gap)
		s := w.slots[r.IntN(len(w.slots))]
		p := s.process()
		if p == nil {
			continue
		}
		w.fault()
		switch r.IntN(12) {
		case 0, 1, 2:
			p.die("it is killed")
		case 3:
			p.goWell()
		case 4, 5:
			p.freeze(between(r, time.Second, 4*w.lease))
		case 6:
			d := between(r, time.Second, 3*w.lease)
			w.note("storm", "%s is cut off from the store for %v", p.name, d)
			p.hinder(&p.cut, d)
		case 7:
			d := between(r, time.Second, 2*w.lease)
			w.note("storm", "%s hears no answer of the store for %v", p.name, d)
			p.hinder(&p.deaf, d)
		case 8:
			d := between(r, w.lease, 20*w.lease)
			w.note("storm", "%s cannot commit for %v", p.name, d)
			p.hinder(&p.mute, d)
		case 9:
			d := between(r, time.Second, 3*w.lease)
			w.note("storm", "the store is away for %v", d)
			w.put(&w.away, true)
			time.AfterFunc(d, func() { w.put(&w.away, false) })
		case 10:
			s.machine.reboot()
		case 11:
			s.machine.mischief(r)
		}
	}
}
