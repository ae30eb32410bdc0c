package postgres_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestDowngradeOfGroups goes back to a version that knows no groups: nobody stays blocked, and no line closed.
func TestDowngradeOfGroups(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	s, m, conn := open(t, dsn, postgres.Options{}), migrator(t, dsn, ""), connect(t, dsn)
	if _, err := s.SetLimit(t.Context(), acme, job.Limit{Key: "gpu", Most: 2, Ahead: 5}); err != nil {
		t.Fatal(err)
	}
	plain, limited, waits := newTask(), newTask(), newTask()
	limited.Job.Limits, waits.Job.Limits = []string{"gpu"}, []string{"gpu"}
	ids := submit(t, s, plain, limited)
	pay(t, s)
	session := begin(t, s, hour)
	held := claim(t, s, session, 10)
	if len(held) != 2 {
		t.Fatalf("claimed %d jobs, want 2", len(held))
	}
	for i, line := range []string{"gpu", "alone"} {
		if _, _, err := s.Apply(t.Context(), []job.Change{block(&held[i], session, gone(line))}); err != nil {
			t.Fatal(err)
		}
	}
	pay(t, s)
	ids = append(ids, submit(t, s, waits)...)
	if n := value[int](t, conn, "SELECT count(*)::int FROM pawl.limits WHERE places = 0 AND most = 0"); n != 2 {
		t.Errorf("%d lines are closed, want 2", n)
	}
	if err := m.Down(t.Context(), 12); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"PENDING ready 0 ", "WAITING gate 8 gpu", "WAITING gate 8 gpu"} {
		got := value[string](t, conn, "SELECT concat_ws(' ', state, custody, ties, coalesce(line, '')) FROM pawl.jobs WHERE id = $1", [16]byte(ids[i]))
		if got != want {
			t.Errorf("job %d: %q, want %q", i, got, want)
		}
	}
	if n := value[int](t, conn, "SELECT count(*)::int FROM pawl.jobs j WHERE j.n <> (SELECT count(*) FROM pawl.events e WHERE e.job = j.id)"); n > 0 {
		t.Errorf("the history of %d jobs is not whole", n)
	}
	if set := value[string](t, conn, "SELECT string_agg(concat_ws(' ', key, most, ahead), ', ') FROM pawl.limits"); set != "gpu 2 5" {
		t.Errorf("limits are %s", set)
	}
	if keys := value[string](t, conn, "SELECT string_agg(DISTINCT key, ' ') FROM pawl.turns_owed"); keys != "gpu" {
		t.Errorf("owed is %s", keys)
	}
}

// TestDowngrade goes back to versions that know no orders, and no limits: nobody is left waiting for what they never give.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	s, m, conn := open(t, dsn, postgres.Options{}), migrator(t, dsn, ""), connect(t, dsn)
	made := func(order string, limits ...string) store.New {
		n := newTask()
		n.Job.Limits = limits
		if n.Job.Order = order; order != "" {
			n.Job.Ties |= job.TieLimited
		}
		return n
	}
	if _, err := s.SetLimit(t.Context(), "acme", job.Limit{Key: "gpu", Most: 1}); err != nil {
		t.Fatal(err)
	}
	ids := submit(t, s, made("order/k"), made("order/k"), made("", "gpu"), made("", "gpu"), made("order/l", "disk"), made("order/l", "disk"))
	for owed := true; owed; {
		_, eff, err := s.Pay(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		owed = eff.Owed
	}
	stand := func(want ...string) {
		t.Helper()
		for i, id := range ids {
			if got := value[string](t, conn, "SELECT custody || ' ' || ties || coalesce(' ' || line, '') FROM pawl.jobs WHERE id = $1", [16]byte(id)); got != want[i] {
				t.Errorf("job %d: %q, want %q", i, got, want[i])
			}
		}
		if n := value[int](t, conn, "SELECT count(*)::int FROM pawl.jobs j WHERE j.n <> (SELECT count(*) FROM pawl.events e WHERE e.job = j.id)"); n > 0 {
			t.Errorf("the history of %d jobs is not whole", n)
		}
	}
	stand("ready 264", "gate 8 order/k", "ready 40", "gate 8 gpu", "ready 296", "gate 8 order/l")
	if err := m.Down(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	stand("ready 0", "ready 0", "ready 40", "gate 8 gpu", "ready 40", "gate 8 disk")
	if keys := value[string](t, conn, "SELECT string_agg(DISTINCT key, ' ' ORDER BY key) FROM pawl.turns"); keys != "disk gpu" {
		t.Errorf("there are turns of %s", keys)
	}
	if keys := value[string](t, conn, "SELECT string_agg(DISTINCT key, ' ' ORDER BY key) FROM pawl.turns_owed"); keys != "disk" {
		t.Errorf("owed is %s", keys)
	}
	if err := m.Down(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if got := value[string](t, conn, "SELECT custody || ' ' || ties FROM pawl.jobs WHERE id = $1", [16]byte(id)); got != "ready 0" {
			t.Errorf("job %d: %q", i, got)
		}
	}
}
