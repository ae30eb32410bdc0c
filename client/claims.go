package client

import (
	"context"
	"net/http"
	"slices"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
)

// A Worker claims tasks and reports on them, as a worker in any language does.
type Worker struct {
	c      *Client
	secret string
}

// As returns the worker with a secret: see [claims.SessionOf].
func (c *Client) As(secret string) *Worker { return &Worker{c, secret} }

// Claim claims tasks. Without an ID it gives the call one, so that it is repeated.
func (w *Worker) Claim(ctx context.Context, a claims.Ask) ([]claims.Task, error) {
	if a.ID.IsZero() {
		a.ID = job.NewID()
	}
	var answer struct{ Jobs []claims.Task }
	err := w.call(ctx, "", a, &answer)
	return answer.Jobs, err
}

// Renew is the heartbeat of the worker, which names the tasks in its hands. It waits until there is
// something to stop, for wait at most.
func (w *Worker) Renew(ctx context.Context, lease, wait job.Duration, held []claims.Held) ([]claims.Answer, error) {
	var answer struct{ Jobs []claims.Answer }
	err := w.call(ctx, "/renew", struct {
		Jobs  []claims.Held `json:"jobs"`
		Lease job.Duration  `json:"lease,omitempty"`
		Wait  job.Duration  `json:"wait,omitempty"`
	}{held, lease, wait}, &answer)
	return answer.Jobs, err
}

// Report reports on tasks. verb is the end of the path, such as finish, and each of jobs has an id,
// an epoch, and what the API takes beside them. The error is of kind Conflict or Fenced if some are
// refused. A [claims.LogReport] without a key gets one, so that the call is repeated.
func (w *Worker) Report(ctx context.Context, verb string, jobs ...any) ([]claims.Answer, error) {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if r, ok := jobs[i].(claims.LogReport); ok && r.Key == "" {
			r.Key = job.NewID().String()
			jobs[i] = r
		}
	}
	var answer struct{ Jobs []claims.Answer }
	err := w.call(ctx, "/"+verb, struct {
		Jobs []any `json:"jobs"`
	}{jobs}, &answer)
	return answer.Jobs, err
}

// End ends the session of the worker. The tasks that it still holds go back.
func (w *Worker) End(ctx context.Context) error { return w.call(ctx, "/end", nil, nil) }

func (w *Worker) call(ctx context.Context, verb string, body, answer any) error {
	_, err := w.c.call(ctx, request{
		method: http.MethodPost, path: "/v1/claims" + verb, body: body, header: http.Header{"Pawl-Worker": {w.secret}},
	}, answer)
	return err
}
