package postgres

import (
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// The tables in which sources find jobs: the name by which a statement knows the rows, and the
// rows. The moving part looks alike in both of its tables.
var (
	movingLiving = `SELECT id, created, state, custody, since, NULL::timestamptz AS ended, code,
		coalesce(grp, '') AS grp, message, wish, attempt FROM pawl.jobs`
	movingOver = store.SQL(`SELECT id, created, state, {None}::text COLLATE "C" AS custody, since, ended, code,
		''::text COLLATE "C" AS grp, message, ''::text AS wish, attempt FROM pawl.ended`)
)

var tables = map[string]struct{ alias, rows string }{
	"specs":  {"s", `SELECT * FROM pawl.specs`},
	"labels": {"l", `SELECT job AS id, created FROM pawl.labels`},
	"jobs":   {"j", movingLiving},
	"ended":  {"j", movingOver},
}

// page returns the statement that finds the jobs of a page, in their order; empty: there are none.
//
// The statement merges sources, which hold jobs in the order of the page, and stops when the page
// is full. OFFSET 0 and LIMIT 1 keep the planner from turning the way around: it goes from an index
// on to the rest, whatever statistics say.
func (s *search) page(l lead) (sql string, args []any) {
	var p params
	var parts []string
	for _, src := range s.of(l) {
		parts = append(parts, "("+s.part(&p, src, l)+")")
	}
	if len(parts) == 0 {
		return "", nil
	}
	order := inOrder(s.order(), s.by.Descends())
	return `SELECT ` + lean + ` FROM (
SELECT * FROM (
` + union(parts) + `
) m ORDER BY ` + order + ` LIMIT ` + p.use("?::bigint", s.limit) + `
) m
CROSS JOIN LATERAL (SELECT * FROM pawl.specs WHERE id = m.id LIMIT 1) s
CROSS JOIN LATERAL (SELECT * FROM ` + anyJob + ` a WHERE a.id = m.id LIMIT 1) j
ORDER BY ` + inOrder(values(s.order(), func(c *string) string { return "m." + *c }), s.by.Descends()), p
}

// lean are the columns of a job without what may be large. The result of a program is small.
var lean = strings.Replace(columns, "j.work, j.result", "NULL::json, CASE WHEN s.kind = '"+job.KindApp+
	"' THEN j.result END", 1)

// order returns the columns that a list is sorted by.
func (s *search) order() []string {
	if key := s.by.Field(); key != "" {
		return append([]string{key}, submission...)
	}
	return submission
}

// inOrder writes an order by columns.
func inOrder(columns []string, down bool) string {
	if !down {
		return strings.Join(columns, ", ")
	}
	return strings.Join(columns, " DESC, ") + " DESC"
}

// part returns the statement for the jobs of one source, in the order of the list. A source that is
// not in that order by itself is limited to what the page takes.
func (s *search) part(p *params, src source, l lead) string {
	alias, key := tables[src.table].alias, s.by.Field()
	columns, order := alias+".created, "+alias+".id", []string{"1", "2", "3"}
	switch key {
	case "ended":
		columns = "j.ended, " + columns
	case "stem":
		columns = "s.stem, " + columns
	default:
		order = order[:2]
	}
	if src.sorted(key) && src.key() != key {
		order = order[1:] // there is one stem
	}
	sql := "SELECT " + columns + s.chosen(p, src, l, false, "OFFSET 0") + " ORDER BY " + inOrder(order, s.by.Descends())
	if src.key() != key {
		sql += " LIMIT " + p.use("?::bigint", s.limit)
	}
	return sql
}

// walk returns the rows of a source within its bounds, in the order of its index.
func (s *search) walk(p *params, src source) string {
	sql := tables[src.table].rows + " WHERE " + p.use(src.where, src.args...)
	low, high := s.edges(src)
	for _, edge := range []struct {
		than   string
		values []any
	}{{">", low}, {"<", high}} {
		if n := len(edge.values); n > 0 {
			sql += p.use(" AND ("+strings.Join(src.order[:n], ", ")+") "+edge.than+" ("+strings.Repeat("?, ", n-1)+
				"?)", edge.values...)
		}
	}
	if len(src.order) > 0 {
		sql += " ORDER BY " + inOrder(src.order, s.by.Descends())
	}
	return sql
}

// edges returns the bounds within which a source's index is read. With several columns there is
// only the bound where the reading begins, for PostgreSQL would not stop at the other.
func (s *search) edges(src source) (low, high []any) {
	var b bounds
	switch src.key() {
	case "":
		b = s.created
	case "ended":
		b = s.ended
	}
	if down := s.by.Descends(); s.from != nil && src.sorted(s.by.Field()) {
		switch {
		case src.stem == nil:
			b.past(down, s.from.row()...)
		case s.by.Field() == "" || *src.stem == s.from.Stem:
			b.past(down, s.from.Created(), [16]byte(s.from.Job))
		}
	}
	return b.low, b.high
}

// chosen returns the FROM and WHERE that hold the jobs of a source which the filter chooses, in the
// order of the source. state says that the moving part is asked for, extent how much of the index
// is read.
func (s *search) chosen(p *params, src source, l lead, state bool, extent string) string {
	alias, key := tables[src.table].alias, s.by.Field()
	var conds []string
	spec, moving := key == "stem", state || key == "ended"
	for i := range s.filter {
		t := &s.filter[i]
		switch {
		case t == l.term && !src.rest, t.Field == "hidden", t.Field == "created", t.Field == "ended" &&
			src.key() == "ended":
			continue
		case t.Field == "state" || t.Field == "custody":
			moving = moving || !l.places || src.rest
			continue
		}
		spec, moving = spec || looksAtSpec(t), moving || !looksAtSpec(t)
		conds = append(conds, p.holds(t))
	}
	if src.key() != "" { // else its index has told
		if b := s.created.low; b != nil {
			conds = append(conds, p.use(alias+".created > ?", b...))
		}
		if b := s.created.high; b != nil {
			conds = append(conds, p.use(alias+".created < ?", b...))
		}
	}
	if s.from != nil && !src.sorted(key) {
		conds = append(conds, s.from.condition(p, alias))
	}
	if src.table == "jobs" && !s.anyLive {
		conds = append(conds, p.use("j.state || '/' || j.custody = ANY (?)", s.places()))
	}
	sql := " FROM (" + s.walk(p, src) + " " + extent + ") " + alias
	if spec && alias != "s" {
		sql += " CROSS JOIN LATERAL (SELECT * FROM pawl.specs WHERE id = " + alias + ".id LIMIT 1) s"
	}
	if moving && alias != "j" {
		sql += s.moving(p, alias)
	}
	if len(conds) > 0 {
		sql += " WHERE " + strings.Join(conds, " AND ")
	}
	return sql
}

// moving joins the moving part of a job, where it stands at a place that is looked for. Most jobs
// have ended.
func (s *search) moving(p *params, alias string) string {
	var parts []string
	if len(s.over) > 0 {
		sql := movingOver + " WHERE id = " + alias + ".id"
		if !s.anyOver {
			sql += p.use(" AND state = ANY (?)", s.over)
		}
		parts = append(parts, sql)
	}
	if len(s.living) > 0 {
		sql := movingLiving + " WHERE id = " + alias + ".id"
		if !s.anyLive {
			sql += p.use(" AND state || '/' || custody = ANY (?)", s.places())
		}
		parts = append(parts, sql)
	}
	return " CROSS JOIN LATERAL (" + strings.Join(parts, " UNION ALL ") + " LIMIT 1) j"
}

// places returns the places of living jobs that are looked for.
func (s *search) places() []string { return values(s.living, (*job.Place).String) }
