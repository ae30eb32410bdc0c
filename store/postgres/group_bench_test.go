package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// BenchmarkGroup blocks 10,000 jobs by one condition, and has them go on at a rate that is none.
func BenchmarkGroup(b *testing.B) {
	const jobs, batch = 10_000, 500
	dsn := testenv.Postgres(b).Database(b)
	migrate(b, dsn, "")
	s, err := postgres.Open(b.Context(), dsn, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, session := b.Context(), job.NewID()
	if err := s.Begin(ctx, store.Session{ID: session, Lease: hour}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.SetLimit(ctx, acme, job.Limit{Key: "releases/*", Most: job.MaxTurns, Per: job.Duration(job.MinPer)}); err != nil {
		b.Fatal(err)
	}
	cause := gone("")
	var blocking, releasing time.Duration
	for b.Loop() {
		for range jobs / 1000 {
			if _, _, err := s.Submit(ctx, store.Submission{Tenant: acme, Jobs: newTasks(1000)}); err != nil {
				b.Fatal(err)
			}
		}
		held, err := s.Claim(ctx, asking(session, jobs))
		if err != nil || len(held) != jobs {
			b.Fatal(len(held), err)
		}
		began := time.Now()
		for some := range slices.Chunk(held, batch) {
			changes := make([]job.Change, len(some))
			for i := range some {
				changes[i] = block(&some[i], session, cause)
			}
			if _, _, err := s.Apply(ctx, changes); err != nil {
				b.Fatal(err)
			}
		}
		blocked := time.Now()
		if _, _, err := s.Steer(ctx, store.Steer{Tenant: acme, By: "ann", Want: store.Release, Group: cause.Group(acme)}); err != nil {
			b.Fatal(err)
		}
		for left := jobs; left > 0; {
			n, _, err := s.Due(ctx, 1000)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
		blocking, releasing = blocking+blocked.Sub(began), releasing+time.Since(blocked)
		held, err = s.Claim(ctx, asking(session, jobs))
		if err != nil || len(held) != jobs {
			b.Fatal(len(held), err)
		}
		for some := range slices.Chunk(held, batch) {
			if _, _, err := s.Apply(ctx, finishes(some, session)); err != nil {
				b.Fatal(err)
			}
		}
	}
	all := float64(b.N * jobs)
	b.ReportMetric(all/blocking.Seconds(), "blocked/s")
	b.ReportMetric(all/releasing.Seconds(), "released/s")
	b.ReportMetric(all/(blocking+releasing).Seconds(), "both/s")
}
