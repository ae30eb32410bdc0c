package fake

import (
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TestRecountTurns: turns that nobody has a use for are taken away, and a line whose debt was lost
// gets what is free.
func TestRecountTurns(t *testing.T) {
	ctx, s := t.Context(), New(time.Now)
	if _, err := store.SetLimit(ctx, s, "t", job.Limit{Key: "gpu", Most: 1}); err != nil {
		t.Fatal(err)
	}
	pay := func() {
		t.Helper()
		if _, _, err := s.Pay(ctx, 100); err != nil {
			t.Fatal(err)
		}
	}
	ids := []job.ID{job.NewID(), job.NewID()}
	for _, id := range ids {
		n := store.New{Job: job.Job{ID: id, Owner: "ann", Kind: "send", Queue: job.DefaultQueue, MaxAttempts: 1, Limits: []string{"gpu"}}}
		if _, _, err := s.Submit(ctx, store.Submission{Tenant: "t", Jobs: []store.New{n}}); err != nil {
			t.Fatal(err)
		}
		pay()
	}
	recount := func(want store.Recounted) {
		t.Helper()
		n, eff, err := s.Recount(ctx, 100)
		if n != want || err != nil || eff.Owed != (want.Turns+want.Lines > 0) {
			t.Errorf("%+v corrected, owed %t, %v; want %+v", n, eff.Owed, err, want)
		}
		pay()
		if n, _, err := s.Recount(ctx, 100); n != (store.Recounted{}) || err != nil {
			t.Errorf("once more: %+v, %v", n, err)
		}
	}
	gpu := name{"t", "gpu"}
	recount(store.Recounted{})
	s.state.turns[gpu] = append(s.state.turns[gpu], turn{job.NewID(), "ann"}, turn{ids[1], "ann"})
	recount(store.Recounted{Turns: 2})
	if j, err := store.FindJob(ctx, s, "t", ids[1]); j.Custody != job.Gate || err != nil {
		t.Errorf("it stands at %s, %v", j.Place, err)
	}
	delete(s.state.turns, gpu)
	recount(store.Recounted{Lines: 1})
	if j, err := store.FindJob(ctx, s, "t", ids[1]); j.Custody != job.Ready || err != nil {
		t.Errorf("it stands at %s, %v", j.Place, err)
	}
}
