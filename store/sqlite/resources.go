package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/store"
)

// Put implements [store.Resources].
func (s *Store) Put(ctx context.Context, r store.Resource) (store.Resource, error) {
	err := s.do(ctx, func(t *tx) error {
		var planned any
		if r.Plan == store.PlanAnew {
			planned = micros(t.now)
		}
		if r.Version == 0 {
			n, err := t.exec(`INSERT INTO resources (tenant, kind, name, version, updated, doc, through, next)
				VALUES (?, ?, ?, 1, ?, ?, ?, ?)
				ON CONFLICT DO NOTHING`, r.Tenant, r.Kind, r.Name, micros(t.now), string(r.Doc), planned, planned)
			if err == nil && n == 0 {
				err = store.OtherVersion(r.Kind, r.Name, 0)
			}
			return err
		}
		plan, args := ``, []any{micros(t.now), string(r.Doc)}
		if r.Plan != store.PlanKept {
			plan, args = `, through = ?, next = ?, trouble = ''`, append(args, planned, planned)
		}
		n, err := t.exec(`UPDATE resources SET version = version + 1, updated = ?, doc = ?`+plan+`
			WHERE tenant = ? AND kind = ? AND name = ? AND version = ?`,
			append(args, r.Tenant, r.Kind, r.Name, r.Version)...)
		if err == nil && n == 0 {
			err = store.OtherVersion(r.Kind, r.Name, r.Version)
		}
		return err
	})
	if err != nil {
		return store.Resource{}, err
	}
	return store.FindResource(ctx, s, r.Tenant, r.Kind, r.Name)
}

// Resources implements [store.Resources].
func (s *Store) Resources(ctx context.Context, q store.ResourceQuery) (rs []store.Resource, err error) {
	where, args := `kind = ?`, []any{q.Kind}
	if q.Tenant != "" {
		where, args = where+` AND tenant = ?`, append(args, q.Tenant)
	}
	if q.Name != "" {
		where, args = where+` AND name = ?`, append(args, q.Name)
	}
	order := ` ORDER BY tenant, name`
	if q.Next > 0 {
		where, order = where+` AND next IS NOT NULL`, ` ORDER BY next, tenant, name LIMIT ? + 0`
		args = append(args, int64(q.Next))
	}
	err = s.query(ctx, `SELECT tenant, kind, name, version, updated, doc, through, next, trouble FROM resources
		WHERE `+where+order, 9, func(v []driver.Value) {
		rs = append(rs, store.Resource{
			Tenant: text(v[0]), Kind: text(v[1]), Name: text(v[2]), Version: v[3].(int64), Updated: instant(v[4]),
			Doc: raw(v[5]), Through: instant(v[6]), Next: instant(v[7]), Trouble: text(v[8]),
		})
	}, args...)
	return rs, err
}

// advance makes the advance of a submission.
func (t *tx) advance(tenant string, a *store.Advance) error {
	if a == nil {
		return nil
	}
	if a.Through.After(t.now) {
		return a.Passed()
	}
	n, err := t.exec(`UPDATE resources SET through = ?, next = ?, trouble = ?
		WHERE tenant = ? AND kind = ? AND name = ? AND version = ? AND through = ?`,
		micros(a.Through), micros(a.Next), a.Trouble, tenant, a.Kind, a.Name, a.Version, micros(a.From))
	if err == nil && n == 0 {
		err = a.Passed()
	}
	return err
}

// Delete implements [store.Resources].
func (s *Store) Delete(ctx context.Context, tenant, kind, name string, version int64) error {
	return s.do(ctx, func(t *tx) error {
		was := int64(0)
		err := t.query(`DELETE FROM resources WHERE tenant = ? AND kind = ? AND name = ? RETURNING version`,
			func(v []driver.Value) error { was = v[0].(int64); return nil }, tenant, kind, name)
		switch {
		case err == nil && was == 0:
			err = store.NoResource(kind, name)
		case err == nil && version != store.AnyVersion && version != was:
			err = store.OtherVersion(kind, name, version)
		}
		if err != nil || using[kind] == "" {
			return err
		}
		used, err := t.exists(using[kind], slices.Repeat([]any{tenant, name}, strings.Count(using[kind], "?")/2)...)
		if err == nil && used {
			err = store.InUse(kind, name)
		}
		return err
	})
}
