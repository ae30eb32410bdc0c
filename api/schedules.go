package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func (h *handler) registerSchedules() {
	run := operation{
		id: "run-schedule", tag: "schedules", method: http.MethodPost, path: "/v1/schedules/{name}/run",
		summary: "Submit the jobs of a schedule now",
		about: "Also of one that is disabled. Its due times stay as they are. A job that existed has not ended yet, " +
			"and the schedule lets none overlap.",
		status: http.StatusAccepted, errors: []int{http.StatusConflict},
	}
	register(h, run, h.runSchedule)
	register(h, operation{
		id: "next-of-schedule", tag: "schedules", method: http.MethodGet, path: "/v1/schedules/{name}/next",
		summary: "List when a schedule is due next", about: "Also of one that is disabled: as if it were enabled now.",
	}, h.nextOfSchedule)
}

type runScheduleInput struct {
	// The name.
	Name string `path:"name" example:"weekly"`

	// A call that is repeated with the same key within 24 hours returns the same jobs.
	Key string `header:"Idempotency-Key" maxLength:"255"`
}

type submittedOutput struct{ Body submittedMany }

func (h *handler) runSchedule(ctx context.Context, in *runScheduleInput) (*submittedOutput, error) {
	answers, err := serviceOf(ctx).RunSchedule(ctx, in.Key, in.Name)
	out := &submittedOutput{submittedMany{[]submitted{}}}
	for _, a := range answers {
		out.Body.Jobs = append(out.Body.Jobs, submitted{a.ID, a.Place.State, a.Place.Custody, a.Existed})
	}
	return out, err
}

type nextInput struct {
	// The name.
	Name string `path:"name" example:"weekly"`

	// How many due times are listed at most.
	Count int `query:"count" minimum:"1" maximum:"100" default:"10"`
}

type dueTimes struct {
	// The due times, the first one first.
	Times []time.Time `json:"times"`
}

type dueTimesOutput struct{ Body dueTimes }

func (h *handler) nextOfSchedule(ctx context.Context, in *nextInput) (*dueTimesOutput, error) {
	times, err := serviceOf(ctx).NextDue(ctx, in.Name, in.Count)
	return &dueTimesOutput{dueTimes{times}}, err
}

// mayOwn refuses a schedule whose jobs would be those of another user. Only the service itself may
// make one.
func (h *handler) mayOwn(c *call, doc []byte) error {
	var given struct{ Owner string }
	json.Unmarshal(doc, &given) //nolint:errcheck // what is no schedule is refused for what it is
	caller := c.svc.Principal()
	if given.Owner == "" || given.Owner == caller || caller == h.Service.Principal() {
		return nil
	}
	return job.Errorf(job.Denied, "%w",
		&job.SpecError{Problems: []job.Problem{{
			Path: "owner", Value: given.Owner, What: "is not you",
			Remedy: "leave it out, or let that user make the schedule",
		}}})
}
