package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// ran: what jobs noted is of jobs that there are or were, also where nobody was told of them, and
// no attempt or epoch came twice.
func (c *checker) ran() {
	c.sum.LaunchedTwice = checks.LaunchedTwice(c.did, c.broken)
	if !c.restored() { // else its epochs come again
		checks.RanTwice(c.did, c.broken)
	}
	for id := range c.did.Launches {
		c.known(id)
	}
	for id := range c.did.Tasks {
		c.known(id)
	}
}

// known: what did something is there, or somebody was told of it.
func (c *checker) known(id job.ID) {
	if _, theirs := c.theirs[id]; c.rows[id] == nil && c.promised(id) == nil && !theirs && !c.restored() {
		c.broken(id, "stranger: job %s did something, and it is not there, and was never accepted", id)
	}
}

// inTime: a job ran while it was held by a worker, or had a launch, and not when it had ended, such
// as by a cancel.
func (c *checker) inTime(j *job.Job, history []store.Event) {
	held, epoch := map[int64]bool{}, j.Epoch // after the change
	for _, e := range slices.Backward(history) {
		if e.Sub == 0 {
			held[epoch] = held[epoch] || e.Custody == job.Worker
			epoch = e.Epoch
		}
	}
	for r := range c.did.Tasks[j.ID] {
		if !held[r.Epoch] {
			c.broken(j.ID, "ran_on: task %s (%s) ran in epoch %d, in which no worker had it; it ended %s in epoch %d",
				j.ID, j.Name, r.Epoch, j.State, j.Epoch)
		}
		if r.Attempt > j.Attempt {
			c.broken(j.ID, "stranger: attempt %d of job %s (%s) was started, and it has %d", r.Attempt, j.ID, j.Name, j.Attempt)
		}
	}
	for attempt := range c.did.Launches[j.ID] {
		if attempt > j.Attempt {
			c.broken(j.ID, "stranger: attempt %d of job %s (%s) was started, and it has %d", attempt, j.ID, j.Name, j.Attempt)
		}
	}
	if n := len(c.did.Launches[j.ID]); n > j.Launch {
		c.broken(j.ID, "ran_on: job %s (%s) was started in %d attempts, and it was launched %d times; it ended %s",
			j.ID, j.Name, n, j.Launch, j.State)
	}
}

// histories: what every store must say of its jobs. Where events are missing that would wait for
// them.
func (c *checker) histories(ctx context.Context) {
	whole := true
	for id, j := range c.rows {
		changes := int64(0)
		for _, e := range c.history(ctx, id) {
			if e.Sub == 0 {
				changes++
			}
		}
		if changes < j.N {
			whole = false
			c.broken(id, "history: job %s (%s) has made %d changes, and its history has %d", id, j.Name, j.N, changes)
		}
	}
	if !whole {
		return
	}
	for _, tenant := range []string{tenant, strangerTenant} {
		checks.Histories(c.store, tenant, c.inHistory)
	}
}

// inHistory notes what a history says that it must not.
func (c *checker) inHistory(text string) {
	if c.wrongTimes() && (strings.Contains(text, "before its predecessor") ||
		strings.Contains(text, "before it came to its place")) {
		return
	}
	c.breaks("history: %s", text)
	if id, found := idIn(text); found {
		c.tell(id)
	}
}

// heard: who followed the events heard all of them, those of a job in their order, and none that
// was not committed.
func (c *checker) heard(ctx context.Context) {
	for _, e := range c.ears {
		for id := range e.jobs {
			if p := c.promised(id); c.rows[id] == nil && (p == nil || !p.deleting) {
				c.broken(id, "events: %s heard of job %s, which is not there", e.name, id)
			}
		}
	}
	for id := range c.rows {
		history := c.history(ctx, id)
		for _, e := range c.ears {
			if h := e.jobs[id]; len(h) != len(history) {
				c.broken(id, "events: %s heard %d events of job %s, which has %d", e.name, len(h), id, len(history))
				continue
			}
			for i, was := range history {
				if is := e.jobs[id][i]; !same(&is, &was.Event) {
					c.broken(id, "events: %s heard %+v of job %s, and the history says %+v", e.name, is, id, was.Event)
					break
				}
			}
		}
	}
}

func same(a, b *job.Event) bool {
	x, y := *a, *b
	equal := x.At.Equal(y.At) && bytes.Equal(x.Data, y.Data)
	x.At, x.Data, y.At, y.Data = b.At, nil, b.At, nil
	return equal && fmt.Sprint(x) == fmt.Sprint(y)
}

// ids are how databases write the id of a job: with PostgreSQL as everybody does, with SQLite by
// its bytes.
var ids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9A-F]{32}\b`)

// idIn returns the first id in a text.
func idIn(text string) (job.ID, bool) {
	found := strings.ToLower(ids.FindString(text))
	if len(found) == 32 {
		found = strings.Join([]string{found[:8], found[8:12], found[12:16], found[16:20], found[20:]}, "-")
	}
	id, err := job.ParseID(found)
	return id, err == nil
}
