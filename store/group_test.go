package store_test

import (
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
