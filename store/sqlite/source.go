package sqlite

import (
	"encoding/hex"
	"regexp"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A source finds jobs by one index. All sources of a list are disjoint.
type source struct {
	table string // what follows FROM, with the jobs j in it or, for labels, l
	where cond   // the condition that the index serves
	seq   string // the column that says a job's number
	join  string // what brings the jobs j in where the table is another one
	stem  any    // the one that all its jobs have; nil: they have several
	rest  bool   // all terms of the filter are still to be checked, not only those that the lead leaves over
}

// A lead is a set of sources that together hold every job of some terms.
type lead struct {
	sources []source
	term    *job.Term // the term that its jobs fulfil,
	places  bool      // or whether it is those that say where a job stands
	key     string    // "", "ended" or "stem": what the sources are sorted by, and then by seq
	exact   bool      // of few jobs at most, so that no other lead is better
	whole   bool      // sorted by nothing, and there may be many: all of them are read for a page
}

// covers reports whether t holds for all jobs of l.
func (l *lead) covers(t *job.Term) bool {
	return t == l.term || l.places && (t.Field == "state" || t.Field == "custody")
}

// A search is what a list or a count looks for.
type search struct {
	tenant  string
	filter  job.Filter
	since   time.Time // as in [store.Page]
	places  []job.Place
	visible bool // jobs that are not hidden are looked for,
	hidden  bool // and those that are

	least, most int64 // seq of the jobs that may be chosen
	indexed     int64 // the lowest seq that the indexes of arguments have
	all         int64 // the highest seq of all jobs
}

// newSearch reads the filter of a tenant.
func newSearch(tenant string, f job.Filter, since time.Time) *search {
	scope := f.Scope()
	return &search{
		tenant: tenant, filter: f, since: since, least: 1,
		places: scope.Places, visible: scope.Visible, hidden: scope.Hidden,
	}
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
					table: "labels l", where: cond{
						"l.tenant = ? AND l.key = ? AND l.value = ?",
						[]any{s.tenant, key, v},
					},
					seq: "l.job", join: " CROSS JOIN jobs j ON j.seq = l.job",
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
			list := marks(len(values))
			args := []any{s.tenant}
			for _, v := range values {
				id, _ := job.ParseID(v) // the filter has checked it
				args = append(args, blob(id))
			}
			l.exact, l.sources = true, []source{jobsBy("sqlite_autoindex_jobs_1",
				cond{"j.tenant = ? AND j.hidden = 0 AND j.id IN " + list, args})}
		case "external_id":
			if values[0] == "" {
				continue // it has none, and so is in no index
			}
			list, args := texts(values)
			l.exact, l.sources = true, []source{jobsBy("jobs_external",
				cond{"j.tenant = ? AND j.hidden = 0 AND j.external_id IN " + list, append([]any{s.tenant}, args...)})}
		case "name":
			l.key = "stem"
			for _, v := range values {
				l.sources = append(l.sources, s.named(v)...)
			}
		case "group":
			list, args := texts(values)
			l.whole, l.sources = true, []source{jobsBy("jobs_group",
				cond{"j.grp <> '' AND j.tenant = ? AND j.grp IN " + list, append([]any{s.tenant}, args...)})}
		case "kind", "owner", "queue", "app":
			where := "j.tenant = ? AND j.hidden = 0 AND j." + t.Field + " = ?"
			if common, ok := unindexed[t.Field]; ok {
				if slices.Contains(values, common) {
					continue
				}
				where += " AND j." + t.Field + " <> '" + common + "'"
			}
			for _, v := range values {
				l.sources = append(l.sources, jobsBy("jobs_"+t.Field, cond{where, []any{s.tenant, v}}))
			}
		default:
			continue
		}
		leads = append(leads, l)
	}
	if places := s.byPlace(); slices.ContainsFunc(s.filter,
		func(t job.Term) bool { return places.covers(&t) || t.Field == "group" && t.Op == job.Is }) {
		leads = append(leads, places)
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
			table: "labels l", where: cond{
				"l.tenant = ? AND l.key = ? AND l.value = ? AND l.job >= ? AND NOT (SELECT hidden FROM jobs h WHERE h.seq = l.job)",
				[]any{s.tenant, store.IndexKey(field), key, s.indexed},
			},
			seq: "l.job", join: " CROSS JOIN jobs j ON j.seq = l.job",
		})
	}
	old := jobsBy("jobs_kind", cond{
		"j.tenant = ? AND j.hidden = 0 AND j.kind = ? AND j.seq < ?", []any{s.tenant, kind, s.indexed},
	})
	old.rest = true
	return append(found, old)
}

// unindexed are the values that most jobs have. Indexes leave these out: such jobs are found by
// looking at all.
var unindexed = map[string]string{"app": "", "queue": job.DefaultQueue}

func jobsBy(index string, where cond) source {
	return source{table: "jobs j INDEXED BY " + index, where: where, seq: "j.seq"}
}

// named finds the jobs of a name. A name that ends as ids do may be one that a job has from its id,
// which the index of ids leads to: all of it is read, for it is sorted by what ids begin with.
func (s *search) named(name string) []source {
	const given = "j.tenant = ? AND j.hidden = 0 AND j.stem = ? AND j.name = j.stem"
	all := jobsBy("jobs_name", cond{given, []any{s.tenant, name}})
	all.stem = name
	found := []source{all}
	if m := fromID.FindStringSubmatch(name); m != nil {
		end, _ := hex.DecodeString(m[2]) // as the expression says
		found = append(found, source{table: "jobs j", seq: "j.seq", stem: m[1], where: cond{
			"j.seq IN (SELECT seq FROM jobs WHERE substr(id, -4) = ?) AND j.tenant = ? AND j.hidden = 0 AND " +
				"j.name = ? AND j.stem = ?",
			[]any{end, s.tenant, name, m[1]},
		}})
	}
	return found
}

// fromID matches names that end as the id of a job does.
var fromID = regexp.MustCompile(`(?s)^(.*-)([0-9a-f]{8})$`)

// byPlace finds jobs by where they stand: a source for each state, and one for all that workers
// hold.
func (s *search) byPlace() lead {
	l := lead{places: true}
	var held cond
	for _, state := range job.States {
		var custodies, others []string
		for _, p := range s.places {
			switch {
			case p.State != state:
			case p.Custody == job.Worker:
				held.args = append(held.args, string(state))
			default:
				custodies = append(custodies, string(p.Custody))
			}
		}
		for _, c := range job.Places(state) {
			if c != job.Worker && !slices.Contains(custodies, string(c)) {
				others = append(others, string(c))
			}
		}
		if len(custodies) == 0 {
			continue
		}
		where := cond{
			"j.tenant = ? AND j.state = ? AND j.session IS NULL AND j.hidden = 0",
			[]any{s.tenant, string(state)},
		}
		if len(others) > 0 {
			list, args := texts(custodies)
			where.and("j.custody IN "+list, args...)
		}
		l.sources = append(l.sources, jobsBy("jobs_state", where))
	}
	if n := len(held.args); n > 0 {
		l.sources = append(l.sources, jobsBy("jobs_session", cond{
			"j.session IS NOT NULL AND j.tenant = ? AND j.hidden = 0 AND j.state IN " + marks(n),
			append([]any{s.tenant}, held.args...),
		}))
	}
	return l
}

// byEnd finds the jobs that have ended in the order of their ends.
func (s *search) byEnd() lead {
	l := lead{places: true, key: "ended"}
	for _, p := range s.places {
		if p.State.Terminal() {
			l.sources = append(l.sources, jobsBy("jobs_ended",
				cond{
					"j.tenant = ? AND j.state = ? AND j.ended IS NOT NULL AND j.hidden = 0",
					[]any{s.tenant, string(p.State)},
				}))
		}
	}
	return l
}

// byName finds all jobs in the order of their names.
func (s *search) byName() lead {
	return lead{key: "stem", sources: []source{jobsBy("jobs_name",
		cond{"j.tenant = ? AND j.hidden = 0", []any{s.tenant}})}}
}

// whole finds all jobs in the order of submission. Where no term has to be checked each state
// offers its jobs by an index; else most jobs of the window are looked at anyway, and are best read
// as they lie there.
func (s *search) whole() lead {
	checked := slices.ContainsFunc(s.filter,
		func(t job.Term) bool { return t.Field != "hidden" && t.Field != "created" })
	if !checked {
		return s.byPlace()
	}
	return s.byNumber()
}

// byNumber finds all jobs as they lie there.
func (s *search) byNumber() lead {
	return lead{sources: []source{{
		table: "jobs j NOT INDEXED", where: cond{"j.tenant = ? AND j.hidden = 0", []any{s.tenant}}, seq: "j.seq",
	}}}
}

// concealed finds all hidden jobs.
func (s *search) concealed() source {
	src := jobsBy("jobs_hidden", cond{"j.tenant = ? AND j.hidden = 1", []any{s.tenant}})
	src.rest = true
	return src
}

// of returns the sources of a lead, and of hidden jobs if they are looked for.
func (s *search) of(l lead) []source {
	var all []source
	if s.visible {
		all = append(all, l.sources...)
	}
	if s.hidden {
		all = append(all, s.concealed())
	}
	return all
}

// bounded adds to c that a job's number may be chosen.
func (s *search) bounded(c *cond, seq string) {
	if s.least > 1 {
		c.and(seq+" >= ?", s.least)
	}
	if s.most < s.all {
		c.and(seq+" <= ?", s.most)
	}
}

// chosen returns the FROM and WHERE of one source of a lead: its jobs that the filter chooses. more
// is a further condition.
func (s *search) chosen(src source, l lead, by store.Sort, more cond) cond {
	c := cond{args: slices.Clone(src.where.args)}
	rest := cond{}
	s.bounded(&rest, src.seq)
	if more.sql != "" {
		rest.and(more.sql, more.args...)
	}
	if by.Field() == "ended" && (src.rest || l.key != "ended") {
		rest.and("j.ended IS NOT NULL")
	}
	spec := false
	for i := range s.filter {
		if t := &s.filter[i]; src.rest || !l.covers(t) {
			spec = rest.where(t) || spec
		}
	}
	if !s.since.IsZero() {
		rest.and("j.created >= ?", s.since.UnixMicro())
	}
	from := src.table + src.join
	if spec {
		from += " CROSS JOIN specs s ON s.seq = j.seq"
	}
	c.sql = "FROM " + from + " WHERE " + src.where.sql
	if rest.sql != "" {
		c.and(rest.sql, rest.args...)
	}
	return c
}
