package postgres

import (
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// The tables in which sources find jobs: the name by which a statement knows the rows, and the rows. The moving part looks
// alike in both of its tables.
const (
	movingLiving = `SELECT id, created, state, custody, since, NULL::timestamptz AS ended, code, message, wish, attempt FROM pawl.jobs`
	movingOver   = `SELECT id, created, state, 'none'::text COLLATE "C" AS custody, since, ended, code, message, ''::text AS wish, attempt FROM pawl.ended`
)

var tables = map[string]struct{ alias, rows string }{
	"specs":  {"s", `SELECT * FROM pawl.specs`},
	"labels": {"l", `SELECT job AS id, * FROM pawl.labels`},
	"jobs":   {"j", movingLiving},
	"ended":  {"j", movingOver},
}

// page returns the statement that finds up to limit jobs behind the mark, in their order; empty: there is none.
//
// The statement merges sources, each of which offers at most as many jobs as the page takes. OFFSET 0 and LIMIT 1 keep the
// planner from turning the way around: it goes from the index on to the rest, whatever statistics say.
func (s *search) page(l lead, limit int) (sql string, args []any) {
	var p params
	var parts []string
	for _, src := range s.of(l) {
		parts = append(parts, "("+s.part(&p, src, l, limit)+")")
	}
	if len(parts) == 0 {
		return "", nil
	}
	order := s.orderOf("m")
	return `SELECT ` + lean + ` FROM (SELECT * FROM (` + strings.Join(parts, "\nUNION ALL\n") + `) m ORDER BY ` + order + ` LIMIT ` + p.use("?::bigint", limit) + `) m
CROSS JOIN LATERAL (SELECT * FROM pawl.specs WHERE id = m.id LIMIT 1) s
CROSS JOIN LATERAL (SELECT * FROM ` + anyJob + ` a WHERE a.id = m.id LIMIT 1) j
ORDER BY ` + order, p
}

// lean are the columns of a job without what may be large.
var lean = strings.Replace(columns, "j.work, j.result", "NULL::json, NULL::json", 1)

// orderOf returns the order of a list by columns of a table.
func (s *search) orderOf(table string) string {
	columns := []string{"created", "id"}
	if key := keyOf(s.by); key != "" {
		columns = slices.Insert(columns, 0, key)
	}
	return inOrder(table, columns, descends(s.by))
}

func inOrder(table string, columns []string, down bool) string {
	terms := make([]string, len(columns))
	for i, c := range columns {
		if terms[i] = c; table != "" {
			terms[i] = table + "." + c
		}
		if down {
			terms[i] += " DESC"
		}
	}
	return strings.Join(terms, ", ")
}

// part returns the statement for what one source offers of a page.
func (s *search) part(p *params, src source, l lead, limit int) string {
	alias, key := tables[src.table].alias, keyOf(s.by)
	out := alias + ".created, " + alias + ".id"
	switch key {
	case "ended":
		out = "j.ended, " + out
	case "stem":
		out = "s.stem, " + out
	}
	order := inOrder(alias, src.columns(), descends(s.by))
	if !src.sorted(key) {
		order = s.orderOf("o")
	}
	var values string
	if src.values != nil {
		values = p.use("unnest(?::text[]) v(v)", src.values)
	}
	sql := "SELECT " + out + s.chosen(p, src, l, false)
	if !src.sorted(key) {
		sql = "SELECT * FROM (" + sql + ") o"
	}
	sql += " ORDER BY " + order + " LIMIT " + p.use("?::bigint", limit)
	if values == "" {
		return sql
	}
	return "SELECT o.* FROM " + values + " CROSS JOIN LATERAL (" + sql + ") o"
}

// columns returns the order in which a source reads its index, as its table names the columns.
func (src *source) columns() []string {
	if src.ranged {
		return append([]string{src.held}, src.order...)
	}
	return src.order
}

// walk returns the rows of a source within its bounds, in the order of its index. Where it has values it is for one of
// them, v.v.
func (s *search) walk(p *params, src source, down bool) string {
	sql := tables[src.table].rows + " WHERE " + p.use(src.where, src.args...)
	low, high := s.edges(src)
	row, begin := src.order, ""
	switch {
	case src.ranged:
		row, begin = src.columns(), "v.v"
	case src.values != nil:
		sql += " AND " + src.held + " = v.v"
	}
	edge := func(values []any, than string) {
		n, list := len(values), strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")
		switch {
		case begin != "" && n > 0:
			sql += p.use(" AND ("+strings.Join(row[:n+1], ", ")+") "+than+" (v.v, "+list+")", values...)
		case begin != "":
			sql += " AND " + row[0] + " " + than + "= v.v"
		case n > 0:
			sql += p.use(" AND ("+strings.Join(row[:n], ", ")+") "+than+" ("+list+")", values...)
		}
	}
	edge(low, ">")
	edge(high, "<")
	if len(row) > 0 {
		sql += " ORDER BY " + inOrder("", row, down)
	}
	return sql
}

// edges returns the bounds within which a source's index is read.
func (s *search) edges(src source) (low, high []any) {
	var b bounds
	down := descends(s.by)
	switch key := src.key(); key {
	case "":
		b = s.created
	case "ended":
		b = s.ended
	case "stem":
		if s.from != nil && down {
			return nil, s.from.row()
		} else if s.from != nil {
			return s.from.row(), nil
		}
		return nil, nil
	default:
		return nil, nil
	}
	if s.from == nil || !src.sorted(keyOf(s.by)) {
		return b.low, b.high
	}
	switch {
	case src.key() != "" || keyOf(s.by) == "":
		b.past(down, s.from.row()...)
	case slices.Equal(src.values, []string{s.from.stem}):
		b.past(down, s.from.created, [16]byte(s.from.id))
	}
	return b.low, b.high
}

// chosen returns the FROM and WHERE that hold the jobs of a source which the filter chooses. state says that the moving
// part is asked for.
func (s *search) chosen(p *params, src source, l lead, state bool) string {
	alias, key := tables[src.table].alias, keyOf(s.by)
	var conds []string
	spec, moving := key == "stem", state || key == "ended"
	for i := range s.filter {
		t := &s.filter[i]
		switch {
		case t == l.term && !src.rest, t.Field == "hidden", t.Field == "created", t.Field == "ended" && src.key() == "ended":
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
	sql := " FROM (" + s.walk(p, src, descends(s.by)) + " OFFSET 0) " + alias
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

// moving joins the moving part of a job, where it stands at a place that is looked for. Most jobs have ended.
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
