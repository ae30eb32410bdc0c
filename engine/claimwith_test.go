package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestClaimsAlong: who is next under a limit is claimed with the change that gives its turn back,
// and nobody is claimed twice or forgotten.
func TestClaimsAlong(t *testing.T) {
	const jobs, most = 20, 2
	under := func(t *testing.T, slots int, test func(w *world, y *tally, submit func() []job.ID)) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: slots}}}, func(w *world) {
			var y tally
			service.Handle(w.svc, "task", func(_ context.Context, task *service.Task[int]) (none, error) {
				defer y.enter(task.Job.ID)()
				return none{}, nil
			})
			if err := w.svc.SetLimit(context.Background(), job.Limit{Key: "gpu", Most: most}); err != nil {
				t.Fatal(err)
			}
			test(w, &y, func() []job.ID {
				return w.submit("task", jobs, func(r *service.Request) { r.Spec.Limits = []string{"gpu"} })
			})
			if y.max > most {
				t.Errorf("%d ran at once", y.max)
			}
		})
	}
	for name, test := range map[string]struct {
		slots         int
		before, after fault
		along         int // jobs that come along at least
		claims        int // on their own at most; 0: any number
	}{
		"with free slots":            {slots: 5, along: jobs - most, claims: 4},
		"with one slot":              {slots: 1, along: jobs - 1},
		"with answers that are lost": {slots: 5, after: lossy(3, "apply and claim"), along: jobs - most},
		"with calls that are lost":   {slots: 5, before: lossy(3, "apply and claim"), along: jobs - most},
	} {
		t.Run(name, func(t *testing.T) {
			under(t, test.slots, func(w *world, y *tally, submit func() []job.ID) {
				ids := submit()
				w.store.fail(test.before, test.after)
				w.start()
				w.finish(job.Finished, ids...)
				y.each(t, 1, ids...)
				for _, id := range ids {
					if j := w.job(id); j.Recoveries != 0 || j.Attempt != 1 {
						t.Errorf("%d recoveries, attempt %d", j.Recoveries, j.Attempt)
					}
				}
				calls := w.store.count()
				if n := calls["claimed along"]; n < test.along {
					t.Errorf("%d jobs came along, want %d", n, test.along)
				}
				if n := calls["claim"]; test.claims > 0 && n > test.claims {
					t.Errorf("%d claims on their own, which find nobody: want %d", n, test.claims)
				}
			})
		})
	}
	t.Run("by a process that stops", func(t *testing.T) {
		under(t, 5, func(w *world, y *tally, submit func() []job.ID) {
			ids := submit()
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "apply and claim" {
					w.quit(errors.New("it stops"))
					synctest.Wait() // the loop that claims has ended
				}
				return nil
			})
			w.start()
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			w.noSession()
			for _, id := range ids {
				if j := w.job(id); j.Custody == job.Worker {
					t.Errorf("job %s is held by nobody who works", id)
				}
			}
			w.start()
			w.finish(job.Finished, ids...)
			y.each(t, 1, ids...)
		})
	})
	t.Run("by one of two processes nobody comes along", func(t *testing.T) {
		under(t, 5, func(w *world, _ *tally, submit func() []job.ID) {
			s := w.dead(patience)
			w.start()
			synctest.Wait()
			w.finish(job.Finished, submit()...)
			if n := w.store.count()["apply and claim"]; n > 0 {
				t.Errorf("it claimed along %d times, and took the share of the other", n)
			}
			if _, err := w.store.Store.End(context.Background(), s.ID); err != nil {
				t.Error(err)
			}
		})
	})
}
