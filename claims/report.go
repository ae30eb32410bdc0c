package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Held names a job in the hands of a worker. The epoch proves that the worker speaks of the run
// that it claimed, and of no later one.
type Held struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`
}

// An Answer says what became of a report on one job.
type Answer struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// The epoch that the report named.
	Epoch int64 `json:"epoch"`

	// Whether what the report said is written down.
	OK bool `json:"ok"`

	// The state of the job now; missing: it is not known to this worker.
	State job.State `json:"state,omitempty"`

	// Why the worker must stop this job; missing: it goes on, or has left the worker. canceled and
	// paused: somebody wishes so. timed_out and stalled: the run took longer than its kind gives it,
	// or gave no sign of life, and has been ended. lost: the job is not the worker's any more.
	Stop Stop `json:"stop,omitempty" enum:"canceled,paused,timed_out,stalled,lost"`

	// The code of the error; missing: it is ok.
	Code job.ErrorKind `json:"code,omitempty"`

	// What is wrong, and what to do about it.
	Detail string `json:"detail,omitempty"`

	err error
}

// Err returns the error of a report that was not written down.
func (a *Answer) Err() error { return a.err }

// A Stop is a reason to stop a job.
type Stop string

// The reasons.
const (
	StopCanceled Stop = "canceled"
	StopPaused   Stop = "paused"
	StopTimedOut Stop = "timed_out"
	StopStalled  Stop = "stalled"
	StopLost     Stop = "lost"
)

func stopOf(w job.Wish) Stop {
	switch w {
	case job.WishCancel:
		return StopCanceled
	case job.WishPause:
		return StopPaused
	}
	return ""
}

// A Report is what a worker says of a job. The functions of this file make reports.
type Report struct {
	Held
	verb string
	// change returns the change of j, which the worker holds; nil: there is none.
	change changing
	// made reports whether an event that took the job from the worker is one of a change that
	// change makes.
	made func(e *job.Event, j *job.Job) bool
}

type changing func(ctx context.Context, d *Desk, j *job.Job, session job.ID) (*job.Change, error)

// outcome is a report that ends the run.
func outcome(h Held, verb string, o engine.Outcome, made func(e *job.Event, j *job.Job) bool) Report {
	change := func(_ context.Context, d *Desk, j *job.Job, session job.ID) (*job.Change, error) {
		c := d.cfg.Engine.Change(o, j, session)
		return &c, nil
	}
	return Report{Held: h, verb: verb, made: made, change: change}
}

// Finish reports that a task is done, with its result.
func Finish(h Held, result json.RawMessage) (Report, error) {
	if s := string(result); s == "null" || s == "{}" {
		result = nil
	}
	return outcome(h, "finish", engine.Done(result), func(e *job.Event, j *job.Job) bool {
		return e.State == job.Finished && (result == nil && j.Result == nil || sameJSON(result, j.Result))
	}), nil
}

// failCodes are the codes that a worker may give to a failure.
var failCodes = []job.Code{job.TaskFailed, job.TimeLimit, job.TaskStalled, job.TaskPanicked, job.InvalidDefinition}

// Fail reports that a run has failed. The job is tried again after a backoff while it has attempts
// left, unless final says that this would not help. code is TASK_FAILED by default.
func Fail(h Held, final bool, code job.Code, message string, data json.RawMessage) (Report, error) {
	if code == "" {
		code = job.TaskFailed
	}
	if !slices.Contains(failCodes, code) {
		return Report{}, wrong("code", string(code), "is not a code of a failed task",
			fmt.Sprintf("give one of %v", failCodes))
	}
	if err := checkData("data", data, job.MaxEventData); err != nil {
		return Report{}, err
	}
	message = job.Text(message)
	e := job.Entry{Code: code, Message: message, Data: data}
	o := engine.Retry(e)
	if final {
		o = engine.Fail(e)
	}
	return outcome(h, "fail", o, func(e *job.Event, _ *job.Job) bool {
		return e.Code == code && e.Message == message && (!final || e.State == job.Failed) && e.Custody != job.Recovery
	}), nil
}

// Snooze reports that a task wants to run again after d, in the same attempt.
func Snooze(h Held, d time.Duration, message string) (Report, error) {
	if d < 0 || d > job.MaxDelay {
		return Report{}, wrong("delay", d.String(), "is out of range", "give 0s to ten years")
	}
	message = job.Text(cmp.Or(message, "snoozed for "+d.String()))
	return outcome(h, "snooze", engine.Snooze(d, job.Entry{Message: message}), func(e *job.Event, _ *job.Job) bool {
		return e.Code == "" && e.Message == message && e.Custody != job.Recovery
	}), nil
}

// Block reports that a task met a condition which may clear by itself. All jobs with the same
// tester and params are tested together.
func Block(h Held, message, tester string, params map[string]string) (Report, error) {
	message = job.Text(message)
	b := &job.Block{Code: job.TaskBlocked, Message: message, Tester: tester, Params: params}
	if err := b.Check(); err != nil {
		return Report{}, wrong("tester", tester, "cannot be waited for: "+err.Error(), "give a tester that the service has")
	}
	return outcome(h, "block", engine.Block(b), func(e *job.Event, _ *job.Job) bool {
		return e.State == job.Blocked && e.Message == message
	}), nil
}

// Cancel reports that a job is not wanted any more.
func Cancel(h Held, reason string) (Report, error) {
	reason = job.Text(reason)
	return outcome(h, "cancel", engine.Cancel(job.Entry{Message: reason}), func(e *job.Event, _ *job.Job) bool {
		return e.State == job.Canceled && e.Message == reason
	}), nil
}

// Release gives a job back as if it had never been claimed. A worker that stops a job, because it
// was told to or because it ends, says so.
func Release(h Held) Report {
	return outcome(h, "release", engine.Back(), func(e *job.Event, _ *job.Job) bool {
		return e.Code == "" && e.Message == "" && e.Custody != job.Recovery
	})
}

// Progress reports how far a run has come.
func Progress(h Held, p job.Progress) (Report, error) {
	if p.Done < 0 || p.Total < 0 {
		return Report{}, wrong("done", "", "is below 0, or total is", "count from 0; a total that is not known is 0")
	}
	p.What = job.Text(job.Shorten(p.What, job.MaxWhat))
	return keep(h, "progress", func(w *Work) { w.Progress, w.Epoch = &p, h.Epoch }), nil
}

// Checkpoint keeps state for the next run of the job.
func Checkpoint(h Held, state json.RawMessage) (Report, error) {
	if state == nil {
		return Report{}, wrong("checkpoint", "", "is missing", "give the state to keep, as JSON")
	}
	return keep(h, "checkpoint", func(w *Work) { w.Checkpoint = state }), checkData("checkpoint", state, job.MaxCheckpoint)
}

// wrong says what is wrong with a report.
func wrong(path, value, what, remedy string) error {
	return &job.SpecError{Problems: []job.Problem{{Path: path, Value: value, What: what, Remedy: remedy}}}
}

func checkData(path string, data json.RawMessage, most int) error {
	if len(data) > most {
		return wrong(path, itoa(len(data))+" bytes", "is too large", "keep it to "+itoa(most)+" bytes; keep large data "+
			"elsewhere, and its name here")
	}
	return nil
}

func keep(h Held, verb string, set func(*Work)) Report {
	change := func(_ context.Context, d *Desk, j *job.Job, session job.ID) (*job.Change, error) {
		w := ReadWork(j)
		set(&w)
		w.Told = d.times.now().UTC().Truncate(time.Microsecond)
		b, err := json.Marshal(w)
		if err != nil {
			return nil, job.Errorf(job.Invalid, "%s: %w", verb, err)
		}
		c := job.Report(j.ID, j.Guard(job.Fence{Session: session}), b)
		c.Was = append([]byte{}, j.Work...)
		return &c, nil
	}
	return Report{Held: h, verb: verb, change: change}
}

// Log writes an event into the history of the job.
func Log(h Held, n job.CustomEvent) (Report, error) {
	log := func(ctx context.Context, d *Desk, j *job.Job, _ job.ID) (*job.Change, error) {
		return nil, d.log(ctx, j, n)
	}
	return Report{Held: h, verb: "log", change: log}, n.Validate()
}

func (d *Desk) log(ctx context.Context, j *job.Job, n job.CustomEvent) error {
	_, eff, err := d.cfg.Store.AddEvent(ctx, store.NewEvent{
		Tenant: d.cfg.Tenant, Job: j.ID, By: j.Owner, Cause: job.CauseJob, Epoch: j.Epoch, CustomEvent: n,
	})
	if err == nil || len(eff.Ready) > 0 {
		d.cfg.Engine.Follow(ctx, eff)
	}
	return err
}

// Report writes down what a worker says of its jobs, and answers each report by its index. A job
// may appear once. A report that is repeated is answered as it was the first time. One of a run
// that has ended otherwise is refused, with the kind Fenced or Conflict. An error means that
// nothing may have been written, and that the call is to be repeated.
func (d *Desk) Report(ctx context.Context, session job.ID, reports []Report) ([]Answer, error) {
	if err := checkReports(reports); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(reports))
	left := make([]int, len(reports))
	for i := range reports {
		answers[i] = Answer{ID: reports[i].ID, Epoch: reports[i].Epoch}
		left[i] = i
	}
	for range maxTries {
		again, err := d.report(ctx, session, reports, left, answers)
		if err != nil {
			return nil, err
		}
		if left = again; len(left) == 0 {
			d.touch(ctx, session)
			return answers, nil
		}
	}
	return nil, job.Errorf(job.Unavailable, "other reports on these jobs come at the same time: try again")
}

// maxTries is how often a report is made that met another one of the same job.
const maxTries = 10

func checkReports(reports []Report) error {
	if len(reports) > MaxSlots {
		return &job.SpecError{Problems: []job.Problem{{
			Path: "jobs", Value: itoa(len(reports)), What: "are too many",
			Remedy: "report on up to " + itoa(MaxSlots) + " at once",
		}}}
	}
	first := map[job.ID]int{}
	for i := range reports {
		const answered = "give the id and the epoch of the task as the claim answered them"
		switch path := fmt.Sprintf("jobs[%d]", i); {
		case reports[i].ID.IsZero():
			return wrong(path+".id", "", "is missing", answered)
		case reports[i].Epoch == 0:
			return wrong(path+".epoch", "", "is missing", answered)
		}
		if at, twice := first[reports[i].ID]; twice && reports[i].verb != "log" {
			return &job.SpecError{Problems: []job.Problem{{
				Path: fmt.Sprintf("jobs[%d].id", i), Value: reports[i].ID.String(), What: "is that of jobs[" + itoa(at) + "]",
				Remedy: "report on each job once",
			}}}
		}
		first[reports[i].ID] = i
	}
	return nil
}

// report makes the reports whose indexes are left, and returns those that are to be made again.
func (d *Desk) report(ctx context.Context, session job.ID, reports []Report, left []int, answers []Answer) (
	again []int, err error,
) {
	ids := make([]job.ID, len(left))
	for k, i := range left {
		ids[k] = reports[i].ID
	}
	rows, err := d.cfg.Store.Find(ctx, store.FindQuery{Tenant: d.cfg.Tenant, IDs: ids})
	if err != nil {
		return nil, err
	}
	of := make(map[job.ID]*job.Job, len(rows))
	for i := range rows {
		of[rows[i].ID] = &rows[i]
	}
	var changes []job.Change
	var at []int
	for _, i := range left {
		r, a := &reports[i], &answers[i]
		j := of[r.ID]
		mine := j != nil && j.Custody == job.Worker && j.Session == session
		if !mine || j.Epoch != r.Epoch {
			if err := d.past(ctx, session, r, j, a); err != nil {
				return nil, err
			}
			continue
		}
		c, err := r.change(ctx, d, j, session)
		switch {
		case err != nil && job.KindOf(err) == job.Unavailable:
			return nil, err
		case err != nil:
			a.refuse(j.State, err)
		case c == nil:
			a.OK, a.State, a.Stop = true, j.State, stopOf(j.Wish)
		default:
			changes, at = append(changes, *c), append(at, i)
		}
	}
	applied, err := d.applyAll(ctx, changes)
	if err != nil {
		return nil, err
	}
	for k, got := range applied {
		a, r := &answers[at[k]], &reports[at[k]]
		switch {
		case got.err != nil:
			a.refuse(of[r.ID].State, got.err)
		case got.Outcome == store.OK, got.Outcome == store.Diverted:
			a.OK, a.State = true, got.Now.Place.State
			if changes[k].Reports() {
				a.Stop = stopOf(got.Wish)
			}
		case got.Outcome == store.Conflict:
			again = append(again, at[k]) // another report of the same job came before
		default:
			again = append(again, at[k])
			if j := of[r.ID]; got.Now.Epoch == r.Epoch && got.Now.Place == j.Place { // the lease is over, and nobody took it yet
				again = again[:len(again)-1]
				a.lost(j.State, d.ended(session, store.NoSession(session)))
			}
		}
	}
	return again, nil
}

// applying is the answer for one change, or what is wrong with it.
type applying struct {
	store.Applied
	err error
}

// applyAll makes changes. If one of them cannot be made for good, the others are made without it.
func (d *Desk) applyAll(ctx context.Context, changes []job.Change) ([]applying, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	all := make([]applying, len(changes))
	answers, err := d.apply(ctx, changes)
	switch kind := job.KindOf(err); {
	case err == nil:
		for i := range answers {
			all[i].Applied = answers[i]
		}
		return all, nil
	case ctx.Err() != nil, kind == job.Unavailable, kind == job.Closed, kind == job.Corrupt, kind == job.Locked:
		return nil, err
	case len(changes) == 1:
		all[0].err = err
		return all, nil
	}
	half := len(changes) / 2
	some, err := d.applyAll(ctx, changes[:half])
	if err != nil {
		return nil, err
	}
	rest, err := d.applyAll(ctx, changes[half:])
	return slices.Concat(some, rest), err
}

func (a *Answer) refuse(s job.State, err error) {
	a.State, a.err, a.Code, a.Detail = s, err, job.KindOf(err), err.Error()
}

func (a *Answer) lost(s job.State, err error) {
	a.refuse(s, err)
	a.Stop = StopLost
}
