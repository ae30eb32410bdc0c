package service

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// A LimitUse is a key with a limit as people look at it: how many jobs may have a turn, which jobs
// have one, and how many wait. For a rate it says when the next moment is free; a rate has no
// turns.
type LimitUse struct {
	Key     string       `json:"key"`
	Set     *job.Limit   `json:"set,omitempty"`        // the limit that decides; nil: none
	Shut    bool         `json:"shut,omitempty"`       // a group of blocked jobs closes its line
	Places  *int         `json:"places,omitempty"`     // if closed: how many jobs may have a turn
	InUse   int          `json:"in_use"`               // jobs that have a turn
	Waiting int          `json:"waiting"`              // jobs that wait for one
	Ahead   int          `json:"ahead"`                // programs that are made ready ahead of their turn
	FreeIn  *int64       `json:"free_in_ms,omitempty"` // of a rate: until the next moment, rounded up
	Owners  []LimitShare `json:"owners,omitempty"`
	Jobs    []job.ID     `json:"jobs,omitempty"` // some of the jobs that have a turn
	// KeysInUse is for a family: how many of its keys are in use or waited for. Keys are some of
	// them. The numbers of jobs count all these keys together. In a list each key has an entry of
	// its own.
	KeysInUse int      `json:"keys_in_use,omitempty"`
	Keys      []string `json:"keys,omitempty"`
}

// A LimitShare is the part of one owner in a [LimitUse].
type LimitShare struct {
	Owner   string `json:"owner"`
	Weight  int    `json:"weight"`
	InUse   int    `json:"in_use"`
	Waiting int    `json:"waiting"`
}

// SetLimit sets how many jobs may have turns of a key, or of each key of a family. It holds at
// once: waiting jobs go as far as it allows, and running jobs go on. With Per it sets a rate; then
// jobs that wait for a moment ask for another one.
func (s *Service) SetLimit(ctx context.Context, l job.Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	eff, err := store.SetLimit(ctx, s.cfg.Store, s.cfg.Tenant, l)
	if err == nil {
		s.engine.Follow(ctx, eff)
	}
	return err
}

// RemoveLimit takes a limit away. Any number of jobs may then have turns of its key, unless its
// family has a limit. The error is of kind NotFound if there is none.
func (s *Service) RemoveLimit(ctx context.Context, key string) error {
	if !isText(key) {
		return store.NoLimit(key)
	}
	eff, err := store.RemoveLimit(ctx, s.cfg.Store, s.cfg.Tenant, key)
	if err == nil {
		s.engine.Follow(ctx, eff)
	}
	return err
}

// Limits returns the limits that are set, and the keys that are in use or waited for, sorted by
// key.
func (s *Service) Limits(ctx context.Context) ([]LimitUse, error) {
	set, err := s.cfg.Store.Limits(ctx, s.cfg.Tenant)
	if err != nil {
		return nil, err
	}
	all := map[string]*LimitUse{}
	for i := range set {
		all[set[i].Key] = unused(set[i].Key, &set[i])
	}
	if err := s.moments(ctx, all, store.TurnQuery{Limit: 1000}); err != nil {
		return nil, err
	}
	for _, l := range all {
		if err := s.releases(ctx, l); err != nil {
			return nil, err
		}
	}
	if err := s.turns(ctx, func(t *store.Turns) { use(all, set, t) }); err != nil {
		return nil, err
	}
	list := make([]LimitUse, 0, len(all))
	for _, l := range all {
		l.Owners = nil
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b LimitUse) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// Limit returns one key with its owners. The error is of kind NotFound if no limit decides on it
// and no job uses it.
func (s *Service) Limit(ctx context.Context, key string) (LimitUse, error) {
	if !isText(key) {
		return LimitUse{}, store.NoLimit(key)
	}
	set, err := s.cfg.Store.Limits(ctx, s.cfg.Tenant)
	if err != nil {
		return LimitUse{}, err
	}
	all := map[string]*LimitUse{}
	if l := decides(set, key); l != nil {
		all[key] = unused(key, l)
	}
	if job.Rated(key) {
		if err := s.moments(ctx, all, store.TurnQuery{Key: key}); err != nil {
			return LimitUse{}, err
		}
		if all[key] == nil {
			return LimitUse{}, store.NoLimit(key)
		}
		if err := s.releases(ctx, all[key]); err != nil {
			return LimitUse{}, err
		}
		return *all[key], nil
	}
	if l := all[key]; l != nil && strings.HasSuffix(key, "/*") {
		return *l, s.family(ctx, set, l)
	}
	for _, k := range []string{job.AheadOf(key), key} {
		q := store.TurnQuery{Tenant: s.cfg.Tenant, Key: k}
		if k == key {
			q.Holders = maxHolders
		}
		turns, err := s.cfg.Store.Turns(ctx, q)
		if err != nil {
			return LimitUse{}, err
		}
		for i := range turns {
			use(all, set, &turns[i])
		}
	}
	if set := job.Implied(key); all[key] == nil && set != nil && set.Key == key {
		return *unused(key, set), nil
	}
	if all[key] == nil {
		return LimitUse{}, store.NoLimit(key)
	}
	return *all[key], nil
}

// turns calls each with all keys that are in use or waited for.
func (s *Service) turns(ctx context.Context, each func(t *store.Turns)) error {
	q := store.TurnQuery{Tenant: s.cfg.Tenant, Limit: 1000}
	for more := true; more; {
		turns, err := s.cfg.Store.Turns(ctx, q)
		if err != nil {
			return err
		}
		for i := range turns {
			each(&turns[i])
		}
		if more = len(turns) == q.Limit; more {
			q.After = turns[len(turns)-1].Key
		}
	}
	return nil
}

// family adds to the limit of a family the sums of all keys that it decides on.
func (s *Service) family(ctx context.Context, set []job.Limit, l *LimitUse) error {
	keys, all := map[string]bool{}, map[string]*LimitUse{l.Key: l}
	err := s.turns(ctx, func(t *store.Turns) {
		key := job.LimitOf(t.Key)
		if limit := decides(set, key); limit == nil || limit.Key != l.Key {
			return
		}
		keys[key] = true
		t.Key, t.Shut = strings.TrimSuffix(t.Key, key)+l.Key, false // that is one line's
		use(all, set, t)
	})
	l.KeysInUse = len(keys)
	l.Keys = slices.Sorted(maps.Keys(keys))
	l.Keys = l.Keys[:min(len(keys), maxHolders)]
	return err
}

// maxHolders is how many jobs with a turn of a key are named, and how many keys of a family.
const maxHolders = 20

// unused returns a key that no job uses.
func unused(key string, set *job.Limit) *LimitUse {
	l := &LimitUse{Key: key, Set: set}
	if job.Rated(key) && !strings.HasSuffix(key, "/*") {
		l.FreeIn = new(int64)
	}
	return l
}

// moments adds the rates, each with the time of its next free moment.
func (s *Service) moments(ctx context.Context, all map[string]*LimitUse, q store.TurnQuery) error {
	q.Tenant = s.cfg.Tenant
	for {
		some, err := s.cfg.Store.Moments(ctx, q)
		if err != nil {
			return err
		}
		for i := range some {
			m := &some[i]
			in := inMillis(m.FreeIn)
			all[m.Key] = &LimitUse{Key: m.Key, Set: &m.Limit, FreeIn: &in}
		}
		if q.Key != "" || len(some) < q.Limit {
			return nil
		}
		q.After = some[len(some)-1].Key
	}
}

// releases adds when the next moment of a key of releases is free. Nobody asks for these moments:
// the row of the group has them. A group without jobs and without a line has no one waiting for a
// moment.
func (s *Service) releases(ctx context.Context, l *LimitUse) error {
	group, of := strings.CutPrefix(l.Key, job.RateReleases+"/")
	if !of || group == "" || l.FreeIn == nil {
		return nil
	}
	gs, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: s.cfg.Tenant, Key: group})
	if err == nil && len(gs) > 0 {
		in := inMillis(gs[0].FreeIn(groups.Rate(l.Set), s.engine.Now()))
		l.FreeIn = &in
	}
	return err
}

// inMillis returns a duration in milliseconds, rounded up.
func inMillis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// decides returns the limit in set that decides on key: its own, or that of its family; nil: none
// does.
func decides(set []job.Limit, key string) *job.Limit {
	for _, of := range []string{key, job.Family(key)} {
		if i := slices.IndexFunc(set, func(l job.Limit) bool { return l.Key == of }); i >= 0 {
			return &set[i]
		}
	}
	return nil
}

// use adds the turns of a key, or those of the programs that are made ready for it.
func use(all map[string]*LimitUse, set []job.Limit, t *store.Turns) {
	key := job.LimitOf(t.Key)
	l := all[key]
	if l == nil {
		l = &LimitUse{Key: key, Set: t.Limit}
		if t.Shut {
			l.Set = decides(set, key)
		}
		if l.Set == nil {
			l.Set = job.Implied(key)
		}
		all[key] = l
	}
	l.Shut = l.Shut || t.Shut
	if t.Shut && t.Limit != nil {
		l.Places = &t.Limit.Most
	}
	if key == t.Key {
		l.Jobs = append(l.Jobs, t.Holders...)
	}
	for _, o := range t.Owners {
		i, known := slices.BinarySearchFunc(l.Owners, o.Owner,
			func(s LimitShare, owner string) int { return strings.Compare(s.Owner, owner) })
		if !known {
			share := LimitShare{Owner: o.Owner, Weight: 1}
			if l.Set != nil {
				share.Weight = l.Set.Weight(o.Owner)
			}
			l.Owners = slices.Insert(l.Owners, i, share)
		}
		l.Waiting += o.Waiting
		l.Owners[i].Waiting += o.Waiting
		if key == t.Key {
			l.InUse += o.Held
			l.Owners[i].InUse += o.Held
		} else {
			l.Ahead += o.Held
		}
	}
}

// isText reports whether a database takes s.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
