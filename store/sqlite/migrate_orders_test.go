package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestMigrationOfOrders: to a Pawl that knows no orders who waits in one is ready, or waits for the limits it is under, and nothing
// of orders is left.
func TestMigrationOfOrders(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	if _, err := s.SetLimit(ctx, "t", job.Limit{Key: "gpu", Most: 2}); err != nil {
		t.Fatal(err)
	}
	jobs := make([]store.New, 6)
	for i := range jobs {
		jobs[i] = newTask(1)
		jobs[i].Job.Order, jobs[i].Job.Ties = "order/k", job.TieLimited|job.TiePass
	}
	jobs[2].Job.Limits = []string{"gpu", "tape"}
	jobs[3].Job.Limits, jobs[3].Job.Kind = []string{"gpu"}, job.KindApp
	jobs[4].Delay = time.Hour
	jobs[5].Job.Order, jobs[5].Job.Limits = "order/other", []string{"gpu"}
	for _, n := range jobs { // one is ready, as it came first
		if err := submit(ctx, s, n); err != nil {
			t.Fatal(err)
		}
	}
	pay := func() {
		t.Helper()
		if _, _, err := s.Pay(ctx, 100); err != nil {
			t.Fatal(err)
		}
	}
	pay()
	at := func(custody job.Custody, line string, of ...int) {
		t.Helper()
		for _, i := range of {
			if j, err := s.Job(ctx, "t", jobs[i].Job.ID); err != nil || j.Custody != custody || j.Line != line {
				t.Errorf("job %d is in custody %s, in the line %q, %v; want %s, %q", i, j.Custody, j.Line, err, custody, line)
			}
		}
	}
	at(job.Ready, "", 0, 5)
	at(job.Gate, "order/k", 1, 2, 3)
	at(job.Gate, "", 4)
	downTo(t, s, 11, none(t,
		`SELECT count(*) FROM followups WHERE key NOT IN ('gpu', 'ahead/gpu')`, `SELECT count(*) FROM turns WHERE key <> 'gpu'`,
		`SELECT count(*) FROM jobs WHERE ties & ~56 <> 0 OR ties & 8 <> 0 AND limit_keys IS NULL`,
		`SELECT count(*) FROM jobs WHERE custody = 'gate' AND due IS NULL AND line = ''`,
	))
	s = openAt(t, dir)
	at(job.Ready, "", 0, 1, 5)
	at(job.Gate, "gpu", 2)
	at(job.Gate, "ahead/gpu", 3)
	at(job.Gate, "", 4)
	pay()
	at(job.Ready, "", 2, 3)
	all, err := s.Turns(ctx, store.TurnQuery{Tenant: "t"})
	keys := []string{}
	for _, used := range all {
		keys = append(keys, used.Key)
	}
	if !slices.Equal(keys, []string{"ahead/gpu", "gpu", "tape"}) || err != nil {
		t.Errorf("turns %+v, %v", all, err)
	}
	if n, _, err := s.Recount(ctx, 100); n != (store.Recounted{}) || err != nil {
		t.Errorf("recounted %+v, %v", n, err)
	}
	storetest.Check(t, s, "t")
}
