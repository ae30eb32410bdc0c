package order_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A plannedJob is one of the jobs of [TestOrderOfRandomJobs]: what is submitted, and what it does.
type plannedJob struct {
	N        int // in the order of submission
	At       time.Duration
	Key      int
	Pass     bool
	Priority int
	Version  int // 0: it has none
	Delay    time.Duration
	Takes    time.Duration // an attempt
	Fails    int           // attempts
	Attempts int           // that it has
	Backoff  time.Duration

	// What people wish for, if it waits by then.
	Cancel, Pause, Resume time.Duration // 0: never
}

// orderBy is what decides in each key.
var orderBy = []string{"created", "due", "args.version"}

// A ran is an attempt that was begun.
type ran struct{ Job, Attempt int }

// TestOrderOfRandomJobs has random jobs go in a few orders, which fail, are delayed, canceled and
// paused. A model says who goes after whom, to the attempt.
func TestOrderOfRandomJobs(t *testing.T) {
	drawn, told := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		drawn++
		jobs := drawJobs(rt)
		want, sure := modelOfOrders(jobs)
		if !sure {
			return // what happens at the same moment may be taken up in any order
		}
		told++
		if diff := gocmp.Diff(want, liveInOrder(t, jobs)); diff != "" {
			rt.Fatalf("by key, what was begun differs from the model (-want +got):\n%s", diff)
		}
	})
	if 2*told < drawn {
		t.Errorf("only %d of %d plans were sure", told, drawn)
	}
}

func drawJobs(t *rapid.T) (jobs []plannedJob) {
	apart := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) // small numbers, which rapid likes, would come at once
	seconds := func(what string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, what))*time.Second + time.Duration(apart.IntN(1000))*time.Millisecond
	}
	at := time.Duration(0)
	for n := range rapid.IntRange(2, 14).Draw(t, "jobs") {
		if n == 0 || rapid.IntRange(0, 3).Draw(t, "alone") > 0 {
			at += seconds("gap", 1, 600)
		}
		j := plannedJob{
			N: n, At: at, Key: rapid.IntRange(0, 2).Draw(t, "key"), Pass: rapid.Bool().Draw(t, "pass"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
			Version: rapid.IntRange(0, 3).Draw(t, "version"), Takes: seconds("takes", 1, 900), Fails: max(0, rapid.IntRange(-2, 3).Draw(t, "fails")),
			Attempts: rapid.IntRange(1, 3).Draw(t, "attempts"), Backoff: seconds("backoff", 1, 900),
		}
		if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
			j.Delay = seconds("delay", 1, 1500)
		}
		switch rapid.IntRange(0, 7).Draw(t, "wish") {
		case 0:
			j.Cancel = j.At + seconds("cancel", 1, 1500)
		case 1, 2:
			j.Pause = j.At + seconds("pause", 1, 1500)
			j.Resume = j.Pause + seconds("resume", 1, 1500)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// A standing is where a job of the model stands.
type standing struct {
	plannedJob
	attempt                     int
	due                         time.Duration // before which it does not go
	came, running, paused, over bool
}

// before reports whether a goes before b in a line.
func (a *standing) before(b *standing) bool {
	rank := cmp.Compare(a.At, b.At)
	switch orderBy[a.Key] {
	case "due":
		rank = cmp.Compare(a.At+a.Delay, b.At+b.Delay)
	case "args.version":
		version := func(j *standing) int { // last who lacks it
			return cmp.Or(j.Version, 1000)
		}
		rank = cmp.Compare(version(a), version(b))
	}
	if orderBy[a.Key] == "created" { // as they were numbered
		return cmp.Or(rank, cmp.Compare(a.N, b.N)) < 0
	}
	return cmp.Or(rank, cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.At, b.At), cmp.Compare(a.N, b.N)) < 0
}

// modelOfOrders returns, by key, which attempts begin, one after the other; sure is false where
// that hangs on what happens first of two things that happen at once.
func modelOfOrders(jobs []plannedJob) (want [3][]ran, sure bool) {
	type happening struct {
		at time.Duration
		do func()
	}
	var all []happening
	var now time.Duration
	later := func(at time.Duration, do func()) { all = append(all, happening{at, do}) }
	stand := make([]*standing, len(jobs))
	heads := map[int]*standing{}
	hand := func() { // who is first of those that may go, goes
		for key := range want {
			head := heads[key]
			for _, j := range stand {
				if head == nil && j.came && !j.over && !j.paused && j.Key == key && j.due <= now && (heads[key] == nil || j.before(heads[key])) {
					heads[key] = j
				}
			}
			j := heads[key]
			if j == nil || j.running || j.paused || j.due > now {
				continue
			}
			j.running = true
			j.attempt++
			want[key] = append(want[key], ran{j.N, j.attempt})
			later(now+j.Takes, func() {
				j.running = false
				if j.over = j.attempt > j.Fails || j.attempt == j.Attempts; j.over {
					delete(heads, key)
					return
				}
				if j.due = now + j.Backoff; j.Pass {
					delete(heads, key)
				}
				later(j.due, func() {})
			})
		}
	}
	for i, p := range jobs {
		j := &standing{plannedJob: p}
		stand[i] = j
		later(p.At, func() {
			j.came, j.due = true, now+j.Delay
			if j.Delay > 0 {
				later(j.due, func() {})
			}
		})
		if p.Cancel > 0 {
			later(p.Cancel, func() {
				if j.running || j.over {
					return
				}
				if j.over = true; heads[j.Key] == j {
					delete(heads, j.Key)
				}
			})
		}
		if p.Pause > 0 {
			later(p.Pause, func() {
				if j.paused = !j.running && !j.over; j.paused && j.Pass && heads[j.Key] == j {
					delete(heads, j.Key)
				}
			})
			later(p.Resume, func() { j.paused = false })
		}
	}
	for len(all) > 0 {
		first := slices.MinFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
		if now > 0 && first.at != now && first.at-now < 5*time.Millisecond {
			return want, false
		}
		now = first.at
		submitted := 0
		for _, p := range jobs {
			if p.At == now {
				submitted++
			}
		}
		var at []happening
		all = slices.DeleteFunc(all, func(h happening) bool {
			if h.at == now {
				at = append(at, h)
			}
			return h.at == now
		})
		if len(at) > max(1, submitted) { // of those that are submitted in one call the times are the same
			return want, false
		}
		for _, h := range at {
			h.do()
		}
		hand()
	}
	return want, true
}

// liveInOrder has a service run the jobs, and returns, by key, which attempts were begun.
func liveInOrder(t *testing.T, jobs []plannedJob) (got [3][]ran) {
	type args struct {
		N       int
		Version *int `json:"version,omitempty"`
	}
	virtual.Test(t, func(t *testing.T) {
		st := fake.New(time.Now)
		svc := service.New(service.Config{
			Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Options: engine.Options{Lease: time.Hour, Sweep: -1},
		})
		var mu sync.Mutex
		service.Handle(svc, "move", func(ctx context.Context, task *service.Task[args]) (struct{}, error) {
			p := jobs[task.Args.N]
			mu.Lock()
			got[p.Key] = append(got[p.Key], ran{p.N, task.Job.Attempt})
			mu.Unlock()
			select {
			case <-time.After(p.Takes):
			case <-ctx.Done():
				return struct{}{}, ctx.Err()
			}
			if task.Job.Attempt <= p.Fails {
				return struct{}{}, errors.New("it fails on purpose")
			}
			return struct{}{}, nil
		})
		ctx, stop := context.WithCancel(context.Background())
		var running, people sync.WaitGroup
		running.Go(func() {
			if err := svc.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		began := time.Now()
		until := func(at time.Duration) { time.Sleep(at - time.Since(began)) }
		wish := func(id job.ID, at time.Duration, call func(context.Context, ...job.ID) error, states ...job.State) {
			if at > 0 {
				people.Go(func() {
					until(at)
					if j, err := svc.Job(ctx, id); err != nil || slices.Contains(states, j.State) && call(ctx, id) != nil {
						t.Errorf("job %s: %s, %v", id, j.State, err)
					}
				})
			}
		}
		var ids []job.ID
		for len(ids) < len(jobs) {
			var call []service.Request
			at := jobs[len(ids)].At
			for _, p := range jobs[len(ids):] {
				if p.At != at {
					break
				}
				a := args{N: p.N}
				if p.Version > 0 {
					a.Version = &p.Version
				}
				r := service.Request{Spec: service.NewTask("move", a)}
				r.Spec.Order, r.Spec.Priority, r.Spec.Delay = &job.Order{Key: fmt.Sprint(p.Key), By: orderBy[p.Key]}, &p.Priority, job.Duration(p.Delay)
				if p.Pass {
					r.Spec.Order.Failing = job.OrderPass
				}
				r.Spec.Owner = []string{"ada", "ben"}[p.N%2]
				r.Spec.Retry = &job.RetryPolicy{MaxAttempts: p.Attempts, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(p.Backoff)}}
				call = append(call, r)
			}
			until(at)
			answers, err := svc.Submit(ctx, call...)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range answers {
				p := jobs[len(ids)]
				ids = append(ids, s.ID)
				wish(s.ID, p.Cancel, func(ctx context.Context, ids ...job.ID) error { _, err := svc.Cancel(ctx, ids...); return err }, job.Waiting, job.Paused)
				wish(s.ID, p.Pause, func(ctx context.Context, ids ...job.ID) error { _, err := svc.Pause(ctx, ids...); return err }, job.Waiting)
				wish(s.ID, p.Resume, func(ctx context.Context, ids ...job.ID) error { _, err := svc.Resume(ctx, ids...); return err }, job.Paused)
			}
		}
		people.Wait()
		for _, id := range ids {
			if _, err := svc.Wait(ctx, id); err != nil {
				t.Error(err)
			}
		}
		if all, err := st.Turns(ctx, store.TurnQuery{Tenant: "default"}); err != nil || len(all) > 0 {
			t.Errorf("turns are left: %+v, %v", all, err)
		}
		stop()
		running.Wait()
	})
	return got
}
