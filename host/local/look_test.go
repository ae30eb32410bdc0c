package local

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

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
		return look{{stat: stat{pid: n}}}, <-l.end
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
		for _, s := range found {
			a.number = s.pid
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

// What is known of a process is read once, and anew when the process is another one, or went to another session.
func TestMarksAreReadOnce(t *testing.T) {
	h := open(t, Config{})
	h.marked = map[int]bearer{}
	own, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own.session = 0 // what a process has whose session began outside its container
	told := marks{read: true, whole: true, locks: 42}
	for what, test := range map[string]struct {
		known bearer
		want  uint64
	}{
		"as it was":       {bearer{own.start, own.session, own.name, told}, 42},
		"another process": {bearer{own.start - 1, own.session, own.name, told}, 0},
		"another program": {bearer{own.start, own.session, own.name + "x", told}, 0},
		"another session": {bearer{own.start, own.session + 1, own.name, told}, 0},
	} {
		if m := h.marksOf(own, map[int]bearer{own.pid: test.known}); m.locks == 42 != (test.want == 42) {
			t.Errorf("%s: %+v", what, m)
		}
	}
}

func TestLockLimit(t *testing.T) {
	head := "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]uint64{
		"": 0, head: 0, "Max file locks": 0,
		head + "Max file locks            unlimited            unlimited            locks     \n":      0,
		head + "Max file locks            5                    77777777777          locks     \nMax x": 77777777777,
	} {
		if got := lockLimit([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
