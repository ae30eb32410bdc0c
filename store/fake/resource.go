package fake

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Put implements [store.Resources].
func (s *Store) Put(ctx context.Context, r store.Resource) (store.Resource, error) {
	return ask(ctx, s, func(t *tx) (store.Resource, error) {
		key := resource{r.Tenant, r.Kind, r.Name}
		switch old, there := t.resources[key]; {
		case r.Version == 0 && there:
			return r, store.OtherVersion(r.Kind, r.Name, 0)
		case r.Version != old.Version:
			return r, store.OtherVersion(r.Kind, r.Name, r.Version)
		}
		r = r.Planned(t.resources[key], t.now)
		r.Version, r.Updated, r.Doc = r.Version+1, t.now, slices.Clone(r.Doc)
		set(t, t.resources, key, r)
		r.Doc = slices.Clone(r.Doc)
		return r, nil
	})
}

// Resources implements [store.Resources].
func (s *Store) Resources(ctx context.Context, q store.ResourceQuery) ([]store.Resource, error) {
	return ask(ctx, s, func(t *tx) (rs []store.Resource, err error) {
		for _, r := range t.resources {
			if q.Next > 0 && r.Next.IsZero() {
				continue
			} else if r.Kind == q.Kind && (q.Tenant == "" || r.Tenant == q.Tenant) && (q.Name == "" || r.Name == q.Name) {
				r.Doc = slices.Clone(r.Doc)
				rs = append(rs, r)
			}
		}
		slices.SortFunc(rs, func(a, b store.Resource) int {
			next := 0
			if q.Next > 0 {
				next = a.Next.Compare(b.Next)
			}
			return cmp.Or(next, strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
		})
		if q.Next > 0 && len(rs) > q.Next {
			rs = rs[:q.Next]
		}
		return rs, nil
	})
}

// advance makes the advance of a submission.
func (t *tx) advance(tenant string, a *store.Advance) error {
	if a == nil {
		return nil
	}
	key := resource{tenant, a.Kind, a.Name}
	r, err := a.Of(t.resources[key], t.now)
	if err == nil {
		set(t, t.resources, key, r)
	}
	return err
}

// Delete implements [store.Resources].
func (s *Store) Delete(ctx context.Context, tenant, kind, name string, version int64) error {
	_, err := s.do(ctx, func(t *tx) error {
		key := resource{tenant, kind, name}
		r, there := t.resources[key]
		switch {
		case !there:
			return store.NoResource(kind, name)
		case version != store.AnyVersion && version != r.Version:
			return store.OtherVersion(kind, name, version)
		}
		for _, list := range t.at {
			if slices.ContainsFunc(list, func(r *row) bool { return r.Tenant == tenant && r.needs(kind, name) }) {
				return store.InUse(kind, name)
			}
		}
		drop(t, t.resources, key)
		return nil
	})
	return err
}

// needs reports whether a job needs a document. The watch of a program tells its system, unless the
// service itself starts the programs of that: then the request does.
func (r *row) needs(kind, name string) bool {
	system, _, apart := strings.Cut(r.Watch, "/")
	if r.Watch != "" && !apart {
		var spec job.Spec
		if json.Unmarshal(r.Request, &spec) == nil {
			system = spec.System
		}
	}
	return kind == job.KindQueue && r.Queue == name ||
		kind == job.KindSystem && name != job.SystemLocal && system == name
}
