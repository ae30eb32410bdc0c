package postgres

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// forLists are settings of connections on which lists are read. Every index is read in its order:
// sorting all that it leads to seems cheaper to a planner that does not know how soon a page is
// full.
var forLists = map[string]string{"jit": "off", "enable_sort": "off", "enable_seqscan": "off"}

// List implements [store.Reader].
//
// A page is one statement, and so one snapshot. Before that, choose finds the plan that reads
// least.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	by, limit, err := q.Page()
	if err != nil {
		return p, err
	}
	var from *mark
	if q.Cursor != "" {
		if from, err = readMark(q.Cursor, by); err != nil {
			return p, err
		}
	}
	err = s.look(ctx, q.Tenant, func(t *tx) (err error) {
		if err := t.prepare(); err != nil {
			return err
		}
		p = store.Page{}
		if from != nil {
			p.Since = from.Since // pages of one list look back equally far
		} else if p.Since, err = t.since(q.Filter); err != nil {
			return err
		}
		sr := newSearch(q.Tenant, q.Filter, p.Since, by, from)
		sr.limit = limit + 1
		l, err := t.choose(sr)
		if err != nil {
			return err
		}
		sql, args := sr.page(l)
		if sql == "" {
			return t.commit()
		}
		return t.commit(read(sql, func(r *reader) error { p.Jobs = append(p.Jobs, r.row()); return nil }, args...))
	})
	if err != nil {
		return store.Page{}, err
	}
	if len(p.Jobs) > limit {
		p.Jobs = p.Jobs[:limit]
		last := &p.Jobs[limit-1]
		p.Next = store.MarkOf(by, p.Since, last, store.PositionOf(last.Created, last.ID)).String()
	}
	return p, nil
}

// prepare sets for the transaction what a connection through a pooler does not keep.
func (t *tx) prepare() error {
	if !t.s.o.Pooled {
		return nil
	}
	return t.send(do(`SELECT set_config('enable_sort', 'off', true)`))
}

// since returns from which time on a filter looks at jobs. The clock is only asked where it
// matters, or may.
func (t *tx) since(f job.Filter) (time.Time, error) {
	since := f.Window(time.Unix(0, 0))
	if since.IsZero() {
		return since, nil
	}
	err := t.send(read(`SELECT pawl.clock()`, func(r *reader) error { since = f.Window(r.time()); return nil }))
	return since.Truncate(time.Microsecond), err
}

// A mark says of statements what is behind it.
type mark struct{ store.Mark }

func readMark(cursor string, by store.Sort) (*mark, error) {
	m, err := store.ReadMark(cursor, by, false)
	return &mark{m}, err
}

// row returns what the list is sorted by.
func (m *mark) row() []any {
	switch m.By.Field() {
	case "ended":
		return []any{m.Ended, m.Created(), [16]byte(m.Job)}
	case "stem":
		return []any{m.Stem, m.Created(), [16]byte(m.Job)}
	}
	return []any{m.Created(), [16]byte(m.Job)}
}

// condition says that a job of a table is behind the mark.
func (m *mark) condition(p *params, table string) string {
	columns, list := table+".created, "+table+".id", "?, ?"
	switch m.By.Field() {
	case "ended":
		columns, list = "j.ended, "+columns, "?, "+list
	case "stem":
		columns, list = "s.stem, "+columns, "?, "+list
	}
	than := ">"
	if m.By.Descends() {
		than = "<"
	}
	return p.use("("+columns+") "+than+" ("+list+")", m.row()...)
}
