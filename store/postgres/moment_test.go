package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// A teller is a store that counts the moments which it gave.
type teller struct {
	store.Store
	given *atomic.Int64
}

func (c *teller) Reserve(ctx context.Context, tenant string, asks []store.Ask) ([]store.Reserved, error) {
	all, err := c.Store.Reserve(ctx, tenant, asks)
	for i, r := range all {
		if r.Limit != nil && !r.First.Equal(asks[i].Held.At) {
			c.given.Add(int64(asks[i].N))
		}
	}
	return all, err
}

// launching is a kind whose programs end as soon as they are launched.
type launching struct{}

func (launching) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	switch r.Job.State {
	case job.SubmittingJob:
		if err := r.Launch(ctx); err != nil {
			return engine.Back()
		}
		return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
	case job.Archiving:
		return engine.Done(nil)
	}
	return engine.Next(map[job.State]job.State{
		job.ProcessingInputs: job.StagingInputs, job.StagingInputs: job.StagingJob, job.StagingJob: job.SubmittingJob,
	}[r.Job.State])
}

// TestLaunchesOfManyProcesses: by the database's clock no time of the length of the rate holds more
// launches than it allows, whichever processes made them, and no moment is given to nobody.
func TestLaunchesOfManyProcesses(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	const processes, n, most, per = 4, 80, 20, 500 * time.Millisecond
	dsn := clocked(t)
	var given atomic.Int64
	broker := &local.Broker{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	services := make([]*service.Service, processes)
	for i := range services {
		services[i] = service.New(service.Config{
			Store: &teller{open(t, dsn, postgres.Options{}), &given}, Broker: broker, Tenant: acme, Machine: "m", Kinds: map[string]engine.Kind{job.KindApp: launching{}},
			Log: slog.New(slog.DiscardHandler),
		})
		wg.Go(func() {
			if err := services[i].Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if err := services[0].SetLimit(ctx, job.Limit{Key: "launches/system/local", Most: most, Per: job.Duration(per)}); err != nil {
		t.Fatal(err)
	}
	reqs := make([]service.Request, n)
	for i := range reqs {
		reqs[i].Spec = job.Spec{Command: []string{"true"}}
	}
	answers, err := services[0].Submit(ctx, reqs...)
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for _, a := range answers {
		j, err := services[0].Wait(ctx, a.ID)
		if err != nil || j.State != job.Finished {
			t.Fatalf("%s, %v", j.State, err)
		}
		late += j.Launch - 1
	}
	rows, err := connect(t, dsn).Query(ctx, "SELECT max(at) FROM pawl.events WHERE message = $1 GROUP BY job ORDER BY 1", job.Launching)
	if err != nil {
		t.Fatal(err)
	}
	launched, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil || len(launched) != n {
		t.Fatalf("%d launches, %v", len(launched), err)
	}
	for i, at := range launched[most:] {
		if between := at.Sub(launched[i]); between < per {
			t.Errorf("%d launches within %v", most+1, between)
		}
	}
	lost := given.Load() - n - int64(late)
	every := (&job.Limit{Most: most, Per: job.Duration(per)}).Every()
	t.Logf("%d launches in %v, one every %v; %d intents were late, and %d moments missed before that", n, launched[n-1].Sub(launched[0]), every, late, lost)
	if lost < 0 {
		t.Errorf("%d programs were launched at moments that nobody gave", -lost)
	}
}

// TestMomentsUnderLock: who asks while a rate is being changed gets its moments under the new one.
func TestMomentsUnderLock(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
	set := func(most int) job.Limit {
		return job.Limit{Key: "dials/lab", Most: most, Per: job.Duration(time.Second)}
	}
	if _, err := store.SetLimit(t.Context(), s, acme, set(10)); err != nil {
		t.Fatal(err)
	}
	must(t, admin, "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('pawl.rates/"+acme+"', 0))")
	answer := make(chan store.Reserved, 1)
	go func() {
		all, err := s.Reserve(t.Context(), acme, []store.Ask{{Key: "dials/lab", N: 1}})
		if err != nil {
			t.Error(err)
			all = make([]store.Reserved, 1)
		}
		answer <- all[0]
	}()
	untilWaiting(t, connect(t, dsn), 1)
	must(t, admin, "UPDATE pawl.limits SET most = 1, every = 1100000, rate = gen_random_uuid(); COMMIT")
	if r := <-answer; r.Every != 1100*time.Millisecond {
		t.Errorf("moments %v apart, under %+v", r.Every, r.Limit)
	}
}
