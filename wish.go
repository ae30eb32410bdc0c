package pawl

import (
	"context"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Cancel asks that jobs end. A job whose program runs is CANCELED once that program is known to be dead. Answers come
// in the order of ids.
func (s *Service) Cancel(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishCancel, ids)
}

// Pause asks that jobs stop until they are resumed. A program that runs is suspended where it runs.
func (s *Service) Pause(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishPause, ids)
}

// Resume lets paused jobs go on.
func (s *Service) Resume(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishResume, ids)
}

// Abandon cancels jobs at once, also where it cannot be confirmed that nothing of them runs any more: such a job ends
// with the code ABANDONED, and its program may still run.
func (s *Service) Abandon(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.ask(ctx, store.Wish{Wish: job.WishCancel, Jobs: ids, Force: true})
}

func (s *Service) wish(ctx context.Context, w job.Wish, ids []job.ID) ([]store.Wished, error) {
	return s.ask(ctx, store.Wish{Wish: w, Jobs: ids})
}

func (s *Service) ask(ctx context.Context, w store.Wish) ([]store.Wished, error) {
	w.Tenant, w.By = s.cfg.Tenant, s.cfg.Principal
	answers, eff, err := s.cfg.Store.Wish(ctx, w)
	if err != nil {
		return nil, err
	}
	s.engine.Follow(ctx, eff)
	return answers, nil
}

// With these words begins the message of an event that says that a wish was carried out on a program that runs.
const (
	saysSuspended = "suspended"
	saysGoesOn    = "goes on"
)

// Obeyed waits until a job has obeyed a wish that was made of it before, and reports whether it did; an end of ctx is no
// error, for the wish stands. A cancel is obeyed when the job has ended, a pause when the job is PAUSED or its program
// is suspended, and when it has ended meanwhile. To resume is to leave PAUSED, or for a suspended program to go on.
func (s *Service) Obeyed(ctx context.Context, id job.ID, w job.Wish) (bool, error) {
	done, err := s.await(ctx, id, w)
	if ctx.Err() != nil {
		err = nil
	}
	return done, err
}

func (s *Service) await(ctx context.Context, id job.ID, w job.Wish) (bool, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return false, err
	}
	suspended, stands := false, j.N
	for e, err := range s.Events(ctx, id, "") {
		if err != nil {
			return false, err
		}
		if e.Sub > 0 {
			continue // a user or the program wrote it
		}
		switch {
		case e.Custody != job.Monitor, strings.HasPrefix(e.Message, saysGoesOn):
			suspended = false
		case strings.HasPrefix(e.Message, saysSuspended):
			suspended = true
		}
		if e.N < stands {
			continue // it tells of what was before
		}
		if j, err = s.Job(ctx, id); err != nil {
			return false, err
		}
		if stands = j.N; e.N < stands {
			continue
		}
		if obeyed(&j, w, suspended) {
			return true, nil
		}
	}
	return true, nil // it has ended
}

func obeyed(j *job.Job, w job.Wish, suspended bool) bool {
	switch {
	case j.State.Terminal():
		return true
	case w == job.WishPause:
		return j.State == job.Paused || suspended
	case w == job.WishResume:
		return j.State != job.Paused && !suspended && j.Wish != job.WishPause
	}
	return false
}

// Resubmit submits the request of a job once more, as it was given, and answers with the new job. Conflict, where its
// external id stands for the job that is there.
func (s *Service) Resubmit(ctx context.Context, id job.ID) (job.ID, error) {
	return s.ResubmitOnce(ctx, "", id)
}

// ResubmitOnce is Resubmit under an idempotency key: repeated with the same key within [store.KeepKey] it answers with
// the same new job. A key stands for one new job of each job.
func (s *Service) ResubmitOnce(ctx context.Context, key string, id job.ID) (job.ID, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return job.ID{}, err
	}
	if j.ExternalID != "" {
		return job.ID{}, job.Errorf(job.Conflict, "job %s has the external_id %q, which stands for one job only: submit its request with another", j.ID, j.ExternalID)
	}
	spec, err := job.ParseSpec(j.Request)
	if err != nil {
		return job.ID{}, job.Errorf(job.Invalid, "request of job %s: %w", j.ID, err)
	}
	if key != "" {
		key = "resubmit/" + id.String() + "/" + key
	}
	answers, err := s.SubmitOnce(ctx, key, Request{Spec: spec, Given: j.Request})
	if err != nil {
		return job.ID{}, err
	}
	return answers[0].ID, nil
}
