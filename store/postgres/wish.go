package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Wish implements [store.Jobs].
func (s *Store) Wish(ctx context.Context, w store.Wish) ([]store.Wished, store.Effects, error) {
	if w.Force && w.Wish != job.WishCancel {
		return nil, store.Effects{}, job.Errorf(job.Invalid, "force goes with %s only, not with %s", job.WishCancel,
			w.Wish)
	}
	var answers []store.Wished
	var eff store.Effects
	err := s.write(ctx, w.Tenant, func(t *tx) error {
		l, err := t.lock(w.Jobs)
		if err != nil {
			return err
		}
		answers, eff = make([]store.Wished, len(w.Jobs)), store.Effects{}
		ws := wishes{Wish: w, changes: changes{cause: job.CauseWish, actor: w.By, now: l.now}}
		for i, id := range w.Jobs { // a job that stands twice is found as the first time left it
			j := l.jobs[id]
			if j == nil || j.Tenant != w.Tenant {
				answers[i].Err = store.NoJob(id)
				continue
			}
			if answers[i], err = ws.add(j, &eff); err != nil {
				return err
			}
		}
		ws.changes.effects(&eff)
		return t.commit(append(ws.changes.queries(), ws.query())...)
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// wishes collects what a wish makes of jobs.
type wishes struct {
	store.Wish
	changes changes
	stand   []job.Job // on which the wish is written, for others to obey
}

// add makes a wish of a job, and carries it out where no worker and no watcher has to. j becomes
// what it is then.
func (w *wishes) add(j *job.Job, eff *store.Effects) (store.Wished, error) {
	refuse := func(format string, args ...any) (store.Wished, error) {
		if j.Custody == job.Ready { // a claim that came by meanwhile passed over it
			eff.Add(j)
		}
		return store.Wished{Place: j.Place, Err: job.Errorf(job.Conflict, format, args...)}, nil
	}
	standing := w.Wish.Wish
	switch {
	case standing == job.WishCancel && j.State == job.Canceled:
		return store.Wished{Place: j.Place, Done: true}, nil
	case j.State.Terminal():
		return refuse("job %s has already ended %s", j.ID, j.State)
	case standing == job.WishPause && j.Wish == job.WishCancel:
		return refuse("job %s is being canceled", j.ID)
	case standing == job.WishPause && j.State == job.Paused:
		return store.Wished{Place: j.Place, Done: true}, nil
	case standing == job.WishResume && j.State != job.Paused && j.Wish != job.WishPause:
		return refuse("job %s is not paused: it is %s", j.ID, j.State)
	case standing == job.WishResume:
		standing = ""
	}
	changed := j.Wish != standing || j.WishedBy != w.By
	j.Wish, j.WishedBy = standing, w.By
	eff.Tell(j)
	c, ok := job.Obey(j, w.Wish.Wish, w.changes.now)
	if w.Force {
		c, ok = job.Abandon(j), true
	}
	if !ok {
		if changed {
			w.stand = append(w.stand, *j)
		}
		if j.Custody == job.Ready {
			eff.Add(j)
		}
		return store.Wished{Place: j.Place}, nil
	}
	after, err := w.changes.add(j, c)
	*j = after
	return store.Wished{Place: j.Place, Done: j.State.Terminal() || w.Wish.Wish != job.WishCancel}, err
}

// query returns what writes the wishes that stand.
func (w *wishes) query() *query {
	return do(`UPDATE pawl.jobs j SET wish = ($2::text[])[array_position($1::uuid[], j.id)], wished_by = $3
		WHERE j.id = ANY ($1::uuid[])`,
		values(w.stand, func(j *job.Job) [16]byte { return j.ID }), values(w.stand,
			func(j *job.Job) string { return string(j.Wish) }), w.By)
}
