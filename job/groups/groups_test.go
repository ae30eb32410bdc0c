package groups

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// closed opens a group that closes a line, and has it be found clear after a minute.
func closed(now time.Time, rate *job.Limit, may int) (*Group, time.Time) {
	b := &job.Block{Code: job.SystemDisabled, Tester: "enabled", Line: "system/lab"}
	g := Open(&job.Job{Tenant: "acme", Group: b.Group("acme")}, b, now)
	began := now.Add(time.Minute)
	g.Record(&Test{Began: began, Clear: true, May: may}, rate, began)
	return g, began
}

// A tester that says how many jobs may go says so of those that are blocked: when these have gone,
// the line opens.
func TestGroupOpensWhenAllWent(t *testing.T) {
	t.Parallel()
	rate := Rate(nil)
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

// A group is tested as often as the densest of the policies of its jobs says, whoever came first.
func TestGroupOfMixedPolicies(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	policy := func(stages ...job.Stage) *job.Block {
		return &job.Block{Code: job.FilesUnavailable, Policy: job.Policy{Stages: stages}}
	}
	rarely, often := policy(job.Stage{Every: job.Duration(24 * time.Hour)}),
		policy(job.Stage{Every: job.Duration(time.Minute), Times: 15})
	for name, join := range map[string][]*job.Block{
		"the one who is patient comes first": {rarely, often},
		"the other does":                     {often, rarely},
	} {
		now := began
		g := Open(&job.Job{}, join[0], now)
		g.Join(join[1], now)
		for test := range 20 {
			if next := began.Add(time.Duration(test+1) * time.Minute); !g.Next.Equal(next) {
				t.Fatalf("%s: test %d is due %v after the beginning", name, test, g.Next.Sub(began))
			}
			now = g.Next
			g.Record(&Test{Began: now}, Rate(nil), now)
		}
	}
}

// A group of any code shows the newest trouble; any other group that of the job that opened it.
func TestGroupShowsTheNewest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	for anyCode, want := range map[bool]job.Code{true: job.ConnectionTimeout, false: job.HostRefused} {
		b := job.Block{Code: job.HostRefused, AnyCode: anyCode, Message: "refused", Tester: "ssh"}
		g := Open(&job.Job{Message: b.Message}, &b, now)
		b.Code, b.Message = job.ConnectionTimeout, "silent"
		g.Join(&b, now)
		if g.Block.Code != want || (g.Block.Message == "silent") != anyCode {
			t.Errorf("any code %t: it shows %s (%s)", anyCode, g.Block.Code, g.Block.Message)
		}
		if again := reread(t, g); again.Block.AnyCode != anyCode {
			t.Errorf("any code %t is read as %t", anyCode, again.Block.AnyCode)
		}
	}
}

// Who has the trouble may ask for no test: that holds for all of the group, whatever the policies
// of its jobs say, but not for a person.
func TestGroupIsLeftAlone(t *testing.T) {
	t.Parallel()
	usual := &job.Block{
		Code:   job.FilesUnavailable,
		Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Second)}}},
	}
	asked := *usual
	asked.After = job.Duration(time.Minute)
	began, rate := time.Unix(1e9, 0), Rate(nil)
	now, g := began, Open(&job.Job{}, usual, began)
	is := func(what string, after time.Duration) {
		t.Helper()
		if got := g.Next.Sub(began); got != after {
			t.Fatalf("%s: the next test is due after %v, want %v", what, got, after)
		}
	}
	is("it was opened", time.Second)
	g.Join(&asked, now)
	is("one joins who was asked to come back later", time.Minute)
	now = now.Add(10 * time.Second)
	g.Join(usual, now)
	is("another one joins", time.Minute)
	now = began.Add(time.Minute)
	g.Record(&Test{Began: now, After: time.Hour}, rate, now)
	is("the test itself was asked to come back later", time.Minute+time.Hour)
	g.Act(TryNow, "", rate, now)
	is("a person wants to know", time.Minute)
	now = now.Add(time.Microsecond)
	g.Record(&Test{Began: now}, rate, now)
	is("as it was", time.Minute+time.Second)
	if g := Open(&job.Job{}, &asked, began); g.Next.Sub(began) != time.Minute || g.Block.After != 0 ||
		g.Block.Policy.Every(0) != time.Second {
		t.Errorf("opened by one who was asked to come back later: %+v", g)
	}
}

// A group of which nothing is left but the line that it closes is tested as often as the densest
// policy said, and is kept no longer for that.
func TestGroupIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	b := &job.Block{
		Code: job.SystemDisabled, Line: "system/x",
		Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Second)}}},
	}
	g := Open(&job.Job{}, b, began)
	for now := began; now.Before(began.Add(Kept)); now = now.Add(time.Second) {
		if g.Record(&Test{Began: now}, Rate(nil), now); g.Idle(now) {
			t.Fatalf("it is gone after %v", now.Sub(began))
		}
	}
	if !g.Idle(began.Add(Kept)) {
		t.Error("it is kept because it is tested")
	}
}

// reread returns a group as it is read by a process that has just been started.
func reread(t require, g *Group) *Group {
	t.Helper()
	doc, err := json.Marshal(g)
	read := &Group{Tenant: g.Tenant, Key: g.Key}
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

// The tests of a group follow the stages of its policy, whoever reads its row before each, and
// however long each takes. Who joins late is tested for as soon as who came first, and the group
// stays in its stage.
func TestGroupGoesThroughItsStages(t *testing.T) {
	t.Parallel()
	every := []time.Duration{
		10 * time.Second, 10 * time.Second, 30 * time.Second, 30 * time.Second,
		30 * time.Second, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute,
	}
	b := &job.Block{Code: job.TaskBlocked, Tester: "http", Policy: job.Policy{Stages: []job.Stage{
		{Every: job.Duration(10 * time.Second), Times: 2},
		{Every: job.Duration(30 * time.Second), Times: 3},
		{Every: job.Duration(5 * time.Minute)},
	}}}
	for late := range len(every) { // after so many tests somebody joins
		now := time.Unix(1e9, 0)
		g := Open(&job.Job{Tenant: "acme", Group: b.Group("acme")}, b, now)
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
			if !g.Record(&Test{Began: at, Result: "it is away"}, Rate(nil), now) || g.Tests != n+1 {
				t.Fatalf("test %d is not news, or counts for %d", n, g.Tests)
			}
		}
	}
}
