package service

import (
	"context"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Cancel asks that jobs end. A job whose program runs is CANCELED once the program is known to be
// dead. The answers are in the order of ids, and each has its own error.
func (s *Service) Cancel(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishCancel, ids)
}

// Pause asks that jobs stop until they are resumed. A program that runs is suspended. The answers
// are in the order of ids.
func (s *Service) Pause(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishPause, ids)
}

// Resume lets paused jobs go on. The answers are in the order of ids.
func (s *Service) Resume(ctx context.Context, ids ...job.ID) ([]store.Wished, error) {
	return s.wish(ctx, job.WishResume, ids)
}

// Abandon cancels jobs at once, even if something of them may still run. Such a job ends with the
// code ABANDONED. The answers are in the order of ids.
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

// saysGoesOn begins the message of an event that says that a suspended program goes on.
const saysGoesOn = "goes on"

// Obeyed waits until a job has obeyed a wish that was made before, and reports whether it has. It
// returns false and no error when ctx ends: the wish stands.
//
// A cancel is obeyed when the job has ended. A pause is obeyed when the job is PAUSED, its program
// is suspended, or the job has ended. A resume is obeyed when the job has left PAUSED, or its
// suspended program goes on.
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
		case job.Suspended(e.Custody, e.Message):
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

// Resubmit submits the request of a job once more, as it was given, and returns the id of the new
// job. A job with an external id cannot be submitted twice: the error is of kind Conflict.
func (s *Service) Resubmit(ctx context.Context, id job.ID) (job.ID, error) {
	return s.ResubmitOnce(ctx, "", id)
}

// ResubmitOnce is Resubmit under an idempotency key. Repeated with the same key within
// [store.KeepKey], it returns the same new job. The same key with another job stands for another
// new job.
func (s *Service) ResubmitOnce(ctx context.Context, key string, id job.ID) (job.ID, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return job.ID{}, err
	}
	if j.ExternalID != "" {
		return job.ID{}, job.Errorf(job.Conflict,
			"job %s has the external_id %q, which stands for one job only: submit its request with another", j.ID,
			j.ExternalID)
	}
	if key != "" {
		key = "resubmit/" + id.String() + "/" + key
	}
	mayOwn := func(owner string) bool { return owner == s.cfg.Principal || s.principal == s.cfg.Principal }
	answers, err := s.SubmitAll(ctx, Submission{Key: key, Jobs: []Request{{Given: j.Request}}, MayOwn: mayOwn})
	if err != nil {
		return job.ID{}, err
	}
	return answers[0].ID, nil
}

// An Action is done with all jobs that a filter chooses.
type Action string

// The actions.
const (
	ActCancel   Action = "cancel"
	ActPause    Action = "pause"
	ActResume   Action = "resume"
	ActResubmit Action = "resubmit"
	ActHide     Action = "hide"
	ActUnhide   Action = "unhide"
	ActDelete   Action = "delete"

	ActTry     = Action(groups.TryNow)
	ActRelease = Action(groups.Release)
	ActGiveUp  = Action(groups.GiveUp)
)

// Actions lists every action.
var Actions = []Action{
	ActCancel, ActPause, ActResume, ActResubmit, ActHide, ActUnhide, ActDelete, ActTry,
	ActRelease, ActGiveUp,
}

// A Bulk is one action on many jobs.
type Bulk struct {
	Action Action
	Filter job.Filter
	// DryRun counts the jobs and does nothing with them.
	DryRun bool
	// Force makes a cancel abandon the jobs; see [Service.Abandon].
	Force bool
}

// A BulkAnswer says what became of a [Bulk].
type BulkAnswer struct {
	Matched  int       `json:"matched"`           // jobs that the filter chose
	Done     int       `json:"done"`              // jobs that did it, or have the wish now
	Refused  int       `json:"refused"`           // jobs that refused
	Refusals []Refusal `json:"refusals,omitzero"` // the first 100 of these
	Since    time.Time `json:"since,omitzero"`    // only jobs submitted since then were looked at
}

// A Refusal says why one job refused.
type Refusal struct {
	Job   job.ID        `json:"job"`
	Code  job.ErrorKind `json:"code"`
	Error string        `json:"error"`
}

const (
	bulkPage    = 500
	maxRefusals = 100
)

// Bulk does one action with all jobs that a filter chooses and that exist when it begins. It goes
// from the newest job to the oldest, in many transactions. After an error, or when ctx ends, the
// answer says how far it has come.
func (s *Service) Bulk(ctx context.Context, b Bulk) (a BulkAnswer, err error) {
	if b.DryRun {
		counts, err := s.Count(ctx, b.Filter)
		for _, n := range counts.States {
			a.Matched += n
		}
		a.Since = counts.Since
		return a, err
	}
	q := store.Query{Filter: b.Filter, Limit: bulkPage}
	for more := true; more; more = q.Cursor != "" {
		page, err := s.List(ctx, q)
		if err != nil {
			return a, err
		}
		a.Since, q.Cursor = page.Since, page.Next
		ids := make([]job.ID, len(page.Jobs))
		for i := range page.Jobs {
			ids[i] = page.Jobs[i].ID
		}
		a.Matched += len(ids)
		errs, err := s.act(ctx, b, ids)
		if err != nil {
			return a, err
		}
		for i, err := range errs {
			switch {
			case err == nil:
				a.Done++
			case len(a.Refusals) < maxRefusals:
				a.Refusals = append(a.Refusals, Refusal{ids[i], job.KindOf(err), err.Error()})
				fallthrough
			default:
				a.Refused++
			}
		}
	}
	return a, nil
}

// act does the action of b with some jobs. The answers are in the order of ids.
func (s *Service) act(ctx context.Context, b Bulk, ids []job.ID) ([]error, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	switch b.Action {
	case ActCancel:
		return asked(s.ask(ctx, store.Wish{Wish: job.WishCancel, Jobs: ids, Force: b.Force}))
	case ActPause:
		return asked(s.Pause(ctx, ids...))
	case ActResume:
		return asked(s.Resume(ctx, ids...))
	case ActTry, ActRelease, ActGiveUp:
		return s.ActOnJobs(ctx, groups.Action(b.Action), ids...)
	case ActHide, ActUnhide:
		return s.Hide(ctx, b.Action == ActHide, ids...)
	case ActDelete:
		return s.Delete(ctx, ids...)
	case ActResubmit:
		errs := make([]error, len(ids))
		for i, id := range ids {
			if _, errs[i] = s.Resubmit(ctx, id); errs[i] != nil && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		return errs, nil
	}
	return nil, job.Errorf(job.Invalid, "%q is not an action: give one of %v", b.Action, Actions)
}

func asked(answers []store.Wished, err error) ([]error, error) {
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.Err
	}
	return errs, err
}

// Annotate changes the labels and notes of a job: a is merged into them, or with replace takes
// their place.
func (s *Service) Annotate(ctx context.Context, id job.ID, a job.Annotation, replace bool) (View, error) {
	errs, err := s.cfg.Store.Annotate(ctx,
		store.Annotation{Tenant: s.cfg.Tenant, Jobs: []job.ID{id}, Annotation: a, Replace: replace})
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return View{}, err
	}
	return s.View(ctx, id)
}

// Hide hides jobs that have ended, so that lists leave them out, or shows them again. The answers
// are in the order of ids.
func (s *Service) Hide(ctx context.Context, hidden bool, ids ...job.ID) ([]error, error) {
	return s.cfg.Store.Annotate(ctx, store.Annotation{Tenant: s.cfg.Tenant, Jobs: ids, Hidden: &hidden})
}

// AddEvent writes an event of a user into the history of a job that has not ended.
func (s *Service) AddEvent(ctx context.Context, id job.ID, n job.CustomEvent) (store.Event, error) {
	return s.addEvent(ctx, store.NewEvent{Job: id, Cause: job.CauseUser, CustomEvent: n})
}

// AddProgramEvent writes an event of a running program. That of another launch is refused. See also
// [printed.CheckpointEvent] and [printed.ProgressEvent].
func (s *Service) AddProgramEvent(ctx context.Context, id job.ID, launch int, n job.CustomEvent) (store.Event, error) {
	if n.Name == printed.ProgressEvent {
		j, err := s.Job(ctx, id)
		if err == nil {
			err = ofLaunch(&j, launch)
		}
		if err != nil {
			return store.Event{}, err
		}
		return s.tellProgress(ctx, &j, n)
	}
	if n.Name == printed.CheckpointEvent && n.Validate() == nil {
		f, err := s.filesOfLaunch(ctx, id, launch)
		if err == nil {
			err = jobfolder.KeepCheckpoint(ctx, f.FolderFS, f.Folder, launch, n.Message)
		}
		if err != nil {
			return store.Event{}, err
		}
	}
	return s.addEvent(ctx, store.NewEvent{Job: id, Cause: job.CauseJob, Launch: launch, CustomEvent: n})
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

// Delete deletes jobs that have ended: first their files in the service's own folders, and then
// their rows and histories. It can be repeated.
//
// The answers are in the order of ids. One is NotFound if there is no such job, and Conflict if the
// job has not ended. The files of a job on another machine are deleted by a process there; the
// answer is Unavailable if no process there can be asked.
func (s *Service) Delete(ctx context.Context, ids ...job.ID) ([]error, error) {
	errs := make([]error, len(ids))
	var gone []job.ID
	var at []int
	silent := map[string]error{} // machines without a process that answers
	for i, id := range ids {
		j, err := s.ended(ctx, id)
		switch {
		case err != nil:
			errs[i] = err
		case !s.onOtherMachine(&j):
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
