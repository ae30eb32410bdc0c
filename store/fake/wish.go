package fake

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
	return call(ctx, s, func(t *tx) (_ []store.Wished, err error) {
		answers := make([]store.Wished, len(w.Jobs))
		for i, id := range w.Jobs { // a job that stands twice is found as the first time left it
			r := t.jobs[id]
			if r == nil || r.Tenant != w.Tenant {
				answers[i].Err = store.NoJob(id)
			} else if answers[i], err = t.wish(r, &w); err != nil {
				return nil, err
			}
		}
		return answers, nil
	})
}

// wish writes a wish on one row and carries it out where no worker and no watcher has to.
func (t *tx) wish(r *row, w *store.Wish) (store.Wished, error) {
	a, standing := store.Wished{Place: r.Place}, w.Wish
	refuse := func(format string, args ...any) (store.Wished, error) {
		a.Err = job.Errorf(job.Conflict, format, args...)
		return a, nil
	}
	switch {
	case w.Wish == job.WishCancel && r.State == job.Canceled, w.Wish == job.WishPause && r.State == job.Paused &&
		r.Wish != job.WishCancel:
		a.Done = true
		return a, nil
	case r.State.Terminal():
		return refuse("job %s has already ended %s", r.ID, r.State)
	case w.Wish == job.WishPause && r.Wish == job.WishCancel:
		return refuse("job %s is being canceled", r.ID)
	case w.Wish == job.WishResume && r.State != job.Paused && r.Wish != job.WishPause:
		return refuse("job %s is not paused: it is %s", r.ID, r.State)
	case w.Wish == job.WishResume:
		standing = ""
	}
	wished := *r
	wished.Wish, wished.WishedBy = standing, w.By
	t.swap(r, &wished)
	t.eff.Tell(&wished.Job)
	c, ok := job.Obey(&wished.Job, w.Wish, t.now)
	if w.Force {
		c, ok = job.Abandon(&wished.Job), true
	}
	if !ok {
		return a, nil
	}
	next, err := t.write(&wished, c, job.CauseWish, w.By)
	if err != nil {
		return a, err
	}
	return store.Wished{Place: next.Place, Done: next.State.Terminal() || w.Wish != job.WishCancel}, nil
}
