package pawl_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func TestStarted(t *testing.T) {
	bubble(t, func(t *testing.T, svc *pawl.Service, run func()) {
		begun, end := make(chan time.Time), make(chan error)
		pawl.Handle(svc, "work", func(ctx context.Context, _ *pawl.Task[int]) (int, error) {
			begun <- time.Now()
			return 0, <-end
		})
		submitted := time.Now()
		r := task("work", 0)
		r.Spec.Delay = job.Duration(time.Minute)
		r.Spec.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(time.Hour)}}
		id := submit(t, svc, r)[0].ID
		view := func() pawl.View {
			t.Helper()
			v, err := svc.View(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		near := func(what string, got, want time.Time) {
			t.Helper()
			if d := got.Sub(want); d < -time.Second || d > time.Second {
				t.Errorf("%s is %s, want %s", what, got, want)
			}
		}
		if v := view(); !v.Started.IsZero() || v.Ran != nil {
			t.Errorf("it has not run: %s, %s", v.Started, v.Ran)
		}
		run()
		first := <-begun
		near("the first start", first, submitted.Add(time.Minute))
		time.Sleep(10 * time.Second) // of the bubble
		v := view()
		near("started", v.Started, first)
		if got := time.Duration(*v.Ran).Round(time.Second); got != 10*time.Second {
			t.Errorf("it has run for %s", got)
		}
		page, err := svc.Views(t.Context(), store.Query{})
		if err != nil || len(page.Jobs) != 1 {
			t.Fatal(page, err)
		}
		near("started in a list", page.Jobs[0].Started, first)
		end <- errors.New("once more")
		second := <-begun
		time.Sleep(5 * time.Second)
		end <- nil
		if _, err := svc.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		v = view()
		near("started again", v.Started, second)
		if got := time.Duration(*v.Ran).Round(time.Second); got != 5*time.Second {
			t.Errorf("it ran for %s", got)
		}
	})
}
