package sqlite

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TestRecountOrders: a place in an order that nobody has is taken away, and a line whose debt was
// lost gets what is free.
func TestRecountOrders(t *testing.T) {
	ctx, s := t.Context(), openAt(t, t.TempDir())
	add := func() job.ID {
		t.Helper()
		n := newTask(1)
		n.Job.Order, n.Job.Ties = "order/k", job.TieLimited
		if err := submit(ctx, s, n); err != nil {
			t.Fatal(err)
		}
		return n.Job.ID
	}
	spoil := func(q string, args ...any) {
		t.Helper()
		if err := s.do(ctx, func(t *tx) error { _, err := t.exec(q, args...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	recount := func(want store.Recounted) {
		t.Helper()
		n, eff, err := s.Recount(ctx, 100)
		if n != want || err != nil || eff.Owed != (want.Turns+want.Lines > 0) {
			t.Errorf("%+v corrected, owed %t, %v; want %+v", n, eff.Owed, err, want)
		}
		if _, _, err := s.Pay(ctx, 100); err != nil {
			t.Fatal(err)
		}
	}
	at := func(id job.ID, want job.Custody) {
		t.Helper()
		if j, err := store.FindJob(ctx, s, "t", id); err != nil || j.Custody != want {
			t.Errorf("it is in custody %s, %v; want %s", j.Custody, err, want)
		}
	}
	spoil(`INSERT INTO turns (tenant, key, owner, job) VALUES ('t', 'order/k', 'o', 999)`)
	first := add()
	recount(store.Recounted{Turns: 1})
	at(first, job.Ready)
	second := add()
	recount(store.Recounted{}) // and what it owes by its place in line is paid
	recount(store.Recounted{})
	at(second, job.Gate)
	spoil(`DELETE FROM turns`)
	recount(store.Recounted{Lines: 1})
	at(second, job.Ready)
}
