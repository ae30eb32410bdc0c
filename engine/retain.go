package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// ResourceTopic is the topic of messages that say: a document has changed. A message is the kind of
// the document.
const ResourceTopic = "resources"

// retainDuty is the duty to remove jobs without a machine that are kept no longer. For the jobs of
// a machine, the id of the machine follows the name. The files of a job lie on its machine and are
// removed there.
const retainDuty = "retain"

const (
	// retainEvery is how often jobs are looked for that are kept no longer. A document that changes
	// starts a look, too.
	retainEvery = time.Hour
	// retainStep is how many jobs are looked at, and removed, at once.
	retainStep = 500
	// seenFor is how long a look goes by what an earlier one has seen, and clockSlack how far this
	// machine's clock may be from the database's meanwhile.
	seenFor    = 24 * time.Hour
	clockSlack = time.Hour
)

// Removed returns how many jobs this process has removed that ended in state s and were kept no
// longer.
func (e *Engine) Removed(s job.State) int64 {
	if n := e.removed[s]; n != nil {
		return n.Load()
	}
	return 0
}

func newRemoved() map[job.State]*atomic.Int64 {
	all := map[job.State]*atomic.Int64{}
	for _, s := range job.Ends {
		all[s] = &atomic.Int64{}
	}
	return all
}

// retainers returns the duties of this process to remove jobs. A process that runs only some jobs
// has none.
func (e *Engine) retainers(cfg *Config) (duties []Duty) {
	if len(cfg.Only) > 0 {
		return nil
	}
	if slices.Contains(cfg.Roles, store.RoleRecovery) {
		duties = append(duties, e.retain(""))
	}
	if cfg.Machine != "" && slices.Contains(cfg.Roles, store.RoleWatcher) {
		duties = append(duties, e.retain(cfg.Machine))
	}
	return duties
}

// retain returns the duty to remove the jobs of a machine that are kept no longer. An empty machine
// stands for the jobs of no machine, and of machines that have had no process for
// [store.MachineKept]: nobody reaches their files any more.
func (e *Engine) retain(machine string) Duty {
	r := &retainer{e: e, machine: machine}
	name := retainDuty
	if machine != "" {
		name += "/" + machine
	}
	return Duty{Name: name, Run: r.run}
}

// A retainer removes jobs that are kept no longer. It works in steps, so that the store serves
// others in between.
type retainer struct {
	e       *Engine
	machine string
	last    seen // by the last look
}

// A seen is what a look has seen that removed all it found. A rule for a kind passes over the jobs
// of others, which stay where they are. So the next look begins where this one was.
type seen struct {
	rules map[store.Kept]time.Duration // how long jobs were kept
	at    time.Time                    // when it began
	whole time.Time                    // when the last look at all jobs began
}

func (r *retainer) run(ctx context.Context, _ *Held) error {
	news, err := retry(ctx, r.e, "listen for documents",
		func() (broker.Subscription, error) { return r.e.cfg.Broker.Subscribe(ctx, ResourceTopic) })
	if err != nil {
		return err
	}
	defer news.Close()
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		r.look(ctx)
		for changed := false; !changed; {
			select {
			case kind := <-news.Messages():
				changed = string(kind) == job.KindRetention || string(kind) == job.KindTask
			case <-news.Lost():
				changed = true
			case <-tick.C:
				changed = true
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// A pass is one look at all jobs that are kept no longer.
type pass struct {
	*retainer
	seen
	there   map[string]bool // the machines with a known process; nil: not looked up yet
	removed map[job.State]int
	stay    int   // jobs that could not be removed
	why     error // the first error
}

// look removes all jobs that can be removed now. The next look tries the others again.
func (r *retainer) look(ctx context.Context) {
	p := &pass{retainer: r, removed: map[job.State]int{}, seen: seen{at: time.Now(), whole: r.last.whole}}
	for cursor, more := "", true; more && ctx.Err() == nil; more = cursor != "" {
		var err error
		if cursor, err = p.step(ctx, cursor); err != nil {
			p.failed(0, err)
		}
	}
	if r.last = p.seen; p.why != nil || ctx.Err() != nil {
		r.last = seen{}
	}
	log := r.e.cfg.Log
	if p.why != nil && ctx.Err() == nil {
		log.Warn("not all jobs that are kept no longer were removed; it is tried again within an hour", "left",
			p.stay, "error", p.why)
	}
	sum, counts := 0, []any{}
	for _, s := range job.Ends {
		sum += p.removed[s]
		counts = append(counts, string(s), p.removed[s])
	}
	if sum > 0 {
		log.Info("removed jobs that are kept no longer", counts...)
	}
}

func (p *pass) failed(stay int, why error) {
	if p.stay += stay; p.why == nil {
		p.why = why
	}
}

// step looks at the jobs after a cursor, removes those of this retainer, and returns the next
// cursor. It reads the documents anew, so a change of them counts from the next step on.
func (p *pass) step(ctx context.Context, cursor string) (string, error) {
	kept, err := p.kept(ctx)
	if err != nil || len(kept) == 0 {
		return "", err
	}
	found, err := p.e.cfg.Store.Overdue(ctx, store.OverdueQuery{Kept: kept, Limit: retainStep, Cursor: cursor})
	if err != nil {
		return "", err
	}
	mine, err := p.mine(ctx, found.Jobs)
	if err != nil {
		return "", err
	}
	if mine, err = p.clean(ctx, mine); err != nil {
		return "", err
	}
	for len(mine) > 0 {
		tenant := mine[0].Tenant
		n := slices.IndexFunc(mine, func(j store.Ended) bool { return j.Tenant != tenant })
		if n < 0 {
			n = len(mine)
		}
		if err := p.remove(ctx, tenant, mine[:n]); err != nil {
			return "", err
		}
		mine = mine[n:]
	}
	return found.Next, nil
}

// kept reads how long jobs are kept: what the document of their kind says, or the retention of
// their tenant. A retention that is disabled keeps all jobs, and so does a document that this Pawl
// cannot read.
func (p *pass) kept(ctx context.Context) (all []store.Kept, err error) {
	docs, err := p.e.cfg.Store.Resources(ctx, store.ResourceQuery{Kind: job.KindRetention})
	if err != nil {
		return nil, err
	}
	all, none := []store.Kept{}, map[string]bool{}
	add := func(tenant, kind string, keep map[job.State]job.Duration) {
		for state, kept := range keep {
			all = append(all, store.Kept{Tenant: tenant, State: state, Kind: kind, For: time.Duration(kept)})
		}
	}
	for _, d := range docs {
		r, err := job.ParseRetention(d.Doc)
		if err != nil {
			p.failed(0, fmt.Errorf("the retention of tenant %s: %w", d.Tenant, err))
		}
		if none[d.Tenant] = err != nil || r.Disabled; !none[d.Tenant] {
			add(d.Tenant, "", r.Keep)
		}
	}
	if docs, err = p.e.cfg.Store.Resources(ctx, store.ResourceQuery{Kind: job.KindTask}); err != nil {
		return nil, err
	}
	for _, d := range docs {
		var k struct{ Keep map[job.State]job.Duration }
		err := json.Unmarshal(d.Doc, &k)
		if err == nil {
			err = job.CheckKeep(k.Keep)
		}
		switch {
		case err != nil:
			p.failed(0, fmt.Errorf("kind %s of tenant %s: %w", d.Name, d.Tenant, err))
			none[d.Tenant] = true // its jobs would be taken for those of other kinds
			all = slices.DeleteFunc(all, func(k store.Kept) bool { return k.Tenant == d.Tenant })
		case !none[d.Tenant]:
			add(d.Tenant, d.Name, k.Keep)
		}
	}
	p.unseen(all)
	return all, nil
}

// unseen sets what the rules leave out, because the last look has seen it.
func (p *pass) unseen(all []store.Kept) {
	rules := map[store.Kept]time.Duration{}
	for _, k := range all {
		rules[k.Of()] = k.For
	}
	if p.rules == nil {
		p.rules = rules // of the first step: if it changes, there is another look
	}
	if !maps.Equal(rules, p.last.rules) || p.at.Sub(p.last.whole) > seenFor {
		p.whole = p.at
		return
	}
	q := store.OverdueQuery{Kept: all}
	for i, k := range all {
		if k.Kind != "" || q.Own(k) != nil {
			all[i].Since = p.last.at.Add(-k.For - clockSlack)
		}
	}
}

// mine returns the jobs that this retainer removes.
func (p *pass) mine(ctx context.Context, jobs []store.Ended) (mine []store.Ended, err error) {
	for _, j := range jobs {
		its := j.Machine == p.machine
		if !its && p.machine == "" {
			if its, err = p.gone(ctx, j.Machine); err != nil {
				return nil, err
			}
		}
		if its {
			mine = append(mine, j)
		}
	}
	return mine, nil
}

// gone reports whether no process of a machine is known any more.
func (p *pass) gone(ctx context.Context, machine string) (bool, error) {
	if p.there == nil {
		sessions, err := p.e.cfg.Store.Sessions(ctx)
		if err != nil {
			return false, err
		}
		p.there = map[string]bool{}
		for i := range sessions {
			p.there[sessions[i].Process.Machine] = true
		}
	}
	return !p.there[machine], nil
}

// clean removes the files of jobs, and returns the jobs that have no files any more. The files of
// another machine are out of reach.
func (p *pass) clean(ctx context.Context, jobs []store.Ended) (clean []store.Ended, err error) {
	var ids []job.ID // of jobs that may have files here
	for _, j := range jobs {
		if p.remover(j.Kind) != nil && j.Machine == p.machine {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return jobs, nil
	}
	found, err := p.e.cfg.Store.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return nil, err
	}
	stay := map[job.ID]bool{}
	for i := range found {
		if err := p.remover(found[i].Kind).Remove(ctx, &found[i]); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			stay[found[i].ID] = true
			p.failed(1, err)
		}
	}
	return slices.DeleteFunc(jobs, func(j store.Ended) bool { return stay[j.ID] }), nil
}

// remover returns the kind that removes the files of its jobs; nil: they have none.
func (p *pass) remover(kind string) Remover {
	r, _ := p.e.cfg.Kinds[kind].(Remover)
	return r
}

// remove removes the rows of jobs of one tenant. Another process may have removed some of them.
func (p *pass) remove(ctx context.Context, tenant string, jobs []store.Ended) error {
	ids := make([]job.ID, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	answers, err := p.e.cfg.Store.Remove(ctx, tenant, ids)
	if err != nil {
		return fmt.Errorf("remove %d jobs: %w", len(ids), err)
	}
	for i, err := range answers {
		switch {
		case err == nil:
			p.removed[jobs[i].State]++
			p.e.removed[jobs[i].State].Add(1)
		case job.KindOf(err) != job.NotFound:
			p.failed(1, err)
		}
	}
	return nil
}
