package postgres

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// params are the arguments of a statement that is being written.
type params []any

// use returns sql with each ? replaced by the next number, for args.
func (p *params) use(sql string, args ...any) string {
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(sql, "?")
		*p = append(*p, arg)
		b.WriteString(before + "$" + strconv.Itoa(len(*p)))
		sql = after
	}
	return b.String() + sql
}

// The fields of filters as SQL has them, by where they stand: those of the spec s, and those of the
// moving part j.
var (
	inSpec = map[string]string{
		"kind": "s.kind", "app": "s.app", "owner": "s.owner", "queue": "s.queue", "name": "s.name", "id": "s.id::text",
		"external_id": "coalesce(s.external_id, '')", "machine": "s.machine", "priority": "s.priority",
	}
	inMoving = map[string]string{
		"ended": "j.ended", "since": "j.since", "code": "j.code", "group": "j.grp", "message": "j.message",
		"attempt": "j.attempt", "wish": "j.wish",
	}
)

// looksAtSpec reports whether a term looks at the spec.
func looksAtSpec(t *job.Term) bool {
	_, label := t.Label()
	_, arg := t.Arg()
	return label || arg || inSpec[t.Field] != ""
}

// holds returns the condition that a term holds for the spec s or the moving part j, just as
// [job.Filter.Match] decides it. It is not for the terms that a search decides by itself: those of
// state, custody, created and hidden.
func (p *params) holds(t *job.Term) string {
	if field, ok := t.Arg(); ok {
		fits := "(pawl.arg_key(s.request, ?) = ANY (?))"
		if t.Op == job.IsNot {
			fits += " IS NOT TRUE" // also where PostgreSQL cannot read the argument
		}
		return p.use("s.kind <> '"+job.KindApp+"' AND "+fits, field, t.ArgsKeys())
	}
	column := inSpec[t.Field]
	if !looksAtSpec(t) {
		column = inMoving[t.Field]
	}
	if key, ok := t.Label(); ok {
		column = p.use("s.labels ->> ?::text", key)
	}
	switch field := t.Field; {
	case field == "ended" || field == "since":
		return p.use(column+" "+string(t.Op)+" ?", instantOf(t))
	case t.Op == job.Like:
		return p.use(column+" LIKE ANY (?)", patterns(t.Values))
	case t.Op != job.Is && t.Op != job.IsNot:
		n, _ := strconv.Atoi(t.Values[0]) // the filter has checked it
		return p.use(column+" "+string(t.Op)+" ?::int", n)
	case field == "priority" || field == "attempt":
		column += "::text"
	}
	is := p.use(column+" = ANY (?)", t.Values)
	if t.Op == job.IsNot {
		return "(" + is + ") IS NOT TRUE" // also where there is no such label
	}
	return is
}

// patterns writes patterns with * and ? as LIKE has them.
func patterns(globs []string) []string {
	like := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`, `?`, `_`)
	list := make([]string, len(globs))
	for i, glob := range globs {
		list[i] = like.Replace(glob)
	}
	return list
}

// instantOf returns the time of a term in whole microseconds, rounded so that the comparison with
// others comes out right.
func instantOf(t *job.Term) time.Time {
	at := t.Time()
	us := at.Truncate(time.Microsecond)
	if (t.Op == job.Less || t.Op == job.AtLeast) && !at.Equal(us) {
		us = us.Add(time.Microsecond)
	}
	return us
}

// possible returns a filter without the values that no text in the database is equal to or like,
// which it would refuse to read. ok is false where a term then has none left that it could be.
func possible(f job.Filter) (_ job.Filter, ok bool) {
	f = slices.Clone(f)
	for i := range f {
		t := &f[i]
		t.Values = slices.DeleteFunc(slices.Clone(t.Values), func(v string) bool { return !storable(v) })
		if len(t.Values) == 0 && t.Op != job.IsNot {
			return nil, false
		}
	}
	return f, true
}

// storable reports whether the database can hold a text.
func storable(v string) bool { return utf8.ValidString(v) && !strings.Contains(v, "\x00") }
