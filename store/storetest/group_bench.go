package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// BenchGroup blocks 10,000 jobs by one condition, and lets them go on without a rate. It reports
// how many were blocked per second, how many went on, and how many did both.
func BenchGroup(b *testing.B, s store.Store) {
	const jobs, batch = 10_000, 500
	w := &world{TB: b, s: s, ctx: b.Context()}
	session := w.sessionFor(time.Hour)
	if _, err := store.SetLimit(w.ctx, s, acme,
		job.Limit{Key: job.RateReleases + "/*", Most: job.MaxTurns, Per: job.Duration(job.MinPer)}); err != nil {
		b.Fatal(err)
	}
	cause := &job.Block{Code: job.TaskBlocked, Message: "it is gone", Tester: "http"}
	// change makes a change of each job, and returns how long that took.
	change := func(of func(job.Job) job.Change) time.Duration {
		held := w.claim(wanted(session, jobs))
		if len(held) != jobs {
			b.Fatalf("claimed %d jobs, want %d", len(held), jobs)
		}
		began := time.Now()
		for some := range slices.Chunk(held, batch) {
			changes := make([]job.Change, len(some))
			for i, j := range some {
				changes[i] = of(j)
			}
			w.applyAll(changes...)
		}
		return time.Since(began)
	}
	var blocked, released time.Duration
	for b.Loop() {
		for range jobs / 1000 {
			w.addMany(1000)
		}
		blocked += change(func(j job.Job) job.Change { return blocking(j, session, cause) })
		began := time.Now()
		if _, _, err := s.Steer(w.ctx, store.Steer{
			Tenant: acme, By: ann, Want: groups.Release,
			Group: cause.Group(acme),
		}); err != nil {
			b.Fatal(err)
		}
		for left := jobs; left > 0; {
			n, _, err := s.Due(w.ctx, 1000)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
		released += time.Since(began)
		change(func(j job.Job) job.Change { return finish(j, by(session)) })
	}
	all := float64(b.N * jobs)
	b.ReportMetric(all/blocked.Seconds(), "blocked/s")
	b.ReportMetric(all/released.Seconds(), "released/s")
	b.ReportMetric(all/(blocked+released).Seconds(), "jobs/s")
}
