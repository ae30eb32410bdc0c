package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// hold registers the kind hold: its handler waits for its context and keeps the cause, unless it is
// let go.
func (w *world) hold() (*causes, chan none) {
	c, letGo := &causes{}, make(chan none)
	service.Handle(w.svc, "hold", func(ctx context.Context, task *service.Task[int]) (string, error) {
		select {
		case <-ctx.Done():
			c.add(context.Cause(ctx))
			return "", ctx.Err()
		case <-letGo:
			return "done", nil
		}
	})
	return c, letGo
}

// causes collects why contexts ended.
type causes struct {
	mu  sync.Mutex
	all []error
}

func (c *causes) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

// are checks that n contexts ended, each for this reason.
func (c *causes) are(t testing.TB, n int, want error) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) != n {
		t.Errorf("%d contexts ended, want %d", len(c.all), n)
	}
	for _, err := range c.all {
		if !errors.Is(err, want) {
			t.Errorf("a context ended with %v, want %v", err, want)
		}
	}
}

// TestWishes: in every custody in which a task can be.
func TestWishes(t *testing.T) {
	slots := map[job.Lane]int{job.LaneTask: 1}
	type place struct {
		name string
		put  func(w *world) job.ID // brings a job there
		at   job.Place
		ran  int // handlers that a wish stops
	}
	places := []place{
		{"a schedule", func(w *world) job.ID {
			return w.submit("hold", 1, delay(time.Minute))[0]
		}, job.Place{State: job.Waiting, Custody: job.Gate}, 0},
		{"a prerequisite", func(w *world) job.ID {
			first := w.submit("hold", 1, delay(time.Minute))[0]
			return w.submit("hold", 1, after(first))[0]
		}, job.Place{State: job.Waiting, Custody: job.Gate}, 0},
		{"a backoff", func(w *world) job.ID {
			id := w.submit("fail", 1, retry(2, time.Minute))[0]
			return id
		}, job.Place{State: job.Waiting, Custody: job.Gate}, 0},
		{"its queue", func(w *world) job.ID {
			w.submit("sit", 1)
			synctest.Wait()
			return w.submit("hold", 1)[0]
		}, job.Place{State: job.Pending, Custody: job.Ready}, 0},
		{"a worker", func(w *world) job.ID {
			return w.submit("hold", 1)[0]
		}, job.Place{State: job.Running, Custody: job.Worker}, 1},
	}
	setup := func(w *world, p place) (job.ID, *causes, chan none) {
		c, letGo := w.hold()
		service.Handle(w.svc, "sit", func(context.Context, *service.Task[int]) (none, error) {
			<-letGo
			return none{}, nil
		})
		service.Handle(w.svc, "fail", func(_ context.Context, task *service.Task[int]) (none, error) {
			if task.Job.Attempt == 1 {
				return none{}, errors.New("at first")
			}
			return none{}, nil
		})
		w.start()
		id := p.put(w)
		w.at(id, p.at.State, p.at.Custody)
		return id, c, letGo
	}
	for _, p := range places {
		t.Run("cancel reaches a job that waits for "+p.name, func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: slots}}, func(w *world) {
				id, c, letGo := setup(w, p)
				began := time.Now()
				w.wish(w.svc.Cancel, id)
				if j := w.at(id, job.Canceled, job.None); j.Code != job.CanceledByUser {
					t.Errorf("code %s, want %s", j.Code, job.CanceledByUser)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %v", took)
				}
				c.are(t, p.ran, service.ErrCanceled)
				close(letGo)
			})
		})

		t.Run("pause and resume reach a job that waits for "+p.name, func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: slots}}, func(w *world) {
				id, c, letGo := setup(w, p)
				w.wish(w.svc.Pause, id)
				w.at(id, job.Paused, job.User)
				c.are(t, p.ran, service.ErrPaused)
				before := w.job(id)
				w.wish(w.svc.Resume, id)
				synctest.Wait()
				if j := w.job(id); j.State == job.Paused || j.Attempt != before.Attempt {
					t.Errorf("job stands at %s", j.Place)
				}
				close(letGo)
				w.finish(job.Finished, id)
				if j := w.job(id); j.Recoveries != 0 {
					t.Errorf("%d recoveries", j.Recoveries)
				}
			})
		})

		t.Run("a paused job that had waited for "+p.name+" can be canceled", func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: slots}}, func(w *world) {
				id, _, letGo := setup(w, p)
				w.wish(w.svc.Pause, id)
				w.at(id, job.Paused, job.User)
				w.wish(w.svc.Cancel, id)
				w.at(id, job.Canceled, job.None)
				close(letGo)
			})
		})
	}

	t.Run("a cancel wins over a later end", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			service.Handle(w.svc, "deaf", func(ctx context.Context, _ *service.Task[int]) (string, error) {
				<-ctx.Done()
				return "done all the same", nil
			})
			w.start()
			id := w.submit("deaf", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.wish(w.svc.Cancel, id)
			w.at(id, job.Canceled, job.None)
		})
	})

	t.Run("a cancel wins over an end that is on its way", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			reached, hold := make(chan none), make(chan none)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "apply" {
					close(reached)
					<-hold
				}
				return nil
			}, nil)
			w.start()
			id := w.submit("hold", 1)[0]
			close(letGo)
			<-reached
			w.wish(w.svc.Cancel, id)
			close(hold)
			w.finish(job.Canceled, id)
		})
	})

	t.Run("an end that was there first stands", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			id := w.submit("hold", 1)[0]
			w.finish(job.Finished, id)
			answers, err := w.svc.Cancel(context.Background(), id)
			if err != nil || job.KindOf(answers[0].Err) != job.Conflict {
				t.Errorf("%v, %v: want a conflict", answers, err)
			}
			w.at(id, job.Finished, job.None)
		})
	})

	t.Run("a wish that comes before the answer to the claim is heard", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			c, letGo := w.hold()
			claimed, answer := make(chan none), make(chan none)
			var once sync.Once
			w.store.fail(nil, func(_ context.Context, call string, arg any) error {
				if call == "claim" && w.running() > 0 {
					once.Do(func() { close(claimed); <-answer })
				}
				return nil
			})
			w.start()
			id := w.submit("hold", 1)[0]
			<-claimed
			began := time.Now()
			w.wish(w.svc.Cancel, id)
			synctest.Wait() // the renewal that tells of it has been heard
			close(answer)
			w.at(id, job.Canceled, job.None)
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
			c.are(t, 0, nil)
			close(letGo)
		})
	})

	t.Run("a storm of wishes costs few renewals", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 100}}}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 100)
			synctest.Wait()
			w.store.count()
			hold := make(chan none)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "renew" {
					<-hold
				}
				return nil
			}, nil)
			for _, id := range ids {
				w.wish(w.svc.Cancel, id)
			}
			close(hold)
			w.finish(job.Canceled, ids...)
			c.are(t, 100, service.ErrCanceled)
			if n := w.store.count()["renew"]; n > 3 {
				t.Errorf("%d renewals", n)
			}
			close(letGo)
		})
	})
}

// running returns how many jobs are in the hands of a handler.
func (w *world) running() int {
	c, err := w.svc.Count(context.Background(), nil)
	if err != nil {
		w.Error(err)
	}
	return c.States[job.Running]
}
