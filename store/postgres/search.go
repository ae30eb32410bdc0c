package postgres

import (
	"regexp"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A source finds jobs by one index. All sources of a lead are disjoint.
type source struct {
	table string // specs, labels, jobs or ended
	where string // what the index asks for, with ? for each of args
	args  []any
	order []string // what it is then sorted by
	stem  *string  // the one that all its jobs have; nil: they have several
	rest  bool     // all terms of the filter are still to be checked, not only those that the lead leaves over
	slow  bool     // much of the index is read, whatever it finds
	whole bool     // all that it finds is read and sorted for a page, and may be much
}

// key returns what comes before the order of submission in the order of a source; "none" when it is
// in no such order.
func (src *source) key() string {
	switch {
	case len(src.order) == 0 || src.order[0] == "session":
		return "none"
	case src.order[0] == "created":
		return ""
	}
	return src.order[0]
}

// sorted reports whether a source is in an order by a key.
func (src *source) sorted(key string) bool {
	return src.key() == key || key == "stem" && src.stem != nil && src.key() == ""
}

// submission is the order of submission.
var submission = []string{"created", "id"}

// A lead is a set of sources that together hold every job of some terms that is not hidden.
type lead struct {
	sources []source
	term    *job.Term // the term that its jobs fulfil,
	places  bool      // or whether it is those that say where a job stands
	exact   bool      // of few jobs at most, so that no other lead is better
}

// A search is what a list or a count looks for.
type search struct {
	tenant  string
	filter  job.Filter
	by      store.Sort
	from    *mark       // behind which the page begins; nil: the first page
	limit   int         // how many jobs a page takes
	over    []string    // states in which jobs that have ended are looked for,
	living  []job.Place // and places of those that have not
	anyOver bool        // over is every such state
	anyLive bool        // living is every such place
	visible bool        // jobs that are not hidden are looked for,
	hidden  bool        // and those that are
	created bounds      // when they were submitted
	ended   bounds      // when they ended
}

// newSearch reads the filter of a tenant. since is as in [store.Page].
func newSearch(tenant string, f job.Filter, since time.Time, by store.Sort, from *mark) *search {
	s := &search{tenant: tenant, by: by, from: from, anyOver: true, anyLive: true}
	f, ok := possible(f)
	if !ok {
		return s // nothing is looked for
	}
	s.filter = f
	for i := range f {
		switch t := &f[i]; t.Field {
		case "created":
			s.created.narrow(t)
		case "ended":
			s.ended.narrow(t)
		}
	}
	if !since.IsZero() {
		s.created.past(false, since.Add(-time.Microsecond))
	}
	scope := f.Scope()
	for _, state := range job.States {
		for _, custody := range job.Places(state) {
			p := job.Place{State: state, Custody: custody}
			switch chosen := slices.Contains(scope.Places, p); {
			case state.Terminal() && chosen:
				s.over = append(s.over, string(state))
			case state.Terminal():
				s.anyOver = false
			case chosen && by.Field() != "ended":
				s.living = append(s.living, p)
			default:
				s.anyLive = false
			}
		}
	}
	s.visible, s.hidden = scope.Visible, scope.Hidden
	return s
}

// leads returns what the indexed terms of the filter offer.
func (s *search) leads() []lead {
	var leads []lead
	for i := range s.filter {
		t := &s.filter[i]
		if t.Op != job.Is {
			continue
		}
		l := lead{term: t}
		values := slices.Compact(slices.Sorted(slices.Values(t.Values)))
		if key, ok := t.Label(); ok {
			for _, v := range values {
				l.sources = append(l.sources, source{
					table: "labels", where: "tenant = ? AND key = ? AND value = ?", args: []any{s.tenant, key, v},
					order: []string{"created", "job"},
				})
			}
			leads = append(leads, l)
			continue
		}
		if _, ok := t.Arg(); ok {
			if l.sources = s.byArg(t); l.sources != nil {
				leads = append(leads, l)
			}
			continue
		}
		switch t.Field {
		case "id":
			l.exact, l.sources = true, []source{{
				table: "specs", where: "tenant = ? AND NOT hidden AND id = ANY (?::text[]::uuid[])",
				args: []any{s.tenant, values},
			}}
		case "external_id":
			if values[0] == "" {
				continue // it has none, and so is in no index
			}
			l.exact, l.sources = true, []source{{
				table: "specs", where: "tenant = ? AND NOT hidden AND external_id = ANY (?)",
				args: []any{s.tenant, values},
			}}
		case "name":
			l.sources = s.named(values)
		case "group":
			for _, v := range values {
				l.sources = append(l.sources, source{
					table: "jobs", where: inGroup,
					args: []any{s.tenant, v}, whole: true,
				})
			}
		case "kind", "owner", "queue", "app":
			where := "tenant = ? AND NOT hidden AND " + t.Field + " = ?"
			if common, ok := unindexed[t.Field]; ok {
				if slices.Contains(values, common) {
					continue
				}
				where += " AND " + t.Field + " <> '" + common + "'"
			}
			for _, v := range values {
				l.sources = append(l.sources,
					source{table: "specs", where: where, args: []any{s.tenant, v}, order: submission})
			}
		default:
			continue
		}
		leads = append(leads, l)
	}
	if !s.anyOver || !s.anyLive && s.by.Field() != "ended" {
		leads = append(leads, s.byPlace())
	}
	return leads
}

// byArg finds the jobs of a kind by an argument: from some time on by the index that the kind has
// of it, which knows nothing of hidden, and before that by the kind.
func (s *search) byArg(t *job.Term) (found []source) {
	field, _ := t.Arg()
	kind := s.filter.Kind()
	if t.From.IsZero() || kind == "" {
		return nil
	}
	for _, key := range t.ArgsKeys() {
		found = append(found, source{
			table: "labels", where: `tenant = ? AND key = ? AND value = ? AND created >= ?
				AND NOT (SELECT hidden FROM pawl.specs WHERE id = labels.job)`,
			args: []any{s.tenant, store.IndexKey(field), key, t.From}, order: []string{"created", "job"},
		})
	}
	return append(found, source{
		table: "specs", where: "tenant = ? AND NOT hidden AND kind = ? AND created < ?", args: []any{s.tenant, kind, t.From},
		order: submission, rest: true,
	})
}

// unindexed are the values that most jobs have. Indexes leave these out: such jobs are found by
// looking at all.
var unindexed = map[string]string{"app": "", "queue": job.DefaultQueue}

// named finds the jobs of some names. A name that ends as ids do may be one that a job has from its
// id: what the stem leads to is then read until the end of the id is found.
func (s *search) named(names []string) []source {
	var found []source
	var stems, ends []string
	for _, name := range names {
		found = append(found, source{
			table: "specs", where: "tenant = ? AND NOT hidden AND stem = ? AND name = stem",
			args: []any{s.tenant, name}, order: submission, stem: &name,
		})
		if m := fromID.FindStringSubmatch(name); m != nil {
			stems, ends = append(stems, m[1]), append(ends, m[2])
		}
	}
	if len(stems) > 0 {
		found = append(found, source{
			table: "specs", where: `tenant = ? AND NOT hidden AND name <> stem AND id = ANY (ARRAY(
				SELECT x.id FROM unnest(?::text[], ?::text[]) g(stem, ending) CROSS JOIN LATERAL (
					SELECT id FROM pawl.specs WHERE tenant = ? AND NOT hidden AND stem = g.stem
						AND right(id::text, 8) = g.ending
					ORDER BY created, id OFFSET 0) x))`,
			args: []any{s.tenant, stems, ends, s.tenant}, slow: true,
		})
	}
	return found
}

// fromID matches names that end as the id of a job does.
var fromID = regexp.MustCompile(`(?s)^(.*-)([0-9a-f]{8})$`)

// byPlace finds jobs by where they stand. Those that workers hold are read all.
func (s *search) byPlace() lead {
	l := lead{places: true}
	for _, state := range s.over {
		l.sources = append(l.sources, source{
			table: "ended", where: "tenant = ? AND NOT hidden AND state = ?", args: []any{s.tenant, state},
			order: submission,
		})
	}
	var held, others []string
	for _, p := range s.living {
		if state := string(p.State); p.Custody == job.Worker {
			held = append(held, state)
		} else if !slices.Contains(others, state) {
			others = append(others, state)
		}
	}
	for _, state := range others {
		l.sources = append(l.sources, source{
			table: "jobs", where: inState,
			args: []any{state, s.tenant}, order: submission,
		})
	}
	if len(held) > 0 {
		l.sources = append(l.sources, source{
			table: "jobs", where: withWorkers,
			args:  []any{s.tenant, held},
			order: []string{"session", "claim"},
		})
	}
	return l
}

// byEnd finds the jobs that have ended in the order of their ends.
func (s *search) byEnd() lead {
	l := lead{places: true}
	for _, state := range s.over {
		l.sources = append(l.sources, source{
			table: "ended", where: "tenant = ? AND NOT hidden AND state = ?", args: []any{s.tenant, state},
			order: []string{"ended", "created", "id"},
		})
	}
	return l
}

// byName finds all jobs in the order of their names.
func (s *search) byName() lead {
	return lead{sources: []source{{
		table: "specs", where: "tenant = ? AND NOT hidden", args: []any{s.tenant},
		order: []string{"stem", "created", "id"},
	}}}
}

// byCreated finds all jobs in the order of submission.
func (s *search) byCreated() lead {
	return lead{sources: []source{{
		table: "specs", where: "tenant = ? AND NOT hidden AND priority >= 0", args: []any{s.tenant}, order: submission,
	}}}
}

// concealed finds all hidden jobs.
func (s *search) concealed() source {
	return source{table: "specs", where: "tenant = ? AND hidden", args: []any{s.tenant}, order: submission, rest: true}
}

// of returns the sources of a lead, and of hidden jobs if they are looked for.
func (s *search) of(l lead) []source {
	if len(s.over) == 0 && len(s.living) == 0 {
		return nil
	}
	var all []source
	if s.visible {
		all = slices.DeleteFunc(slices.Clone(l.sources), s.passed)
	}
	if s.hidden && len(s.over) > 0 {
		all = append(all, s.concealed())
	}
	return all
}

// passed reports whether all jobs of a source come before the mark: those of a name, in a list by
// name.
func (s *search) passed(src source) bool {
	if s.from == nil || s.by.Field() != "stem" || src.stem == nil || *src.stem == s.from.Stem {
		return false
	}
	return *src.stem < s.from.Stem != s.by.Descends()
}

// bounds are the edges of what is looked for in an order: the values of its first columns beyond
// which something lies. They are not part of it themselves.
type bounds struct{ low, high []any }

// narrow makes bounds of a term for a time.
func (b *bounds) narrow(t *job.Term) {
	at := instantOf(t)
	switch t.Op {
	case job.AtLeast:
		at = at.Add(-time.Microsecond)
	case job.AtMost:
		at = at.Add(time.Microsecond)
	}
	b.past(t.Op == job.Less || t.Op == job.AtMost, at)
}

// past lets in only what is past an edge, which begins with a time: lower than it, or higher. An
// edge that is there stays unless the new one is narrower.
func (b *bounds) past(lower bool, edge ...any) {
	there := &b.low
	if lower {
		there = &b.high
	}
	if len(*there) > 0 {
		order := (*there)[0].(time.Time).Compare(edge[0].(time.Time))
		if order == 0 || order < 0 == lower {
			return
		}
	}
	*there = edge
}

// Conditions of sources. An index answers each.
var (
	inGroup     = store.SQL("custody = {Recovery} AND tenant = ? AND grp = ?")
	inState     = store.SQL("state = ? AND tenant = ? AND coalesce(custody, '') <> {Worker}")
	withWorkers = store.SQL("session IS NOT NULL AND custody = {Worker} AND tenant = ? AND state = ANY (?)")
)
