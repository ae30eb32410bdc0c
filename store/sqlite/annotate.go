package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Annotate implements [store.Jobs].
func (s *Store) Annotate(ctx context.Context, a store.Annotation) ([]error, error) {
	var answers []error
	err := s.do(ctx, func(t *tx) error {
		answers = make([]error, len(a.Jobs))
		rows, err := t.find(a.Jobs)
		if err != nil {
			return err
		}
		for i, id := range a.Jobs {
			r := rows[id]
			if r == nil || r.Tenant != a.Tenant {
				answers[i] = store.NoJob(id)
				continue
			}
			if answers[i], err = t.annotate(r, &a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// annotate changes one job, or says why not.
func (t *tx) annotate(r *row, a *store.Annotation) (refused, err error) {
	hidden := r.Hidden
	if a.Hidden != nil {
		hidden = *a.Hidden
	}
	if hidden && !r.State.Terminal() {
		return job.Errorf(job.Conflict, "job %s is %s: it can be hidden once it has ended", r.ID, r.State), nil
	}
	// A row that is held in memory knows neither.
	err = t.query(`SELECT labels, notes FROM specs WHERE seq = ?`, func(v []driver.Value) error {
		r.Labels, r.Notes = labelsOf(v[0]), slices.Clone(raw(v[1]))
		return nil
	}, r.seq)
	if err != nil {
		return nil, err
	}
	before := r.Labels
	labels, notes, refused := a.Merge(&r.Job, a.Replace)
	if refused != nil {
		return refused, nil
	}
	if a.Labels != nil || a.Notes != nil {
		list, err := labelsDocument(labels)
		if err != nil {
			return nil, err
		}
		if _, err := t.exec(`UPDATE specs SET labels = ?, notes = ? WHERE seq = ?`, list, document(notes),
			r.seq); err != nil {
			return nil, err
		}
		r.Labels, r.Notes = labels, notes
	}
	was, is := before, labels
	if r.Hidden {
		was = nil
	}
	if hidden {
		is = nil
	}
	if err := t.label(r, was, is); err != nil || hidden == r.Hidden {
		return nil, err
	}
	r.Hidden = hidden
	_, err = t.exec(`UPDATE jobs SET hidden = ? WHERE seq = ?`, flag(hidden), r.seq)
	return nil, err
}

// label brings the table of labels from what it has of a job to what it is to have.
func (t *tx) label(r *row, was, is map[string]string) error {
	for k, v := range was {
		if now, there := is[k]; there && now == v {
			continue
		}
		if _, err := t.exec(`DELETE FROM labels WHERE tenant = ? AND key = ? AND value = ? AND job = ?`, r.Tenant,
			k, v, r.seq); err != nil {
			return err
		}
	}
	for k, v := range is {
		if old, there := was[k]; there && old == v {
			continue
		}
		if _, err := t.exec(`INSERT INTO labels (tenant, key, value, job) VALUES (?, ?, ?, ?)`, r.Tenant, k, v,
			r.seq); err != nil {
			return err
		}
	}
	return nil
}

// AddEvent implements [store.Jobs]. It touches nothing that a change of the job looks at. No claim
// can run at the same time.
func (s *Store) AddEvent(ctx context.Context, n store.NewEvent) (e store.Event, eff store.Effects, err error) {
	if n.Cause != job.CauseUser && n.Cause != job.CauseJob {
		return e, eff, job.Errorf(job.Internal, "an event of a user with cause %q", n.Cause)
	}
	var written store.Event
	err = s.do(ctx, func(t *tx) error {
		rows, err := t.find([]job.ID{n.Job})
		if err != nil {
			return err
		}
		r := rows[n.Job]
		if r == nil || r.Tenant != n.Tenant {
			return store.NoJob(n.Job)
		}
		if n.Key != "" {
			there := false
			err := t.query(eventOfKey, func(v []driver.Value) error {
				written, there = eventOf(v), true
				written.Data = slices.Clone(written.Data)
				return nil
			}, r.seq, n.Key)
			if err == nil && there {
				err = n.Repeats(&written.Event)
			}
			if err != nil || there {
				return err
			}
		}
		if err := n.Allowed(&r.Job); err != nil {
			return err
		}
		counted, err := t.exec(`UPDATE jobs SET told = told + 1 WHERE seq = ? AND told < ?`, r.seq,
			int64(job.MaxJobEvents))
		if err != nil {
			return err
		}
		if counted == 0 {
			return job.Errorf(job.Conflict, "job %s has %d events of users and its own: it takes no more", n.Job,
				job.MaxJobEvents)
		}
		written.Event = job.Event{
			Job: n.Job, N: r.N, Name: n.Name, Epoch: r.Epoch, State: r.State, Custody: r.Custody,
			At: t.now.Truncate(time.Microsecond).UTC(), Cause: n.Cause,
			Actor: n.By, Message: n.Message, Data: n.Data,
		}
		return t.query(addEvent,
			func(v []driver.Value) error {
				written.Sub, written.Cursor = v[0].(int64), store.EventCursor{Ord: v[1].(int64)}.String()
				return nil
			}, r.seq, r.N, r.seq, r.N, r.Epoch, string(r.State), string(r.Custody), micros(t.now), string(n.Cause),
			optional(n.By), optional(n.Message), document(n.Data), n.Name,
			optional(n.Key))
	})
	if err != nil {
		return e, eff, err
	}
	return written, eff, nil
}
