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
	"slices"
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
	st, bus := fake.New(nil), &local.Broker{}
	return &pawl.Database{Store: st, Broker: bus, Close: func() error {
		defer bus.Close()
		return st.Close()
	}}, nil
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
		t.Helper()
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
// too. The test fails if the job waits for nothing that comes by itself, such as for a handler that
// was not registered, and says what it waits for.
func Work[A, R any](t testing.TB, svc *pawl.Service, task pawl.Task[A, R], args A, options ...pawl.EnqueueOption) (
	R, error,
) {
	t.Helper()
	var none R
	if err := task.Declare(t.Context(), svc); err != nil { // its queue is there from then on
		return none, err
	}
	h, err := task.Enqueue(t.Context(), svc, args, options...)
	if err != nil {
		return none, err
	}
	stop := Start(t, svc)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := make(chan string, 1)
	go func() {
		why, _ := watch(ctx, svc, ofWork, func(jobs []job.Job) bool {
			return !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.ID == h.ID })
		})
		stuck <- why
		if why != "" {
			cancel()
		}
	}()
	out, err := h.Wait(ctx)
	cancel()
	if why := <-stuck; why != "" {
		t.Fatal(why)
	}
	return out, err
}

// Enqueued returns the arguments of the jobs of a task that have been enqueued and have not ended,
// in the order in which they were.
func Enqueued[A, R any](t testing.TB, svc *pawl.Service, task pawl.Task[A, R]) []A {
	t.Helper()
	var all []A
	jobs, err := left(t.Context(), svc)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
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

// A patience is how long jobs may stay as they are, and how often they are looked at.
type patience struct{ blocked, look time.Duration }

// still is how long jobs may stay as they are that no process has.
const still = 15 * time.Second

var (
	ofDrain = patience{time.Minute, time.Second} // conditions are tested now and then
	ofWork  = patience{job.MaxDelay, still}      // a job whose condition stays ends by itself
)

// Drain waits until every job has ended. The service must run: see [Start]. It waits for attempts
// to come, and for handlers as long as they like. The test fails if jobs are left that wait for
// nothing that comes by itself, such as jobs that are paused, and says what they wait for.
func Drain(t testing.TB, svc *pawl.Service) {
	t.Helper()
	why, err := watch(t.Context(), svc, ofDrain, func(jobs []job.Job) bool { return len(jobs) == 0 })
	switch {
	case err != nil:
		t.Fatal(err)
	case why != "":
		t.Fatal(why)
	}
}

// watch waits until done is true of the jobs that have not ended. If they wait for nothing that
// comes by itself, it says what they wait for.
func watch(ctx context.Context, svc *pawl.Service, p patience, done func([]job.Job) bool) (stuck string, err error) {
	wait, since, last := time.Millisecond, time.Now(), ""
	for {
		jobs, err := left(ctx, svc)
		if err != nil || done(jobs) {
			return "", err
		}
		if now := marks(jobs); now != last {
			wait, since, last = time.Millisecond, time.Now(), now
		}
		if time.Since(since) > p.bound(jobs, since) {
			return causes(ctx, svc, jobs)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		wait = min(2*wait, p.look)
	}
}

// left returns the jobs that have not ended, the oldest first.
func left(ctx context.Context, svc *pawl.Service) (all []job.Job, err error) {
	open := job.Term{Field: "custody", Op: job.IsNot, Values: []string{"none"}}
	q := store.Query{Sort: store.Oldest, Limit: 1000, Filter: job.Filter{open}}
	for {
		page, err := svc.Jobs().List(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Jobs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all, nil
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
func (p patience) bound(jobs []job.Job, since time.Time) time.Duration {
	most := still
	for i := range jobs {
		switch j := &jobs[i]; j.Custody {
		case job.Worker, job.Monitor:
			return job.MaxDelay
		case job.Recovery:
			most = max(most, p.blocked)
		case job.Gate:
			most = max(most, j.Due.Sub(since)+still)
		}
	}
	return most
}

// causes says why jobs do not end.
func causes(ctx context.Context, svc *pawl.Service, jobs []job.Job) (string, error) {
	var b strings.Builder
	b.WriteString("these jobs do not end:")
	for i := range jobs[:min(len(jobs), 10)] { // the others stand behind them
		v, err := svc.Jobs().View(ctx, jobs[i].ID)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n%s, kind %s, is %s: %s", v.ID, v.Kind, v.State, v.Why)
	}
	return b.String(), nil
}
