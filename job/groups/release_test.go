package groups

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// A crowd is a group with its jobs, which go as a store has them go, and what is known of it
// without looking into it.
type crowd struct {
	*rapid.T
	g     *Group
	block *job.Block
	rate  *job.Limit
	now   time.Time
	jobs  []waiting // the oldest first

	pace   int       // they go 2^pace times as fast as the rate says
	turned time.Time // when that changed last
	run    *run      // nil: it is not clear
	runs   []*run

	went, again int
}

// A waiting job has joined the group.
type waiting struct {
	owner string
	since time.Time
}

// A run is what goes on from the moment at which a group is found clear.
type run struct {
	began, from time.Time // the test began, and the first goes at the latest
	may         int       // 0: all
	gone        []gone
}

type gone struct {
	owner string
	at    time.Time
	gap   time.Duration // until the next is to go, at most
}

// due is when the next job goes at the latest, if there is one that may.
func (r *run) due() time.Time {
	if n := len(r.gone); n > 0 {
		return r.gone[n-1].at.Add(r.gone[n-1].gap)
	}
	return r.from
}

// spent reports whether as many jobs went as might.
func (r *run) spent() bool { return r.may > 0 && len(r.gone) == r.may }

func newCrowd(t *rapid.T) *crowd {
	c := &crowd{T: t, now: time.Unix(1e9, 0)}
	c.rate = &job.Limit{
		Most: rapid.SampledFrom([]int{1, 2, 3, 10, 100, 5000, 1_000_000}).Draw(t, "most"),
		Per:  job.Duration(rapid.SampledFrom([]time.Duration{job.MinPer, 50 * time.Millisecond, time.Second, 10 * time.Second, time.Hour}).Draw(t, "per")),
	}
	every := rapid.SampledFrom([]time.Duration{job.MinEvery, time.Second, time.Minute}).Draw(t, "every")
	c.block = &job.Block{Code: job.SystemDisabled, Tester: "enabled", Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(every)}}}}
	if rapid.Bool().Draw(t, "line") {
		c.block.Line = "system/lab"
	}
	c.g = Open(&job.Job{Tenant: "acme", Group: c.block.Group("acme")}, c.block, c.now)
	c.jobs = []waiting{{"ann", c.now}}
	return c
}

// gap is how far apart jobs go.
func (c *crowd) gap() time.Duration {
	if c.pace < 0 {
		return c.rate.Every() << -c.pace
	}
	return max(time.Microsecond, (c.rate.Every() >> c.pace).Truncate(time.Microsecond))
}

// faster has the pace double for each second that has gone by. Where a line opens it goes beyond
// the rate.
func (c *crowd) faster() {
	top := 0
	if c.block.Line != "" {
		top = 20
	}
	for ; c.pace < top && c.now.Sub(c.turned) >= time.Second; c.turned = c.turned.Add(time.Second) {
		c.pace++
	}
}

func (c *crowd) pass(most time.Duration) {
	c.now = c.now.Add(time.Duration(rapid.Int64Range(0, int64(most/time.Microsecond)).Draw(c.T, "passes")) * time.Microsecond)
}

func (c *crowd) join() {
	c.jobs = append(c.jobs, waiting{rapid.SampledFrom([]string{"ann", "bob", "cy", "dora"}).Draw(c.T, "owner"), c.now})
	again := c.g.Join(c.block, c.now)
	if again != (c.run != nil) || c.g.Wake() != (time.Time{}) {
		c.Fatalf("who joins has it tested again: %t; %+v", again, c.g)
	}
	if again { // half as fast, and no slower than a 64th of the rate
		c.pace, c.turned, c.run = max(-6, min(c.pace, 0)-1), c.now, nil
		c.again++
	}
	c.tested()
}

// tested fails the test unless the group is tested within an interval.
func (c *crowd) tested() {
	c.Helper()
	if next := c.g.Next; next.IsZero() || next.After(c.now.Add(c.block.Policy.Every(0))) {
		c.Fatalf("at %v it is tested next at %v", c.now, next)
	}
}

// test has the group be tested, while others join.
func (c *crowd) test(clear bool, others int) {
	c.now = c.now.Add(time.Microsecond)
	t := Test{Began: c.now, Clear: clear, May: max(0, rapid.IntRange(-3, 3).Draw(c.T, "may"))}
	for range others {
		c.pass(time.Second)
		c.join()
	}
	c.pass(time.Second)
	if !c.g.Record(&t, c.rate, c.now) {
		c.Fatalf("a test is no news: %+v", c.g)
	}
	if clear {
		c.begin(t.Began, t.May)
	} else {
		c.tested()
	}
}

// begin is the beginning of a run.
func (c *crowd) begin(began time.Time, may int) {
	c.run = &run{began: began, from: c.now, may: may}
	c.pace, c.turned = min(c.pace, 0), c.now
	for _, r := range c.runs { // the first is as far from who went before as from who follows
		if next := c.now.Add(c.gap()); len(r.gone) > 0 && r.due().After(c.run.from) {
			c.run.from = r.due()
			if next.Before(c.run.from) {
				c.run.from = next
			}
		}
	}
	c.runs = append(c.runs, c.run)
}

// release is what a person does.
func (c *crowd) release() {
	c.g.Act(Release, "root", c.rate, c.now)
	c.begin(c.now, 0)
}

// those returns the jobs that may go, and whether others are there.
func (c *crowd) those() (may map[string][]waiting, n int, others bool) {
	may = map[string][]waiting{}
	for _, j := range c.jobs {
		if !j.since.After(c.g.Clear) {
			may[j.owner] = append(may[j.owner], j)
			n++
		}
	}
	return may, n, n < len(c.jobs)
}

// look has jobs go whose moment has come, as a store does.
func (c *crowd) look() {
	if rapid.IntRange(0, 3).Draw(c.T, "restart") == 0 {
		c.g = reread(c.T, c.g)
	}
	limit := rapid.IntRange(1, 30).Draw(c.T, "limit")
	allowed := c.g.Allow(c.rate, c.now, limit)
	may, there, later := c.those()
	going, last := RoundRobin(slices.Sorted(maps.Keys(may)), may, c.g.Last, allowed)
	for _, j := range going {
		i := slices.Index(c.jobs, j)
		c.jobs = slices.Delete(c.jobs, i, i+1)
	}
	left, n, _ := c.those()
	c.g.Went(c.rate, len(going), last, n > 0, later, c.now)
	c.went += len(going)
	if c.run == nil {
		if allowed != 0 {
			c.Fatalf("%d may go of a group that is not clear", allowed)
		}
		return
	}
	c.faster()
	if len(going) == 0 && there > 0 && !c.now.Before(c.run.due()) {
		c.Fatalf("nobody goes at %v, and somebody was to go by %v: %+v", c.now, c.run.due(), c.g)
	}
	for _, j := range going {
		c.goes(j)
	}
	c.judge(left, len(going))
	switch {
	case n > 0 && !c.run.spent():
		if wake := c.g.Wake(); wake.IsZero() || wake.After(c.run.due()) {
			c.Fatalf("it wakes at %v, and the next is to go by %v: %+v", wake, c.run.due(), c.g)
		}
	case n > 0, later:
		c.run = nil
		c.tested()
	}
	if (c.run == nil) != c.g.Clear.IsZero() {
		c.Fatalf("%d may go, others are there: %t; %+v", n, later, c.g)
	}
}

// goes notes that a job goes.
func (c *crowd) goes(j waiting) {
	if j.since.After(c.run.began) {
		c.Fatalf("%s, who joined at %v, goes by a test that began at %v", j.owner, j.since, c.run.began)
	}
	for _, other := range c.jobs {
		if other.owner == j.owner && other.since.Before(j.since) {
			c.Fatalf("%s goes who joined at %v, before one who joined at %v", j.owner, j.since, other.since)
		}
	}
	c.run.gone = append(c.run.gone, gone{j.owner, c.now, c.gap()})
}

// judge looks at the last n jobs that went in a run, where left may still go.
func (c *crowd) judge(left map[string][]waiting, n int) {
	all := c.run.gone
	if c.run.may > 0 && len(all) > c.run.may {
		c.Fatalf("%d went, and %d might", len(all), c.run.may)
	}
	// Moments are a gap apart from the first, at which it was found clear, and are used up to so late.
	for i, first := range all[:len(all)-min(1, len(all))] {
		if most := 1 + int((c.now.Sub(first.at)+job.Lateness)/c.gap()); n > 0 && len(all)-i > most {
			c.Fatalf("%d went within %v, which is more than %d: one every %v", len(all)-i, c.now.Sub(first.at), most, c.gap())
		}
	}
	if c.block.Line == "" {
		c.judgeRate()
	}
	// Between two of an owner each other one has a turn, who has jobs.
	for i := len(all) - n; i < len(all); i++ {
		turns := map[string]int{}
		before := i - 1
		for ; before >= 0 && all[before].owner != all[i].owner; before-- {
			turns[all[before].owner]++
		}
		if before < 0 {
			continue
		}
		for owner := range left {
			if owner != all[i].owner && turns[owner] == 0 {
				c.Fatalf("two of %s go, and none of %s", all[i].owner, owner)
			}
		}
		for owner, n := range turns {
			if n > 1 {
				c.Fatalf("%d of %s go, and one of %s", n, owner, all[i].owner)
			}
		}
	}
}

// judgeRate fails the test if more went than the rate allows, in the time for which it is given,
// however often the group is found clear.
func (c *crowd) judgeRate() {
	n := 0
	for _, r := range c.runs {
		for _, g := range r.gone {
			if c.now.Sub(g.at) < time.Duration(c.rate.Per) {
				n++
			}
		}
	}
	if n > c.rate.Most {
		c.Fatalf("%d went within %v, in which %d may", n, c.rate.Per, c.rate.Most)
	}
}

// Jobs go as fast as the rate allows and no faster, more slowly after somebody has blocked again,
// the oldest first, and of all owners in turn; only those go who were there when the test began;
// and in the end all have gone.
func TestRelease(t *testing.T) {
	t.Parallel()
	went, again := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd(t)
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 15).Draw(t, "what"); {
			case what < 4 && (c.run == nil || what == 0):
				c.join()
			case what == 4 && len(c.jobs) > 0: // somebody is canceled
				i := rapid.IntRange(0, len(c.jobs)-1).Draw(t, "canceled")
				c.jobs = slices.Delete(c.jobs, i, i+1)
			case what == 5 && c.run == nil:
				c.test(false, rapid.IntRange(0, 2).Draw(t, "late"))
			case what < 9 && c.run == nil:
				c.test(true, rapid.IntRange(0, 2).Draw(t, "late"))
			case what == 9 && len(c.jobs) > 0:
				c.release()
			case what == 10:
				c.pass(3 * time.Second)
			case what == 11:
				c.pass(2 * c.gap())
			case what == 12:
				c.pass(2 * job.Lateness)
				c.look()
			default:
				c.wake()
				c.look()
			}
		}
		for step := 0; len(c.jobs) > 0; step++ {
			if step == 10_000 {
				t.Fatalf("%d jobs never go: %+v", len(c.jobs), c.g)
			}
			if c.wake(); c.run == nil {
				c.test(true, 0)
			} else {
				c.look()
			}
		}
		went, again = went+c.went, again+c.again
	})
	t.Logf("%d jobs went, and %d blocked again", went, again)
	if went == 0 || again == 0 {
		t.Error("that says nothing")
	}
}

// wake has time go by until there is something to do.
func (c *crowd) wake() {
	at := c.g.Next
	if c.run != nil {
		at = c.g.Wake()
	}
	if at.After(c.now) {
		c.now = at
	}
}
