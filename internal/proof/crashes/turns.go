package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// most returns how many jobs may have turns of a key: internal/proof/victim/jobs.go sets these
// limits.
func most(key string) int {
	switch {
	case job.Ordered(key):
		return 1
	case key == job.SystemKey(job.SystemLocal), key == job.SystemKey(farName):
		return 8
	}
	return 2
}

// turns: by the account of those who ran, never more ran side by side under a key than its limit
// lets go, and one of an order. And each stood under the keys that the load gave it.
func (c *checker) turns(ctx context.Context) {
	running := map[string][]*ledger.Run{}
	for _, r := range c.ledger.Runs {
		j := c.rows[r.Job]
		if j == nil || r.End < r.Begin || !checks.Rightful(ctx, j, r.Epoch, c.history) {
			continue
		}
		keys := slices.Clone(j.Limits)
		if j.Order != "" {
			keys = append(keys, j.Order)
		}
		for _, key := range keys {
			running[key] = append(running[key], r)
		}
	}
	for key, runs := range running {
		c.side(key, runs)
	}
	for _, j := range c.rows {
		spec, err := job.ParseSpec(j.Request)
		if err != nil {
			c.breaks("limit: job %s: %v", j.ID, err)
			continue
		}
		keys := spec.Limits
		if j.Program() {
			keys = append(keys, job.SystemKey(cmp.Or(spec.System, job.SystemLocal)))
		}
		for _, key := range keys {
			if !slices.Contains(j.Limits, key) {
				c.breaks("limit: job %s (%s) is to be under %s, and is under %q", j.ID, j.ExternalID, key, j.Limits)
			}
		}
		for _, e := range c.history(ctx, j.ID) {
			if e.Cause == job.CauseTurn {
				c.waited++
			}
		}
		if spec.Order == nil {
			continue
		}
		if key, err := spec.OrderKey(); err != nil || j.Order != key {
			c.breaks("order: job %s (%s) is to be in %s, and is in %q: %v", j.ID, j.ExternalID, key, j.Order, err)
		}
	}
}

// side looks who ran side by side under a key. Lines were written in the order of the ledger: each
// ran at least between its own two.
func (c *checker) side(key string, runs []*ledger.Run) {
	var beside []*ledger.Run
	for _, r := range runs {
		beside = append(slices.DeleteFunc(beside, func(o *ledger.Run) bool { return o.End < r.Begin }), r)
		may := most(key)
		if len(beside) > may {
			var names []string
			for _, o := range beside {
				names = append(names, c.rows[o.Job].ExternalID)
			}
			what := "limit"
			if job.Ordered(key) {
				what = "order"
			}
			c.breaks("%s: of %s %d may run side by side, and %s did, the last from line %d of the ledger",
				what, key, may, strings.Join(names, ", "), r.Begin)
			return
		}
		if len(beside) == may && !job.Ordered(key) {
			c.full++
		}
	}
}

// orders: those of an order began in the order in which they were submitted. The load submits its
// jobs by their number. One that is delayed or waits for another comes into the line later, and one
// that was paused may have been taken out of it.
func (c *checker) orders(ctx context.Context) {
	type place struct{ number, began int }
	lines := map[string][]place{}
	began := map[job.ID]bool{}
	for _, r := range c.ledger.Runs {
		j := c.rows[r.Job]
		if j == nil || j.Order == "" || began[j.ID] {
			continue
		}
		began[j.ID] = true
		number, err := strconv.Atoi(strings.TrimPrefix(j.ExternalID, "load-"))
		if err != nil {
			c.breaks("order: job %s: %v", j.ID, err)
			continue
		}
		paused := slices.ContainsFunc(c.history(ctx, j.ID), func(e store.Event) bool { return e.State == job.Paused })
		for _, before := range lines[j.Order] {
			if before.number > number && !c.late(j) && !paused {
				c.breaks("order: of %s load-%d began at line %d of the ledger, before load-%d did at line %d",
					j.Order, before.number, before.began, number, r.Begin)
			}
		}
		lines[j.Order] = append(lines[j.Order], place{number, r.Begin})
	}
}

// late reports whether a job may have come into its line after those behind it.
func (c *checker) late(j *job.Job) bool {
	spec, err := job.ParseSpec(j.Request)
	p := c.ledger.Promises[j.ID]
	return err != nil || spec.Delay > 0 || p == nil || !p.After.IsZero()
}
