package sqlite

import (
	"database/sql"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestMigrationOfSuspects: a Pawl that knows no suspects finds no job in their lane, and what it counted is forgotten.
func TestMigrationOfSuspects(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	program := newTask(1)
	program.Job.Kind = job.KindApp
	both := []store.New{newTask(1), program}
	if err := submit(ctx, s, both...); err != nil {
		t.Fatal(err)
	}
	for range job.AloneAt {
		session := job.NewID()
		if err := s.Begin(ctx, store.Session{ID: session, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		jobs, err := s.Claim(ctx, store.Claim{
			ID: job.NewID(), Session: session, Queues: []string{"q"}, Kinds: []string{"k", job.KindApp}, Slots: map[job.Lane]int{job.LaneTask: 1, job.LanePrepare: 1},
		})
		if err != nil || len(jobs) != 2 {
			t.Fatal(len(jobs), err)
		}
		if err := s.Close(); err != nil { // as after a crash: the session is open
			t.Fatal(err)
		}
		s = openAt(t, dir)
		if _, _, err := s.Expire(ctx, 10); err != nil {
			t.Fatal(err)
		}
	}
	lanes := func(want ...job.Lane) {
		t.Helper()
		for i, n := range both {
			if j, err := s.Job(ctx, "t", n.Job.ID); err != nil || j.Lane != want[i] {
				t.Errorf("job %d is in lane %s, %v; want %s", i, j.Lane, err, want[i])
			}
		}
	}
	lanes(job.LaneAlone, job.LaneAlone)
	downTo(t, s, 4, func(db *sql.DB) {
		for lane, n := range map[job.Lane]int{job.LaneTask: 1, job.LanePrepare: 1, job.LaneAlone: 0} {
			var got int
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM jobs WHERE lane = ? AND suspect = ?", string(lane), job.AloneAt).Scan(&got); err != nil || got != n {
				t.Errorf("%d jobs in lane %s, %v; want %d", got, lane, err, n)
			}
		}
	})
	s = openAt(t, dir)
	lanes(job.LaneTask, job.LanePrepare)
	storetest.Check(t, s, "t")
}
