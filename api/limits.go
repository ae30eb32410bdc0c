package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func (h *handler) registerLimits() {
	op := func(id, method, path, summary, about string) operation {
		return operation{
			id: id, tag: "limits", method: method, path: "/v1/limits" + path, summary: summary,
			about: about,
		}
	}
	register(h, op("list-limits", http.MethodGet, "", "List the limits",
		"It lists the limits and rates that are set, and all keys that have turns in use, jobs that wait or "+
			"moments that were given, orders among them. Sorted by key."), h.limits)
	register(h, op("get-limit", http.MethodGet, "/{key}", "Get a limit, with the owners who share it", ""), h.limit)
	set := op("set-limit", http.MethodPut, "/{key}", "Set how many jobs may have turns of a key at once",
		"It holds at once: waiting jobs go as far as it allows, and running jobs are not stopped. Keys that begin "+
			"with starts, launches, dials or "+
			"releases have rates: per says within which time. The key in the document may be left out. "+
			"In the path a slash of the key is written as %2F.")
	set.body = &body{schema: keyless, examples: map[string]example{"limit": {
		"a limit",
		`{"most": 50, "weights": {"ada": 2}}`,
	}, "rate": {"a rate", `{"most": 8, "per": "2s"}`}}}
	register(h, set, h.setLimit)
	remove := op("remove-limit", http.MethodDelete, "/{key}", "Take a limit away",
		"Then any number of jobs may have turns of the key, unless its family has a limit.")
	remove.status = http.StatusNoContent
	register(h, remove, h.removeLimit)
}

// keyless is the schema of a limit in which the key may be left out, because the path has it.
func keyless(r huma.Registry) *huma.Schema {
	s := *r.SchemaFromRef(of[job.Limit](r).Ref)
	s.Required = []string{"most"}
	return &s
}

type limitList struct {
	// The limits, by key.
	Items []service.LimitUse `json:"items"`
}

type limitsOutput struct{ Body limitList }

func (h *handler) limits(ctx context.Context, _ *struct{}) (*limitsOutput, error) {
	items, err := serviceOf(ctx).Limits(ctx)
	return &limitsOutput{limitList{items}}, err
}

type limitInput struct {
	// The key of the turns.
	Key string `path:"key" example:"license"`
}

type limitOutput struct{ Body service.LimitUse }

func (h *handler) limit(ctx context.Context, in *limitInput) (*limitOutput, error) {
	l, err := serviceOf(ctx).Limit(ctx, in.Key)
	return &limitOutput{l}, err
}

func (h *handler) setLimit(ctx context.Context, in *limitInput) (*limitOutput, error) {
	var l job.Limit
	if err := strict(callOf(ctx).body, &l, `"most": 50`); err != nil {
		return nil, err
	}
	var said struct{ Most *int }
	if err := json.Unmarshal(callOf(ctx).body, &said); err == nil && said.Most == nil {
		return nil, invalid("most", "", "is missing", "say how many jobs may have a turn at once; 0 lets none go")
	}
	if l.Key != "" && l.Key != in.Key {
		return nil, invalid("key", l.Key, "is not the key in the path", "give "+in.Key+", or leave it out")
	}
	l.Key = in.Key
	svc := serviceOf(ctx)
	if err := svc.SetLimit(ctx, l); err != nil {
		return nil, err
	}
	set, err := svc.Limit(ctx, l.Key)
	return &limitOutput{set}, err
}

func (h *handler) removeLimit(ctx context.Context, in *limitInput) (*struct{}, error) {
	return &struct{}{}, serviceOf(ctx).RemoveLimit(ctx, in.Key)
}
