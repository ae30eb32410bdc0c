package postgres_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestSubmissionWaitsForTheGate: many jobs have their turns at once although somebody hands others on when they come. One who is frozen
// meanwhile keeps them waiting in line, and not from being accepted.
func TestSubmissionWaitsForTheGate(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s := open(t, dsn, postgres.Options{})
	if _, err := s.SetLimit(t.Context(), acme, job.Limit{Key: "gpu", Most: 1000}); err != nil {
		t.Fatal(err)
	}
	look, holder := connect(t, dsn), connect(t, dsn)
	hold := func() {
		must(t, holder, "BEGIN")
		must(t, holder, `SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))`, acme)
	}
	jobs := func() store.Submission {
		sub := store.Submission{Tenant: acme, By: "ann", Jobs: newTasks(50)}
		for i := range sub.Jobs {
			sub.Jobs[i].Job.Limits = []string{"gpu"}
		}
		return sub
	}
	stand := func(answers []store.Submitted, want job.Place) {
		t.Helper()
		for _, a := range answers {
			if a.Place != want {
				t.Fatalf("job %s is at %s, want %s", a.ID, a.Place, want)
			}
		}
	}

	hold()
	done := make(chan []store.Submitted)
	go func() {
		defer close(done)
		answers, _, err := s.Submit(t.Context(), jobs())
		if err != nil {
			t.Error(err)
		}
		done <- answers
	}()
	untilWaiting(t, look, 1)
	must(t, holder, "COMMIT")
	stand(<-done, job.Place{State: job.Pending, Custody: job.Ready})

	hold()
	answers, eff, err := s.Submit(t.Context(), jobs())
	if err != nil || !eff.Owed {
		t.Fatalf("%v, turns owed: %t", err, eff.Owed)
	}
	stand(answers, job.Place{State: job.Waiting, Custody: job.Gate})
	must(t, holder, "COMMIT")
	for eff.Owed {
		if _, eff, err = s.Pay(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, look, "SELECT count(*) FROM pawl.jobs WHERE custody = 'ready'"); n != 100 {
		t.Errorf("%d jobs are ready, want all 100", n)
	}
}
