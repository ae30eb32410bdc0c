package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

var revision = strconv.Itoa(Revision)

// A call is what is known of a request on its way.
type call struct {
	id     string
	op     *route
	caller Caller
	svc    *service.Service // acts in the caller's name
	body   []byte
	html   bool // the client shows pages to a person
	own    bool // everyone is the service's own principal
	stops  func() bool
	log    *slog.Logger
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// serviceOf returns the service that acts in the name of the caller.
func serviceOf(ctx context.Context) *service.Service { return callOf(ctx).svc }

var sane = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the id that a request brings, if it is sane, or else a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); sane.MatchString(id) {
		return id
	}
	return rand.Text()
}

// writeTimeout is how long a client may take to accept a piece of an answer.
const writeTimeout = 30 * time.Second

// An answer counts what is written. A client that reads nothing is cut off: each write has a
// deadline.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	bytes   int64
	broken  error // of a write
}

// Unwrap serves [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.hurry()
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, a.note(err)
}

// FlushError serves [http.ResponseController].
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.hurry()
	return a.note(a.control.Flush())
}

func (a *answer) hurry() {
	//nolint:errcheck // what is not a connection has no deadlines
	a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
}

func (a *answer) note(err error) error {
	if err != nil && a.broken == nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		a.broken = err
	}
	return err
}

// caught deals with what a handler panicked with, and reports whether the answer is to be cut off.
func (h *handler) caught(a *answer, r *http.Request, p any) (cut bool) {
	if p == nil {
		return false
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) || a.broken != nil {
		return true // the client has gone, or is to notice that something is missing
	}
	h.Log.ErrorContext(r.Context(), "panic", "request", callOf(r.Context()).id, "method", r.Method, "path",
		r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if a.status != 0 {
		return true
	}
	writeProblem(a, r, job.Errorf(job.Internal, "the service has a defect"))
	return false
}
