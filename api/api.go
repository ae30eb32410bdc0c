// Package api is the service's face for programs: REST over HTTP, with the paths and bodies of /v1.
//
//	POST   /v1/jobs                        submit one spec, or {"jobs": [spec, ...], "defaults": {...}}, all or none: wait
//	GET    /v1/jobs                        list: filter, sort, limit, cursor
//	GET    /v1/lookup                      one job by its name or a part of its id: job, hidden
//	GET    /v1/counts                      how many jobs there are, by state: filter
//	POST   /v1/bulk                        do something with all jobs that a filter chooses
//	GET    /v1/jobs/{id}                   one job; DELETE deletes one that has ended
//	GET    /v1/jobs/{id}/request           its spec as it was given: resolved
//	GET    /v1/jobs/{id}/history           what happened to it, and how long it stood in each state
//	GET    /v1/jobs/{id}/events            the same as server-sent events: after, follow, type; POST writes one
//	GET    /v1/jobs/{id}/output            its files
//	GET    /v1/jobs/{id}/output/{path}     the content of one
//	GET    /v1/jobs/{id}/logs              what its program has written: stream, tail, follow
//	POST   /v1/jobs/{id}/cancel            wish something of it: wait, force; and pause, resume
//	POST   /v1/jobs/{id}/hide              leave it out of lists; and unhide
//	POST   /v1/jobs/{id}/resubmit          submit its request once more
//	PATCH  /v1/jobs/{id}/annotations       change labels and notes; PUT replaces them
//	PUT    /v1/runs/{key}                  submit the jobs of a file, or find those that have not ended
//	GET    /v1/events                      the events of all jobs: filter, type, after, follow
//	POST   /v1/jobs/{id}/release           let a blocked job go on, or not: try, give-up
//	GET    /v1/queues, /v1/systems,
//	       /v1/policies, /v1/retentions    the documents; below them GET, PUT, DELETE of one, and enable, disable
//	GET    /v1/recovery, /v1/recovery/{group} the groups of blocked jobs; POST below one: try, release, give-up
//	GET    /v1/workers, /v1/workers/{id}   the processes that work; POST below one: drain, undrain, stop
//	GET    /v1/schemas, /v1/schemas/{kind} JSON Schemas of a job and of the documents
//	GET    /v1/whoami, /v1/version         who asks, and what answers
//	GET    /healthz, /readyz, /metrics     for whoever watches over the service
//	GET    /                               where all of this is
//	GET    /docs, /openapi.json            all of this for people and for programs
//
// Names are in snake_case, times in RFC 3339, durations as in Go ("90s"). Errors are problems (RFC
// 9457) with a code, which is the [job.ErrorKind]. Each answer has the id of its request in
// X-Request-Id, and versions in Pawl-Version and Pawl-API. The package reaches jobs through package
// pawl; package client is its other end.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// Revision is the number of the surface within /v1. It is raised when the surface grows.
const Revision = 3

// Config configures the handler. Service is required.
type Config struct {
	Service *pawl.Service
	// Stopping ends streams that follow and calls that wait, when it is closed: what there is by
	// then is sent. Nil: never.
	Stopping <-chan struct{}
	// Auth tells who asks. Nil: everyone is the service's own principal, and may see what went
	// wrong inside; requests of web pages are refused then. An error of kind [job.Denied] is status
	// 401.
	Auth func(*http.Request) (Caller, error)
	// Inward says that the handler is for other processes of the service only: without login there
	// is nothing.
	Inward bool
	// Ready makes the checks of /readyz, which may take 10 s. Nil: the service is always ready.
	Ready func(context.Context) []Check
	// Metrics answers /metrics. Nil: there is nothing there.
	Metrics http.Handler
	// Answered is told of each request once it has been answered. Nil: nobody is.
	Answered func(Answer)
	// Prefix is the path under which a proxy serves the handler, such as /pawl. Requests may come
	// with it or without it; links that are answered have it.
	Prefix string
	Limits Limits
	// Version of the build; "dev" by default.
	Version string
	// Log takes what went wrong inside; [slog.Default] by default.
	Log *slog.Logger
}

// A Caller is who asks.
type Caller struct {
	Principal string // empty: the service's own
	// Job is set when the caller is the program of a running job, and Launch is the number of its
	// launch. It may write events of that job and look at it, and nothing else.
	Job    job.ID
	Launch int
	// Peer is set when the caller is another process of the service, of another machine, which asks
	// in the name of Principal. It may do that with the job Job, and nothing else, and is answered
	// from this machine.
	Peer PeerMay
}

// PeerMay is what another process may do with a job.
type PeerMay string

// What there is.
const (
	PeerRead   PeerMay = "read"   // its files and logs
	PeerDelete PeerMay = "delete" // delete it
)

// An Answer tells how a request was answered.
type Answer struct {
	Operation                          string // the id of the operation in the OpenAPI document; empty: none fits
	Method, Path, Principal, RequestID string
	Status                             int // 0: the connection broke before there was one
	Duration                           time.Duration
	Bytes                              int64 // of the body
	Context                            context.Context
}

type handler struct {
	Config
	mux        *http.ServeMux
	api        huma.API
	operations map[string]*operation // by the pattern of mux
	limiter    limiter
	streams    chan struct{} // holds one for each stream
	documents  documents
}

// New returns the handler of all paths.
func New(c Config) http.Handler {
	c.Limits.fill()
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		c.Prefix = "/" + c.Prefix
	}
	h := &handler{
		Config: c, mux: http.NewServeMux(), operations: map[string]*operation{},
		limiter: limiter{rate: c.Limits.Rate, burst: c.Limits.Burst}, streams: make(chan struct{}, c.Limits.Streams),
	}
	h.api = humago.New(h.mux, h.humaConfig())
	h.registerSubmit()
	h.registerJobs()
	h.registerWishes()
	h.registerFiles()
	h.registerEvents()
	h.registerBulk()
	h.registerResources()
	h.registerLimits()
	h.registerRecovery()
	h.registerWorkers()
	h.registerSchemas()
	h.registerHealth()
	h.finishDocument()
	h.serveDocs()
	if h.Inward {
		for _, op := range h.operations {
			op.public = false
		}
	}
	return h
}

// ServeHTTP answers a request, whatever becomes of it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	c := &call{id: requestID(r), own: h.Auth == nil, stops: h.stops, log: h.Log}
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	defer func() {
		cut := h.caught(a, r, recover())
		if h.Answered != nil {
			told := Answer{
				Method: r.Method, Path: r.URL.Path, Principal: c.caller.Principal, RequestID: c.id,
				Status: a.status, Duration: time.Since(begun), Bytes: a.bytes, Context: r.Context(),
			}
			if c.op != nil {
				told.Operation = c.op.id
			}
			h.Answered(told)
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
	}()
	head := a.Header()
	head.Set("X-Request-Id", c.id)
	head.Set("Pawl-Version", h.Version)
	head.Set("Pawl-API", revision)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	head.Set("Referrer-Policy", "no-referrer")
	if h.Prefix != "" && r.URL.Path == h.Prefix {
		http.Redirect(a, r, h.Prefix+"/", http.StatusPermanentRedirect)
		return
	}
	if h.Prefix != "" && strings.HasPrefix(r.URL.Path, h.Prefix+"/") {
		http.StripPrefix(h.Prefix, http.HandlerFunc(h.serve)).ServeHTTP(a, r)
		return
	}
	h.serve(a, r)
}

// serve lets a request pass what stands before every operation, and then do it.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	for _, check := range []func(*http.Request) error{checkSize, checkText} {
		if err := check(r); err != nil {
			writeProblem(w, r, err)
			return
		}
	}
	_, pattern := h.mux.Handler(r)
	op := h.operations[pattern]
	if op == nil || !clean(r, op) { // mux would redirect to the clean path
		h.nothing(w, r)
		return
	}
	c := callOf(r.Context())
	c.op = op
	for _, pass := range []func(http.ResponseWriter, *http.Request) error{
		h.login, h.allowed, h.slow, h.checkQuery,
		h.readBody,
	} {
		if err := pass(w, r); err != nil {
			writeProblem(w, r, err)
			return
		}
	}
	c.html = strings.Contains(r.Header.Get("Accept"), "text/html")
	r.Header.Del("Accept") // but for the page at / there is one form of each answer
	h.mux.ServeHTTP(w, r)
}

// clean reports whether a path is written as it should be. That of a file may end with a slash: it
// is refused as that of no file.
func clean(r *http.Request, op *operation) bool {
	escaped := r.URL.EscapedPath()
	if strings.HasSuffix(op.path, "...}") {
		escaped = strings.TrimSuffix(escaped, "/")
	}
	return path.Clean(escaped) == escaped
}

// nothing answers what fits no operation.
func (h *handler) nothing(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Path
	blank := headerOnly{header: http.Header{}}
	h.mux.ServeHTTP(&blank, r)
	if allowed := blank.header.Get("Allow"); allowed != "" && blank.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allowed)
		err := job.Errorf(job.Invalid, "%s is not a method of %s: use %s", r.Method, at, allowed)
		writeProblem(w, r, withStatus(http.StatusMethodNotAllowed, err))
		return
	}
	remedy := "see " + h.Prefix + "/docs for what there is"
	if at != "/" && strings.HasSuffix(at, "/") {
		remedy = "no path ends with a slash; " + remedy
	}
	writeProblem(w, r, job.Errorf(job.NotFound, "there is nothing at %s: %s", at, remedy))
}

// headerOnly takes in an answer without its body.
type headerOnly struct {
	header http.Header
	status int
}

func (w *headerOnly) Header() http.Header         { return w.header }
func (w *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (w *headerOnly) WriteHeader(status int)      { w.status = status }

// login finds out who asks.
func (h *handler) login(w http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context())
	c.svc = h.Service
	if c.op.public {
		return nil
	}
	if h.Auth == nil {
		if r.Header.Get("Origin") != "" {
			return withStatus(http.StatusForbidden,
				job.Errorf(job.Denied, "web pages may not ask here: ask pawl serve, which has tokens"))
		}
		return nil
	}
	caller, err := h.Auth(r)
	if job.KindOf(err) == job.Denied {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pawl"`)
		err = withStatus(http.StatusUnauthorized, err)
	}
	if err != nil {
		return err
	}
	c.caller = caller
	if caller.Principal != "" {
		c.svc = h.Service.As(caller.Principal)
	}
	if caller.Peer != "" {
		c.svc = c.svc.Here()
	}
	return nil
}

// allowed refuses to the program of a job, and to another process, what is not about that job, and
// what is of the site to all but its principal.
func (h *handler) allowed(_ http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context())
	if c.op.public {
		return nil
	}
	if c.caller.Job.IsZero() && c.caller.Peer == "" {
		return h.steers(c)
	}
	// The pattern is known to fit; the path has the id in its third place.
	parts := strings.Split(r.URL.Path, "/")
	its := len(parts) > 3 && parts[3] == c.caller.Job.String()
	switch {
	case c.caller.Peer != "" && (!its || c.op.peer != c.caller.Peer):
		return job.Errorf(job.Denied, "the token of this process is to %s job %s only", c.caller.Peer, c.caller.Job)
	case its && (c.op.ofJob || c.caller.Peer != ""):
		return nil
	}
	return job.Errorf(job.Denied, "the token of a running job is for %s /v1/jobs/%s/events and for GET /v1/jobs/%s only",
		http.MethodPost, c.caller.Job, c.caller.Job)
}
