package pawl

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// An Action is what is done with all jobs that a filter chooses.
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

	ActTry     = Action(store.TryNow)
	ActRelease = Action(store.Release)
	ActGiveUp  = Action(store.GiveUp)
)

// Actions lists every action.
var Actions = []Action{ActCancel, ActPause, ActResume, ActResubmit, ActHide, ActUnhide, ActDelete, ActTry, ActRelease, ActGiveUp}

// A Bulk is one action on many jobs.
type Bulk struct {
	Action Action
	Filter job.Filter
	// DryRun only counts the jobs.
	DryRun bool
	// Force of a cancel; see [Service.Abandon].
	Force bool
}

// A BulkAnswer tells what became of a [Bulk].
type BulkAnswer struct {
	Matched  int       `json:"matched"`           // jobs that the filter chose
	Done     int       `json:"done"`              // of them, those with which it was done, or that have the wish now
	Refused  int       `json:"refused"`           // of them, those that refused
	Refusals []Refusal `json:"refusals,omitzero"` // the first of these, up to 100
	Since    time.Time `json:"since,omitzero"`    // only jobs submitted since then were looked at
}

// A Refusal says why one job refused.
type Refusal struct {
	Job   job.ID        `json:"job"`
	Code  job.ErrorKind `json:"code"`
	Error string        `json:"error"`
}

const (
	bulkPage     = 500
	mostRefusals = 100
)

// Bulk does one action with all jobs that a filter chooses and that were there when it began, newest first, in many
// transactions. When ctx ends it stops between two of them, and tells how far it has come.
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
			case len(a.Refusals) < mostRefusals:
				a.Refusals = append(a.Refusals, Refusal{ids[i], job.KindOf(err), err.Error()})
				fallthrough
			default:
				a.Refused++
			}
		}
	}
	return a, nil
}

// act does the action of b with some jobs and answers each by its index.
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
		return s.TurnJobs(ctx, store.Turning(b.Action), ids...)
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
