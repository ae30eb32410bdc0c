package fake

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Pay implements [store.Jobs].
func (s *Store) Pay(ctx context.Context, limit int) (int, store.Effects, error) {
	return call(ctx, s, func(t *tx) (n int, err error) {
		if n, err = t.walk(turns.WalkSize(limit)); err != nil {
			return 0, err
		}
		n += t.payLines(limit - n)
		for n < limit && len(t.owed) > 0 {
			debtor := t.owed[0].job
			if debtor.IsZero() {
				at := t.owed[0].key
				t.owed = slices.DeleteFunc(slices.Clone(t.owed), func(d debt) bool { return d.key == at })
				paid, err := t.handOn(at, limit-n)
				if err != nil {
					return 0, err
				}
				n += max(1, paid)
				continue
			}
			edges := t.edges[debtor]
			paid := min(limit-n, len(edges))
			for _, e := range edges[:paid] {
				if err := t.open(e, debtor); err != nil {
					return 0, err
				}
			}
			if paid == len(edges) {
				drop(t, t.edges, debtor)
				t.owed = t.owed[1:]
			} else {
				set(t, t.edges, debtor, edges[paid:])
			}
			n += max(1, paid)
		}
		t.eff.Owed = t.unpaid()
		return n, nil
	})
}

// unpaid reports whether there is something to pay.
func (s *State) unpaid() bool { return len(s.owed)+len(s.walks)+len(s.shutting) > 0 }

// open takes one prerequisite, which has ended, from a job, and moves it on if that was the last
// gate.
func (t *tx) open(e edge, ended job.ID) error {
	r, prerequisite := t.jobs[e.job], t.jobs[ended]
	next := *r
	next.Needs--
	t.swap(r, &next)
	if next.State.Terminal() {
		return nil
	}
	if !e.need.Met(prerequisite.State) {
		_, err := t.write(&next, job.Unmet(&next.Job, &prerequisite.Job), job.CausePaid, "")
		return err
	}
	return t.goOn(&next, job.CausePaid)
}

// goOn moves a job on that waits at a gate which has opened: the next one may be that it gets its
// turn.
func (t *tx) goOn(r *row, cause job.Cause) error {
	if r.Custody != job.Gate {
		return nil // paused: the gate is asked again when it is resumed
	}
	p := job.Next(&r.Job, r.Opened(), t.now)
	if p == r.Place {
		next := *r
		next.Job = r.InLine(t.now)
		t.swap(r, &next)
		t.owe(&next, job.Owes(&r.Job, &next.Job))
		return nil
	}
	_, err := t.write(r, job.Change{
		Job: r.ID, From: r.Guard(job.Fence{}), To: p.Custody,
		Path: []job.Entry{{State: p.State}},
	}, cause, "")
	return err
}

// Due implements [store.Jobs].
func (s *Store) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	return call(ctx, s, func(t *tx) (n int, err error) {
		var due []*row
		for _, r := range t.at[spot{custody: job.Gate}] {
			if !r.Due.IsZero() && !r.Due.After(t.now) {
				due = append(due, r)
			}
		}
		slices.SortFunc(due, func(a, b *row) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.seq, b.seq)) })
		n = max(0, min(limit, len(due)))
		for _, r := range due[:n] {
			// Where another gate still holds it, the schedule does not any more.
			next := *r
			next.Due = time.Time{}
			t.swap(r, &next)
			if err := t.goOn(&next, job.CauseDue); err != nil {
				return 0, err
			}
		}
		some, err := t.dueGroups(limit - n)
		if err != nil {
			return 0, err
		}
		t.eff.Due = t.firstDue()
		return n + some, nil
	})
}
