package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

const ofTask = "kind/" + task

func setLimit(t *testing.T, s store.Store, l job.Limit) {
	t.Helper()
	if _, err := store.SetLimit(t.Context(), s, acme, l); err != nil {
		t.Fatal(err)
	}
}

func payAll(t *testing.T, s store.Store) {
	t.Helper()
	for range 1000 {
		if _, eff, err := s.Pay(t.Context(), 1000); err != nil {
			t.Fatal(err)
		} else if !eff.Owed {
			return
		}
	}
	t.Fatal("there is no end of paying")
}

// used fails the test unless so many have turns of a key, and wait for one.
func used(t *testing.T, s store.Store, key string, held, waiting int) {
	t.Helper()
	all, err := s.Turns(t.Context(), store.TurnQuery{Tenant: acme, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	h, w := 0, 0
	for _, k := range all {
		for _, o := range k.Owners {
			h, w = h+o.Held, w+o.Waiting
		}
	}
	if h != held || w != waiting {
		t.Errorf("%s: %d turns, %d wait; want %d and %d", key, h, w, held, waiting)
	}
}

// alone runs f beside the test, and answers its error.
func alone(f func(ctx context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f(context.Background()) }()
	return done
}

func paying(s store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		_, _, err := s.Pay(ctx, 1000)
		return err
	}
}

// TestTakenIn has others in the middle of something when a limit takes in their jobs.
func TestTakenIn(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	waited := func(t *testing.T, calls ...<-chan error) {
		t.Helper()
		for _, c := range calls {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("a task that ends meanwhile gives back the turn that it met", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other, admin := open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn)
		session := begin(t, s, time.Minute)
		submit(t, s, newTasks(3)...)
		jobs := claim(t, s, session, 2)
		setLimit(t, s, job.Limit{Key: ofTask, Most: 1})
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.limits FOR UPDATE")
		paid := alone(paying(s))
		untilWaiting(t, admin, 1)
		ended := alone(func(ctx context.Context) error {
			as, _, _, err := s.Apply(ctx, finishes(jobs, session), nil)
			if err == nil && (as[0].Outcome != store.OK || as[1].Outcome != store.OK) {
				t.Errorf("%+v", as)
			}
			return err
		})
		untilWaiting(t, admin, 2)
		must(t, other, "COMMIT")
		waited(t, paid, ended)
		payAll(t, s)
		used(t, s, ofTask, 1, 0)
		if n := value[int](t, admin, "SELECT count(*) FROM pawl.turns"); n != 1 {
			t.Errorf("%d turns", n)
		}
		storetest.Check(t, s, acme)
		noDeadlock(t, admin)
	})
	t.Run("jobs that are being submitted since before are waited for", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other, admin := open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn)
		n := newTask()
		n.Optional = n.Job.OwnKeys()
		must(t, other, "BEGIN")
		must(t, other, `INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, queue, priority, max_attempts, created, request)
			VALUES ($1, 'acme', 'ann', 'send', 'n', 'n', 'default', 5, 1, now(), '{}')`, [16]byte(n.Job.ID))
		submitted := alone(func(ctx context.Context) error {
			_, _, err := s.Submit(ctx, store.Submission{Tenant: acme, By: "ann", Jobs: []store.New{n}})
			return err
		})
		untilWaiting(t, admin, 1)
		setLimit(t, s, job.Limit{Key: ofTask, Most: 0})
		paid := alone(paying(s))
		untilWaiting(t, admin, 2)
		must(t, other, "ROLLBACK")
		waited(t, submitted, paid)
		payAll(t, s)
		used(t, s, ofTask, 0, 1)
		noDeadlock(t, admin)
	})
	t.Run("whose prerequisite ends meanwhile goes to the line", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other, more, admin := open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn), connect(t, dsn)
		session := begin(t, s, time.Minute)
		first, second := newTask(), newTask()
		second.After = []store.After{{Job: first.Job.ID, Need: job.NeedEnded}}
		submit(t, s, first)
		submit(t, s, second)
		if _, _, _, err := s.Apply(t.Context(), finishes(claim(t, s, session, 1), session), nil); err != nil {
			t.Fatal(err)
		}
		setLimit(t, s, job.Limit{Key: ofTask, Most: 0})
		must(t, more, "BEGIN")
		must(t, more, "SELECT FROM pawl.followups FOR UPDATE")
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.limits FOR UPDATE")
		walks := alone(paying(s))
		untilWaiting(t, admin, 1)
		must(t, more, "ROLLBACK")
		pays := alone(paying(s))
		untilWaiting(t, admin, 2)
		must(t, other, "COMMIT")
		waited(t, walks, pays)
		payAll(t, s)
		used(t, s, ofTask, 0, 1)
		storetest.Check(t, s, acme)
		noDeadlock(t, admin)
	})
	t.Run("a process that dies leaves its walk to the others", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other, conn, admin := open(t, dsn, postgres.Options{}), open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn)
		submit(t, s, newTasks(40)...)
		setLimit(t, s, job.Limit{Key: ofTask, Most: 2})
		if _, eff, err := s.Pay(t.Context(), 20); err != nil || !eff.Owed {
			t.Fatalf("%+v, %v", eff, err)
		}
		must(t, conn, "BEGIN")
		must(t, conn, "SELECT FROM pawl.limits FOR UPDATE")
		dies := alone(paying(s)) // in the middle of the next step
		untilWaiting(t, admin, 1)
		must(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0")
		if err := <-dies; err == nil {
			t.Error("it did not die")
		}
		must(t, conn, "COMMIT")
		used(t, s, ofTask, 0, 10)
		payAll(t, other)
		used(t, s, ofTask, 2, 38)
		storetest.Check(t, s, acme)
		noDeadlock(t, admin)
	})
	t.Run("jobs of other tenants are passed over", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s := open(t, dsn, postgres.Options{})
		submit(t, s, newTasks(10)...)
		if _, _, err := s.Submit(t.Context(), store.Submission{Tenant: "other", Jobs: newTasks(30)}); err != nil {
			t.Fatal(err)
		}
		submit(t, s, newTasks(10)...)
		setLimit(t, s, job.Limit{Key: ofTask, Most: 2})
		for {
			n, eff, err := s.Pay(t.Context(), 10)
			if err != nil || n < 1 || n > 10 {
				t.Fatalf("%d, %v", n, err)
			}
			if !eff.Owed {
				break
			}
		}
		used(t, s, ofTask, 2, 18)
		if n := value[int](t, connect(t, dsn), "SELECT count(*) FROM pawl.jobs WHERE limits IS NOT NULL"); n != 20 {
			t.Errorf("%d jobs are under limits", n)
		}
	})
}
