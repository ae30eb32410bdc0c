package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// TestLapse: once the lease is over the context of a step has ended for whoever asks, though no
// loop has noticed yet; and an answer that comes after that does not bring the session back.
func TestLapse(t *testing.T) {
	s := newSession(t.Context(), New(Config{}), &sync.WaitGroup{})
	s.extend(time.Now())
	run, cancel := context.WithCancelCause(s.ctx)
	ctx := context.Context(leased{run, s, cancel})
	if err := ctx.Err(); err != nil {
		t.Fatalf("before the lease is over: %v", err)
	}
	s.extend(time.Now().Add(-s.e.cfg.Lease))
	if err := ctx.Err(); err == nil || !errors.Is(context.Cause(ctx), ErrLeaseLost) {
		t.Errorf("%v, cause %v; want %v", err, context.Cause(ctx), ErrLeaseLost)
	}
	select {
	case <-ctx.Done():
	default:
		t.Error("who waits for the end does not hear of it")
	}
	if err := s.ctx.Err(); err != nil {
		t.Errorf("the loops, which have not noticed, fail for another reason: %v", err)
	}
	s.extend(time.Now())
	if left := s.remaining(); left > 0 {
		t.Errorf("the session goes on for %s after its steps were told that it is over", left)
	}
}
