package pawl

import (
	"context"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Annotate changes the labels and notes of a job: what a names is merged into those that are there, or takes their place.
func (s *Service) Annotate(ctx context.Context, id job.ID, a job.Annotation, replace bool) (View, error) {
	errs, err := s.cfg.Store.Annotate(ctx, store.Annotation{Tenant: s.cfg.Tenant, Jobs: []job.ID{id}, Annotation: a, Replace: replace})
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return View{}, err
	}
	return s.View(ctx, id)
}

// Hide hides jobs that have ended, so that lists leave them out, or shows them again. Answers come in the order of ids.
func (s *Service) Hide(ctx context.Context, hidden bool, ids ...job.ID) ([]error, error) {
	return s.cfg.Store.Annotate(ctx, store.Annotation{Tenant: s.cfg.Tenant, Jobs: ids, Hidden: &hidden})
}

// AddEvent writes an event of a user into the history of a job that has not ended.
func (s *Service) AddEvent(ctx context.Context, id job.ID, n job.Note) (store.Event, error) {
	return s.addEvent(ctx, store.NewEvent{Job: id, Cause: job.CauseUser, Note: n})
}

// AddProgramEvent writes an event of a running program into the history of its job. launch is the number of its launch:
// that of another one is refused.
func (s *Service) AddProgramEvent(ctx context.Context, id job.ID, launch int, n job.Note) (store.Event, error) {
	return s.addEvent(ctx, store.NewEvent{Job: id, Cause: job.CauseJob, Launch: launch, Note: n})
}

func (s *Service) addEvent(ctx context.Context, e store.NewEvent) (store.Event, error) {
	if err := e.Validate(); err != nil {
		return store.Event{}, err
	}
	e.Tenant, e.By = s.cfg.Tenant, s.cfg.Principal
	written, eff, err := s.cfg.Store.AddEvent(ctx, e)
	if err == nil || len(eff.Ready) > 0 {
		s.engine.Follow(ctx, eff)
	}
	return written, err
}

// Delete deletes jobs that have ended: their files in the service's own folders, and then all that the database knows of
// them. It can be repeated. Answers come in the order of ids: NotFound, or Conflict where a job has not ended. A job that
// belongs to another machine is deleted there; its answer is Unavailable while no process of that machine can be asked.
func (s *Service) Delete(ctx context.Context, ids ...job.ID) ([]error, error) {
	errs := make([]error, len(ids))
	var gone []job.ID
	var at []int
	silent := map[string]error{} // machines of which no process answers
	for i, id := range ids {
		j, err := s.ended(ctx, id)
		switch {
		case err != nil:
			errs[i] = err
		case !s.elsewhere(&j):
			if errs[i] = s.removeFiles(ctx, &j); errs[i] == nil {
				gone, at = append(gone, id), append(at, i)
			}
		case silent[j.Machine] != nil:
			errs[i] = silent[j.Machine]
		default:
			if errs[i] = s.deleteThere(ctx, &j); job.KindOf(errs[i]) == job.Unavailable {
				silent[j.Machine] = errs[i]
			}
		}
	}
	if len(gone) == 0 {
		return errs, nil
	}
	answers, err := s.cfg.Store.Remove(ctx, s.cfg.Tenant, gone)
	if err != nil {
		return nil, err
	}
	for i, err := range answers {
		errs[at[i]] = err
	}
	return errs, nil
}

// ended returns a job that has ended.
func (s *Service) ended(ctx context.Context, id job.ID) (job.Job, error) {
	j, err := s.Job(ctx, id)
	if err == nil && !j.State.Terminal() {
		err = job.Errorf(job.Conflict, "job %s is %s: cancel it before it is deleted", id, j.State)
	}
	return j, err
}

func (s *Service) removeFiles(ctx context.Context, j *job.Job) error {
	if k, ok := s.cfg.Kinds[j.Kind].(engine.Remover); ok {
		return k.Remove(ctx, j)
	}
	return nil
}
