package sqlite

import (
	"context"
	"database/sql/driver"
	"math"
	"slices"

	"github.com/pawl-jobs/pawl/store"
)

// How many entries of an index are looked at to learn how many it has.
const (
	sample = 1000 // of all values of a term together
	fewest = 20   // of one value
	// fewToSort is up to how many jobs are all read and sorted.
	fewToSort = 5000
)

// pageful is how many jobs are wanted, where it matters how many must be passed until they are
// found.
const pageful = 50

// choose returns the lead by which a page is found soonest: among several indexed terms the rarest.
// There are no statistics on purpose, see prepareFile; instead the indexes are looked at.
func (s *Store) choose(ctx context.Context, sr *search, by store.Sort) (lead, error) {
	leads := sr.leads()
	for _, l := range leads {
		if l.exact {
			return l, nil
		}
	}
	if key := by.Field(); key != "" {
		return s.chooseSorted(ctx, sr, leads, key)
	}
	return s.rarest(ctx, sr, leads, by.Descends())
}

// rarest chooses where every source is in the order that is asked for.
func (s *Store) rarest(ctx context.Context, sr *search, leads []lead, descending bool) (lead, error) {
	if len(leads) == 0 {
		return sr.whole(), nil
	}
	best, least := leads[0], math.Inf(1)
	if len(leads) == 1 {
		return best, nil
	}
	for _, l := range leads {
		n, exact, err := s.estimate(ctx, sr, l, sample, descending)
		if err != nil {
			return lead{}, err
		}
		if n < least && (exact || !l.whole) {
			best, least = l, n
		}
	}
	return best, nil
}

// chooseSorted chooses where one index is in the order that is asked for, and other terms may have
// few jobs: all of those are then read and sorted, when that is less than what must be passed along
// that index until a page is full.
func (s *Store) chooseSorted(ctx context.Context, sr *search, leads []lead, key string) (lead, error) {
	along := sr.byEnd()
	if key == "stem" {
		along = sr.byName()
	}
	for _, l := range leads {
		if l.key == key {
			return l, nil // all jobs of a few names
		}
	}
	span := float64(max(1, sr.most-sr.least+1))
	best, least := along, math.Inf(1)
	if span < fewToSort {
		best, least = sr.byNumber(), span
	}
	passed := pageful * float64(sr.all) / span
	for _, l := range leads {
		if along.places && l.places {
			continue
		}
		n, exact, err := s.estimate(ctx, sr, l, fewToSort, true)
		if err != nil {
			return lead{}, err
		}
		if exact && n < least {
			best, least = l, n
		}
		passed *= span / max(1, n)
	}
	if passed < least {
		best = along
	}
	return best, nil
}

// estimate returns about how many jobs a lead has: exactly if there are fewer than look, and
// otherwise an estimate from the nearest ones. For a lead without an order that is a lower bound.
func (s *Store) estimate(ctx context.Context, sr *search, l lead, look int, descending bool) (total float64,
	exact bool, err error,
) {
	look, exact = max(fewest, look/max(1, len(l.sources))), true
	edge := "max"
	if descending {
		edge = "min"
	}
	for _, src := range l.sources {
		c := cond{src.where.sql, slices.Clone(src.where.args)}
		sr.bounded(&c, src.seq)
		order := " ORDER BY " + src.seq
		switch {
		case l.whole:
			order = ""
		case descending:
			order += " DESC"
		}
		err := s.query(ctx, `SELECT count(*), `+edge+`(seq) FROM (SELECT `+src.seq+` AS seq FROM `+src.table+
			` WHERE `+c.sql+order+` LIMIT ? + 0)`, 2,
			func(v []driver.Value) {
				n, reach := integer(v[0]), sr.most-sr.least+1
				switch exact = exact && n < look; {
				case n < look, l.whole:
				case descending:
					reach = sr.most - v[1].(int64) + 1
				default:
					reach = v[1].(int64) - sr.least + 1
				}
				total += float64(n) * float64(sr.most-sr.least+1) / float64(max(1, reach))
			}, append(c.args, int64(look))...)
		if err != nil {
			return 0, false, err
		}
	}
	return total, exact, nil
}
