package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A Submission is a set of jobs that are accepted together, or not at all.
type Submission struct {
	Jobs []json.RawMessage // the specs of the jobs
	// Defaults is a spec that the jobs share; nil: there is none. Maps are merged key by key,
	// everything else in a job replaces the default.
	Defaults json.RawMessage
	// Key makes the call repeatable: within a day, the same jobs under the same key are the same
	// jobs. Default: a new key for each call.
	Key string
}

func (s *Submission) request(q url.Values) request {
	body := struct {
		Jobs     []json.RawMessage `json:"jobs"`
		Defaults json.RawMessage   `json:"defaults,omitempty"`
	}{s.Jobs, s.Defaults}
	key := s.Key
	if key == "" {
		key = job.NewID().String()
	}
	return request{
		method: http.MethodPost, path: "/v1/jobs", query: q, body: body,
		header: http.Header{"Idempotency-Key": {key}},
	}
}

// Submit submits specs, all or none, under an idempotency key. If key is empty it makes one. See
// [service.Submission].
func (c *Client) Submit(ctx context.Context, key string, specs ...json.RawMessage) ([]store.Submitted, error) {
	return c.SubmitAll(ctx, Submission{Jobs: specs, Key: key})
}

// SubmitAll submits jobs. Its answers are in the order of the jobs.
func (c *Client) SubmitAll(ctx context.Context, s Submission) ([]store.Submitted, error) {
	return c.submitted(ctx, s.request(nil))
}

// submitted makes a call whose answer is jobs that were submitted.
func (c *Client) submitted(ctx context.Context, r request) ([]store.Submitted, error) {
	var answer struct {
		Jobs []struct {
			ID job.ID `json:"id"`
			job.Place
			Existed bool `json:"existed"`
		} `json:"jobs"`
	}
	if _, err := c.call(ctx, r, &answer); err != nil {
		return nil, err
	}
	list := make([]store.Submitted, len(answer.Jobs))
	for i, a := range answer.Jobs {
		list[i] = store.Submitted{ID: a.ID, Place: a.Place, Existed: a.Existed}
	}
	return list, nil
}

// SubmitWait submits jobs, and the service waits until all of them have ended: up to wait, and for
// 5 minutes at most. ended reports whether all have ended.
func (c *Client) SubmitWait(ctx context.Context, s Submission, wait time.Duration) (jobs []service.View, ended bool,
	err error,
) {
	var answer service.Views
	o, err := c.call(ctx, s.request(url.Values{"wait": {wait.String()}}), &answer)
	return answer.Jobs, o.status == http.StatusOK, err
}

// RunFile submits the jobs of a file, or finds its jobs that have not ended; see
// [service.Service.RunFile]. If run.New is set and run.Call is empty, it makes a Call.
func (c *Client) RunFile(ctx context.Context, run service.FileRun, specs ...json.RawMessage) (service.FileAnswer, error) {
	if run.New && run.Call == "" {
		run.Call = job.NewID().String()
	}
	body := struct {
		service.FileRun
		Jobs []json.RawMessage `json:"jobs"`
	}{run, specs}
	var answer service.FileAnswer
	_, err := c.call(ctx, request{method: http.MethodPut, path: "/v1/runs/" + service.RunKey(run.Path), body: body},
		&answer)
	return answer, err
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id job.ID) (service.View, error) {
	return fetch[service.View](ctx, c, of(id), nil)
}

// Find returns the job that ref names, by its name or a part of its id; see [service.Service.Find].
func (c *Client) Find(ctx context.Context, ref string, hidden bool) (service.View, error) {
	v := url.Values{"job": {ref}}
	if hidden {
		v.Set("hidden", "true")
	}
	return fetch[service.View](ctx, c, "/v1/lookup", v)
}

// List returns a page of jobs. The tenant is that of the service.
func (c *Client) List(ctx context.Context, q store.Query) (service.Views, error) {
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
	return fetch[service.Views](ctx, c, "/v1/jobs", v)
}

// Jobs yields all jobs that a query chooses. It asks for pages of the query's limit. An error is
// the last that it yields.
func (c *Client) Jobs(ctx context.Context, q store.Query) iter.Seq2[service.View, error] {
	return func(yield func(service.View, error) bool) {
		for more := true; more; more = q.Cursor != "" {
			page, err := c.List(ctx, q)
			if err != nil {
				yield(service.View{}, err)
				return
			}
			for _, v := range page.Jobs {
				if !yield(v, nil) {
					return
				}
			}
			q.Cursor = page.Next
		}
	}
}

// Counts are how many jobs a filter chooses, by state.
type Counts struct {
	States map[job.State]int `json:"states"` // states without jobs are left out
	Total  int               `json:"total"`
	Since  time.Time         `json:"since,omitzero"` // if set, only jobs that were submitted since then are counted
}

// Count counts the jobs that a filter chooses.
func (c *Client) Count(ctx context.Context, f job.Filter) (Counts, error) {
	v := url.Values{}
	if len(f) > 0 {
		v.Set("filter", f.String())
	}
	return fetch[Counts](ctx, c, "/v1/counts", v)
}

// Request returns the spec of a job: as it was given, or with resolved as it is run. The error is
// of kind [job.NotFound] if it is not resolved yet.
func (c *Client) Request(ctx context.Context, id job.ID, resolved bool) (json.RawMessage, error) {
	v := url.Values{}
	if resolved {
		v.Set("resolved", "true")
	}
	return fetch[json.RawMessage](ctx, c, of(id)+"/request", v)
}

// A History is all that has happened to a job, and how long it was in each state.
type History struct {
	Events []job.Event `json:"events"`
	Spent  []Spent     `json:"spent,omitempty"` // in the order in which the job first came to the states
}

// Spent is how long a job has been in a state, all times together. The present state counts until
// now.
type Spent struct {
	State   job.State `json:"state"`
	Seconds float64   `json:"seconds"`
	Times   int       `json:"times"` // how often the job has come to the state
}

// History returns all events of a job.
func (c *Client) History(ctx context.Context, id job.ID) (History, error) {
	return fetch[History](ctx, c, of(id)+"/history", nil)
}

// Resubmit submits the request of a job once more and returns the new job.
func (c *Client) Resubmit(ctx context.Context, id job.ID) (service.View, error) {
	var v service.View
	_, err := c.call(ctx, request{
		method: http.MethodPost, path: of(id) + "/resubmit",
		header: http.Header{"Idempotency-Key": {job.NewID().String()}},
	}, &v)
	return v, err
}

// Delete deletes a job that has ended, and its files in the service's own folders.
func (c *Client) Delete(ctx context.Context, id job.ID) error {
	return c.remove(ctx, request{method: http.MethodDelete, path: of(id)})
}

// remove makes a request that removes something. What is gone when the call is repeated was removed
// by it.
func (c *Client) remove(ctx context.Context, q request) error {
	o, err := c.call(ctx, q, nil)
	if o.repeated && job.KindOf(err) == job.NotFound {
		return nil
	}
	return err
}

// Hide hides a job that has ended, so that lists leave it out. With hidden false it shows it again.
func (c *Client) Hide(ctx context.Context, id job.ID, hidden bool) (service.View, error) {
	path := of(id) + "/unhide"
	if hidden {
		path = of(id) + "/hide"
	}
	var v service.View
	_, err := c.call(ctx, request{method: http.MethodPost, path: path}, &v)
	return v, err
}

// Annotate merges labels and notes into those of a job. With replace it replaces the fields that a
// sets.
func (c *Client) Annotate(ctx context.Context, id job.ID, a job.Annotation, replace bool) (service.View, error) {
	method := http.MethodPatch
	if replace {
		method = http.MethodPut
	}
	var v service.View
	_, err := c.call(ctx, request{method: method, path: of(id) + "/annotations", body: a}, &v)
	return v, err
}

// Bulk does one action with all jobs that a filter chooses. An empty filter chooses all. Only a dry
// run is repeated: a repeated action would not count what the first call did.
func (c *Client) Bulk(ctx context.Context, b service.Bulk) (service.BulkAnswer, error) {
	body := struct {
		Action service.Action `json:"action"`
		Filter string         `json:"filter"`
		DryRun bool           `json:"dry_run,omitempty"`
		Force  bool           `json:"force,omitempty"`
		All    bool           `json:"all,omitempty"`
	}{b.Action, b.Filter.String(), b.DryRun, b.Force, len(b.Filter) == 0}
	var a service.BulkAnswer
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/v1/bulk", body: body, once: !b.DryRun}, &a)
	return a, err
}

func of(id job.ID) string { return "/v1/jobs/" + id.String() }
