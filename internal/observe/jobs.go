package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// fresh is for how long what was read for a scrape is good for the next ones; mostQueues are the
// queues that are looked at, and the lines that nobody serves, and machines where nobody watches,
// which are told of.
const (
	fresh      = 10 * time.Second
	mostQueues = 100
	patience   = 5 * time.Second
	mostLimits = 100  // that are told of
	mostKeys   = 1000 // whose turns are read at once
	mostGroups = 1000 // that are read at once
)

// Jobs adds what the rows of a tenant say to the metrics. It reads when it is scraped, and no more
// than every ten seconds.
func (o *Observer) Jobs(s store.Store, tenant string) {
	o.registry.MustRegister(&jobs{store: s, tenant: tenant, log: o.log})
}

// jobs collects what is in the rows.
type jobs struct {
	store  store.Store
	tenant string
	log    *slog.Logger

	mu   sync.Mutex
	read time.Time           // guarded by mu: when
	last []prometheus.Metric // guarded by mu: what was read then
}

var (
	jobsDesc     = prometheus.NewDesc("pawl_jobs", "Jobs that have not ended, by state.", []string{"state"}, nil)
	unservedDesc = prometheus.NewDesc("pawl_jobs_unserved",
		"Jobs of all tenants that are ready in a line for which no live process is there that claims, by queue "+
			"and kind; of a line up to 1000.",
		[]string{"queue", "kind"}, nil)
	unwatchedDesc = prometheus.NewDesc("pawl_jobs_unwatched",
		"Jobs of all tenants with a program that no live process watches, by watch: the id of a machine, or "+
			"SYSTEM/USER; of each up to 1000.",
		[]string{"watch"}, nil)
	turnsDesc = prometheus.NewDesc("pawl_limit_turns",
		"Turns that jobs have, by the limit that decides on their keys.", []string{"limit"}, nil)
	waitingDesc = prometheus.NewDesc("pawl_limit_waiting",
		"Jobs that wait for their turn, by the limit that decides.", []string{"limit"}, nil)
	idleDesc = prometheus.NewDesc("pawl_limit_idle",
		"Turns that are free while jobs wait in line for them, by the limit that decides: 0, but for the "+
			"milliseconds in which they are handed on.",
		[]string{"limit"}, nil)
	blockedDesc = prometheus.NewDesc("pawl_blocked_jobs", "Jobs that are blocked, by condition.", []string{"code"}, nil)
	ageDesc     = prometheus.NewDesc("pawl_queue_oldest_ready_seconds",
		"For how long the ready job of the queue that was submitted first has been ready; 0 when none is.",
		[]string{"queue"}, nil)
)

// Describe implements [prometheus.Collector].
func (c *jobs) Describe(to chan<- *prometheus.Desc) {
	to <- jobsDesc
	to <- ageDesc
	to <- unservedDesc
	to <- unwatchedDesc
	to <- turnsDesc
	to <- waitingDesc
	to <- idleDesc
	to <- blockedDesc
}

// Collect implements [prometheus.Collector]. What cannot be read is left out, and logged.
func (c *jobs) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) > fresh {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var err error
		if c.last, err = c.look(ctx); err != nil {
			c.log.Warn("metrics of jobs are missing", "error", err)
		}
		c.read = time.Now()
	}
	for _, m := range c.last {
		to <- m
	}
}

// look reads the rows.
func (c *jobs) look(ctx context.Context) (all []prometheus.Metric, err error) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	var unfinished []string
	for _, s := range job.States {
		if !s.Terminal() {
			unfinished = append(unfinished, string(s))
		}
	}
	counts, err := c.store.Count(ctx, c.tenant, job.Filter{{Field: "state", Op: job.Is, Values: unfinished}})
	if err != nil {
		return all, fmt.Errorf("count jobs: %w", err)
	}
	for _, s := range unfinished {
		gauge(jobsDesc, float64(counts.States[job.State(s)]), s)
	}
	documents, err := c.store.Resources(ctx, store.ResourceQuery{Tenant: c.tenant, Kind: job.KindQueue})
	if err != nil {
		return all, fmt.Errorf("list queues: %w", err)
	}
	queues := []string{job.DefaultQueue}
	for _, d := range documents {
		if d.Name != job.DefaultQueue && len(queues) < mostQueues {
			queues = append(queues, d.Name)
		}
	}
	for _, q := range queues {
		page, err := c.store.List(ctx, store.Query{
			Tenant: c.tenant, Sort: store.Oldest, Limit: 1, Filter: job.Filter{
				{Field: "custody", Op: job.Is, Values: []string{string(job.Ready)}},
				{Field: "queue", Op: job.Is, Values: []string{q}},
			},
		})
		if err != nil {
			return all, fmt.Errorf("look at queue %s: %w", q, err)
		}
		age := 0.0
		for _, j := range page.Jobs {
			age = max(0, time.Since(j.Since).Seconds())
		}
		gauge(ageDesc, age, q)
	}
	unattended, err := c.store.Unattended(ctx)
	if err != nil {
		return all, fmt.Errorf("look for jobs that wait for a process that is not there: %w", err)
	}
	unserved := map[job.QueueKind]int{} // of all machines together
	for _, u := range unattended.Unserved {
		if _, known := unserved[u.QueueKind]; known || len(unserved) < mostQueues {
			unserved[u.QueueKind] += u.Jobs
		}
	}
	for line, n := range unserved {
		gauge(unservedDesc, float64(n), line.Queue, line.Kind)
	}
	for _, u := range unattended.Unwatched[:min(len(unattended.Unwatched), mostQueues)] {
		gauge(unwatchedDesc, float64(u.Jobs), u.Watch)
	}
	uses, err := c.limits(ctx)
	for key, use := range uses {
		gauge(turnsDesc, float64(use.held), key)
		gauge(waitingDesc, float64(use.waiting), key)
		gauge(idleDesc, float64(use.idle), key)
	}
	if err != nil {
		return all, err
	}
	blocked := map[job.Code]int{}
	for q, more := (store.GroupQuery{Tenant: c.tenant, Limit: mostGroups}), true; more; {
		groups, err := c.store.Groups(ctx, q)
		if err != nil {
			return all, fmt.Errorf("count blocked jobs: %w", err)
		}
		for i := range groups {
			blocked[groups[i].Block.Code] += groups[i].Jobs
		}
		if more = len(groups) == mostGroups; more {
			q.After = groups[mostGroups-1].Key
		}
	}
	for code, n := range blocked {
		gauge(blockedDesc, float64(n), string(code))
	}
	return all, nil
}

// A use is what becomes of the turns of a limit: of all keys together on which it decides.
type use struct{ held, waiting, idle int }

// limits returns the use of the limits that are set.
func (c *jobs) limits(ctx context.Context) (map[string]*use, error) {
	set, err := c.store.Limits(ctx, c.tenant)
	if err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	if len(set) == 0 {
		return nil, nil
	}
	uses := map[string]*use{}
	for _, l := range set[:min(len(set), mostLimits)] {
		uses[l.Key] = &use{}
	}
	for q := (store.TurnQuery{Tenant: c.tenant, Limit: mostKeys}); ; {
		turns, err := c.store.Turns(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("count turns: %w", err)
		}
		for i := range turns {
			if t := &turns[i]; t.Limit != nil && uses[t.Limit.Key] != nil {
				uses[t.Limit.Key].add(t)
			}
		}
		if len(turns) < mostKeys {
			return uses, nil
		}
		if q.After = turns[mostKeys-1].Key; job.Implied(q.After) != nil {
			q.After = past(q.After)
		}
	}
}

func (u *use) add(t *store.Turns) {
	held, waiting := 0, 0
	for _, o := range t.Owners {
		held, waiting = held+o.Held, waiting+o.Waiting
	}
	u.waiting += waiting
	if t.Key == job.LimitOf(t.Key) { // not places ahead
		u.held += held
		u.idle += min(waiting, max(0, t.Limit.Places(t.Key)-held))
	}
}

// past returns what comes after all keys of the kind of one for which no limit can be set, of which
// there may be one for each job.
func past(key string) string {
	kind, _, _ := strings.Cut(job.LimitOf(key), "/")
	return strings.TrimSuffix(key, job.LimitOf(key)) + kind + string(rune('/'+1))
}
