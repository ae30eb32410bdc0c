package postgres

import (
	"slices"
	"strings"
	"time"
)

// How many entries of an index are looked at to learn how many it has.
const (
	sample = 1000 // of all sources of a lead together
	fewest = 20   // of one source

	// Jobs are all read and sorted when there are few; when there are less than that, but not very
	// few, a sample is looked at first.
	few     = 6000
	veryFew = 2000
)

// choose returns the lead by which a page is found soonest: among several indexed terms the rarest.
// Statistics are not asked, for these may be old, or of another time; instead the indexes are
// looked at.
func (t *tx) choose(sr *search) (lead, error) {
	leads := sr.leads()
	for _, l := range leads {
		if l.exact {
			return l, nil
		}
	}
	if sr.by.Field() != "" {
		return t.chooseSorted(sr, leads)
	}
	switch len(leads) {
	case 0:
		return sr.byCreated(), nil
	case 1:
		return leads[0], nil
	}
	found, err := t.estimate(sr, leads)
	return leads[rarest(found, sr.by.Descends())], err
}

// chooseSorted chooses where one index is in the order that is asked for, and other terms may have
// few jobs: all of those are then read and sorted, unless a page is full sooner along that index.
func (t *tx) chooseSorted(sr *search, leads []lead) (lead, error) {
	along, key := sr.byEnd(), sr.by.Field()
	if key == "stem" {
		along = sr.byName()
	}
	var candidates []lead
	for _, l := range leads {
		if l.term != nil && l.term.Field == "name" && key == "stem" {
			return l, nil // it is in that order, too
		}
		if !along.places || !l.places {
			candidates = append(candidates, l)
		}
	}
	if sr.created.low != nil || sr.created.high != nil {
		candidates = append(candidates, sr.byCreated()) // all jobs of that time
	}
	best, least, err := t.fewest(sr, candidates)
	if err != nil || least > few {
		return along, err
	}
	if least > veryFew {
		if fit, err := t.fitting(sr, along); err != nil || fit >= sr.limit {
			return along, err
		}
	}
	return candidates[best], nil
}

// fewest returns which lead has the fewest jobs, and how many; more than few when none has so few.
func (t *tx) fewest(sr *search, leads []lead) (best, least int, err error) {
	least = few + 1
	var qs []*query
	for i, l := range leads {
		var p params
		var parts []string
		for _, src := range l.sources {
			parts = append(parts, "(SELECT FROM ("+sr.walk(&p, src)+") y)")
		}
		if slices.ContainsFunc(l.sources, func(src source) bool { return src.slow }) || len(parts) == 0 {
			continue
		}
		qs = append(qs, read("SELECT count(*) FROM ("+union(parts)+p.use(" LIMIT ?::bigint) y", few+1),
			func(r *reader) error {
				if n := r.int(); n < least {
					best, least = i, n
				}
				return nil
			}, p...))
	}
	return best, least, t.send(qs...)
}

// fitting counts the jobs that the filter chooses among the next ones of a lead, about sample of
// them.
func (t *tx) fitting(sr *search, l lead) (n int, err error) {
	var p params
	var parts []string
	for _, src := range l.sources {
		parts = append(parts, "SELECT count(*)"+
			sr.chosen(&p, src, l, false, "LIMIT "+p.use("?::bigint", sample/len(l.sources))))
	}
	return n, t.send(read(union(parts), func(r *reader) error { n += r.int(); return nil }, p...))
}

// An estimate is what was seen of a lead.
type estimate struct {
	n    int
	all  bool      // n are all that there are; otherwise
	edge time.Time // so far the nearest ones reach
}

// rarest returns which lead has the fewest jobs in the time that a page reaches back, or forth.
func rarest(found []estimate, down bool) (best int) {
	for i, e := range found {
		switch than := found[best]; {
		case e.all && than.all:
			if e.n < than.n {
				best = i
			}
		case e.all, !than.all && !e.edge.Equal(than.edge) && e.edge.Before(than.edge) == down:
			best = i
		}
	}
	return best
}

// estimate looks at a sample of each lead.
func (t *tx) estimate(sr *search, leads []lead) ([]estimate, error) {
	found := make([]estimate, len(leads))
	var qs []*query
	for i, l := range leads {
		e := &found[i]
		e.all = true
		most := max(fewest, sample/max(1, len(l.sources)))
		var p params
		var parts []string
		for _, src := range l.sources {
			if src.slow {
				e.reaches(sr.nearest(), sr.by.Descends())
				continue
			}
			parts = append(parts, sr.sample(&p, src, most))
		}
		if len(parts) == 0 {
			continue
		}
		qs = append(qs, read(union(parts), func(r *reader) error {
			n, edge, ordered := r.int(), r.time(), r.bool()
			if e.n += n; n == most && ordered {
				e.reaches(edge, sr.by.Descends())
			}
			return nil
		}, p...))
	}
	return found, t.send(qs...)
}

// reaches notes that there is more behind a time.
func (e *estimate) reaches(at time.Time, down bool) {
	if e.all || e.edge.Before(at) == down {
		e.edge = at
	}
	e.all = false
}

// nearest is a time before all jobs of a page, in its order.
func (s *search) nearest() time.Time {
	if s.by.Descends() {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

// sample returns the statement that counts up to most entries of a source. It says how far they
// reach where they are in the order of submission; a source that is not is read all, and has few.
// One that may have many is as good as useless when it has most.
func (s *search) sample(p *params, src source, most int) string {
	edge, ordered := "max", "false"
	if s.by.Descends() {
		edge = "min"
	}
	reach := edge + "(y.created)"
	switch {
	case src.key() == "":
		ordered = "true"
	case src.whole:
		reach, ordered = p.use("?::timestamptz", s.nearest()), "true"
	}
	return "SELECT count(*), " + reach + ", " + ordered + " FROM (" +
		s.walk(p, src) + p.use(" LIMIT ?::bigint", most) + ") y"
}

func union(parts []string) string { return strings.Join(parts, "\nUNION ALL\n") }
