package claims

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func itoa(n int) string { return strconv.Itoa(n) }

// waiting are the claims that wait for jobs. An announcement wakes one of them. If that claim gets
// all that it asked for there may be more, and it wakes the next one. So a job that becomes ready
// costs one claim, however many wait.
type waiting struct {
	listen func([]job.QueueKind)

	mu    sync.Mutex
	first []*waiter              // guarded by mu: those that came first are first
	heard map[job.QueueKind]bool // guarded by mu: the queues and kinds that it listens to
}

// maxListened is how many queues and kinds it listens to, also after the last claim from them.
const maxListened = 1000

// A waiter is a claim.
type waiter struct {
	in    *waiting
	where []job.QueueKind // whose jobs it may claim
	woken chan struct{}   // buffers one
}

// join adds a claim. Announcements count from then on.
func (in *waiting) join(where []job.QueueKind) *waiter {
	w := &waiter{in: in, where: where, woken: make(chan struct{}, 1)}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.first = append(in.first, w)
	fresh := false
	for _, at := range where {
		fresh = fresh || !in.heard[at]
	}
	if !fresh {
		return w
	}
	if in.heard == nil || len(in.heard)+len(where) > maxListened {
		in.heard = map[job.QueueKind]bool{}
	}
	for _, x := range in.first {
		for _, at := range x.where {
			in.heard[at] = true
		}
	}
	all := make([]job.QueueKind, 0, len(in.heard))
	for at := range in.heard {
		all = append(all, at)
	}
	in.listen(all)
	return w
}

// leave removes a claim. If it was woken and did not look, another one does.
func (w *waiter) leave() {
	w.in.mu.Lock()
	w.in.first = slices.DeleteFunc(w.in.first, func(x *waiter) bool { return x == w })
	w.in.mu.Unlock()
	select {
	case <-w.woken:
		w.in.announce(w.where)
	default:
	}
}

// announce wakes, for each queue and kind, the first claim that has not been woken yet.
func (in *waiting) announce(where []job.QueueKind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, at := range where {
		for _, w := range in.first {
			if slices.Contains(w.where, at) && w.wake() {
				break
			}
		}
	}
}

// wake wakes a claim. It reports whether it had not been woken before.
func (w *waiter) wake() bool {
	select {
	case w.woken <- struct{}{}:
		return true
	default:
		return false
	}
}

// took is told that a claim was made. If it got all that it asked for, others may get more.
func (w *waiter) took(all bool) {
	if !all {
		return
	}
	w.in.mu.Lock()
	w.in.first = slices.DeleteFunc(w.in.first, func(x *waiter) bool { return x == w })
	w.in.mu.Unlock()
	w.in.announce(w.where)
}

// Why a wait is over.
type reason int

const (
	nothing   reason = iota // the time is over
	announced               // jobs became ready
	looking                 // it is time to look once more
)

// wait waits until the claim is woken, until wait ends, or until it is time to look again.
func (w *waiter) wait(ctx, wait context.Context, look time.Duration) (reason, error) {
	var again <-chan time.Time
	if look > 0 {
		t := time.NewTimer(look)
		defer t.Stop()
		again = t.C
	}
	select {
	case <-w.woken:
		return announced, nil
	case <-again:
		return looking, nil
	case <-wait.Done():
	case <-ctx.Done():
		return nothing, context.Cause(ctx)
	}
	return nothing, nil
}

// again is after what time a claim that was woken and got nothing looks once more; 0: it does not.
func again(looks int) time.Duration {
	if looks < 1 || looks > 3 {
		return 0
	}
	return 5 * time.Millisecond << (2 * (looks - 1))
}
