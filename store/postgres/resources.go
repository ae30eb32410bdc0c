package postgres

import (
	"context"
	"fmt"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Put implements [store.Resources].
func (s *Store) Put(ctx context.Context, r store.Resource) (store.Resource, error) {
	var rs []store.Resource
	err := s.call(ctx, r.Tenant, func(t *tx) error {
		rs = nil
		planned, plan := `NULL`, ``
		if r.Plan == store.PlanAnew {
			planned = `x.now`
		}
		text, args := `INSERT INTO pawl.resources AS r (tenant, kind, name, version, updated, doc, through, next)
			SELECT $1, $2, $3, 1, x.now, $4::json, `+planned+`::timestamptz, `+planned+`::timestamptz
			FROM (SELECT pawl.clock() AS now) x
			ON CONFLICT DO NOTHING RETURNING `+resource, []any{r.Tenant, r.Kind, r.Name, string(r.Doc)}
		if r.Plan != store.PlanKept {
			plan = `, through = ` + planned + `, next = ` + planned + `, trouble = ''`
		}
		if r.Version != 0 {
			text, args = `UPDATE pawl.resources r SET version = version + 1, updated = x.now, doc = $4::json`+plan+`
				FROM (SELECT pawl.clock() AS now) x
				WHERE tenant = $1 AND kind = $2 AND name = $3 AND version = $5
					RETURNING `+resource, append(args, r.Version)
		}
		return t.commit(read(text, readResources(&rs), args...))
	})
	switch {
	case err != nil:
		return store.Resource{}, err
	case len(rs) == 0:
		return store.Resource{}, store.OtherVersion(r.Kind, r.Name, r.Version)
	}
	return rs[0], nil
}

// Resources implements [store.Resources].
func (s *Store) Resources(ctx context.Context, q store.ResourceQuery) (rs []store.Resource, err error) {
	tenant, where, args := everyone, `r.kind = $1`, []any{q.Kind}
	if q.Tenant != "" {
		tenant, where, args = q.Tenant, where+` AND r.tenant = $2`, append(args, q.Tenant)
	}
	if q.Name != "" {
		args = append(args, q.Name)
		where += fmt.Sprintf(` AND r.name = $%d`, len(args))
	}
	order := ` ORDER BY r.tenant, r.name`
	if q.Next > 0 {
		args = append(args, q.Next)
		where += ` AND r.next IS NOT NULL`
		order = fmt.Sprintf(` ORDER BY r.next, r.tenant, r.name LIMIT $%d`, len(args))
	}
	err = s.call(ctx, tenant, func(t *tx) error {
		rs = nil
		return t.commit(read(`SELECT `+resource+` FROM pawl.resources r WHERE `+where+order, readResources(&rs), args...))
	})
	return rs, err
}

const resource = `r.tenant, r.kind, r.name, r.version, r.updated, r.doc, r.through, r.next, r.trouble`

func readResources(rs *[]store.Resource) func(*reader) error {
	return func(r *reader) error {
		*rs = append(*rs, store.Resource{
			Tenant: r.text(), Kind: r.text(), Name: r.text(), Version: r.int64(), Updated: r.time(), Doc: r.json(),
			Through: r.time(), Next: r.time(), Trouble: r.text(),
		})
		return nil
	}
}

// advance returns the query that makes the advance of a submission; none: there is none.
func advance(tenant string, a *store.Advance) []*query {
	if a == nil {
		return nil
	}
	return []*query{do(`WITH moved AS (
			UPDATE pawl.resources SET through = $6, next = $7, trouble = $8
			WHERE tenant = $1 AND kind = $2 AND name = $3 AND version = $4 AND through = $5 AND $6 <= pawl.clock()
			RETURNING 1
		) SELECT CASE WHEN NOT EXISTS (SELECT FROM moved) THEN pawl.refuse('the document has moved on', '`+codePassed+`') END`,
		tenant, a.Kind, a.Name, a.Version, a.From, a.Through, instant(a.Next), a.Trouble)}
}

// Delete implements [store.Resources]. A submission to a queue locks its document until the jobs
// are there.
func (s *Store) Delete(ctx context.Context, tenant, kind, name string, version int64) error {
	return s.call(ctx, tenant, func(t *tx) error {
		was, used := int64(0), false
		qs := []*query{read(`DELETE FROM pawl.resources WHERE tenant = $1 AND kind = $2 AND name = $3 RETURNING version`,
			func(r *reader) error { was = r.int64(); return nil }, tenant, kind, name)}
		if uses := using[kind]; uses != "" {
			qs = append(qs, read(`SELECT EXISTS (`+uses+`)`, func(r *reader) error { used = r.bool(); return nil },
				tenant, name))
		}
		if err := t.send(qs...); err != nil {
			return err
		}
		switch {
		case was == 0:
			return store.NoResource(kind, name)
		case version != store.AnyVersion && version != was:
			return store.OtherVersion(kind, name, version)
		case used:
			return store.InUse(kind, name)
		}
		return t.commit()
	})
}

// using finds the jobs that need a document of a kind and have not ended. The watch of a program
// tells its system, unless the service itself starts the programs of that: then the request does.
var using = map[string]string{
	job.KindQueue: waiting + ` UNION ALL SELECT 1 FROM pawl.jobs j WHERE j.tenant = $1 AND j.queue = $2`,
	job.KindSystem: `SELECT FROM pawl.jobs j WHERE j.watch <> '' AND j.tenant = $1 AND $2 = CASE
		WHEN strpos(j.watch, '/') > 0 THEN split_part(j.watch, '/', 1)
		ELSE (SELECT nullif(s.request ->> 'system', '` + job.SystemLocal + `') FROM pawl.specs s WHERE s.id = j.id) END`,
}
