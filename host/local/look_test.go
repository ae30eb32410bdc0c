package local

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
)

// A slowLook is a look at the machine that goes on until the test lets it end.
type slowLook struct {
	looks
	begun int
	over  atomic.Int64
	end   chan error
}

func newSlowLook() *slowLook {
	l := &slowLook{end: make(chan error)}
	l.scan = func() error {
		l.begun++
		err := <-l.end
		l.over.Add(1)
		return err
	}
	return l
}

// An answer is what a call was told: the number of the look, and the error.
type answer struct {
	number int
	err    error
}

// call asks for a look beside the test.
func (l *slowLook) call(ctx context.Context, answers chan<- answer) {
	go func() {
		err := l.begin(ctx)
		answers <- answer{int(l.over.Load()), err}
	}()
}

func TestLooksAreShared(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l, first, rest := newSlowLook(), make(chan answer, 1), make(chan answer, 10)
		l.call(t.Context(), first)
		synctest.Wait()
		for range cap(rest) { // their look may not be the one that has begun
			l.call(t.Context(), rest)
		}
		synctest.Wait()
		if l.begun != 1 {
			t.Errorf("%d looks go on at once", l.begun)
		}
		l.end <- nil
		synctest.Wait()
		if a := <-first; a != (answer{number: 1}) {
			t.Errorf("the first call: %+v", a)
		}
		if len(rest) > 0 {
			t.Errorf("a call was answered by a look that had begun before: %+v", <-rest)
		}
		broken := errors.New("broken")
		l.end <- broken
		for range cap(rest) {
			if a := <-rest; a != (answer{2, broken}) {
				t.Errorf("a later call: %+v", a)
			}
		}
		if l.begun != 2 {
			t.Errorf("%d looks for calls that could share one", l.begun-1)
		}
		if l.last != nil || l.next != nil {
			t.Error("a look is kept")
		}
	})
}

func TestWhoStopsWaitingForALookEndsItForNobody(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l, first, second, third := newSlowLook(), make(chan answer, 1), make(chan answer, 1), make(chan answer, 1)
		ctx, cancel := context.WithCancel(t.Context())
		l.call(t.Context(), first)
		synctest.Wait()
		l.call(t.Context(), second)
		synctest.Wait()
		l.call(ctx, third)
		synctest.Wait()
		cancel()
		if a := <-third; !errors.Is(a.err, context.Canceled) {
			t.Errorf("the call whose context has ended: %+v", a)
		}
		l.end <- nil
		synctest.Wait()
		l.end <- nil
		if a := <-first; a != (answer{number: 1}) {
			t.Errorf("the first: %+v", a)
		}
		if a := <-second; a != (answer{number: 2}) {
			t.Errorf("the second: %+v", a)
		}
	})
}
