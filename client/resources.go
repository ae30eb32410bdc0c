package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// Resources are the documents of one kind on the service.
type Resources[T any] struct {
	c    *Client
	path string
}

// Queues returns the documents of queues, in which jobs wait for workers.
func (c *Client) Queues() Resources[job.Queue] { return Resources[job.Queue]{c, "/v1/queues"} }

// Systems returns the documents of systems, on which programs run.
func (c *Client) Systems() Resources[job.System] { return Resources[job.System]{c, "/v1/systems"} }

// CheckSystem tries all that jobs need of a system; see [service.Service.CheckSystem].
func (c *Client) CheckSystem(ctx context.Context, name string) (found job.SystemCheck, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: c.Systems().of(name) + "/check"}, &found)
	return found, err
}

// ListSystem lists a folder of a system; see [service.Service.ListSystem].
func (c *Client) ListSystem(ctx context.Context, name, path string, limit int) (found job.Listing, err error) {
	q := url.Values{"path": {path}, "limit": {strconv.Itoa(limit)}}
	_, err = c.call(ctx, request{method: http.MethodGet, path: c.Systems().of(name) + "/files", query: q}, &found)
	return found, err
}

// Retentions returns the documents that say how long jobs are kept after their end. There is one of
// them: [job.DefaultRetention].
func (c *Client) Retentions() Resources[job.Retention] {
	return Resources[job.Retention]{c, "/v1/retentions"}
}

// Schedules returns the documents that submit jobs on a clock.
func (c *Client) Schedules() Resources[job.Schedule] {
	return Resources[job.Schedule]{c, "/v1/schedules"}
}

// RunSchedule submits the jobs of a schedule now; see [service.Service.RunSchedule].
func (c *Client) RunSchedule(ctx context.Context, name string) ([]store.Submitted, error) {
	return c.submitted(ctx, request{
		method: http.MethodPost, path: c.Schedules().of(name) + "/run",
		header: http.Header{"Idempotency-Key": {job.NewID().String()}},
	})
}

// NextDue returns the next n due times of a schedule.
func (c *Client) NextDue(ctx context.Context, name string, n int) ([]time.Time, error) {
	found, err := fetch[struct{ Times []time.Time }](ctx, c, c.Schedules().of(name)+"/next",
		url.Values{"count": {strconv.Itoa(n)}})
	return found.Times, err
}

// Kinds returns the documents of kinds of task.
func (c *Client) Kinds() Resources[kinds.Kind] { return Resources[kinds.Kind]{c, "/v1/kinds"} }

// Policies returns the documents that say how long blocked jobs wait, and when their conditions are
// tested.
func (c *Client) Policies() Resources[job.RecoveryPolicy] {
	return Resources[job.RecoveryPolicy]{c, "/v1/policies"}
}

func (r Resources[T]) of(name string) string { return r.path + "/" + url.PathEscape(name) }

// List returns all documents, sorted by name.
func (r Resources[T]) List(ctx context.Context) ([]service.Resource[T], error) {
	answer, err := fetch[struct {
		Items []service.Resource[T] `json:"items"`
	}](ctx, r.c, r.path, nil)
	return answer.Items, err
}

// Resource returns the document with a name.
func (r Resources[T]) Resource(ctx context.Context, name string) (service.Resource[T], error) {
	return fetch[service.Resource[T]](ctx, r.c, r.of(name), nil)
}

// Apply creates or replaces the document with a name. created reports whether there was none.
// version must be the version of the present document, or 0 if there must be none. Otherwise the
// error is of kind [job.Conflict]. With [service.AnyVersion] it replaces any version, and only then
// the call is repeated.
func (r Resources[T]) Apply(ctx context.Context, name string, doc json.RawMessage,
	version int64,
) (res service.Resource[T], created bool, err error) {
	q := at(version, request{method: http.MethodPut, path: r.of(name), body: doc})
	if version == 0 {
		q.header = http.Header{"If-None-Match": {"*"}}
	}
	o, err := r.c.call(ctx, q, &res)
	return res, o.status == http.StatusCreated, err
}

// at makes a request hold for a version of a document alone, unless that is [service.AnyVersion].
func at(version int64, q request) request {
	if version != service.AnyVersion {
		q.once, q.header = true, http.Header{"If-Match": {strconv.Quote(strconv.FormatInt(version, 10))}}
	}
	return q
}

// Disable disables the subject of a document. With disabled false it enables it again. version is
// as in [Resources.Apply].
func (r Resources[T]) Disable(ctx context.Context, name string, disabled bool,
	version int64,
) (res service.Resource[T], err error) {
	verb := "/enable"
	if disabled {
		verb = "/disable"
	}
	_, err = r.c.call(ctx, at(version, request{method: http.MethodPost, path: r.of(name) + verb}), &res)
	return res, err
}

// Delete removes a document. version is as in [Resources.Apply].
func (r Resources[T]) Delete(ctx context.Context, name string, version int64) error {
	return r.c.remove(ctx, at(version, request{method: http.MethodDelete, path: r.of(name)}))
}

// Schemas returns the kinds of document that have a JSON Schema.
func (c *Client) Schemas(ctx context.Context) ([]string, error) {
	answer, err := fetch[struct {
		Kinds []string `json:"kinds"`
	}](ctx, c, "/v1/schemas", nil)
	return answer.Kinds, err
}

// Schema returns the JSON Schema of a kind of document.
func (c *Client) Schema(ctx context.Context, kind string) (json.RawMessage, error) {
	return fetch[json.RawMessage](ctx, c, "/v1/schemas/"+url.PathEscape(kind), nil)
}
