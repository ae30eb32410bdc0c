package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl/job"
)

// A Check is the state of one thing that the service needs.
type Check struct {
	Name     string
	Err      error // nil: it is healthy
	Degraded bool  // the service works without it
	Detail   string
}

func (h *handler) registerHealth() {
	of := func(id, path, summary, about string, public bool) operation {
		return operation{
			id: id, tag: "service", method: http.MethodGet, path: path, summary: summary, about: about,
			public: public,
		}
	}
	register(h, of("get-health", "/healthz", "Whether the process is there", "It looks at nothing else.", true),
		h.health)
	ready := of("get-readiness", "/readyz", "Whether the service can do its work",
		"All checks with their outcome. The status is 503 when one that is not degraded fails.", true)
	ready.others = map[int]string{http.StatusServiceUnavailable: "It cannot."}
	register(h, ready, h.readiness)
	metrics := of("get-metrics", "/metrics", "Metrics for Prometheus", "", false)
	metrics.kind, metrics.answers = "text/plain", textAnswer
	metrics.errors = []int{http.StatusNotFound}
	register(h, metrics, h.metrics)
	register(h, of("get-version", "/v1/version", "Which version answers", "", false), h.version)
	register(h, of("whoami", "/v1/whoami", "Who asks", "", false), h.whoami)
}

type healthOutput struct{ Body health }

type health struct {
	// Always ok.
	Status string `json:"status" example:"ok"`
}

func (h *handler) health(context.Context, *struct{}) (*healthOutput, error) {
	return &healthOutput{health{"ok"}}, nil
}

type readyOutput struct {
	Status int
	Body   readiness
}

type readiness struct {
	// Whether the service can do its work.
	Ready bool `json:"ready"`

	// The things that it needs, and how they are.
	Checks []check `json:"checks"`
}

// check is a [Check] on the wire.
type check struct {
	// What was checked.
	Name string `json:"name" example:"database"`

	// Whether it is well.
	OK bool `json:"ok"`

	// The service works without it.
	Degraded bool `json:"degraded,omitempty"`

	// What is wrong with it.
	Error string `json:"error,omitempty"`

	// More about it.
	Detail string `json:"detail,omitempty" example:"12 GiB free"`
}

// checkWithin is how long the checks may take.
const checkWithin = 10 * time.Second

func (h *handler) readiness(ctx context.Context, _ *struct{}) (*readyOutput, error) {
	out := &readyOutput{http.StatusOK, readiness{Ready: true, Checks: []check{}}}
	if h.Ready == nil {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	for _, c := range h.Ready(ctx) {
		one := check{Name: c.Name, OK: c.Err == nil, Degraded: c.Degraded, Detail: c.Detail}
		if c.Err != nil {
			one.Error = c.Err.Error()
			if !c.Degraded {
				out.Status, out.Body.Ready = http.StatusServiceUnavailable, false
			}
		}
		out.Body.Checks = append(out.Body.Checks, one)
	}
	return out, nil
}

func (h *handler) metrics(context.Context, *struct{}) (*huma.StreamResponse, error) {
	if h.Metrics == nil {
		return nil, job.Errorf(job.NotFound, "this process measures nothing: ask pawl serve")
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		h.Metrics.ServeHTTP(w, r)
	}}, nil
}

type versionOutput struct{ Body version }

type version struct {
	// The version of the build.
	Version string `json:"version" example:"0.4.0"`

	// The revision of the API within /v1.
	API int `json:"api" example:"1"`
}

func (h *handler) version(context.Context, *struct{}) (*versionOutput, error) {
	return &versionOutput{version{h.Version, Revision}}, nil
}

type whoamiOutput struct{ Body whoami }

type whoami struct {
	// The user in whose name the caller acts.
	Principal string `json:"principal" example:"ada"`

	// The tenant whose jobs the caller sees.
	Tenant string `json:"tenant" example:"default"`
}

func (h *handler) whoami(ctx context.Context, _ *struct{}) (*whoamiOutput, error) {
	svc := serviceOf(ctx)
	return &whoamiOutput{whoami{svc.Principal(), svc.Tenant()}}, nil
}
