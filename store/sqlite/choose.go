package sqlite

import (
	"context"
	"database/sql/driver"
	"math"

	"github.com/pawl-jobs/pawl/store"
)

// How many entries of an index are looked at to learn how many it has.
const (
	sample = 1000 // of all values of a term together
	fewest = 20   // of one value
	// fewToSort is up to how many jobs are all read and sorted, rather than looking for them among all in the order that
	// is asked for. Among a million jobs, 50 of 5000 are found after 10,000.
	fewToSort = 5000
)

// choose returns the lead by which a page is found soonest: among several indexed terms the rarest. There are no
// statistics on purpose, see prepareFile; instead the indexes are looked at.
func (s *Store) choose(ctx context.Context, sr *search, by store.Sort) (lead, error) {
	leads := sr.leads()
	for _, l := range leads {
		if l.exact {
			return l, nil
		}
	}
	if key := keyOf(by); key != "" {
		return s.chooseSorted(ctx, sr, leads, key)
	}
	return s.rarest(ctx, sr, leads, descends(by))
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
		n, err := s.estimate(ctx, sr, l, sample, descending)
		if err != nil {
			return lead{}, err
		}
		if n < least {
			best, least = l, n
		}
	}
	return best, nil
}

// chooseSorted chooses where one index is in the order that is asked for, and other terms may have few jobs.
func (s *Store) chooseSorted(ctx context.Context, sr *search, leads []lead, key string) (lead, error) {
	best := sr.byEnd()
	if key == "name" {
		best = sr.byName()
	}
	least := float64(fewToSort)
	for _, l := range leads {
		if l.key == key {
			return l, nil // all jobs of a few names
		}
	}
	for _, l := range leads {
		if len(sr.filter) == 1 && best.covers(&sr.filter[0]) {
			break
		}
		n, err := s.estimate(ctx, sr, l, fewToSort, true)
		if err != nil {
			return lead{}, err
		}
		if n < least {
			best, least = l, n
		}
	}
	return best, nil
}

// estimate returns about how many jobs a lead has: exactly where there are few, and else as the nearest ones lie.
func (s *Store) estimate(ctx context.Context, sr *search, l lead, look int, descending bool) (total float64, err error) {
	low, high := sr.least, sr.most
	if high == 0 {
		if err := s.query(ctx, `SELECT coalesce(max(seq), 0) FROM jobs`, 1, func(v []driver.Value) { high = v[0].(int64) }); err != nil {
			return 0, err
		}
	}
	look = max(fewest, look/max(1, len(l.sources)))
	for _, src := range l.sources {
		c := src.where
		sr.bounded(&c, src.seq)
		edge, order := "max", src.seq
		if descending {
			edge, order = "min", src.seq+" DESC"
		}
		err := s.query(ctx, `SELECT count(*), `+edge+`(seq) FROM (SELECT `+src.seq+` AS seq FROM `+src.table+` WHERE `+c.sql+` ORDER BY `+order+` LIMIT ?)`, 2,
			func(v []driver.Value) {
				n := integer(v[0])
				if n < look {
					total += float64(n)
					return
				}
				reach := v[1].(int64) - low + 1
				if descending {
					reach = high - v[1].(int64) + 1
				}
				total += float64(n) * float64(high-low+1) / float64(max(1, reach))
			}, append(c.args[:len(c.args):len(c.args)], int64(look))...)
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}
