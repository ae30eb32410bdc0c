package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Pay implements [store.Jobs].
func (s *Store) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		n, eff = 0, store.Effects{}
		for n < limit {
			seq, debtor, err := t.oldestDebt()
			if err != nil || seq == 0 {
				eff.Owed = false
				return err
			}
			paid, err := t.payDependants(debtor, limit-n, &eff)
			if err != nil {
				return err
			}
			n += paid
			if n < limit {
				if _, err := t.exec(`DELETE FROM followups WHERE seq = ?`, seq); err != nil {
					return err
				}
			}
		}
		more, err := t.exists(`SELECT 1 FROM followups LIMIT 1`)
		eff.Owed = more
		return err
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// oldestDebt returns the follow-up to pay next and the job that owes it; 0: there is none.
func (t *tx) oldestDebt() (seq, debtor int64, err error) {
	err = t.query(`SELECT seq, job FROM followups ORDER BY seq LIMIT 1`, func(v []driver.Value) error {
		seq, debtor = v[0].(int64), v[1].(int64)
		return nil
	})
	return seq, debtor, err
}

// payDependants tells up to limit jobs that wait for debtor of its end. The edges that are left are the cursor from
// which the next call goes on.
func (t *tx) payDependants(debtor int64, limit int, eff *store.Effects) (int, error) {
	ended, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE seq = ?`, debtor)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	type edge struct {
		job  int64
		need job.Need
	}
	var edges []edge
	err = t.query(`SELECT job, need FROM prerequisites WHERE needs = ? ORDER BY job LIMIT ?`, func(v []driver.Value) error {
		edges = append(edges, edge{v[0].(int64), job.Need(text(v[1]))})
		return nil
	}, debtor, int64(limit))
	if err != nil {
		return 0, err
	}
	for _, e := range edges {
		if _, err := t.exec(`DELETE FROM prerequisites WHERE needs = ? AND job = ?`, debtor, e.job); err != nil {
			return 0, err
		}
		if err := t.release(e.job, &ended[0].Job, e.need, eff); err != nil {
			return 0, err
		}
	}
	return len(edges), nil
}

// release takes one prerequisite from a job, and moves it on if that was the last gate.
func (t *tx) release(seq int64, prerequisite *job.Job, need job.Need, eff *store.Effects) error {
	if _, err := t.exec(`UPDATE jobs SET needs = `+guard.Countdown.SQL(`needs - 1`, `0`)+` WHERE seq = ?`, seq); err != nil {
		return err
	}
	rs, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE seq = ?`, seq)
	if err != nil || len(rs) == 0 || rs[0].State.Terminal() {
		return err
	}
	r := &rs[0]
	if !need.Met(prerequisite.State) {
		return t.write(r, job.Unmet(&r.Job, prerequisite), job.CausePaid, nil, eff)
	}
	return t.open(r, job.CausePaid, eff)
}

// open moves a job on that waits at a gate which has opened.
func (t *tx) open(r *row, cause job.Cause, eff *store.Effects) error {
	if r.State != job.Waiting {
		return nil // paused: the gate is asked again when it is resumed
	}
	p := job.Next(&r.Job, job.Pending, t.now)
	if p == r.Place {
		return nil
	}
	c := job.Change{Job: r.ID, From: r.Guard(job.Fence{}), To: p.Custody, Path: []job.Entry{{State: p.State}}}
	return t.write(r, c, cause, nil, eff)
}
