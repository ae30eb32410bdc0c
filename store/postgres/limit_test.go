package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestLimitTrips counts how often calls wait for the database where jobs are, or may be, under
// limits, and sees that a process knows of a limit that another one has just set or removed.
func TestLimitTrips(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, other := open(t, dsn, postgres.Options{}), open(t, dsn, postgres.Options{})
	trips := func(what string, want int64, f func()) {
		t.Helper()
		before := s.RoundTrips()
		f()
		if n := s.RoundTrips() - before; n != want {
			t.Errorf("%s: %d round trips, want %d", what, n, want)
		}
	}
	made := func(keys ...string) {
		t.Helper()
		n := newTask()
		n.Optional = []string{"kind/send", "user/ann"}
		id := submit(t, s, n)[0]
		if j, err := store.FindJob(t.Context(), other, acme, id); err != nil || !slices.Equal(j.Limits, keys) {
			t.Errorf("the job is under %q, want %q, %v", j.Limits, keys, err)
		}
	}
	trips("no limit is set", 1, func() { made() })
	if _, err := store.SetLimit(t.Context(), other, acme, job.Limit{Key: "user/*", Most: 5}); err != nil {
		t.Fatal(err)
	}
	trips("a limit was set", 3, func() { made("user/ann") })
	trips("it is known", 1, func() { made("user/ann") })
	if _, _, err := s.Pay(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	session := begin(t, s, time.Minute)
	jobs := claim(t, s, session, 10)
	if len(jobs) != 3 {
		t.Fatalf("claimed %d jobs", len(jobs))
	}
	trips("tasks finish", 1, func() {
		as, _, eff, err := s.Apply(t.Context(), finishes(jobs, session), nil)
		if err != nil || !eff.Owed || slices.ContainsFunc(as, func(a store.Applied) bool { return a.Outcome != store.OK }) {
			t.Errorf("%+v, owed: %t, %v", as, eff.Owed, err)
		}
	})
	if all, err := s.Turns(t.Context(), store.TurnQuery{Tenant: acme}); err != nil || len(all) != 0 {
		t.Errorf("turns %+v, %v", all, err)
	}
	if _, err := store.RemoveLimit(t.Context(), other, acme, "user/*"); err != nil {
		t.Fatal(err)
	}
	trips("the limit was removed", 3, func() { made() })
	noDeadlock(t, connect(t, dsn))
}
