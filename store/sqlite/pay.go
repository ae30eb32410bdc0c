package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Pay implements [store.Jobs].
func (s *Store) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		eff = store.Effects{}
		var err error
		if n, err = t.walk(turns.WalkSize(limit), &eff); err != nil {
			return err
		}
		lines, err := t.payLines(limit-n, &eff)
		if err != nil {
			return err
		}
		n += lines
		for n < limit {
			d, err := t.oldestDebt()
			if err != nil {
				return err
			}
			if d.seq == 0 {
				break
			}
			if d.debt == job.DebtTurns {
				if _, err := t.exec(`DELETE FROM followups WHERE seq = ?`, d.seq); err != nil {
					return err
				}
				delete(t.owing, spot{d.tenant, d.key})
				paid, err := t.handOn(spot{d.tenant, d.key}, limit-n, &eff)
				if err != nil {
					return err
				}
				n += max(1, paid)
				continue
			}
			paid, more, err := t.payDependants(d.job, limit-n, &eff)
			if err != nil {
				return err
			}
			n += max(1, paid)
			if !more {
				if _, err := t.exec(`DELETE FROM followups WHERE seq = ?`, d.seq); err != nil {
					return err
				}
			}
		}
		eff.Owed, err = t.exists(`SELECT 1 WHERE ` + unpaid)
		return err
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// unpaid says that there is something to pay.
const unpaid = `EXISTS (SELECT 1 FROM followups) OR EXISTS (SELECT 1 FROM walks)
	OR EXISTS (SELECT 1 FROM lines WHERE owed IS NOT NULL)`

// An owed is a follow-up.
type owed struct {
	seq         int64
	debt        job.Debt
	job         int64  // that owes it; 0: it is owed to the jobs that wait for turns of a key
	tenant, key string // that key
}

// oldestDebt returns the follow-up to pay next; its zero: there is none.
func (t *tx) oldestDebt() (d owed, err error) {
	err = t.query(`SELECT seq, debt, job, tenant, key FROM followups ORDER BY seq LIMIT 1`,
		func(v []driver.Value) error {
			d = owed{v[0].(int64), job.Debt(text(v[1])), v[2].(int64), text(v[3]), text(v[4])}
			return nil
		})
	return d, err
}

// payDependants tells up to limit jobs that wait for debtor of its end, and says whether there are
// more. The edges that are left are the cursor from which the next call goes on.
func (t *tx) payDependants(debtor int64, limit int, eff *store.Effects) (paid int, more bool, err error) {
	ended, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE seq = ?`, debtor)
	if err != nil || len(ended) == 0 {
		return 0, false, err
	}
	type edge struct {
		job  int64
		need job.Need
	}
	var edges []edge
	err = t.query(`SELECT job, need FROM prerequisites WHERE needs = ? ORDER BY job LIMIT ? + 0`,
		func(v []driver.Value) error {
			edges = append(edges, edge{v[0].(int64), job.Need(text(v[1]))})
			return nil
		}, debtor, int64(limit)+1)
	if err != nil {
		return 0, false, err
	}
	if more = len(edges) > limit; more {
		edges = edges[:limit]
	}
	for _, e := range edges {
		if _, err := t.exec(`DELETE FROM prerequisites WHERE needs = ? AND job = ?`, debtor, e.job); err != nil {
			return 0, false, err
		}
		if err := t.release(e.job, &ended[0].Job, e.need, eff); err != nil {
			return 0, false, err
		}
	}
	return len(edges), more, nil
}

// release takes one prerequisite from a job, and moves it on if that was the last gate.
func (t *tx) release(seq int64, prerequisite *job.Job, need job.Need, eff *store.Effects) error {
	if _, err := t.exec(`UPDATE jobs SET needs = needs - 1 WHERE seq = ?`, seq); err != nil {
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

// open moves a job on that waits at a gate which has opened: the next one may be that it gets its
// turn.
func (t *tx) open(r *row, cause job.Cause, eff *store.Effects) error {
	if r.State != job.Waiting {
		return nil // paused: the gate is asked again when it is resumed
	}
	p := job.Next(&r.Job, job.Pending, t.now)
	if p == r.Place {
		return t.inLine(r, eff)
	}
	c := job.Change{Job: r.ID, From: r.Guard(job.Fence{}), To: p.Custody, Path: []job.Entry{{State: p.State}}}
	return t.write(r, c, cause, nil, eff)
}
