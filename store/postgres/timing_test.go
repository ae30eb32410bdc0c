package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

func TestTiming(t *testing.T) {
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	s := open(t, dsn, postgres.Options{})
	sess := job.NewID()
	if err := s.Begin(t.Context(), store.Session{ID: sess, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1000, 1000, 1000, 1000, 1000, 4000, 8000} {
		sub := store.Submission{Tenant: "acme", By: "ann"}
		for range n {
			id := job.NewID()
			sub.Jobs = append(sub.Jobs, store.New{Job: job.Job{ID: id, Owner: "ann", Kind: "send", Name: "send-" + id.Short(), Queue: "default", Priority: 5, MaxAttempts: 10, Request: json.RawMessage(`{"kind":"send"}`)}})
		}
		t0 := time.Now()
		if _, _, err := s.Submit(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		t1 := time.Now()
		js, err := s.Claim(t.Context(), store.Claim{ID: job.NewID(), Session: sess, Queues: []string{"default"}, Kinds: []string{"send"}, Slots: map[job.Lane]int{job.LaneTask: n}})
		if err != nil || len(js) != n {
			t.Fatal(len(js), err)
		}
		t2 := time.Now()
		var cs []job.Change
		for _, j := range js {
			cs = append(cs, job.Change{Job: j.ID, From: j.Guard(job.Fence{Session: sess}), Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}}, To: job.None})
		}
		t3 := time.Now()
		as, _, err := s.Apply(t.Context(), cs)
		if err != nil || as[0].Outcome != store.OK {
			t.Fatal(as[0], err)
		}
		t4 := time.Now()
		f := func(d time.Duration) string {
			return fmt.Sprintf("%v (%.1fus)", d.Round(time.Millisecond), float64(d.Microseconds())/float64(n))
		}
		t.Log(n, "submit", f(t1.Sub(t0)), "claim", f(t2.Sub(t1)), "apply", f(t4.Sub(t3)))
	}
}
