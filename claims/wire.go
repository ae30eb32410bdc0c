package claims

import (
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// The reports of this file are written as the API has them.

// ReleaseReport gives a task back.
type ReleaseReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`
}

// FinishReport says that a task is done.
type FinishReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What the task returns: any JSON.
	Result json.RawMessage `json:"result,omitempty"`
}

// FailReport says that a task has failed.
type FailReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What went wrong, for people: cut at 4096 bytes.
	Message string `json:"message,omitempty"`

	// TASK_FAILED by default.
	Code job.Code `json:"code,omitempty" enum:"TASK_FAILED,TIME_LIMIT,TASK_STALLED,TASK_PANICKED,INVALID_DEFINITION"`

	// Another attempt would not help: the job fails, even if it has attempts left.
	Final bool `json:"final,omitempty"`

	// Evidence for finding the cause: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`
}

// CheckpointReport keeps the state of a task.
type CheckpointReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// The state for the next run: any JSON, up to 1 MiB.
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// ProgressReport says how far a task has come.
type ProgressReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// How much is done.
	Done *int64 `json:"done" nullable:"false" minimum:"0" example:"40"`

	// Of how much; missing: that is not known.
	Total int64 `json:"total,omitempty" minimum:"0"`

	// What is done now, for people: cut at 255 bytes.
	What string `json:"what,omitempty" example:"sending"`
}

// LogReport writes an event into the history of a task.
type LogReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What kind of event it is, such as log. The name of a state is refused.
	Name string `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"log"`

	// For people.
	Message string `json:"message,omitempty" maxLength:"4096"`

	// For programs: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`

	// A name for this event, such as a UUID: a call that is repeated writes it once.
	Key string `json:"key,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$"`
}

// SnoozeReport lets a task run again later.
type SnoozeReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// How long it waits.
	Delay *job.Duration `json:"delay" example:"5m"`

	// Why, for people: cut at 4096 bytes.
	Message string `json:"message,omitempty"`
}

// BlockReport lets a task wait for a condition.
type BlockReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// What happened, for people: cut at 4096 bytes.
	Message string `json:"message"`

	// The test that finds out whether the condition has cleared.
	Tester string `json:"tester" maxLength:"64" example:"tcp"`

	// What the test is asked with. All jobs with the same test and parameters are tested together.
	Params map[string]string `json:"params,omitempty"`
}

// CancelReport says that a task is not wanted any more.
type CancelReport struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// Its epoch, as the claim answered it.
	Epoch int64 `json:"epoch" minimum:"1" example:"2"`

	// Why, for people: cut at 4096 bytes.
	Message string `json:"message,omitempty"`
}

// Report checks r.
func (r *ReleaseReport) Report() (Report, error) {
	return Release(Held{r.ID, r.Epoch}), nil
}

// Report checks r.
func (r *FinishReport) Report() (Report, error) {
	return Finish(Held{r.ID, r.Epoch}, r.Result)
}

// Report checks r.
func (r *FailReport) Report() (Report, error) {
	return Fail(Held{r.ID, r.Epoch}, r.Final, r.Code, r.Message, r.Data)
}

// Report checks r.
func (r *CheckpointReport) Report() (Report, error) {
	return Checkpoint(Held{r.ID, r.Epoch}, r.Checkpoint)
}

// Report checks r.
func (r *ProgressReport) Report() (Report, error) {
	if r.Done == nil {
		return Report{}, wrong("done", "", "is missing", "give how much is done, such as 40")
	}
	return Progress(Held{r.ID, r.Epoch}, job.Progress{What: r.What, Done: *r.Done, Total: r.Total})
}

// Report checks r.
func (r *LogReport) Report() (Report, error) {
	return Log(Held{r.ID, r.Epoch}, job.CustomEvent{Name: r.Name, Message: r.Message, Data: r.Data, Key: r.Key})
}

// Report checks r.
func (r *SnoozeReport) Report() (Report, error) {
	if r.Delay == nil {
		return Report{}, wrong("delay", "", "is missing", "give how long the task waits, such as 5m")
	}
	return Snooze(Held{r.ID, r.Epoch}, time.Duration(*r.Delay), r.Message)
}

// Report checks r.
func (r *BlockReport) Report() (Report, error) {
	return Block(Held{r.ID, r.Epoch}, r.Message, r.Tester, r.Params)
}

// Report checks r.
func (r *CancelReport) Report() (Report, error) {
	return Cancel(Held{r.ID, r.Epoch}, r.Message)
}
