package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// closed opens a group that closes a line, and has it be found clear after a minute.
func closed(now time.Time, rate *job.Limit, may int) (*store.Group, time.Time) {
	b := &job.Block{Code: job.SystemDisabled, Tester: "enabled", Line: "system/lab"}
	g := store.OpenGroup(&job.Job{Tenant: "acme", Group: b.Group("acme")}, b, now)
	began := now.Add(time.Minute)
	g.Record(&store.Test{Began: began, Clear: true, May: may}, rate, began)
	return g, began
}

// A tester that says how many jobs may go says so of those that are blocked: when these have gone, the line opens.
func TestGroupOpensWhenAllWent(t *testing.T) {
	t.Parallel()
	rate := store.Releases(nil)
	for _, may := range []int{1, 2, 0} {
		g, now := closed(time.Unix(1e9, 0), rate, may)
		if n := g.Allow(rate, now, 100); n != 1 {
			t.Fatalf("%d jobs go at first, want 1", n)
		}
		if g.Went(rate, 1, "ann", false, false, now); g.Places <= 0 || g.Wake().IsZero() {
			t.Errorf("%d may go: it gives %d places when all have gone, and wakes at %v", may, g.Places, g.Wake())
		}
	}
}

// However slow the rate of releases is, a line is not ramped up for ever.
func TestGroupOpensWholly(t *testing.T) {
	t.Parallel()
	rate := &job.Limit{Most: 1, Per: job.Duration(time.Hour)}
	g, now := closed(time.Unix(1e9, 0), rate, 0)
	for range 60 {
		g.Allow(rate, now, 0)
		g.Went(rate, 0, "", false, false, now)
		if g.Places < 0 {
			break
		}
		wake := g.Wake()
		if !wake.After(now) {
			t.Fatalf("it wakes at %v, which is not after %v", wake, now)
		}
		now = wake
	}
	if wake := g.Wake(); g.Places >= 0 || !wake.IsZero() {
		t.Errorf("it gives %d places, and wakes at %v", g.Places, wake)
	}
}

// reread returns a group as it is read by a process that has just been started.
func reread(t require, g *store.Group) *store.Group {
	t.Helper()
	doc, err := json.Marshal(g)
	read := &store.Group{Tenant: g.Tenant, Key: g.Key}
	if err == nil {
		err = json.Unmarshal(doc, read)
	}
	if err != nil {
		t.Fatalf("read a group: %v", err)
	}
	return read
}

// require is what tests and properties have in common.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
}

// The tests of a group follow the stages of its policy, whoever reads its row before each, and however long each takes. Who joins late is tested
// for as soon as who came first, and the group stays in its stage.
func TestGroupGoesThroughItsStages(t *testing.T) {
	t.Parallel()
	every := []time.Duration{10 * time.Second, 10 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute}
	b := &job.Block{Code: job.TaskBlocked, Tester: "http", Policy: job.Policy{Stages: []job.Stage{
		{Every: job.Duration(10 * time.Second), Times: 2}, {Every: job.Duration(30 * time.Second), Times: 3}, {Every: job.Duration(5 * time.Minute)},
	}}}
	for late := range len(every) { // after so many tests somebody joins
		now := time.Unix(1e9, 0)
		g := store.OpenGroup(&job.Job{Tenant: "acme", Group: b.Group("acme")}, b, now)
		at := now
		for n := range every {
			at = at.Add(every[n])
			if n == late {
				joined := now.Add(9 * time.Second)
				if g.Join(b, joined) {
					t.Error("it was clear")
				}
				if soon := joined.Add(every[0]); soon.Before(at) {
					at = soon
				}
			}
			g = reread(t, g)
			if !g.Next.Equal(at) {
				t.Fatalf("who joins after %d tests: test %d is due at %v, want %v", late, n, g.Next, at)
			}
			now = at.Add(2 * time.Second)
			if !g.Record(&store.Test{Began: at, Result: "it is away"}, store.Releases(nil), now) || g.Tests != n+1 {
				t.Fatalf("test %d is not news, or counts for %d", n, g.Tests)
			}
		}
	}
}
