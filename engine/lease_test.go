package engine_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// frozen registers the kind freeze, whose handler ignores its context the first time it is called.
// Its result is how often it was called.
func (w *world) frozen() *frozen {
	f := &frozen{thaw: make(chan none)}
	service.Handle(w.svc, "freeze", func(ctx context.Context, _ *service.Task[int]) (int64, error) {
		n := f.runs.Add(1)
		if n == 1 {
			context.AfterFunc(ctx, func() { f.causes.add(context.Cause(ctx)) })
			<-f.thaw
		}
		return n, nil
	})
	return f
}

type frozen struct {
	runs   atomic.Int64
	causes causes
	thaw   chan none
}

// TestLeaseLost: the store cannot be reached for longer than a lease.
func TestLeaseLost(t *testing.T) {
	const outage = 40 * time.Second // of a lease of 15
	down := func(calls ...string) func() fault {
		return func() fault {
			until := time.Now().Add(outage)
			return func(_ context.Context, call string, _ any) error {
				if time.Now().Before(until) && (calls == nil || slices.Contains(calls, call)) {
					return errDown
				}
				return nil
			}
		}
	}
	for _, row := range []struct {
		name  string
		fault func() fault
	}{
		{"nothing is answered", down()},
		{"no renewal is answered", down("renew")},
		{"nothing can be committed", down("apply")},
		{"calls hang", func() fault {
			until := time.Now().Add(outage)
			return func(ctx context.Context, _ string, _ any) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(until)):
					return nil
				}
			}
		}},
		{"claims hang, and nothing else is answered", func() fault {
			refuse := down()()
			until := time.Now().Add(outage)
			return func(ctx context.Context, call string, arg any) error {
				if call != "claim" {
					return refuse(ctx, call, arg)
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(until)):
					return nil
				}
			}
		}},
	} {
		t.Run("all jobs end after an outage in which "+row.name, func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 5}}}, func(w *world) {
				c, letGo := w.hold()
				var y tally
				service.Handle(w.svc, "task", func(_ context.Context, task *service.Task[int]) (none, error) {
					defer y.enter(task.Job.ID)()
					time.Sleep(time.Second)
					return none{}, nil
				})
				w.start()
				held := w.submit("hold", 3)
				w.at(held[2], job.Running, job.Worker)
				w.store.fail(row.fault(), nil)
				tasks := w.submit("task", 20)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				c.are(t, 3, service.ErrLeaseLost)
				time.Sleep(outage)
				close(letGo)
				w.finish(job.Finished, held...)
				w.finish(job.Finished, tasks...)
				for _, id := range held {
					if j := w.job(id); j.Attempt != 1 {
						t.Errorf("attempt %d", j.Attempt)
					}
				}
			})
		})
	}

	t.Run("a step that ignores it writes nothing and holds up nobody", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 1}}}, func(w *world) {
			f := w.frozen()
			w.start()
			id := w.submit("freeze", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.store.fail(down()(), nil)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			f.causes.are(t, 1, service.ErrLeaseLost)
			w.finish(job.Finished, id)
			path := w.path(id)
			close(f.thaw)
			synctest.Wait()
			if diff := cmp.Diff(path, w.path(id)); diff != "" {
				t.Errorf("it wrote: %s", diff)
			}
			if j := w.job(id); string(j.Result) != "2" {
				t.Errorf("result %s, want that of the second run", j.Result)
			}
		})
	})

	t.Run("a short outage costs nothing", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 3)
			w.at(ids[2], job.Running, job.Worker)
			until := time.Now().Add(9 * time.Second)
			w.store.fail(func(context.Context, string, any) error {
				if time.Now().Before(until) {
					return errDown
				}
				return nil
			}, nil)
			time.Sleep(time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, ids...)
			if j := w.job(ids[0]); j.Recoveries != 0 {
				t.Errorf("%d recoveries", j.Recoveries)
			}
		})
	})

	t.Run("an outage that ends a second before the lease costs nothing", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			until := time.Now().Add(12500 * time.Millisecond)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if time.Now().Before(until) {
					return errDown
				}
				return nil
			}, nil)
			time.Sleep(time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, id)
		})
	})

	t.Run("a renewal that hangs does not take the lease with it", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			n := 0
			w.store.fail(func(ctx context.Context, call string, _ any) error {
				if call != "renew" {
					return nil
				}
				if n++; n%2 == 0 { // every other one is answered
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}, nil)
			time.Sleep(5 * time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, id)
		})
	})

	t.Run("steps are told to stop a tenth of the lease before its end, from when the renewal was sent", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Lease: 30 * time.Second}}, func(w *world) {
			c, letGo := w.hold()
			var sent time.Time
			w.store.fail(func(_ context.Context, call string, _ any) error {
				switch {
				case call != "renew":
				case time.Since(sent) > time.Minute: // the first, which is answered late
					sent = time.Now()
					time.Sleep(4 * time.Second)
				default:
					return errDown
				}
				return nil
			}, nil)
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			time.Sleep(time.Until(sent.Add(27*time.Second - 1)))
			synctest.Wait()
			c.are(t, 0, nil)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			c.are(t, 1, service.ErrLeaseLost)
			w.store.fail(nil, nil)
			close(letGo)
			w.finish(job.Finished, id)
		})
	})

	t.Run("an expiry that cannot be carried out keeps no renewal waiting", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "expire" {
					return errDown
				}
				return nil
			}, nil)
			w.start()
			id := w.submit("hold", 1)[0]
			time.Sleep(2 * time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, id)
		})
	})

	t.Run("the jobs of a dead process are taken up when its lease ends", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			ids := w.submit("hold", 3)
			w.take(w.dead(time.Minute), "hold")
			began := time.Now()
			w.start()
			w.finish(job.Finished, ids...)
			if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Millisecond {
				t.Errorf("it took %v, want a minute and a little", took)
			}
		})
	})
}
