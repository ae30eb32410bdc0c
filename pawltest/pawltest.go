// Package pawltest is for the tests of programs that enqueue and handle tasks. Its services keep
// their jobs in memory. In a bubble of [testing/synctest] their time is virtual, from 2000-01-01: a
// backoff of an hour takes no time, and a schedule of next Monday a second or two. With -race, Go
// 1.26 crashes in a bubble now and then (https://go.dev/issue/78156): add -cpu 1.
//
//	func TestMail(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			svc := pawltest.Open(t)
//			Mail.Handle(svc, send)
//			answer, err := pawltest.Work(t, svc, Mail, Letter{To: "ada"})
//			…
//		})
//	}
//
// [Enqueued] says what code under test has enqueued, [Work] runs one job, [Start] runs all that
// come, and [Drain] waits until none is left. The last three need the handlers to be registered
// before, with [pawl.Task.Handle].
//
// A schedule is tested by waiting until it is due:
//
//	Report.Schedule(t.Context(), svc, "weekly", pawl.Cron("0 9 * * MON"), Week{})
//	pawltest.Start(t, svc)
//	time.Sleep(7 * 24 * time.Hour) // in the bubble
//	synctest.Wait()
//
// # Transactions
//
// In memory there are no transactions: sqlite.WithTx, sqlite.In and postgres.In are errors. For
// code that uses them [OpenAt] opens a service in a folder or on a database of the test. A folder
// may be in a bubble, too, where a day takes many seconds, since the service writes to the disk;
// PostgreSQL may not, since its answers come from outside.
//
//	svc := pawltest.OpenAt(t, sqlite.At(t.TempDir()))
package pawltest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// Open opens a service with its jobs in memory. It is closed when the test ends. Its log is that of
// the test.
func Open(t testing.TB, options ...pawl.Option) *pawl.Service {
	t.Helper()
	return OpenAt(t, memory, options...)
}

// OpenAt is [Open] for a service whose jobs are elsewhere, such as in a folder of the test.
func OpenAt(t testing.TB, at pawl.Source, options ...pawl.Option) *pawl.Service {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	svc, err := pawl.Open(t.Context(), at, append([]pawl.Option{pawl.Log(log)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

func memory(context.Context, *slog.Logger) (*pawl.Database, error) {
	st := fake.New(nil)
	return &pawl.Database{Store: st, Broker: &local.Broker{}, Close: st.Close}, nil
}

// Start runs a service until stop is called, or until the test ends. Where the service ends with an
// error, the test fails. In a bubble a handler that does not return when its context ends, such as
// one that sleeps, is left behind, and the test panics with a deadlock: let it listen, or [Drain]
// before.
func Start(t testing.TB, svc *pawl.Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Work enqueues a job, runs the service until that job has ended, and returns its result. Its error
// is that of [pawl.Handle.Wait]. Work is for a service that does not run. It waits for retries,
// too.
func Work[A, R any](t testing.TB, svc *pawl.Service, task pawl.Task[A, R], args A, options ...pawl.EnqueueOption) (
	R, error,
) {
	t.Helper()
	h, err := task.Enqueue(t.Context(), svc, args, options...)
	if err != nil {
		var none R
		return none, err
	}
	stop := Start(t, svc)
	defer stop()
	return h.Wait(t.Context())
}

// Enqueued returns the arguments of the jobs of a task that have been enqueued and have not ended,
// in the order in which they were.
func Enqueued[A, R any](t testing.TB, svc *pawl.Service, task pawl.Task[A, R]) []A {
	t.Helper()
	var all []A
	for _, j := range left(t, svc) {
		if j.Kind != task.Kind {
			continue
		}
		whole, err := svc.Jobs().Job(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		var spec struct{ Args A }
		if err := json.Unmarshal(whole.Request, &spec); err != nil {
			t.Fatalf("arguments of job %s: %v", j.ID, err)
		}
		all = append(all, spec.Args)
	}
	return all
}

// How long Drain waits for jobs that stay as they are.
const (
	patience     = 5 * time.Second
	whileBlocked = time.Minute // their conditions are tested now and then
)

// Drain waits until every job has ended. The service must run: see [Start]. It waits for attempts
// to come, and for handlers as long as they like. The test fails if jobs are left that wait for
// nothing that comes by itself, such as jobs that are paused, and says what they wait for.
func Drain(t testing.TB, svc *pawl.Service) {
	t.Helper()
	wait, since, last := time.Millisecond, time.Now(), ""
	for {
		jobs := left(t, svc)
		if len(jobs) == 0 {
			return
		}
		if now := marks(jobs); now != last {
			wait, since, last = time.Millisecond, time.Now(), now
		}
		if time.Since(since) > bound(jobs, since) {
			t.Fatal(stuck(t, svc, jobs))
		}
		select {
		case <-time.After(wait):
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
		wait = min(2*wait, time.Second)
	}
}

// left returns the jobs that have not ended, the oldest first.
func left(t testing.TB, svc *pawl.Service) []job.Job {
	t.Helper()
	var all []job.Job
	open := job.Term{Field: "custody", Op: job.IsNot, Values: []string{"none"}}
	q := store.Query{Sort: store.Oldest, Limit: 1000, Filter: job.Filter{open}}
	for {
		page, err := svc.Jobs().List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

// marks changes when a job does.
func marks(jobs []job.Job) string {
	var b strings.Builder
	for i := range jobs {
		fmt.Fprintf(&b, "%s %d\n", jobs[i].ID, jobs[i].N)
	}
	return b.String()
}

// bound is how long jobs may stay as they are since a moment.
func bound(jobs []job.Job, since time.Time) time.Duration {
	most := patience
	for i := range jobs {
		switch j := &jobs[i]; j.Custody {
		case job.Worker, job.Monitor:
			return job.MaxDelay
		case job.Recovery:
			most = max(most, whileBlocked)
		case job.Gate:
			most = max(most, j.Due.Sub(since)+patience)
		}
	}
	return most
}

// stuck says why jobs do not end.
func stuck(t testing.TB, svc *pawl.Service, jobs []job.Job) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("these jobs do not end:")
	for i := range jobs[:min(len(jobs), 10)] { // the others stand behind them
		v, err := svc.Jobs().View(t.Context(), jobs[i].ID)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s, kind %s, is %s: %s", v.ID, v.Kind, v.State, v.Why)
	}
	return b.String()
}
