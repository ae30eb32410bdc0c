// Package api is the service's face for programs: REST over HTTP, with the paths and bodies of /v1.
//
//	POST /v1/jobs                    submit one spec, or {"jobs": [spec, ...]}, all or none
//	PUT  /v1/runs/{key}              submit the jobs of a file, or find those that have not ended
//	GET  /v1/jobs                    list: state, kind, name, label=k=v, limit, cursor
//	GET  /v1/jobs/{id}               one job
//	GET  /v1/jobs/{id}/history       what happened to it
//	GET  /v1/jobs/{id}/events        the same as server-sent events: after, follow
//	GET  /v1/jobs/{id}/output        its files
//	GET  /v1/jobs/{id}/output/{path} the content of one
//	GET  /v1/jobs/{id}/logs          what its program has written: stream, tail, follow
//	POST /v1/jobs/{id}/cancel        wish something of it: wait; and pause, resume
//	POST /v1/jobs/{id}/resubmit      submit its request once more
//	GET  /v1/events                  the events of all jobs: after, follow
//
// Names are in snake_case, times in RFC 3339, durations as in Go ("90s"). Errors are problems (RFC 9457) with a code,
// which is the [job.ErrorKind]. The package reaches jobs through package pawl; package client is its other end.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// Config configures the handler. Service is required.
type Config struct {
	Service *pawl.Service
	// Stopping ends streams that follow, when it is closed: what there is by then is sent. Nil: never.
	Stopping <-chan struct{}
	Auth     func(*http.Request) (Caller, error)
	Ready    func(context.Context) []Check
	Metrics  http.Handler
	Answered func(Answer)
	Prefix   string
	Limits   Limits
	Version  string
	Log      *slog.Logger
}

type Caller struct {
	Principal string
	Job       job.ID
	Launch    int
}

type Check struct {
	Name     string
	Err      error
	Degraded bool
	Detail   string
}

type Answer struct {
	Operation, Method, Path, Principal, RequestID string
	Status                                        int
	Duration                                      time.Duration
	Bytes                                         int64
	Context                                       context.Context
}

type Limits struct {
	Body    int64
	Jobs    int
	Depth   int
	Rate    float64
	Burst   int
	Streams int
	Wait    time.Duration
}

// New returns the handler of all paths.
func New(c Config) http.Handler {
	h := &handler{svc: c.Service, stopping: c.Stopping, mux: http.NewServeMux()}
	config := huma.DefaultConfig("Pawl", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // no $schema in what is answered
	config.RejectUnknownQueryParameters = true
	config.Transformers = []huma.Transformer{asProblem}
	a := humago.New(h.mux, config)

	get := func(path string) huma.Operation { return huma.Operation{Method: http.MethodGet, Path: path} }
	post := func(path string) huma.Operation { return huma.Operation{Method: http.MethodPost, Path: path} }
	submit := post("/v1/jobs")
	submit.DefaultStatus, submit.MaxBodyBytes = http.StatusAccepted, maxBody
	register(a, submit, h.submit)
	register(a, huma.Operation{Method: http.MethodPut, Path: "/v1/runs/{key}", MaxBodyBytes: maxBody}, h.runFile)
	register(a, get("/v1/jobs"), h.list)
	register(a, get("/v1/jobs/{id}"), h.job)
	register(a, get("/v1/jobs/{id}/history"), h.history)
	register(a, get("/v1/jobs/{id}/events"), h.jobEvents)
	register(a, get("/v1/jobs/{id}/output"), h.output)
	register(a, get("/v1/jobs/{id}/output/{path...}"), h.openOutput)
	register(a, get("/v1/jobs/{id}/logs"), h.logs)
	register(a, post("/v1/jobs/{id}/cancel"), h.wish(job.WishCancel, h.svc.Cancel))
	register(a, post("/v1/jobs/{id}/pause"), h.wish(job.WishPause, h.svc.Pause))
	register(a, post("/v1/jobs/{id}/resume"), h.wish(job.WishResume, h.svc.Resume))
	again := post("/v1/jobs/{id}/resubmit")
	again.DefaultStatus = http.StatusAccepted
	register(a, again, h.resubmit)
	register(a, get("/v1/events"), h.allEvents)
	return h
}

type handler struct {
	svc      *pawl.Service
	stopping <-chan struct{}
	mux      *http.ServeMux
}

// ServeHTTP answers what fits no operation with a problem too.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern != "" {
		h.mux.ServeHTTP(w, r)
		return
	}
	blank := headerOnly{header: http.Header{}}
	h.mux.ServeHTTP(&blank, r)
	if allowed := blank.header.Get("Allow"); allowed != "" {
		w.Header().Set("Allow", allowed)
		writeProblem(w, blank.status, job.Errorf(job.Invalid, "%s is not a method of %s: use %s", r.Method, r.URL.Path, allowed))
		return
	}
	writeProblem(w, http.StatusNotFound, job.Errorf(job.NotFound, "there is nothing at %s: the paths begin with /v1/jobs, /v1/runs and /v1/events", r.URL.Path))
}

// headerOnly takes in an answer without its body.
type headerOnly struct {
	header http.Header
	status int
}

func (w *headerOnly) Header() http.Header         { return w.header }
func (w *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (w *headerOnly) WriteHeader(status int)      { w.status = status }

// register adds an operation whose errors become problems.
func register[I, O any](a huma.API, op huma.Operation, f func(context.Context, *I) (*O, error)) {
	op.SkipValidateBody = true
	huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, newProblem(err)
		}
		return out, nil
	})
}

// A target names one job in a path. (Inputs repeat its field: huma passes over what is embedded and not exported.)
type target struct {
	ID string `path:"id"`
}
