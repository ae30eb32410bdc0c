package client

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// refused is an error that the service answered with.
type refused struct {
	text   string
	status int
	spec   error // all that is wrong with a spec, or nil
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.spec }

// kindOf maps statuses to kinds, for answers that do not come from Pawl, but from what stands
// before it.
var kindOf = map[int]job.ErrorKind{
	http.StatusUnauthorized:       job.Denied,
	http.StatusForbidden:          job.Denied,
	http.StatusNotFound:           job.NotFound,
	http.StatusTooManyRequests:    job.Exhausted,
	http.StatusBadGateway:         job.Unavailable,
	http.StatusServiceUnavailable: job.Unavailable,
	http.StatusGatewayTimeout:     job.Unavailable,
}

// refusal makes an error of an answer. It says when the same request may be made again.
func (c *Client) refusal(resp *http.Response) error {
	f := &failure{error: c.problem(resp), begun: true, after: seconds(resp.Header.Get("Retry-After"))}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		f.passes, f.begun = true, false
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.passes = true
	}
	return f
}

func (c *Client) problem(resp *http.Response) error {
	var p struct {
		Code    job.ErrorKind `json:"code"`
		Detail  string        `json:"detail"`
		Errors  []job.Problem `json:"errors"`
		Request string        `json:"instance"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || t != "application/problem+json" || json.Unmarshal(b, &p) != nil || p.Code == "" {
		return c.stranger(resp)
	}
	r := &refused{text: p.Detail, status: resp.StatusCode}
	if len(p.Errors) > 0 {
		r.spec = &job.SpecError{Problems: p.Errors}
	}
	if p.Code == job.Internal && p.Request != "" && !strings.Contains(p.Detail, p.Request) {
		r.text += "; the log of the service has more about request " + p.Request
	}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusBadRequest:
		r.text += unlike(resp.Header)
	}
	return &job.Error{Kind: p.Code, Err: r}
}

// stranger is the error of an answer that is not Pawl's.
func (c *Client) stranger(resp *http.Response) error {
	kind := kindOf[resp.StatusCode]
	to := resp.Header.Get("Location")
	switch {
	case resp.StatusCode < 400 && to != "":
		return job.Errorf(job.Invalid, "%s leads on to %s: give the address of the service itself", c.base, to)
	case kind == "" || kind == job.NotFound:
		return job.Errorf(job.Internal, "the service answers %s, and not as Pawl does: check that %s "+
			"is the address of a service", resp.Status, c.base)
	}
	return job.Errorf(kind, "the service answers %s", resp.Status)
}

// unlike says that the service is of another version, and so may not know what it was asked; empty
// if it is not.
func unlike(h http.Header) string {
	theirs, err := strconv.Atoi(h.Get(RevisionHeader))
	if err != nil || theirs == Revision {
		return ""
	}
	update, age := "this client", "newer"
	if theirs < Revision {
		update, age = "the service", "older"
	}
	return fmt.Sprintf("; the service (Pawl %s, API %d) is %s than this client (API %d): if it does not know "+
		"what it was asked, update %s",
		h.Get(VersionHeader), theirs, age, Revision, update)
}
