package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/internal/virtual"
)

// A slowLook is a look at the machine that goes on until the test lets it end.
type slowLook struct {
	looks
	begun int
	end   chan error
}

func newSlowLook() *slowLook {
	l := &slowLook{end: make(chan error)}
	l.scan = func() (look, error) {
		l.begun++
		n := l.begun
		return look{n: nil}, <-l.end
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
		found, err := l.begin(ctx)
		a := answer{err: err}
		for n := range found {
			a.number = n
		}
		answers <- a
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
		l.end <- nil
		if a := <-first; a != (answer{number: 1}) {
			t.Errorf("the first: %+v", a)
		}
		if a := <-second; a != (answer{number: 2}) {
			t.Errorf("the second: %+v", a)
		}
	})
}

// Many who signal at once share looks, and each reaches all that is left of its own process and nothing else.
func TestManySignalsAtOnce(t *testing.T) {
	h := open(t, Config{})
	dir := t.TempDir()
	const n = 30
	ps := make([]host.Process, n)
	for i := range ps {
		out := fmt.Sprintf("%s/%d", dir, i)
		// timeout makes a group of its own; every other leader is gone.
		script := "timeout 1000 sleep 1000 & echo >" + out + ".up; wait"
		if i%2 == 0 {
			script = "timeout 1000 sleep 1000 & echo >" + out + ".up"
		}
		var err error
		ps[i], err = h.Start(t.Context(), host.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Stdout: out, Stderr: out})
		if err != nil {
			t.Fatal(err)
		}
	}
	lives := func() []host.Life {
		l, err := h.Inspect(t.Context(), ps)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	hosttest.Until(t, "half of the leaders are gone", func() bool {
		for i, l := range lives() {
			if i%2 == 0 && l != host.Orphaned {
				return false
			}
		}
		return true
	})
	spared := ps[n-2:]
	hosttest.Until(t, "all but two are gone", func() bool {
		var all sync.WaitGroup
		for _, p := range ps[:n-2] {
			all.Go(func() {
				if err := h.Signal(t.Context(), p, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, l := range lives()[:n-2] {
			if l != host.Gone {
				return false
			}
		}
		return true
	})
	if l := lives()[n-2:]; l[0] != host.Orphaned || l[1] != host.Alive {
		t.Errorf("those that nobody signaled are %v", l)
	}
	hosttest.Until(t, "the last two are gone", func() bool {
		for _, p := range spared {
			if err := h.Signal(t.Context(), p, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		l := lives()[n-2:]
		return l[0] == host.Gone && l[1] == host.Gone
	})
}
