package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func (h *handler) registerBulk() {
	register(h, operation{
		id: "bulk", tag: "jobs", method: http.MethodPost, path: "/v1/bulk",
		summary: "Carry out an action on all jobs that a filter chooses",
		about: "It takes the jobs that were there when it began, newest first, in many transactions. A connection " +
			"that breaks stops it between two of them; " +
			"the call can be repeated. An empty filter is refused unless all is set.",
		body: &body{
			schema: of[bulk],
			examples: map[string]example{
				"count": {
					"how many would be canceled",
					`{"action": "cancel", "filter": "label.project=tides state=PENDING,RUNNING", "dry_run": true}`,
				},
				"delete": {"delete what ended long ago", `{"action": "delete", "filter": "custody=none created<90d"}`},
			},
		},
	}, h.bulk)
}

// bulk is an action on many jobs.
type bulk struct {
	// The action that is carried out on each of them.
	Action service.Action `json:"action"`

	// The jobs, in the grammar of lists.
	Filter string `json:"filter,omitempty" maxLength:"4096" example:"owner=ada state=PENDING"`

	// Says that the filter is empty on purpose: all jobs.
	All bool `json:"all,omitempty"`

	// Only count the jobs that the filter chooses.
	DryRun bool `json:"dry_run,omitempty"`

	// For a cancel: end each job at once, even if it is not certain that nothing of it runs any
	// more. Such a job ends with the code ABANDONED.
	Force bool `json:"force,omitempty"`
}

type bulkOutput struct{ Body service.BulkAnswer }

func (h *handler) bulk(ctx context.Context, _ *struct{}) (*bulkOutput, error) {
	var in bulk
	if err := strict(callOf(ctx).body, &in, `"action": "cancel"`); err != nil {
		return nil, err
	}
	f, err := job.ParseFilter(in.Filter, time.Now())
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(service.Actions, in.Action):
		return nil, invalid("action", string(in.Action), "is unknown", fmt.Sprintf("give one of %v", service.Actions))
	case len(f) == 0 && !in.All:
		return nil, invalid("filter", "", "is empty, which means all jobs", `give one, or "all": true beside it`)
	case len(f) > 0 && in.All:
		return nil, invalid("all", "true", "cannot be given together with a filter", "give one of them")
	case in.Force && in.Action != service.ActCancel:
		return nil, invalid("force", "true", "has a meaning for cancel only", "remove it")
	}
	answer, err := serviceOf(ctx).Bulk(ctx, service.Bulk{Action: in.Action, Filter: f, DryRun: in.DryRun, Force: in.Force})
	return &bulkOutput{answer}, err
}
