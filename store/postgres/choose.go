package postgres

import (
	"math"
	"time"
)

// How many entries of an index are looked at to learn how many it has.
const (
	sample = 1000 // of all values of a source together
	fewest = 20   // of one value
	// fewToSort is up to how many jobs are all read and sorted.
	fewToSort = 4000
)

// pageful is how many jobs are wanted, where it matters how many must be passed until they are found.
const pageful = 50

// choose returns the lead by which a page is found soonest: among several indexed terms the rarest. Statistics are not
// asked, for these may be old, or of another time; instead the indexes are looked at.
func (t *tx) choose(sr *search) (lead, error) {
	leads := sr.leads()
	for _, l := range leads {
		if l.exact {
			return l, nil
		}
	}
	if keyOf(sr.by) != "" {
		return t.chooseSorted(sr, leads)
	}
	if len(leads) == 0 {
		leads = append(leads, sr.byCreated())
	}
	if len(leads) == 1 {
		return leads[0], nil
	}
	found, err := t.estimate(sr, leads, sample)
	best := 0
	for i := range found {
		if found[i].rarer(&found[best], descends(sr.by)) {
			best = i
		}
	}
	return leads[best], err
}

// chooseSorted chooses where one index is in the order that is asked for, and other terms may have few jobs: all of those
// are then read and sorted, unless there are so few jobs that a page is full sooner along that index.
func (t *tx) chooseSorted(sr *search, leads []lead) (lead, error) {
	along, key := sr.byEnd(), keyOf(sr.by)
	if key == "stem" {
		along = sr.byName()
	}
	candidates := []lead{sr.byCreated()} // all jobs of the time that is looked at
	for _, l := range leads {
		if l.term != nil && l.term.Field == "name" && key == "stem" {
			return l, nil // it is in that order, too
		}
		if !along.places || !l.places {
			candidates = append(candidates, l)
		}
	}
	bounded := sr.created.low != nil || sr.created.high != nil
	if len(candidates) == 1 && !bounded {
		return along, nil
	}
	found, err := t.estimate(sr, candidates, fewToSort)
	if err != nil {
		return lead{}, err
	}
	all := &found[0]
	passed := float64(pageful)
	best, least := along, math.Inf(1)
	for i := range found {
		if !found[i].all {
			continue
		}
		if n := float64(found[i].n); i > 0 || bounded {
			if passed *= float64(all.n) / max(1, n); n < least {
				best, least = candidates[i], n
			}
		}
	}
	if all.all && !bounded && passed < least {
		best = along
	}
	return best, nil
}

// An estimate is what was seen of a lead.
type estimate struct {
	n    int
	all  bool      // n are all that there are; otherwise
	edge time.Time // so far the nearest ones reach
}

// rarer reports whether a lead has fewer jobs than another in the time that a page reaches back, or forth.
func (e *estimate) rarer(than *estimate, down bool) bool {
	switch {
	case e.all && than.all:
		return e.n < than.n
	case e.all || than.all:
		return e.all
	}
	return e.edge.Before(than.edge) == down
}

// estimate looks at up to about look entries of each lead.
func (t *tx) estimate(sr *search, leads []lead, look int) ([]estimate, error) {
	found := make([]estimate, len(leads))
	var qs []*query
	down := descends(sr.by)
	for i, l := range leads {
		e := &found[i]
		e.all = true
		reach := func(at time.Time) {
			if e.all || e.edge.Before(at) == down {
				e.edge = at
			}
			e.all = false
		}
		for _, src := range l.sources {
			if src.slow {
				e.n += look
				reach(sr.nearest())
				continue
			}
			most := max(fewest, look/max(1, len(src.values)))
			sql, args := sr.sample(src, most)
			qs = append(qs, read(sql, func(r *reader) error {
				n, edge := r.int(), r.time()
				if e.n += n; n == most {
					reach(edge)
				}
				return nil
			}, args...))
		}
	}
	return found, t.send(qs...)
}

// nearest is a time before all jobs of a page, in its order.
func (s *search) nearest() time.Time {
	if descends(s.by) {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

// sample returns the statement that counts up to most entries of a source, for each of its values, and says how far they
// reach.
func (s *search) sample(src source, most int) (sql string, args []any) {
	var p params
	edge := "max"
	if descends(s.by) {
		edge = "min"
	}
	sql = "SELECT count(*) AS n, " + edge + "(y.created) AS edge FROM (" + s.walk(&p, src, descends(s.by)) + p.use(" LIMIT ?::bigint", most) + ") y"
	if src.values != nil {
		sql = p.use("SELECT x.n, x.edge FROM unnest(?::text[]) v(v) CROSS JOIN LATERAL (", src.values) + sql + ") x"
	}
	return sql, p
}
