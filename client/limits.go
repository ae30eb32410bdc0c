package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Limits returns the limits that are set and the keys that are in use; see
// [service.Service.Limits].
func (c *Client) Limits(ctx context.Context) ([]service.LimitUse, error) {
	answer, err := fetch[struct {
		Items []service.LimitUse `json:"items"`
	}](ctx, c, "/v1/limits", nil)
	return answer.Items, err
}

// Limit returns the use of one key, with its owners.
func (c *Client) Limit(ctx context.Context, key string) (service.LimitUse, error) {
	return fetch[service.LimitUse](ctx, c, ofLimit(key), nil)
}

// SetLimit sets how many jobs may have a turn of a key at the same time; see
// [service.Service.SetLimit].
func (c *Client) SetLimit(ctx context.Context, l job.Limit) (set service.LimitUse, err error) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: ofLimit(l.Key), body: l}, &set)
	return set, err
}

// RemoveLimit removes the limit of a key.
func (c *Client) RemoveLimit(ctx context.Context, key string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: ofLimit(key)}, nil)
	return err
}

func ofLimit(key string) string { return "/v1/limits/" + url.PathEscape(key) }
