package main

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// poisoned reports whether a job was rightly found to be what kills its processes. Nothing tells a job that does from one
// that is at work whenever a storm strikes, so here it is enough that the rule was kept: its process died as often as it
// takes, and no step of it came to its end in between.
func (c *checker) poisoned(ctx context.Context, j *job.Job) bool {
	history, err := c.store.Events(ctx, store.EventQuery{Tenant: tenant, Job: j.ID, Limit: 10_000})
	if err != nil {
		c.breaks("database: %v", err)
	}
	died := job.Expired(&job.Job{}, true)
	crashes := 0
	var before job.Event
	for _, e := range history.Events {
		switch stepped := e.State != before.State || e.Custody != before.Custody; {
		case e.Code == job.Poison, e.Cause == job.CauseExpired && e.Message == died.Last().Message:
			crashes++
		case e.Cause == job.CauseWork && stepped, e.Cause == job.CauseTurned:
			crashes = 0
		}
		before = e.Event
	}
	return crashes >= job.PoisonAt
}
