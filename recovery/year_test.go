package recovery_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

const (
	year = 365 * 24 * time.Hour
	// slack is for how long a test may be under way, a process may be gone, and the jobs of a group
	// may take to go one after the other, together.
	slack = 2 * time.Minute
)

// A plan is what happens in a year: hosts that are gone now and then, each with a policy of its
// own, jobs that need them, and a process that is stopped and started again, in the middle of tests
// too.
type plan struct {
	hosts    []plannedHost
	restarts []plannedRestart
}

type plannedHost struct {
	policy  job.Policy
	takes   time.Duration // a test
	outages []outage
	jobs    []time.Duration // when they are submitted
}

type outage struct{ from, to time.Duration }

type plannedRestart struct{ at, gone time.Duration }

func (h *plannedHost) down(at time.Duration) bool {
	return slices.ContainsFunc(h.outages, func(o outage) bool { return at >= o.from && at < o.to })
}

// since returns when the outage ended that was the last to end before a time; and so when the host
// was up again.
func (h *plannedHost) since(at time.Duration) (up time.Duration) {
	for _, o := range h.outages {
		if o.to <= at {
			up = max(up, o.to)
		}
	}
	return up
}

func drawPlan(t *rapid.T) (p plan) {
	span := func(what string, least, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, what)).Truncate(time.Microsecond)
	}
	for range rapid.IntRange(1, 3).Draw(t, "hosts") {
		h := plannedHost{takes: span("takes", 0, 20*time.Second)}
		stages := rapid.IntRange(1, 3).Draw(t, "stages")
		for i := range stages {
			s := job.Stage{Every: job.Duration(span("every", 5*time.Minute, 6*time.Hour)), Times: rapid.IntRange(1, 5).Draw(t, "times")}
			if i == stages-1 && rapid.Bool().Draw(t, "for ever") {
				s.Times = 0
			}
			h.policy.Stages = append(h.policy.Stages, s)
		}
		if rapid.Bool().Draw(t, "bounded") {
			h.policy.MaxWait = job.Duration(span("wait", time.Hour, 30*24*time.Hour))
		}
		for range rapid.IntRange(1, 8).Draw(t, "outages") {
			from := span("from", 0, year)
			h.outages = append(h.outages, outage{from, from + span("lasts", time.Minute, 10*24*time.Hour)})
		}
		for range rapid.IntRange(1, 20).Draw(t, "jobs") {
			at := span("at", 0, year)
			if o := rapid.SampledFrom(h.outages).Draw(t, "outage"); rapid.IntRange(0, 9).Draw(t, "free") > 0 {
				at = o.from + span("within", 0, o.to-o.from)
			}
			h.jobs = append(h.jobs, at)
		}
		p.hosts = append(p.hosts, h)
	}
	for range rapid.IntRange(0, 10).Draw(t, "restarts") {
		p.restarts = append(p.restarts, plannedRestart{span("stops", 0, year), span("gone", 0, 20*time.Second)})
	}
	slices.SortFunc(p.restarts, func(a, b plannedRestart) int { return cmp.Compare(a.at, b.at) })
	return p
}

// Each job of a year goes on within one interval after its host is back, or fails at its own
// deadline; and nothing is tested more often than its policy says.
func TestYear(t *testing.T) {
	blocked, failed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var wrong []string
		virtual.Test(t, func(t *testing.T) {
			l := &life{plan: p, began: time.Now(), ids: map[job.ID]int{}}
			wrong = l.live(t)
			blocked, failed = blocked+l.blocked, failed+l.failed
		})
		if len(wrong) > 0 {
			rt.Fatalf("%d things are wrong, the first: %s", len(wrong), wrong[0])
		}
	})
	t.Logf("%d jobs were blocked, %d failed", blocked, failed)
	if (blocked < 100 || failed < 10) && !testing.Short() { // -short lives through fewer years
		t.Errorf("%d jobs were blocked, and %d failed: too few to tell", blocked, failed)
	}
}

// A life is a plan that is lived.
type life struct {
	plan
	began time.Time
	ids   map[job.ID]int // of which host a job is

	mu    sync.Mutex
	tests [][]time.Duration // guarded by mu: when the tests of a host were begun

	blocked, failed int
	joins           [][]time.Duration // when jobs were blocked by a host
	wrong           []string
}

// at is how far the year has come.
func (l *life) at() time.Duration { return time.Since(l.began) }

// Test implements [recovery.Tester].
func (l *life) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	var i int
	fmt.Sscan(q.Params["host"], &i)
	l.mu.Lock()
	l.tests[i] = append(l.tests[i], l.at())
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return recovery.Answer{}, ctx.Err()
	case <-time.After(l.hosts[i].takes):
	}
	return recovery.Answer{Clear: !l.hosts[i].down(l.at())}, nil
}

func (l *life) live(t *testing.T) []string {
	l.tests, l.joins = make([][]time.Duration, len(l.hosts)), make([][]time.Duration, len(l.hosts))
	w := newWorld(t, service.Config{
		Testers: map[string]recovery.Tester{"year": l},
		Options: engine.Options{Lease: 24 * time.Hour, Sweep: 24 * time.Hour},
	})
	w.cfg.Log = slog.New(slog.DiscardHandler)
	begin := func() {
		w.svc = service.New(w.cfg)
		service.Handle(w.svc, "work", func(_ context.Context, t *service.Task[int]) (int, error) {
			if h := &l.hosts[t.Args]; h.down(l.at()) {
				return 0, &job.Block{
					Code: job.HostUnreachable, Message: "it is away", Tester: "year", Params: map[string]string{"host": fmt.Sprint(t.Args)}, Policy: h.policy,
				}
			}
			return 0, nil
		})
		w.start()
	}
	type act struct {
		at time.Duration
		do func()
	}
	var acts []act
	for i := range l.hosts {
		for _, at := range l.hosts[i].jobs {
			acts = append(acts, act{at, func() {
				a, err := w.svc.Submit(context.Background(), service.Request{Spec: service.NewTask("work", i)})
				if err != nil {
					t.Fatal(err)
				}
				l.ids[a[0].ID] = i
			}})
		}
	}
	for _, r := range l.restarts {
		acts = append(acts, act{r.at, func() {
			w.stop()
			time.Sleep(r.gone)
			begin()
		}})
	}
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	begin()
	for _, a := range acts {
		time.Sleep(a.at - l.at())
		a.do()
	}
	time.Sleep(year + 60*24*time.Hour - l.at())
	w.stop()
	for id, i := range l.ids {
		l.judge(w, id, i)
	}
	for i := range l.hosts {
		l.judgeTests(i)
	}
	return l.wrong
}

func (l *life) breach(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// judge looks at each time that a job was blocked.
func (l *life) judge(w *world, id job.ID, i int) {
	h := &l.hosts[i]
	page, err := w.store.Events(context.Background(), store.EventQuery{Tenant: "default", Job: id, Limit: 10000})
	if err != nil {
		w.Fatal(err)
	}
	since := time.Duration(-1)
	for _, e := range page.Events {
		at := e.At.Sub(l.began.Truncate(time.Microsecond))
		if e.State == job.Blocked {
			since, l.joins[i] = at, append(l.joins[i], at)
			continue
		}
		if since < 0 {
			continue
		}
		l.blocked++
		wait := h.policy.Wait()
		switch {
		case e.State == job.Failed:
			l.failed++
			if e.Code != job.RecoveryTimeout || wait == 0 || at < since+wait || at > since+wait+h.takes+slack {
				l.breach("job %s, blocked at %v, failed at %v (%s), and was to wait for %v", id, since, at, e.Code, wait)
			}
			if up := max(h.since(at), since); !h.down(at) && at-up > l.longest(h)+slack {
				l.breach("job %s failed at %v, and its host was back since %v", id, at, up)
			}
		case wait > 0 && at > since+wait+h.takes+slack:
			l.breach("job %s, blocked at %v, goes on at %v, and was to fail after %v", id, since, at, wait)
		default:
			up := h.since(at) // it may be gone again by now
			if up = max(up, since); at-up > l.longest(h)+slack && !l.goneBetween(h, up, at) {
				l.breach("job %s, blocked at %v, goes on at %v, and its host was back at %v: tests are at most %v apart", id, since, at, up, l.longest(h))
			}
		}
		since = -1
	}
	if j := w.job(w.svc, id); !j.State.Terminal() && (j.State != job.Blocked || h.policy.Wait() > 0 && l.at()-since > h.policy.Wait()+slack || !h.down(l.at())) {
		l.breach("job %s is left %s since %v", id, j.Place, since)
	}
}

// goneBetween reports whether a host was gone at some time between two: then nobody knows what a
// test saw.
func (l *life) goneBetween(h *plannedHost, from, to time.Duration) bool {
	return slices.ContainsFunc(h.outages, func(o outage) bool { return o.from < to && o.to > from })
}

// longest is how far apart two tests of a host are at most.
func (l *life) longest(h *plannedHost) (d time.Duration) {
	for _, s := range h.policy.Stages {
		d = max(d, time.Duration(s.Every))
	}
	return d + h.takes
}

// judgeTests looks whether a host was tested too often. What a process had begun that was stopped,
// the next one begins anew; and one that was made late, at once for a job that joined when nobody
// was there for whom it was due, is followed by one at its time.
func (l *life) judgeTests(i int) {
	h := &l.hosts[i]
	least := time.Duration(h.policy.Stages[0].Every)
	for _, s := range h.policy.Stages {
		least = min(least, time.Duration(s.Every))
	}
	for n := 1; n < len(l.tests[i]); n++ {
		before, at := l.tests[i][n-1], l.tests[i][n]
		late := n > 1 && before-l.tests[i][n-2] > least+h.takes &&
			slices.ContainsFunc(l.joins[i], func(joined time.Duration) bool { return joined <= before && before-joined < time.Second })
		again := slices.ContainsFunc(l.restarts, func(r plannedRestart) bool { return r.at >= before-time.Minute && r.at-time.Minute <= at })
		if at-before < least-h.takes-time.Second && !again && !late {
			l.breach("host %d was tested at %v and at %v, which is less than %v apart", i, before, at, least)
		}
	}
}
