package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// inOrder puts one job of six in order with others, and returns its key; empty: it is in none.
func (s *storm) inOrder(i int, spec *job.Spec) (key string) {
	rnd := s.random(fmt.Sprintf("order of job %d", i))
	if rnd.IntN(6) > 0 {
		return ""
	}
	n := rnd.IntN(30)
	o := &job.Order{Key: fmt.Sprint("k", n)}
	switch {
	case n < 15: // by submission
	case n < 20, spec.Kind == "":
		o.By = "due"
	default:
		o.By = "args.millis"
	}
	if rnd.IntN(3) == 0 {
		o.Failing = job.OrderPass
	}
	spec.Order = o
	key, err := spec.OrderKey()
	if err != nil {
		panic(err) // no storm has such args
	}
	return key
}

// A going is a time in which a job was the one that went of its order, by its history.
type going struct {
	job      *job.Job
	from, to time.Time
}

// orders: of an order one job goes at a time, from when it is let go until it has ended or, where
// it lets others pass, until it is in trouble. And of those that go by their submission who was
// accepted before another one was submitted goes before it.
func (c *checker) orders(ctx context.Context) {
	if c.restored() {
		return // their history is another one than what they did
	}
	gone, stood := map[string][]going{}, map[job.ID]bool{}
	for _, j := range c.rows {
		if j.Order == "" || !j.State.Terminal() {
			continue
		}
		var all []going
		all, stood[j.ID] = c.goings(j, c.history(ctx, j.ID))
		gone[j.Order] = append(gone[j.Order], all...)
	}
	lines := map[string][]*promise{}
	for _, p := range c.book.where(func(p *promise) bool { return p.ordered != "" }) {
		j := c.rows[p.id]
		if j == nil {
			continue
		}
		if lines[p.ordered] = append(lines[p.ordered], p); j.Order != p.ordered {
			c.broken(j.ID, "order: job %s (%s) is to be in %s, and is in %q", j.ID, j.Name, p.ordered, j.Order)
		}
	}
	for _, line := range lines {
		c.inLine(line, stood)
	}
	if c.wrongTimes() {
		return // those of a history are the database's
	}
	for key, all := range gone {
		slices.SortFunc(all, func(a, b going) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; b.from.Before(a.to) {
				c.broken(b.job.ID, "order: job %s went of %s at %s, and job %s from %s to %s",
					b.job.ID, key, b.from, a.job.ID, a.from, a.to)
			}
		}
	}
}

// goings returns when a job was the one that went of its order, and whether it stood in line all
// the time until it ran. One whose results are archived lets nobody pass.
func (c *checker) goings(j *job.Job, history []store.Event) (all []going, line bool) {
	var now *going
	spec, err := job.ParseSpec(j.Request)
	line, pass := err == nil && spec.Delay == 0, orderOf(j).Failing == job.OrderPass
	ran := false
	var at job.State // how far it has come: the last state in which it is in no trouble
	for i, e := range history {
		if e.State != job.Paused && e.State != job.Blocked {
			at = e.State
		}
		if e.Sub > 0 {
			continue
		}
		if now == nil && (e.Cause == job.CauseTurn || i == 0 && e.State == job.Pending) {
			now = &going{j, e.At, j.Ended}
		}
		passes := pass && at != job.Archiving && (e.State == job.Paused || e.State == job.Blocked ||
			e.State == job.Waiting && (e.Cause == job.CauseWork || e.Cause == job.CauseDiverted))
		switch {
		case now == nil && (e.Custody == job.Ready || e.Custody == job.Worker || e.Custody == job.Monitor):
			c.broken(j.ID, "order: job %s (%s) came to %s by %s at %s, and it was not the one that went of %s",
				j.ID, j.Name, e.State, e.Cause, e.At, j.Order)
			return all, false
		case now == nil && len(all) == 0 && e.State == job.Paused, passes && e.State == job.Paused,
			passes && e.State == job.Blocked && !ran:
			line = false
		}
		ran = ran || e.State == job.Running
		if now != nil && (e.State.Terminal() || passes) {
			now.to = e.At
			all, now = append(all, *now), nil
		}
	}
	return all, line
}

// inLine: of jobs of one order that go by their submission those run first that were accepted
// before others were submitted, by their own account. By which the database goes may be a clock
// that is wrong.
func (c *checker) inLine(line []*promise, stood map[job.ID]bool) {
	for _, p := range line {
		for _, q := range line {
			a, b := c.rows[p.id], c.rows[q.id]
			if p.answered > q.since || !stood[p.id] || orderOf(a).By != "" || orderOf(b).By != "" ||
				c.wrongTimes() && !a.Created.Before(b.Created) {
				continue
			}
			first, ran := c.began[p.id]
			if next, too := c.began[q.id]; ran && too && next+ledger.Centisecond < first {
				c.broken(q.id, "order: job %s (%s) ran at %s, and job %s, which was accepted to %s before it was submitted, at %s",
					q.id, q.name, next, p.id, p.ordered, first)
			}
		}
	}
}

// orderOf returns the order that a job was submitted with.
func orderOf(j *job.Job) job.Order {
	spec, err := job.ParseSpec(j.Request)
	if err != nil || spec.Order == nil {
		return job.Order{}
	}
	return *spec.Order
}

// apiece: by the account of those who ran in one order nobody runs between two runs of a job,
// unless that lets others pass.
func (c *checker) apiece(spans []ledger.Span) {
	again, other, found := inPieces(spans, func(id job.ID) bool { return orderOf(c.rows[id]).Failing == job.OrderPass })
	if j := c.rows[again.Job]; found {
		c.broken(j.ID, "order: job %s (%s) ran at %s, once more after another of %s: job %s at %s",
			j.ID, j.Name, again.Begin, j.Order, other.Job, other.Begin)
	}
}

// inPieces finds a job that runs again although another one has certainly run since the time
// before.
func inPieces(spans []ledger.Span, pass func(job.ID) bool) (again, other ledger.Span, found bool) {
	slices.SortFunc(spans, func(a, b ledger.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	runs := map[job.ID]ledger.Span{}
	for _, s := range spans {
		before, ran := runs[s.Job]
		runs[s.Job] = s
		if !ran || pass(s.Job) {
			continue
		}
		i := slices.IndexFunc(spans, func(o ledger.Span) bool {
			return o.Job != s.Job && o.Earliest() > before.Begin && o.Begin < s.Earliest()
		})
		if i >= 0 {
			return s, spans[i], true
		}
	}
	return again, other, false
}
