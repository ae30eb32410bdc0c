package fault

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

// fake is what a fake does with its faults: it counts the calls that happened.
type fake struct {
	*Faults
	done atomic.Int64
}

func newFake() *fake { return &fake{Faults: New("Add", "Other")} }

func (f *fake) add(ctx context.Context) (int, error) {
	return Do(ctx, f.Faults, "Add", func() (int, error) { return int(f.done.Add(1)), nil })
}

func (f *fake) check(t *testing.T, wantDone int64, wantKind job.ErrorKind) {
	t.Helper()
	n, err := f.add(t.Context())
	if kind := job.KindOf(err); f.done.Load() != wantDone || (err != nil) != (wantKind != "") || err != nil && (kind != wantKind || n != 0) {
		t.Errorf("%d, %v; done %d, want %d and kind %q", n, err, f.done.Load(), wantDone, wantKind)
	}
}

func TestNothingSet(t *testing.T) { newFake().check(t, 1, "") }

func TestThrough(t *testing.T) {
	f := newFake()
	f.Through(func(_ context.Context, name string, call func() error) error {
		if name != "Add" {
			t.Errorf("asked about %s", name)
		}
		return errors.Join(call(), job.Errorf(job.Unavailable, "the answer is lost"))
	})
	f.check(t, 1, job.Unavailable)
	f.Fail("Add", job.Errorf(job.Conflict, "before the way"))
	f.check(t, 1, job.Conflict)
	f.Through(nil)
	f.check(t, 2, "")
}

func TestFail(t *testing.T) {
	f, own := newFake(), errors.New("own")
	f.Fail("Add", own)
	f.Fail("Other", own)
	f.Fail("Add", nil)
	if n, err := f.add(t.Context()); n != 0 || !errors.Is(err, own) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := f.add(t.Context()); n != 0 || err != nil || f.done.Load() != 0 {
		t.Errorf("the lie: %d, %v; done %d", n, err, f.done.Load())
	}
	f.check(t, 1, "")
}

func TestLose(t *testing.T) {
	f := newFake()
	f.Lose("Add")
	f.check(t, 1, job.Unavailable)
	f.check(t, 2, "")
}

func TestHold(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		f := newFake()
		_, release := f.Hold("Add")
		waiting, again := f.Hold("Add")
		defer release()
		var wg sync.WaitGroup
		wg.Go(func() { f.check(t, 1, "") })
		<-waiting
		synctest.Wait()
		select {
		case <-waiting:
			t.Error("one call waits twice")
		default:
		}
		if f.done.Load() != 0 {
			t.Error("a call that is held was done")
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := f.add(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("held until its context ended: %v", err)
			}
		})
		<-waiting
		cancel()
		release() // of those that came before the second Hold: none
		synctest.Wait()
		if f.done.Load() != 0 {
			t.Error("it was released by another's release")
		}
		again()
		again()
		wg.Wait()
		f.check(t, 2, "")
	})
}

func TestDie(t *testing.T) {
	f := newFake()
	life := f.Death()
	f.DieAfter(2)
	f.check(t, 1, "")
	select {
	case <-life:
		t.Error("it died too early")
	default:
	}
	f.check(t, 2, "")
	<-life
	<-f.Death()
	f.Fail("Add", errors.New("it waits for its turn"))
	f.check(t, 2, job.Unavailable)
	f.DieAfter(5) // dead is dead
	f.check(t, 2, job.Unavailable)
	f.Revive()
	f.check(t, 2, job.Internal)
	f.check(t, 3, "")

	f.DieAfter(1)
	f.Revive() // called off
	f.check(t, 4, "")
	f.check(t, 5, "")
	f.DieAfter(0)
	f.check(t, 5, job.Unavailable)
}

func TestUnknownNames(t *testing.T) {
	f := newFake()
	for name, call := range map[string]func(){
		"Fail": func() { f.Fail("add", nil) },
		"Lose": func() { f.Lose("add") },
		"Hold": func() { f.Hold("add") },
		"Run":  func() { _ = Run(t.Context(), f.Faults, "add", func() error { return nil }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s took a name that is not there", name)
				}
			}()
			call()
		}()
	}
}

func TestConcurrently(t *testing.T) {
	f := newFake()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 100 {
				f.Lose("Add")
				f.Fail("Add", errors.New("own"))
				_, release := f.Hold("Other")
				for range 3 {
					if _, err := f.add(t.Context()); err != nil {
						failed.Add(1)
					}
				}
				release()
			}
		})
	}
	wg.Wait()
	if done := f.done.Load(); done != 8*100*2 || failed.Load() != 8*100*2 {
		t.Errorf("%d done, %d failed", done, failed.Load())
	}
}
