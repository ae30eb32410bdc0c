package postgres_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

const (
	acme = "acme"
	task = "send"
)

func newTask() store.New {
	id := job.NewID()
	return store.New{Job: job.Job{
		ID: id, Owner: "ann", Kind: task, Name: task + "-" + id.Short(), Queue: job.DefaultQueue, Priority: 5, MaxAttempts: 10,
		Request: json.RawMessage(`{"kind":"send"}`),
	}}
}

func newTasks(n int) []store.New {
	list := make([]store.New, n)
	for i := range list {
		list[i] = newTask()
	}
	return list
}

func submit(t *testing.T, s store.Store, jobs ...store.New) []job.ID {
	t.Helper()
	answers, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, By: "ann", Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
	}
	return ids
}

func begin(t *testing.T, s store.Store, lease time.Duration) job.ID {
	t.Helper()
	id := job.NewID()
	if err := s.Begin(t.Context(), store.Session{ID: id, Process: store.Process{Host: "test", PID: 1}, Lease: lease}); err != nil {
		t.Fatal(err)
	}
	return id
}

func asking(session job.ID, n int) store.Claim {
	return store.Claim{ID: job.NewID(), Session: session, Queues: []string{job.DefaultQueue}, Kinds: []string{task}, Slots: map[job.Lane]int{job.LaneTask: n}}
}

func claim(t *testing.T, s store.Store, session job.ID, n int) []job.Job {
	t.Helper()
	jobs, err := s.Claim(t.Context(), asking(session, n))
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func finish(j *job.Job, session job.ID) job.Change {
	return job.Change{
		Job: j.ID, From: j.Guard(job.Fence{Session: session}), To: job.None,
		Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}},
	}
}

func finishes(jobs []job.Job, session job.ID) []job.Change {
	cs := make([]job.Change, len(jobs))
	for i := range jobs {
		cs[i] = finish(&jobs[i], session)
	}
	return cs
}

// through takes a job all the way.
func through(t *testing.T, s *postgres.Store) job.ID {
	t.Helper()
	id := submit(t, s, newTask())[0]
	session := begin(t, s, time.Minute)
	if _, err := s.Renew(t.Context(), store.Renew{Session: session, Lease: time.Minute, Duties: []string{"watch"}}); err != nil {
		t.Fatal(err)
	}
	jobs := claim(t, s, session, 10)
	as, _, _, err := s.Apply(t.Context(), finishes(jobs, session), nil)
	if err != nil || len(as) != 1 || as[0].Outcome != store.OK {
		t.Fatalf("%+v, %v", as, err)
	}
	if _, err := s.End(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if j, err := store.FindJob(t.Context(), s, acme, id); err != nil || j.State != job.Finished {
		t.Fatalf("job: %+v, %v", j.Place, err)
	}
	return id
}

// connect opens a connection of the test's own.
func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func must(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// value runs a query with one row and one column.
func value[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// untilWaiting returns once so many connections to the database wait for a lock.
func untilWaiting(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		got := value[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`)
		if got >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections wait for a lock, want %d", got, n)
		}
	}
}

// noDeadlock fails when the database has seen one.
func noDeadlock(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	must(t, conn, "SELECT pg_stat_force_next_flush()")
	if n := value[int](t, conn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}
