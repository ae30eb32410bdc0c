package sqlite

import (
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestMigrationOfMoments: to a Pawl that knows no moments who waits for one is ready, and no rate is left.
func TestMigrationOfMoments(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	for _, l := range append(job.Tapis("lab"), job.Limit{Key: "gpu", Most: 1}) {
		if _, err := s.SetLimit(ctx, "t", l); err != nil {
			t.Fatal(err)
		}
	}
	n := newTask(1)
	n.Job.Kind = job.KindApp
	if err := submit(ctx, s, n); err != nil {
		t.Fatal(err)
	}
	session := store.Session{ID: job.NewID(), Lease: time.Hour}
	if err := s.Begin(ctx, session); err != nil {
		t.Fatal(err)
	}
	held, err := s.Claim(ctx, store.Claim{
		ID: job.NewID(), Session: session.ID, Queues: []string{n.Job.Queue}, Kinds: []string{job.KindApp}, Slots: map[job.Lane]int{job.LanePrepare: 1},
	})
	if err != nil || len(held) != 1 {
		t.Fatalf("%d jobs, %v", len(held), err)
	}
	c := job.Change{Job: n.Job.ID, From: held[0].Guard(job.Fence{Session: session.ID}), Path: []job.Entry{{State: job.ProcessingInputs}}, To: job.Ready}
	c.Set.Delay = time.Hour
	if _, _, err := s.Apply(ctx, []job.Change{c}); err != nil {
		t.Fatal(err)
	}
	if j, err := s.Job(ctx, "t", n.Job.ID); err != nil || j.Custody != job.Gate {
		t.Fatalf("it is in custody %s, %v", j.Custody, err)
	}
	downTo(t, s, 9, none(t, "SELECT count(*) FROM jobs WHERE custody = 'gate'"))
	s = openAt(t, dir)
	if j, err := s.Job(ctx, "t", n.Job.ID); err != nil || j.Place != (job.Place{State: job.ProcessingInputs, Custody: job.Ready}) || !j.Due.IsZero() {
		t.Errorf("it stands at %s, due %v, %v", j.Place, j.Due, err)
	}
	if all, err := s.Limits(ctx, "t"); err != nil || len(all) != 1 || all[0].Key != "gpu" {
		t.Errorf("limits %+v, %v", all, err)
	}
	storetest.Check(t, s, "t")
}
