// Package api serves the REST API of the service. It reaches jobs through package service; package
// client makes the calls. The operations, with their parameters after a colon, are:
//
//	POST   /v1/jobs                     submit one job or {"jobs": [...], "defaults": {...}}: wait
//	GET    /v1/jobs                     list: filter, sort, limit, cursor
//	GET    /v1/lookup                   one job by its name or a part of its id: job, hidden
//	GET    /v1/counts                   how many jobs there are, by state: filter
//	POST   /v1/bulk                     one action on all jobs that a filter chooses
//	PUT    /v1/runs/{key}               submit the jobs of a file, or find the unfinished ones
//	GET    /v1/events                   the events of all jobs: filter, type, after, follow
//	GET    /v1/jobs/{id}                one job; DELETE deletes one that has ended
//	GET    /v1/jobs/{id}/request        its spec as it was given: resolved
//	GET    /v1/jobs/{id}/history        what happened to it, and how long it was in each state
//	GET    /v1/jobs/{id}/events         its events as a stream: after, follow, type; POST adds one
//	GET    /v1/jobs/{id}/output         its files
//	GET    /v1/jobs/{id}/output/{path}  the content of one file
//	GET    /v1/jobs/{id}/logs           what its program has written: stream, tail, follow
//	POST   /v1/jobs/{id}/cancel         ask it to end: wait, force; also pause and resume
//	POST   /v1/jobs/{id}/release        let a blocked job go on; also try and give-up
//	POST   /v1/jobs/{id}/hide           leave it out of lists; also unhide
//	POST   /v1/jobs/{id}/resubmit       submit its request once more
//	PATCH  /v1/jobs/{id}/annotations    change labels and notes; PUT replaces them
//	GET    /v1/queues, /v1/systems, /v1/kinds, /v1/policies, /v1/retentions, /v1/schedules
//	                                    documents; below: GET, PUT, DELETE, enable, disable
//	POST   /v1/systems/{name}/check     try all that jobs need of a system
//	POST   /v1/schedules/{name}/run     submit its jobs now
//	GET    /v1/schedules/{name}/next    when it is due next: count
//	GET    /v1/limits, /v1/limits/{key}
//	                                    limits on turns; PUT and DELETE of one
//	GET    /v1/recovery, /v1/recovery/{group}
//	                                    groups of blocked jobs; POST below: try, release, give-up
//	GET    /v1/workers, /v1/workers/{id}
//	                                    processes; POST below one: drain, undrain, stop
//	POST   /v1/claims                   claim tasks for a worker in any language
//	POST   /v1/claims/{verb}            renew, progress, checkpoint, log, finish, fail, snooze, block,
//	                                    cancel, release and end: what a worker says of its tasks
//	GET    /v1/schemas, /v1/schemas/{kind}
//	                                    JSON Schemas of a job and of the documents
//	GET    /v1/whoami, /v1/version      the caller, and the version of the service
//	GET    /healthz, /readyz, /metrics  for monitoring
//	GET    /                            links to all of this
//	GET    /docs, /openapi.json         the documentation, for people and for programs
//
// Names are in snake_case, times in RFC 3339, durations as in Go ("90s"). An error is a problem
// (RFC 9457) with a code, which is the [job.ErrorKind]. Each answer has the id of its request in
// X-Request-Id, and versions in Pawl-Version and Pawl-API.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Revision is the revision of the API within /v1. It is raised when the API grows.
const Revision = 3

// Config configures the handler.
type Config struct {
	// Service does what callers ask for. Required.
	Service *service.Service
	// Stopping, when it is closed, ends streams that follow and calls that wait. They first send
	// what they have. Default: never.
	Stopping <-chan struct{}
	// Auth returns who makes a request. An error of kind [job.Denied] becomes status 401. Default:
	// every caller is the service's own principal, and sees the errors of the inside; then requests
	// of web pages are refused.
	Auth func(*http.Request) (Caller, error)
	// Inward says that the handler is for other processes of the service only. Then every path
	// needs a login.
	Inward bool
	// Ready makes the checks of /readyz. It has 10 s. Default: the service is always ready.
	Ready func(context.Context) []Check
	// Metrics serves /metrics. Default: there is nothing at that path.
	Metrics http.Handler
	// Answered is called after each request. Default: nothing is called.
	Answered func(Answer)
	// Prefix is the path under which a proxy serves the handler, such as /pawl. A request may have
	// it or not. Links in answers have it. Default: none.
	Prefix string
	// Limits bound what callers may ask for.
	Limits Limits
	// Version is the version of the build. Default: "dev".
	Version string
	// Log receives the errors of the inside. Default: [slog.Default].
	Log *slog.Logger
}

// A Caller is who makes a request.
type Caller struct {
	Principal string // empty: the service's own principal
	// Job is set if the caller is the program of a running job, and Launch is then the number of
	// its launch. It may write events of that job and read the job, and nothing else.
	Job    job.ID
	Launch int
	// Peer is set if the caller is a process of the service on another machine, which asks in the
	// name of Principal. It may do what Peer says, and only with the job Job. It is answered from
	// this machine alone.
	Peer PeerMay
}

// PeerMay is what a process on another machine may do with a job.
type PeerMay string

// What peers may do.
const (
	PeerRead   PeerMay = "read"   // read its files and logs
	PeerDelete PeerMay = "delete" // delete it
)

// An Answer describes a request after it was answered.
type Answer struct {
	Operation                          string // its id in the OpenAPI document; empty: there is no such operation
	Method, Path, Principal, RequestID string
	Status                             int // 0: the connection broke before a status was sent
	Duration                           time.Duration
	Bytes                              int64 // size of the body
	Context                            context.Context
}

type handler struct {
	Config
	limiter   limiter
	streams   chan struct{} // holds one for each stream
	documents documents

	mux    *http.ServeMux
	routes []*route
	at     map[string]*route // by the pattern of mux
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
		Config:  c,
		limiter: limiter{rate: c.Limits.Rate, burst: c.Limits.Burst}, streams: make(chan struct{}, c.Limits.Streams),
		mux: http.NewServeMux(), at: map[string]*route{},
	}
	h.register()
	return h
}

// register adds all operations.
func (h *handler) register() {
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
	h.registerClaims()
	h.registerSchemas()
	h.registerHealth()
	h.serveDocs()
	if h.Inward {
		for _, r := range h.routes {
			r.public = false
		}
	}
}

// ServeHTTP answers a request. It also survives a panic and counts the answer.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	c := &call{id: requestID(r), own: h.Auth == nil, stops: h.stops, log: h.Log}
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	defer func() {
		cut := h.caught(a, r, recover())
		a.hurry() // what the server writes at the end: the last write may be long ago
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
		a.linger(r)
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
	op := h.at[pattern]
	if op == nil || !clean(r, op) { // mux would redirect to the clean path
		h.nothing(w, r)
		return
	}
	h.make(op)
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
func clean(r *http.Request, op *route) bool {
	escaped := r.URL.EscapedPath()
	if strings.HasSuffix(op.path, "...}") {
		escaped = strings.TrimSuffix(escaped, "/")
	}
	return path.Clean(escaped) == escaped
}

// nothing answers a request that fits no operation.
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

// login finds out who the caller is.
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

// allowed refuses calls that a caller may not make. The program of a job and another process may
// make calls about that job only. Calls about the whole site are for the principal of the service.
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
