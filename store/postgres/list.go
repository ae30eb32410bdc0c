package postgres

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
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
// A page is one statement, and so one snapshot. What leads to it soonest is found out before, see
// choose.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	limit := store.Clamp(q.Limit, 100, 1000)
	by := cmp.Or(q.Sort, store.Newest)
	if !slices.Contains(store.Sorts, by) {
		return p, job.Errorf(job.Invalid, "%q is not an order: give one of %v", q.Sort, store.Sorts)
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
			p.Since = from.since // pages of one list look back equally far
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
		p.Next = markOf(by, p.Since, &p.Jobs[limit-1]).String()
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

// A mark is the place in a list behind which its next page begins. As text it is the cursor.
type mark struct {
	by      store.Sort
	since   time.Time
	created time.Time
	id      job.ID
	ended   time.Time // in a list by end
	stem    string    // in a list by name
}

// markOf returns the mark behind a job.
func markOf(by store.Sort, since time.Time, j *job.Job) mark {
	return mark{by: by, since: since, created: j.Created, id: j.ID, ended: j.Ended, stem: j.Stem()}
}

// row returns what the list is sorted by.
func (m *mark) row() []any {
	row := []any{m.created, [16]byte(m.id)}
	switch m.by.Field() {
	case "ended":
		return slices.Insert(row, 0, any(m.ended))
	case "stem":
		return slices.Insert(row, 0, any(m.stem))
	}
	return row
}

// condition says that a job of a table is behind the mark.
func (m *mark) condition(p *params, table string) string {
	columns, list := table+".created, "+table+".id", "?, ?"
	switch m.by.Field() {
	case "ended":
		columns, list = "j.ended, "+columns, "?, "+list
	case "stem":
		columns, list = "s.stem, "+columns, "?, "+list
	}
	than := ">"
	if m.by.Descends() {
		than = "<"
	}
	return p.use("("+columns+") "+than+" ("+list+")", m.row()...)
}

func (m mark) String() string {
	parts := []string{string(m.by), m.id.String(), writeInstant(m.created), "", ""}
	if !m.since.IsZero() {
		parts[3] = writeInstant(m.since)
	}
	switch m.by.Field() {
	case "ended":
		parts[4] = writeInstant(m.ended)
	case "stem":
		parts[4] = m.stem
	}
	return encodeMark(parts)
}

func encodeMark(parts []string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
}

// readMark reads the cursor of a list in an order.
func readMark(cursor string, by store.Sort) (*mark, error) {
	wrong := job.Errorf(job.Invalid, "%.60q is not a cursor of this list: pass the one from the page before, "+
		"with the same order, or none", cursor)
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, wrong
	}
	parts := strings.SplitN(string(b), "\n", 5)
	if len(parts) != 5 || parts[0] != string(by) {
		return nil, wrong
	}
	m := &mark{by: by}
	var ok bool
	if m.id, err = job.ParseID(parts[1]); err != nil {
		return nil, wrong
	}
	if m.created, ok = readInstant(parts[2]); !ok {
		return nil, wrong
	}
	if parts[3] != "" {
		if m.since, ok = readInstant(parts[3]); !ok {
			return nil, wrong
		}
	}
	switch by.Field() {
	case "ended":
		m.ended, ok = readInstant(parts[4])
	case "stem":
		m.stem, ok = parts[4], storable(parts[4])
	default:
		ok = parts[4] == ""
	}
	if !ok {
		return nil, wrong
	}
	return m, nil
}

func writeInstant(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 36) }

// readInstant reads a time that the database can hold.
func readInstant(text string) (at time.Time, ok bool) {
	us, err := strconv.ParseInt(text, 36, 64)
	at = time.UnixMicro(us).UTC()
	return at, err == nil && at.Year() >= 0 && at.Year() <= 9999
}
