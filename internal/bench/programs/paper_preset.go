package programs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
)

// presets are what another service does otherwise, and tapis is all of it. The numbers are those of
// the paper, sections 3 and 4.
var presets = []string{"throttles", "batches", "quotas"}

func (b *paperBench) checkPreset() error {
	for _, name := range b.preset {
		if name != "tapis" && !slices.Contains(presets, name) {
			return term.Usagef("--preset %s is unknown: give tapis, or some of %s", name, strings.Join(presets, ","))
		}
	}
	return nil
}

// A preset has the service do as another one does.
type preset struct {
	*paperBench
	quota *quota
}

// newPreset changes how a service is wired.
func (b *paperBench) newPreset(o *node.Options) *preset {
	p := &preset{paperBench: b}
	if p.has("quotas") {
		p.quota = &quota{most: b.most, live: map[job.ID]bool{}}
	}
	if !p.has("quotas") && !p.has("batches") {
		return p
	}
	o.Change = func(c *service.Config) {
		if p.quota != nil {
			c.Kinds[job.KindApp] = quotaKind{c.Kinds[job.KindApp].(*app.Kind), p.quota}
			c.Testers[testerQuota] = p.quota
		}
		if p.has("batches") {
			for name, t := range c.Testers {
				c.Testers[name] = inBatches{t}
			}
		}
	}
	return p
}

func (b *paperBench) has(name string) bool {
	return slices.Contains(b.preset, name) || slices.Contains(b.preset, "tapis")
}

// releases is how fast blocked jobs go on. Where they do so in batches no rate holds them: all of a
// batch go at once.
func (b *paperBench) releases() job.Limit {
	l := job.Limit{Key: job.RateReleases + "/*", Most: 10 * b.speedup, Per: job.Duration(time.Second)}
	if b.has("batches") {
		l.Most, l.Per = job.MaxTurns, job.Duration(job.MinPer)
	}
	return l
}

// set sets the limits and the policies.
func (p *preset) set(on *bed.Bed) error {
	limits := []job.Limit{{Key: job.SystemKey(p.system()), Most: p.most}}
	if p.quota != nil {
		limits = nil
		policy := job.RecoveryPolicy{
			Name:   string(job.SchedulerQuota),
			Stages: []job.Stage{{Every: p.scaled(time.Minute)}},
		}
		doc, err := job.Encode(policy)
		if err == nil {
			_, _, err = on.Policies().Apply(on.Context(), doc, service.AnyVersion)
		}
		if err != nil {
			return err
		}
	}
	if p.has("throttles") {
		// moments are Lateness apart beside that: of a shorter time it would be most
		per := job.Duration(2 * time.Second)
		limits = append(limits,
			job.Limit{Key: job.RateOf(job.RateStarts, p.system()), Most: 10 * p.speedup, Per: per},
			job.Limit{Key: job.RateOf(job.RateLaunches, p.system()), Most: 8 * p.speedup, Per: per})
	}
	for _, l := range append(limits, p.releases()) {
		if err := on.SetLimit(on.Context(), l); err != nil {
			return err
		}
	}
	return nil
}

// A quota counts the programs that have been let go and have not ended, and has others blocked
// where there are enough.
type quota struct {
	most int

	mu   sync.Mutex
	live map[job.ID]bool // guarded by mu
}

const testerQuota = "quota"

// take lets a program go, or says what blocks it.
func (q *quota) take(id job.ID) *job.Block {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.live) >= q.most && !q.live[id] {
		return &job.Block{
			Code: job.SchedulerQuota, Message: fmt.Sprintf("%d programs run", len(q.live)),
			Tester: testerQuota,
		}
	}
	q.live[id] = true
	return nil
}

func (q *quota) leave(id job.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.live, id)
}

// Test implements [recovery.Tester].
func (q *quota) Test(context.Context, recovery.Question) (recovery.Answer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := q.most - len(q.live)
	return recovery.Answer{Clear: free > 0, May: free, Says: fmt.Sprintf("%d programs run", len(q.live))}, nil
}

// A quotaKind blocks programs that are about to be launched where enough run.
type quotaKind struct {
	*app.Kind
	quota *quota
}

// Step implements [engine.Kind].
func (k quotaKind) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	switch j := &r.Job; {
	case j.State == job.SubmittingJob && !j.Live:
		if b := k.quota.take(j.ID); b != nil {
			return engine.Block(b)
		}
	case j.State == job.Archiving:
		k.quota.leave(j.ID)
	}
	return k.Kind.Step(ctx, r)
}

// inBatches is a tester after which ten go on at most.
type inBatches struct{ recovery.Tester }

const batch = 10

// Test implements [recovery.Tester].
func (t inBatches) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	a, err := t.Tester.Test(ctx, q)
	if a.May <= 0 || a.May > batch {
		a.May = batch
	}
	return a, err
}
