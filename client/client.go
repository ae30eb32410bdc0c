// Package client is the Go client of the service's API (package api). A [Client] works over any [http.RoundTripper]:
// over a Unix socket ([Unix], [Dialed]), or without a connection over the handler itself ([Local]).
//
// Errors have the kind of package job that they had where they were made, and a [job.SpecError] in their chain where a
// spec is wrong. A service that cannot be reached is Unavailable.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Client asks a service. It is safe for concurrent use.
type Client struct {
	http http.Client
	base string
}

// New returns a client that asks over rt.
func New(rt http.RoundTripper) *Client {
	return &Client{http: http.Client{Transport: rt}, base: "http://pawl"}
}

// Close releases connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Submit submits specs, all or none. Repeated with the same idempotency key, unless that is empty, it answers the same
// jobs; see [pawl.Service.SubmitOnce].
func (c *Client) Submit(ctx context.Context, key string, specs ...json.RawMessage) ([]store.Submitted, error) {
	var answer struct {
		Jobs []struct {
			ID job.ID `json:"id"`
			job.Place
			Existed bool `json:"existed"`
		} `json:"jobs"`
	}
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	if _, err := c.call(ctx, http.MethodPost, "/v1/jobs", header, map[string]any{"jobs": specs}, &answer); err != nil {
		return nil, err
	}
	list := make([]store.Submitted, len(answer.Jobs))
	for i, a := range answer.Jobs {
		list[i] = store.Submitted{ID: a.ID, Place: a.Place, Existed: a.Existed}
	}
	return list, nil
}

// RunFile submits the jobs of a file, or finds those that have not ended; see [pawl.Service.RunFile].
func (c *Client) RunFile(ctx context.Context, run pawl.FileRun, specs ...json.RawMessage) (pawl.FileAnswer, error) {
	body := struct {
		pawl.FileRun
		Jobs []json.RawMessage `json:"jobs"`
	}{run, specs}
	var answer pawl.FileAnswer
	_, err := c.call(ctx, http.MethodPut, "/v1/runs/"+pawl.RunKey(run.Path), nil, body, &answer)
	return answer, err
}

// Job returns one job.
func (c *Client) Job(ctx context.Context, id job.ID) (pawl.View, error) {
	var v pawl.View
	_, err := c.call(ctx, http.MethodGet, of(id), nil, nil, &v)
	return v, err
}

// List returns a page of jobs, newest first. The tenant is that of the service.
func (c *Client) List(ctx context.Context, q store.Query) (pawl.Views, error) {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("filter", q.Filter.String())
	set("sort", string(q.Sort))
	set("cursor", q.Cursor)
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var page pawl.Views
	_, err := c.call(ctx, http.MethodGet, with("/v1/jobs", v), nil, nil, &page)
	return page, err
}

// History returns all events of one job.
func (c *Client) History(ctx context.Context, id job.ID) ([]job.Event, error) {
	var answer struct {
		Events []job.Event `json:"events"`
	}
	_, err := c.call(ctx, http.MethodGet, of(id)+"/history", nil, nil, &answer)
	return answer.Events, err
}

// Output lists the files of a job.
func (c *Client) Output(ctx context.Context, id job.ID) ([]pawl.File, error) {
	var answer struct {
		Files []pawl.File `json:"files"`
	}
	_, err := c.call(ctx, http.MethodGet, of(id)+"/output", nil, nil, &answer)
	return answer.Files, err
}

// OpenOutput opens a file of a job, which the caller closes.
func (c *Client) OpenOutput(ctx context.Context, id job.ID, name string) (pawl.File, io.ReadCloser, error) {
	escaped := strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
	if !fs.ValidPath(name) || name == "." { // it is for the service to refuse, and must arrive as it is
		escaped = strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
	}
	resp, err := c.open(ctx, of(id)+"/output/"+escaped, nil)
	if err != nil {
		return pawl.File{}, nil, err
	}
	f := pawl.File{Path: path.Clean(name), Size: resp.ContentLength}
	f.Modified, _ = time.Parse(http.TimeFormat, resp.Header.Get("Last-Modified")) // to the second
	return f, resp.Body, nil
}

// Log opens the log of a job, which the caller closes. Until is not sent: close the log instead.
func (c *Client) Log(ctx context.Context, id job.ID, q pawl.LogQuery) (io.ReadCloser, error) {
	v := url.Values{}
	if q.Stderr {
		v.Set("stream", "stderr")
	}
	if q.Tail > 0 {
		v.Set("tail", strconv.Itoa(q.Tail))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	resp, err := c.open(ctx, with(of(id)+"/logs", v), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Cancel asks that a job end, and waits so long for that, in the service. obeyed says whether it has; if not, the wish
// stands.
func (c *Client) Cancel(ctx context.Context, id job.ID, wait time.Duration) (v pawl.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishCancel, wait)
}

// Pause asks that a job stop until it is resumed; see [Client.Cancel].
func (c *Client) Pause(ctx context.Context, id job.ID, wait time.Duration) (v pawl.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishPause, wait)
}

// Resume lets a paused job go on; see [Client.Cancel].
func (c *Client) Resume(ctx context.Context, id job.ID, wait time.Duration) (v pawl.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishResume, wait)
}

// Wish makes any of the three wishes.
func (c *Client) Wish(ctx context.Context, id job.ID, w job.Wish, wait time.Duration) (v pawl.View, obeyed bool, err error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	status, err := c.call(ctx, http.MethodPost, with(of(id)+"/"+string(w), q), nil, nil, &v)
	return v, status == http.StatusOK, err
}

// Resubmit submits the request of a job once more and returns the new job.
func (c *Client) Resubmit(ctx context.Context, id job.ID) (pawl.View, error) {
	var v pawl.View
	_, err := c.call(ctx, http.MethodPost, of(id)+"/resubmit", nil, nil, &v)
	return v, err
}

func of(id job.ID) string { return "/v1/jobs/" + id.String() }

func with(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// call asks and reads the answer into one value.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, body, answer any) (status int, err error) {
	var r io.Reader
	if body != nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // a request is kept as it is given
		if err := enc.Encode(body); err != nil {
			return 0, job.Errorf(job.Invalid, "request: %w", err)
		}
		r = &b
	}
	resp, err := c.send(ctx, method, path, header, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return 0, broken(ctx, err)
	}
	return resp.StatusCode, nil
}

func (c *Client) open(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, header, nil)
}

// send asks. An answer that is an error becomes one.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, job.Errorf(job.Invalid, "request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, broken(ctx, err)
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// broken is the error of a connection; an end of ctx is told as that.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return job.Errorf(job.Unavailable, "ask the service: %w", err)
}

// refused is an error that the service answered with.
type refused struct {
	detail string
	spec   error // all that is wrong with a spec, or nil
}

func (r *refused) Error() string { return r.detail }
func (r *refused) Unwrap() error { return r.spec }

func refusal(resp *http.Response) error {
	var p struct {
		Code   job.ErrorKind `json:"code"`
		Detail string        `json:"detail"`
		Errors []job.Problem `json:"errors"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || t != "application/problem+json" || json.Unmarshal(b, &p) != nil || p.Code == "" {
		return fmt.Errorf("the service answers %s", resp.Status)
	}
	r := &refused{detail: p.Detail}
	if len(p.Errors) > 0 {
		r.spec = &job.SpecError{Problems: p.Errors}
	}
	return &job.Error{Kind: p.Code, Err: r}
}
