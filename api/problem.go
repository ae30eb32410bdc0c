package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
)

// statusOf maps the kinds of error to statuses. A kind that is not here is 500.
var statusOf = map[job.ErrorKind]int{
	job.Invalid:     http.StatusUnprocessableEntity,
	job.NotFound:    http.StatusNotFound,
	job.Conflict:    http.StatusConflict,
	job.Fenced:      http.StatusConflict,
	job.Locked:      http.StatusLocked,
	job.Unavailable: http.StatusServiceUnavailable,
	job.Closed:      http.StatusServiceUnavailable,
}

// A problem is an error on the wire (RFC 9457).
type problem struct {
	Type   string        `json:"type"`
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Code   job.ErrorKind `json:"code"`
	Detail string        `json:"detail"`
	Errors []job.Problem `json:"errors,omitempty"` // all that is wrong with a spec, or with parameters
}

func newProblem(err error) *problem {
	kind := job.KindOf(err)
	status, ok := statusOf[kind]
	if !ok {
		status = http.StatusInternalServerError
	}
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: kind, Detail: err.Error()}
	var spec *job.SpecError
	if errors.As(err, &spec) {
		p.Errors = spec.Problems
	}
	return p
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// asProblem makes problems of the errors that huma itself finds in a request.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &problem{Type: "about:blank", Title: e.Title, Status: e.Status, Code: job.Invalid, Detail: e.Detail}
	if e.Status >= http.StatusInternalServerError {
		p.Code = job.Internal
	}
	var lines []string
	for _, d := range e.Errors {
		_, name, _ := strings.Cut(d.Location, ".")
		q := job.Problem{Path: name, What: d.Message, Remedy: "correct or remove it"}
		if d.Value != nil {
			q.Value = fmt.Sprint(d.Value)
		}
		p.Errors = append(p.Errors, q)
		lines = append(lines, q.String())
	}
	if len(lines) > 0 {
		p.Detail = strings.Join(lines, "\n")
	}
	return p, nil
}

func writeProblem(w http.ResponseWriter, status int, err error) {
	p := newProblem(err)
	p.Status, p.Title = status, http.StatusText(status)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(p) //nolint:errcheck // the client has gone
}
