package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// suspects submits n tasks of a kind that were held in so many crashes.
func (w *world) suspects(kind string, n, crashes int) []job.ID {
	w.Helper()
	ids := w.submit(kind, n)
	for range crashes {
		w.take(w.dead(time.Second), kind)
		time.Sleep(2 * time.Second)
		if _, _, err := w.store.Store.Expire(context.Background(), 1000); err != nil {
			w.Fatal(err)
		}
	}
	for _, id := range ids {
		if j := w.job(id); j.Suspect != crashes {
			w.Fatalf("job %s is suspected %d times, want %d", id, j.Suspect, crashes)
		}
	}
	return ids
}

func TestSuspects(t *testing.T) {
	t.Run("run one at a time, beside the others", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 10}}}, func(w *world) {
			var alone, all tally
			handle := func(kind string, tallies ...*tally) {
				service.Handle(w.svc, kind, func(_ context.Context, task *service.Task[int]) (none, error) {
					for _, y := range tallies {
						defer y.enter(task.Job.ID)()
					}
					time.Sleep(time.Minute)
					return none{}, nil
				})
			}
			handle("suspect", &alone, &all)
			handle("plain", &all)
			suspects := w.suspects("suspect", 5, job.AloneAt)
			plain := w.submit("plain", 30)
			began := time.Now()
			w.start()
			w.finish(job.Finished, slices.Concat(suspects, plain)...)
			alone.each(t, 1, suspects...)
			if alone.max != 1 || all.max != 11 {
				t.Errorf("%d suspects ran at once, and %d jobs; want 1 and 11", alone.max, all.max)
			}
			if took := time.Since(began); took != 5*time.Minute {
				t.Errorf("it took %v, want a minute for each suspect", took)
			}
		})
	})

	for _, end := range []struct {
		name string
		err  error
		want job.State
	}{
		{"an error", errors.New("not yet"), job.Waiting},
		{"an error for good", service.Permanent(errors.New("never")), job.Failed},
		{"a result", nil, job.Finished},
	} {
		t.Run(end.name+" clears it", func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				service.Handle(w.svc, "once", func(context.Context, *service.Task[int]) (none, error) { return none{}, end.err })
				var ids []job.ID
				for i := range 2 {
					ids = append(ids, w.suspects("once", 1, job.AloneAt+i)...)
					w.wish(w.svc.Pause, ids[i])
				}
				w.wish(w.svc.Resume, ids...)
				w.start()
				synctest.Wait()
				for _, id := range ids {
					if j := w.job(id); j.State != end.want || j.Suspect != 0 || j.Lane != job.LaneTask {
						t.Errorf("%s, suspect %d, lane %s; want %s", j.State, j.Suspect, j.Lane, end.want)
					}
				}
			})
		})
	}

	t.Run("are neither cleared nor accused when the process stops", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: -1}}, func(w *world) {
			_, letGo := w.hold()
			id := w.suspects("hold", 1, job.PoisonAt-1)[0]
			for range 3 {
				w.start()
				w.at(id, job.Running, job.Worker)
				w.stop()
				if j := w.at(id, job.Pending, job.Ready); j.Suspect != job.PoisonAt-1 || j.Lane != job.LaneAlone {
					t.Errorf("suspect %d, lane %s", j.Suspect, j.Lane)
				}
			}
			close(letGo)
		})
	})

	t.Run("are neither cleared nor accused when they are paused", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			id := w.suspects("hold", 1, job.PoisonAt-1)[0]
			w.start()
			w.at(id, job.Running, job.Worker)
			w.wish(w.svc.Pause, id)
			if j := w.at(id, job.Paused, job.User); j.Suspect != job.PoisonAt-1 {
				t.Errorf("suspect %d", j.Suspect)
			}
			close(letGo)
			w.wish(w.svc.Resume, id)
			w.finish(job.Finished, id)
		})
	})
}

// TestComeBack: a process is cut off for longer than its lease while others go on.
func TestComeBack(t *testing.T) {
	cut := func(w *world) {
		w.store.fail(func(context.Context, string, any) error { return errDown }, nil)
	}
	t.Run("what others have taken meanwhile is suspected of nothing", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 8}}}, func(w *world) {
			c, letGo := w.hold()
			held := w.suspects("hold", 1, job.AloneAt)
			w.start()
			synctest.Wait()
			held = append(held, w.submit("hold", 8)...)
			w.at(held[8], job.Running, job.Worker)
			other := w.beside()
			other.cfg.Slots = map[job.Lane]int{job.LaneTask: 3}
			other.svc = service.New(other.cfg)
			othersHeld, _ := other.hold()
			other.start()
			time.Sleep(time.Minute)
			cut(w)
			time.Sleep(time.Minute)
			c.are(t, 9, service.ErrLeaseLost)
			n := 0
			for _, id := range held {
				switch j := other.job(id); {
				case j.Suspect == 0:
					t.Errorf("job %s was taken, and is no suspect", id)
				case j.Custody == job.Worker:
					n++
				}
			}
			if n != 4 {
				t.Errorf("the other process has %d jobs, want 3 and a suspect", n)
			}
			w.store.fail(nil, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for _, id := range held {
				if j := w.job(id); j.Suspect != 0 || j.Lane != job.LaneTask || j.Custody != job.Worker {
					t.Errorf("job %s: %s, suspect %d, lane %s; want it cleared, and at work", id, j.Place, j.Suspect, j.Lane)
				}
			}
			othersHeld.are(t, 0, nil)
			other.quiet()
			close(letGo)
			w.finish(job.Finished, held...)
		})
	})

	t.Run("what nobody has taken goes back as if nothing had been", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 3)
			epoch := w.at(ids[2], job.Running, job.Worker).Epoch
			began := time.Now()
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "renew" || call == "expire" {
					return errDown
				}
				return nil
			}, nil)
			for c.n() < 3 {
				time.Sleep(time.Millisecond)
			}
			// Until the lease is over the steps may be at work, whatever they were told.
			time.Sleep(time.Until(began.Add(15*time.Second - 1)))
			for _, id := range ids {
				if j := w.at(id, job.Running, job.Worker); j.Epoch != epoch {
					t.Errorf("another run began %v before the lease of the first was over", time.Until(began.Add(15*time.Second)))
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			w.store.fail(nil, nil)
			for _, id := range ids {
				if j := w.job(id); j.Recoveries != 0 || j.Suspect != 0 || len(w.path(id)) < 3 {
					t.Errorf("%d recoveries, suspect %d, path %v", j.Recoveries, j.Suspect, w.path(id))
				}
			}
			close(letGo)
			w.finish(job.Finished, ids...)
		})
	})

	t.Run("what was handed on when it was cut off is told of, too", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			done := make(chan none)
			service.Handle(w.svc, "nap", func(context.Context, *service.Task[int]) (none, error) {
				<-done
				return none{}, nil
			})
			w.start()
			id := w.submit("nap", 1)[0]
			w.at(id, job.Running, job.Worker)
			var told []store.Lost
			cut(w)
			epoch := w.job(id).Epoch
			close(done)
			time.Sleep(time.Minute)
			w.store.fail(func(_ context.Context, call string, arg any) error {
				if call == "clear" {
					told = arg.([]store.Lost)
				}
				return nil
			}, nil)
			w.finish(job.Finished, id)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if want := (store.Lost{Job: id, Epoch: epoch}); len(told) != 1 || told[0] != want {
				t.Errorf("told of %v, want %v", told, want)
			}
		})
	})

	t.Run("what was taken by others than expiry is not told of", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			letGo := [2]chan none{make(chan none), make(chan none)}
			service.Handle(w.svc, "hold", func(_ context.Context, task *service.Task[int]) (none, error) {
				<-letGo[task.Args]
				return none{}, nil
			})
			w.start()
			ids := w.submit("hold", 2)
			epoch := w.at(ids[1], job.Running, job.Worker).Epoch
			if _, err := w.svc.Abandon(context.Background(), ids[0]); err != nil {
				t.Fatal(err)
			}
			w.at(ids[0], job.Canceled, job.None)
			close(letGo[0]) // its end is refused
			time.Sleep(10 * time.Second)
			var told []store.Lost
			cut(w)
			time.Sleep(time.Minute)
			w.store.fail(func(_ context.Context, call string, arg any) error {
				if call == "clear" {
					told = arg.([]store.Lost)
				}
				return nil
			}, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if want := (store.Lost{Job: ids[1], Epoch: epoch}); len(told) != 1 || told[0] != want {
				t.Errorf("told of %v, want %v", told, want)
			}
			close(letGo[1])
			w.finish(job.Finished, ids[1])
		})
	})

	t.Run("a process that stops before it has come back tries once more", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: -1}}, func(w *world) {
			_, letGo := w.hold()
			defer close(letGo)
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			cut(w)
			time.Sleep(14 * time.Second) // lost, and not over
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "expire" {
					return errDown
				}
				return nil
			}, nil)
			w.quiet()
			w.noSession()
			if j := w.at(id, job.Pending, job.Ready); j.Recoveries != 0 || j.Suspect != 0 {
				t.Errorf("%d recoveries, suspect %d", j.Recoveries, j.Suspect)
			}
		})
	})

	t.Run("a process that cannot does not hang", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: -1}}, func(w *world) {
			_, letGo := w.hold()
			defer close(letGo)
			w.start()
			w.submit("hold", 1)
			synctest.Wait()
			cut(w)
			time.Sleep(time.Minute)
			began := time.Now()
			w.quit(nil)
			if err := w.end(); err != nil && job.KindOf(err) != job.Unavailable {
				t.Errorf("Run: %v", err)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %v to stop", took)
			}
			w.store.fail(nil, nil)
			if _, _, err := w.store.Store.Expire(context.Background(), 1000); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// n is how many contexts have ended.
func (c *causes) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}
