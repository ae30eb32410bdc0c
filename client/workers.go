package client

import (
	"context"
	"net/http"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Workers returns the processes of the service; see [service.Service.Workers].
func (c *Client) Workers(ctx context.Context) ([]service.Worker, error) {
	answer, err := fetch[struct {
		Items []service.Worker `json:"items"`
	}](ctx, c, "/v1/workers", nil)
	return answer.Items, err
}

// Worker returns one process, with the jobs that it holds.
func (c *Client) Worker(ctx context.Context, id job.ID) (service.WorkerView, error) {
	return fetch[service.WorkerView](ctx, c, ofWorker(id), nil)
}

// Drain makes a process claim nothing more. The jobs that run in it end in their own time.
func (c *Client) Drain(ctx context.Context, id job.ID) (service.Worker, error) {
	return c.steer(ctx, id, "/drain")
}

// Undrain lets a process that drains claim again.
func (c *Client) Undrain(ctx context.Context, id job.ID) (service.Worker, error) {
	return c.steer(ctx, id, "/undrain")
}

// Stop makes a process end once it holds no job any more.
func (c *Client) Stop(ctx context.Context, id job.ID) (service.Worker, error) {
	return c.steer(ctx, id, "/stop")
}

func (c *Client) steer(ctx context.Context, id job.ID, verb string) (w service.Worker, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: ofWorker(id) + verb}, &w)
	return w, err
}

func ofWorker(id job.ID) string { return "/v1/workers/" + id.String() }
