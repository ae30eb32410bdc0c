package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

func TestAwait(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		s := fake.New(nil)
		begin := time.Now()
		var told []time.Duration
		await := func() time.Duration {
			t.Helper()
			err := store.Await(t.Context(), s, "acme", "dials/system/lab", func(at time.Time) {
				told = append(told, at.Sub(begin))
			})
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		limit := job.Limit{Key: "dials/system/lab", Most: 1, Per: job.Duration(time.Minute)}
		if got := await(); got != 0 {
			t.Errorf("without a rate it waits %s", got)
		}
		if _, err := store.SetLimit(t.Context(), s, "acme", limit); err != nil {
			t.Fatal(err)
		}
		every := time.Minute + job.Lateness
		for _, want := range []time.Duration{0, every, 2 * every} {
			if got := await(); got != want {
				t.Errorf("a moment at %s, want %s", got, want)
			}
		}
		if len(told) != 2 || told[0] != every || told[1] != 2*every {
			t.Errorf("told of moments at %v", told)
		}

		// A rate that is removed holds nobody up, and whoever gives up waits no longer.
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- store.Await(ctx, s, "acme", limit.Key, func(time.Time) {}) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		far := func(time.Time) {
			if _, err := store.RemoveLimit(t.Context(), s, "acme", limit.Key); err != nil {
				t.Error(err)
			}
		}
		before := time.Now()
		if err := store.Await(t.Context(), s, "acme", limit.Key, far); err != nil || time.Since(before) > job.MaxSlotWait {
			t.Errorf("it waits %s for a rate that is gone; %v", time.Since(before), err)
		}
	})
}
