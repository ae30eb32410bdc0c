package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// statusOf maps the kinds of error to statuses. A kind that is not here is 500.
var statusOf = map[job.ErrorKind]int{
	job.Invalid:     http.StatusUnprocessableEntity,
	job.NotFound:    http.StatusNotFound,
	job.Conflict:    http.StatusConflict,
	job.Fenced:      http.StatusConflict,
	job.Locked:      http.StatusLocked,
	job.Denied:      http.StatusForbidden,
	job.Exhausted:   http.StatusTooManyRequests,
	job.Unavailable: http.StatusServiceUnavailable,
	job.Closed:      http.StatusServiceUnavailable,
}

// A problem is an error on the wire (RFC 9457).
type problem struct {
	// Always about:blank; see code.
	Type string `json:"type" example:"about:blank"`

	// The status in words.
	Title string `json:"title" example:"Unprocessable Entity"`

	// The status.
	Status int `json:"status" example:"422"`

	// What the caller can do about it.
	Code job.ErrorKind `json:"code"`

	// What happened and what to do about it.
	Detail string `json:"detail" example:"priority (11): is out of range: give 0 (first) to 9"`

	// The id of the request. The service logs errors of the inside with it.
	Instance string `json:"instance" example:"QJ4XLNH6VQ3PBTE5"`

	// All problems of a spec, a document or parameters.
	Errors []job.Problem `json:"errors,omitempty"`

	// What became of each job of a worker's report, in the order of the request.
	Jobs []claims.Answer `json:"jobs,omitempty"`

	err   error
	after time.Duration // when the same call may succeed; 0: not known
}

// statusGone is for the log: the client had gone before there was an answer. Others use the same
// number.
const statusGone = 499

// newProblem says what became of the call of a request.
func newProblem(ctx context.Context, err error) *problem {
	c := callOf(ctx)
	p := &problem{Type: "about:blank", Code: job.KindOf(err), Detail: err.Error(), Instance: c.id, err: err}
	var ok bool
	if p.Status, ok = statusOf[p.Code]; !ok {
		p.Status = http.StatusInternalServerError
	}
	var other *statusError
	switch {
	case errors.Is(err, store.ErrVersion):
		p.Status = http.StatusPreconditionFailed
	case errors.As(err, &other):
		p.Status, p.after = other.status, other.after
	case errors.Is(err, context.Canceled) && c.stops():
		p.Status, p.Code, p.Detail = http.StatusServiceUnavailable, job.Unavailable, "the service stops: try again"
		p.err = job.Errorf(p.Code, "%s", p.Detail)
	case errors.Is(err, context.Canceled):
		p.Status, p.Code = statusGone, job.Unavailable
	}
	if p.Title = http.StatusText(p.Status); p.Title == "" {
		p.Title = "Client Closed Request"
	}
	if p.after == 0 && (p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable) {
		p.after = time.Second
	}
	var spec *job.SpecError
	if errors.As(err, &spec) {
		p.Errors = spec.Problems
	}
	var report *reportError
	if errors.As(err, &report) {
		p.Errors, p.Jobs = report.problems, report.answers
	}
	if p.Status >= http.StatusInternalServerError {
		c.log.ErrorContext(ctx, "request failed", "request", c.id, "operation", c.operation(), "status", p.Status,
			"error", err)
		if !c.own {
			p.discreet()
		}
	}
	return p
}

func (c *call) operation() string {
	if c.op == nil {
		return ""
	}
	return c.op.id
}

// discreet keeps what went wrong inside from callers whose service it is not. A text that wraps no
// other error was written for them.
func (p *problem) discreet() {
	var e *job.Error
	switch {
	case p.Status == http.StatusInternalServerError:
		p.Detail = "something went wrong in the service: report it with the id " + p.Instance
	case !errors.As(p.err, &e) || errors.Unwrap(e.Err) != nil:
		p.Detail = "the service cannot do this now: try again later; its log says more under the id " + p.Instance
	}
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders returns the headers that go with the problem.
func (p *problem) GetHeaders() http.Header {
	head := http.Header{}
	if p.after > 0 {
		head.Set("Retry-After", strconv.FormatFloat(math.Ceil(p.after.Seconds()), 'f', 0, 64))
	}
	return head
}

// A statusError is an error with another status than its kind has.
type statusError struct {
	status int
	after  time.Duration
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func withStatus(status int, err error) error { return &statusError{status: status, err: err} }

// asProblem makes problems of the errors that huma itself finds in a request.
func asProblem(ctx huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	var wrong job.SpecError
	for _, d := range e.Errors {
		_, name, _ := strings.Cut(d.Location, ".")
		q := job.Problem{Path: name, What: d.Message, Remedy: "correct or remove it"}
		if d.Value != nil {
			q.Value = fmt.Sprint(d.Value)
		}
		wrong.Problems = append(wrong.Problems, q)
	}
	var err error = &wrong
	switch {
	case e.Status >= http.StatusInternalServerError:
		err = job.Errorf(job.Internal, "%s", e.Detail)
	case wrong.Problems == nil:
		err = job.Errorf(job.Invalid, "%s", e.Detail)
	}
	return newProblem(ctx.Context(), withStatus(e.Status, err)), nil
}

// writeProblem answers a request that no operation has been reached for.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := newProblem(r.Context(), err)
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	text, _ := json.Marshal(p) // it is texts and numbers
	w.Header().Set("Content-Length", itoa(len(text)))
	http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // for linger: what is no connection has none
	w.WriteHeader(p.Status)
	w.Write(text) //nolint:errcheck // the client has gone
}

func invalid(path, value, what, remedy string) error {
	return &job.SpecError{Problems: []job.Problem{{Path: path, Value: value, What: what, Remedy: remedy}}}
}
