package sqlite

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Wish implements [store.Jobs].
func (s *Store) Wish(ctx context.Context, w store.Wish) ([]store.Wished, store.Effects, error) {
	var answers []store.Wished
	var eff store.Effects
	if w.Force && w.Wish != job.WishCancel {
		return nil, eff, job.Errorf(job.Invalid, "force goes with %s only, not with %s", job.WishCancel, w.Wish)
	}
	err := s.do(ctx, func(t *tx) error {
		answers, eff = make([]store.Wished, len(w.Jobs)), store.Effects{}
		rows, err := t.find(w.Jobs)
		if err != nil {
			return err
		}
		for i, id := range w.Jobs { // a job that stands twice is found as the first time left it
			r := rows[id]
			if r == nil || r.Tenant != w.Tenant {
				answers[i].Err = store.NoJob(id)
				continue
			}
			if answers[i], err = t.wish(r, w, &eff); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// wish writes a wish on one row and carries it out where no worker and no watcher has to.
func (t *tx) wish(r *row, w store.Wish, eff *store.Effects) (store.Wished, error) {
	refuse := func(format string, args ...any) (store.Wished, error) {
		return store.Wished{Place: r.Place, Err: job.Errorf(job.Conflict, format, args...)}, nil
	}
	standing := w.Wish
	switch {
	case w.Wish == job.WishCancel && r.State == job.Canceled:
		return store.Wished{Place: r.Place, Done: true}, nil
	case r.State.Terminal():
		return refuse("job %s has already ended %s", r.ID, r.State)
	case w.Wish == job.WishPause && r.Wish == job.WishCancel:
		return refuse("job %s is being canceled", r.ID)
	case w.Wish == job.WishPause && r.State == job.Paused:
		return store.Wished{Place: r.Place, Done: true}, nil
	case w.Wish == job.WishResume && r.State != job.Paused && r.Wish != job.WishPause:
		return refuse("job %s is not paused: it is %s", r.ID, r.State)
	case w.Wish == job.WishResume:
		standing = ""
	}
	if r.Wish != standing || r.WishedBy != w.By {
		if _, err := t.exec(`UPDATE jobs SET wish = ?, wished_by = ? WHERE seq = ?`, string(standing), w.By,
			r.seq); err != nil {
			return store.Wished{}, err
		}
		r.Wish, r.WishedBy = standing, w.By
	}
	eff.Tell(&r.Job)
	c, ok := job.Obey(&r.Job, w.Wish, t.now)
	if w.Force {
		c, ok = job.Abandon(&r.Job), true
	}
	if !ok {
		return store.Wished{Place: r.Place}, nil
	}
	err := t.write(r, c, job.CauseWish, optional(w.By), eff)
	done := r.State.Terminal() || w.Wish != job.WishCancel
	return store.Wished{Place: r.Place, Done: done}, err
}
