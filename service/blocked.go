package service

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/store"
)

// A BlockedGroup is a group of jobs that one condition blocks, as people look at it.
type BlockedGroup struct {
	Key      string            `json:"key"`
	Code     job.Code          `json:"code"`
	Message  string            `json:"message,omitempty"` // of its first job, or with any code of its newest
	Jobs     int               `json:"jobs"`              // how many are blocked
	Behind   int               `json:"behind,omitempty"`  // how many wait in the line that it closes
	Line     string            `json:"line,omitempty"`    // the key of that line
	Since    time.Time         `json:"since"`             // when the first of its jobs was blocked
	Tester   string            `json:"tester"`
	Params   map[string]string `json:"params,omitempty"`
	Machine  string            `json:"machine,omitempty"` // the only one where it can be tested
	Tests    int               `json:"tests"`             // how many were made
	Tested   time.Time         `json:"tested,omitzero"`   // when the newest test began
	Result   string            `json:"result,omitempty"`  // what that test said
	NextTest time.Time         `json:"next_test,omitzero"`
	Clear    bool              `json:"clear"` // its jobs go on, one after the other
	Policy   job.Policy        `json:"policy"`
	Why      string            `json:"why"` // one sentence
}

// Blocked returns the groups of blocked jobs, sorted by key.
func (s *Service) Blocked(ctx context.Context) ([]BlockedGroup, error) {
	groups, err := s.groups(ctx, store.GroupQuery{Tenant: s.cfg.Tenant})
	if err != nil {
		return nil, err
	}
	all := make([]BlockedGroup, len(groups))
	for i := range groups {
		all[i] = s.blockedGroup(&groups[i])
	}
	return all, nil
}

// groups returns all groups that q asks for, sorted by key.
func (s *Service) groups(ctx context.Context, q store.GroupQuery) (all []groups.Group, err error) {
	q.Limit = 1000
	for more := true; more; {
		some, err := s.cfg.Store.Groups(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if more = len(some) == q.Limit; more {
			q.After = some[len(some)-1].Key
		}
	}
	return all, nil
}

// BlockedBy returns one group of blocked jobs. The error is of kind NotFound if there is none.
func (s *Service) BlockedBy(ctx context.Context, key string) (BlockedGroup, error) {
	if !isText(key) {
		return BlockedGroup{}, store.NoGroup(key)
	}
	groups, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: s.cfg.Tenant, Key: key})
	if err == nil && len(groups) == 0 {
		err = store.NoGroup(key)
	}
	if err != nil {
		return BlockedGroup{}, err
	}
	return s.blockedGroup(&groups[0]), nil
}

func (s *Service) blockedGroup(g *groups.Group) BlockedGroup {
	b := BlockedGroup{
		Key: g.Key, Code: g.Block.Code, Message: g.Block.Message, Jobs: g.Jobs, Behind: g.Behind, Since: g.Oldest,
		Tester: g.Block.Tester, Params: g.Block.Params, Machine: g.Block.Machine, Tests: g.Tests, Tested: g.Tested,
		Result:   g.Result,
		NextTest: g.Next, Clear: !g.Clear.IsZero(), Policy: g.Block.Policy, Why: g.Stands(s.engine.Now()),
	}
	if g.Places >= 0 {
		b.Line = g.Block.Line
	}
	if b.Since.IsZero() {
		b.Since = g.Opened
	}
	return b
}

// ActOnGroup does what a person wants of a group of blocked jobs. [groups.TryNow] tests its
// condition now. [groups.Release] lets its jobs go on as if the condition had cleared.
// [groups.GiveUp] fails them, except those that may still run. It returns the group as it is then:
// without jobs if all have left it.
func (s *Service) ActOnGroup(ctx context.Context, want groups.Action, group string) (BlockedGroup, error) {
	g, err := s.BlockedBy(ctx, group)
	if err != nil {
		return BlockedGroup{}, err
	}
	_, eff, err := s.cfg.Store.Steer(ctx,
		store.Steer{Tenant: s.cfg.Tenant, By: s.cfg.Principal, Want: want, Group: group})
	if err != nil {
		return BlockedGroup{}, err
	}
	s.engine.Follow(ctx, eff)
	after, err := s.BlockedBy(ctx, group)
	if job.KindOf(err) == job.NotFound { // all of it has gone since
		g.Jobs, g.Behind, g.Line, g.NextTest, g.Why = 0, 0, "", time.Time{}, "nobody waits for it any more"
		return g, nil
	}
	return after, err
}

// ActOnJobs does the same for single jobs. The answers are in the order of jobs. One is NotFound if
// there is no such job. It is Conflict if the job is not blocked, or if it is given up and may
// still run.
func (s *Service) ActOnJobs(ctx context.Context, want groups.Action, jobs ...job.ID) ([]error, error) {
	answers, eff, err := s.cfg.Store.Steer(ctx,
		store.Steer{Tenant: s.cfg.Tenant, By: s.cfg.Principal, Want: want, Jobs: jobs})
	if err == nil {
		s.engine.Follow(ctx, eff)
	}
	return answers, err
}

// enabled reports whether something with a document is enabled, in the tenant of the jobs that wait
// for it; see [recovery.IsEnabled].
func (s *Service) enabled(ctx context.Context, tenant, kind, name string) (bool, error) {
	if kind == kindTenant {
		tenant = store.Site
	}
	row, err := store.FindResource(ctx, s.cfg.Store, tenant, kind, name)
	switch builtin := kind == kindTenant || kind == job.KindSystem && name == systems.builtin.Name; {
	case job.KindOf(err) == job.NotFound && builtin:
		return true, nil
	case err != nil:
		return false, err
	}
	var doc struct {
		Disabled bool `json:"disabled"`
	}
	if err := json.Unmarshal(row.Doc, &doc); err != nil {
		return false, job.Errorf(job.Corrupt, "%s %s: %w", kind, name, err)
	}
	return !doc.Disabled, nil
}

// kindTenant is the kind of the documents of the site about tenants. A tenant has none until it is
// suspended.
const kindTenant = "tenant"

// blocks returns the block that keeps a job from its next step: see [engine.Config].
func (s *Service) blocks(ctx context.Context, j *job.Job) *job.Block {
	if !j.Program() {
		return nil
	}
	known, err := s.docs.known(ctx, j.Tenant) // after an error the next step asks again
	if err == nil && known.disabled {
		name := systemOf(j)
		if !known.systems[name].Disabled {
			return nil
		}
		// The answer may be a second old. A job that goes on because the system was enabled must not
		// be blocked again by an old answer.
		if enabled, err := s.enabled(ctx, j.Tenant, job.KindSystem, name); err != nil || !enabled {
			return recovery.Disabled(name, "system "+name+" is disabled")
		}
	}
	return nil
}

// systemOf returns the name of the system of a program.
func systemOf(j *job.Job) string {
	var spec struct {
		System string `json:"system"`
	}
	if json.Unmarshal(j.Request, &spec) != nil || spec.System == "" {
		return job.SystemLocal
	}
	return spec.System
}

// mayBeEnabled has the groups tested now whose jobs wait for a system: for its document, or for its
// host.
func (s *Service) mayBeEnabled(ctx context.Context, kind, name string) {
	if kind != job.KindSystem {
		return
	}
	all, err := s.groups(ctx, store.GroupQuery{Tenant: s.cfg.Tenant})
	for i := range all {
		ask := all[i].Block.Params
		if of, _, _ := strings.Cut(ask["watch"], "/"); of != name && (ask["kind"] != kind || ask["name"] != name) {
			continue
		}
		if _, eff, steerErr := s.cfg.Store.Steer(ctx, store.Steer{
			Tenant: s.cfg.Tenant, By: s.cfg.Principal, Want: groups.TryNow, Group: all[i].Key,
		}); steerErr == nil {
			s.engine.Follow(ctx, eff)
		} else if job.KindOf(steerErr) != job.NotFound {
			err = steerErr
		}
	}
	if err != nil {
		s.cfg.Log.Info("the jobs that wait for a document are tested later", "kind", kind, "name", name, "error", err)
	}
}

// policy returns the policy by which a blocked job waits: its own, or that of its tenant for the
// condition.
func (s *Service) policy(j *job.Job, b *job.Block) job.Policy {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	named := func(string) *job.Policy { return nil }
	if known, err := s.docs.known(ctx, j.Tenant); err == nil {
		named = func(name string) *job.Policy {
			p, there := known.policies[name]
			if !there || p.Disabled {
				return nil
			}
			policy := p.Policy()
			return &policy
		}
	}
	var spec struct {
		Recovery *job.Patience `json:"recovery"`
	}
	if json.Unmarshal(j.Request, &spec) != nil {
		spec.Recovery = nil
	}
	return spec.Recovery.Choose(b, cmp.Or(j.App, j.Kind), named)
}
