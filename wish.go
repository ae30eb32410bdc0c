package pawl

import (
	"context"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// With these words begins the message of an event that says that a wish was carried out on a program that runs.
const (
	saysSuspended = "suspended"
	saysGoesOn    = "goes on"
)

// Obeyed waits until a job has obeyed a wish that was made of it before, and reports whether it did; an end of ctx
// while it waits is no error. A cancel is obeyed when the job has ended, a pause when the job is PAUSED or its program
// is suspended, and when it has ended meanwhile. To resume is to leave PAUSED, or for a suspended program to go on.
func (s *Service) Obeyed(ctx context.Context, id job.ID, w job.Wish) (bool, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return false, err
	}
	suspended, stands := false, j.N
	for e, err := range s.Events(ctx, id, "") {
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return false, err
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
	answers, err := s.Submit(ctx, Request{Spec: spec, Given: j.Request})
	if err != nil {
		return job.ID{}, err
	}
	return answers[0].ID, nil
}
