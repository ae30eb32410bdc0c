package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// A looker is the store of a process whose claims are watched.
type looker struct {
	store.Store
	asked atomic.Bool
	empty chan struct{} // closed when a claim got nothing, although there were said to be jobs
	once  sync.Once
}

func (l *looker) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	d, err := l.Store.Demand(ctx, c)
	l.asked.Store(d[job.LaneTask].Ready > 0)
	return d, err
}

func (l *looker) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	jobs, err := l.Store.Claim(ctx, c)
	if err == nil && len(jobs) == 0 && l.asked.Load() {
		l.once.Do(func() { close(l.empty) })
	}
	return jobs, err
}

// TestClaimsSideBySide: a claim for 50 jobs of two queues with 50 each locks all of them until it
// has committed. Another process, which comes by meanwhile, runs the others after that, long before
// its next renewal.
func TestClaimsSideBySide(t *testing.T) {
	t.Parallel()
	const each = 50
	dsn := clocked(t)
	first, second, admin := open(t, dsn, postgres.Options{}), &looker{Store: open(t, dsn, postgres.Options{}), empty: make(chan struct{})}, connect(t, dsn)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	queues, slots := []string{"a", "b"}, map[job.Lane]int{job.LaneTask: each}
	for _, q := range queues {
		jobs := newTasks(each)
		for i := range jobs {
			jobs[i].Job.Queue = q
		}
		submit(t, first, jobs...)
	}
	claims := store.Claim{ID: job.NewID(), Session: job.NewID(), Queues: queues, Kinds: []string{task}, Slots: slots}
	process := store.Process{Host: "first", Queues: queues, Kinds: claims.Kinds, Slots: slots}
	if err := first.Begin(ctx, store.Session{ID: claims.Session, Process: process, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}

	must(t, admin, fmt.Sprintf(`CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
		CREATE TRIGGER hold BEFORE INSERT ON pawl.events FOR EACH ROW WHEN (NEW.session = '%s') EXECUTE FUNCTION public.hold()`, claims.Session))
	t.Cleanup(func() { execute(t, dsn, "DROP TRIGGER hold ON pawl.events; DROP FUNCTION public.hold") })
	must(t, admin, "BEGIN; SELECT pg_advisory_xact_lock(7)")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if jobs, err := first.Claim(ctx, claims); err != nil || len(jobs) != each {
			t.Errorf("the first process claimed %d jobs, %v", len(jobs), err)
		}
	})
	untilWaiting(t, connect(t, dsn), 1)

	svc := service.New(service.Config{
		Store: second, Broker: &local.Broker{}, Tenant: acme, Queues: queues,
		Options: engine.Options{Slots: slots, Lease: time.Hour, Roles: []store.Role{store.RoleWorker}},
		Log:     slog.New(slog.DiscardHandler),
	})
	runs := make(chan job.ID, 2*each)
	service.Handle(svc, task, func(_ context.Context, j *service.Task[struct{}]) (struct{}, error) {
		runs <- j.Job.ID
		return struct{}{}, nil
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		if err := svc.Run(running); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-second.empty:
	case <-ctx.Done():
		t.Fatal("the second process has not looked for jobs while the first one held them")
	}
	must(t, admin, "COMMIT")
	for n := range each {
		select {
		case <-runs:
		case <-ctx.Done():
			t.Fatalf("the second process runs %d jobs, want %d", n, each)
		}
	}
}
