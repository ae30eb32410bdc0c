package sqlite

import (
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestMigrationOfTurns: to a Pawl that knows no limits who waits for a turn is ready, and nothing of turns is left.
func TestMigrationOfTurns(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	if _, err := s.SetLimit(ctx, "t", job.Limit{Key: "gpu", Most: 1}); err != nil {
		t.Fatal(err)
	}
	jobs := []store.New{newTask(1), newTask(1), newTask(1), newTask(1)}
	for i := range jobs[:3] {
		jobs[i].Job.Limits = []string{"gpu"}
	}
	jobs[2].Delay = time.Hour
	if err := submit(ctx, s, jobs...); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Pay(ctx, 100); err != nil {
		t.Fatal(err)
	}
	at := func(want ...job.Custody) {
		t.Helper()
		for i, n := range jobs {
			if j, err := s.Job(ctx, "t", n.Job.ID); err != nil || j.Custody != want[i] {
				t.Errorf("job %d is in custody %s, %v; want %s", i, j.Custody, err, want[i])
			}
		}
	}
	at(job.Ready, job.Gate, job.Gate, job.Ready)
	if _, err := s.SetLimit(ctx, "t", job.Limit{Key: "gpu", Most: 0}); err != nil { // which owes
		t.Fatal(err)
	}
	downTo(t, s, 8, none(t,
		`SELECT count(*) FROM followups`, `SELECT count(*) FROM jobs WHERE ties <> 0 OR limit_keys IS NOT NULL`,
		`SELECT count(*) FROM jobs WHERE custody = 'gate' AND due IS NULL`,
	))
	s = openAt(t, dir)
	at(job.Ready, job.Ready, job.Gate, job.Ready)
	if all, err := s.Turns(ctx, store.TurnQuery{Tenant: "t"}); err != nil || len(all) > 0 {
		t.Errorf("turns %+v, %v", all, err)
	}
	storetest.Check(t, s, "t")
}
