package postgres_test

import (
	"errors"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestRecountTurns: turns that nobody has a use for are taken away, and a line whose debt was lost
// gets what is free.
func TestRecountTurns(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := clocked(t)
	s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
	for _, l := range []job.Limit{{Key: "gpu/*", Most: 1}, {Key: "disk", Most: 1}} {
		if _, err := store.SetLimit(t.Context(), s, acme, l); err != nil {
			t.Fatal(err)
		}
	}
	under := func(keys ...string) job.ID {
		n := newTask()
		n.Job.Limits = keys
		return submit(t, s, n)[0]
	}
	pay := func() {
		t.Helper()
		if _, _, err := s.Pay(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	first, second := under("gpu/a"), under("gpu/a")
	pay()
	third := under("disk", "gpu/a")
	pay()
	recount := func(want store.Recounted) {
		t.Helper()
		n, eff, err := s.Recount(t.Context(), 100)
		if n != want || err != nil || eff.Owed != (want.Turns+want.Lines > 0) {
			t.Errorf("%+v corrected, owed %t, %v; want %+v", n, eff.Owed, err, want)
		}
		pay()
		if n, _, err := s.Recount(t.Context(), 100); n != (store.Recounted{}) || err != nil {
			t.Errorf("once more: %+v, %v", n, err)
		}
	}
	at := func(id job.ID, want job.Custody) {
		t.Helper()
		if j, err := store.FindJob(t.Context(), s, acme, id); j.Custody != want || err != nil {
			t.Errorf("the job stands at %s, %v; want %s", j.Place, err, want)
		}
	}
	recount(store.Recounted{})
	must(t, admin, `INSERT INTO pawl.turns (job, key, tenant, owner) SELECT id, k, tenant, 'ann' FROM pawl.jobs, unnest(ARRAY['gpu/a', 'ahead/gpu/a', 'disk']) k ON CONFLICT DO NOTHING`)
	must(t, admin, `INSERT INTO pawl.turns (job, key, tenant, owner) VALUES (gen_random_uuid(), 'gpu/a', $1, 'ann')`, acme)
	// Of the job that has its turn, a turn of another key of the same kind is told by nothing but its
	// spec.
	recount(store.Recounted{Turns: 8})
	at(second, job.Gate)
	// A turn that was lost, with what it owed: nobody would come.
	must(t, admin, `DELETE FROM pawl.turns WHERE job = $1`, [16]byte(first))
	must(t, admin, `UPDATE pawl.jobs SET ties = 8 WHERE id = $1`, [16]byte(first))
	recount(store.Recounted{Lines: 1})
	at(second, job.Ready)
	at(third, job.Gate)
	must(t, admin, `DELETE FROM pawl.limits WHERE key = 'gpu/*'`) // past the store
	recount(store.Recounted{Lines: 1})
	at(third, job.Ready)
	noDeadlock(t, admin)
}

// TestTurnIsGivenNow: who hands on may have to wait for a job in line, and what it looks at may
// have come since it saw what is owed. The history says when the job got its turn, and never that
// this was before it was submitted.
func TestTurnIsGivenNow(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, clock, admin := open(t, dsn, postgres.Options{}), newClock(t, dsn), connect(t, dsn)
	setLimit(t, s, job.Limit{Key: "gpu", Most: 0})
	n := newTask()
	n.Job.Limits = []string{"gpu"}
	id := submit(t, s, n)[0]
	setLimit(t, s, job.Limit{Key: "gpu", Most: 1})
	tx, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM pawl.jobs WHERE id = $1 FOR UPDATE`, [16]byte(id)); err != nil {
		t.Fatal(err)
	}
	paid := make(chan error, 1)
	go func() {
		_, _, err := s.Pay(t.Context(), 100)
		paid <- err
	}()
	untilWaiting(t, admin, 1)
	clock.Advance(hour)
	if err := errors.Join(tx.Rollback(t.Context()), <-paid); err != nil {
		t.Fatal(err)
	}
	j, err := store.FindJob(t.Context(), s, acme, id)
	if err != nil || j.Custody != job.Ready || j.Since.Sub(j.Created) < hour {
		t.Errorf("it is %s since %v after it was submitted, %v", j.Place, j.Since.Sub(j.Created), err)
	}
}
