package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func after(id job.ID) func(*service.Request) {
	return func(r *service.Request) { r.After = []store.After{{Job: id, Need: job.NeedFinished}} }
}

// TestStop: the context of Run ends.
func TestStop(t *testing.T) {
	t.Run("steps may end in their own time", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: time.Minute}}, func(w *world) {
			service.Handle(w.svc, "nap", func(context.Context, *service.Task[int]) (none, error) {
				time.Sleep(30 * time.Second)
				return none{}, nil
			})
			w.start()
			id := w.submit("nap", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.stop()
			w.at(id, job.Finished, job.None)
		})
	})

	t.Run("what its last jobs owe is paid", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: time.Minute}}, func(w *world) {
			_, letGo := w.hold()
			w.start()
			first := w.submit("hold", 1)[0]
			waits := w.submit("hold", 1, after(first))[0]
			w.at(first, job.Running, job.Worker)
			w.store.fail(func(ctx context.Context, call string, _ any) error {
				if call != "pay" {
					return nil
				}
				select { // the job's slot is free long before
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(time.Second):
					return nil
				}
			}, nil)
			time.AfterFunc(time.Second, func() { close(letGo) })
			w.stop()
			w.at(first, job.Finished, job.None)
			w.at(waits, job.Pending, job.Ready)
		})
	})

	t.Run("what is not done by then goes back without a mark, and the next Run finishes it", func(t *testing.T) {
		bubble(t, service.Config{
			Options: engine.Options{Grace: time.Minute, Slots: map[job.Lane]int{job.LaneTask: 5}},
		}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 7)
			synctest.Wait()
			began := time.Now()
			w.stop()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("the grace was %v, want a minute", took)
			}
			c.are(t, 5, service.ErrInterrupted)
			for _, id := range ids {
				if j := w.at(id, job.Pending, job.Ready); j.Attempt != 1 || j.Recoveries != 0 || j.Suspect != 0 {
					t.Errorf("attempt %d, %d recoveries, suspect %d", j.Attempt, j.Recoveries, j.Suspect)
				}
			}
			close(letGo)
			w.start()
			w.finish(job.Finished, ids...)
		})
	})

	t.Run("there may be no grace", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: -1}}, func(w *world) {
			c, _ := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			began := time.Now()
			w.stop()
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
			c.are(t, 1, service.ErrInterrupted)
			w.at(id, job.Pending, job.Ready)
		})
	})

	t.Run("the lease may be lost meanwhile", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: time.Minute}}, func(w *world) {
			c, _ := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "renew" {
					return errDown
				}
				return nil
			}, nil)
			w.stop()
			c.are(t, 1, service.ErrLeaseLost)
			if j := w.at(id, job.Pending, job.Ready); j.Suspect != 0 {
				t.Errorf("it is suspected %d times", j.Suspect)
			}
		})
	})

	t.Run("a step that does not stop is left behind and writes nothing", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			f := w.frozen()
			w.start()
			id := w.submit("freeze", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.stop()
			w.at(id, job.Pending, job.Ready)
			w.start()
			w.finish(job.Finished, id)
			path := w.path(id)
			close(f.thaw)
			synctest.Wait()
			if diff := cmp.Diff(path, w.path(id)); diff != "" {
				t.Errorf("the one left behind wrote: %s", diff)
			}
			if j := w.job(id); string(j.Result) != "2" {
				t.Errorf("result %s, want that of the second run", j.Result)
			}
		})
	})

	t.Run("before anything was done", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			began := make(chan none)
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "begin" {
					close(began)
					return errDown // it has begun, and nobody knows
				}
				return nil
			})
			w.start()
			<-began
			w.stop()
		})
	})

	t.Run("a claim under way is waited for", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			claimed, answer := make(chan none), make(chan none)
			var once sync.Once
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "claim" {
					once.Do(func() { close(claimed); <-answer })
				}
				return nil
			})
			id := w.submit("hold", 1)[0]
			w.start()
			<-claimed
			w.quit(nil)
			synctest.Wait()
			close(answer)
			w.stop()
			w.at(id, job.Finished, job.None)
		})
	})
}
