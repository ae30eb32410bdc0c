package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Cancel asks a job to end. The service waits up to wait for that. obeyed reports whether the job
// has ended; if not, the wish stands.
func (c *Client) Cancel(ctx context.Context, id job.ID, wait time.Duration) (v service.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishCancel, wait)
}

// ForceCancel asks a job to end, waits up to wait, and then gives the job up: it ends although its
// program may still run. See [service.Service.Abandon]. If wait is 0, the service waits for 10
// seconds.
func (c *Client) ForceCancel(ctx context.Context, id job.ID, wait time.Duration) (v service.View, obeyed bool, err error) {
	return c.wish(ctx, id, job.WishCancel, wait, true)
}

// Pause asks a job to stop until it is resumed. wait and obeyed are as with [Client.Cancel].
func (c *Client) Pause(ctx context.Context, id job.ID, wait time.Duration) (v service.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishPause, wait)
}

// Resume lets a paused job go on. wait and obeyed are as with [Client.Cancel].
func (c *Client) Resume(ctx context.Context, id job.ID, wait time.Duration) (v service.View, obeyed bool, err error) {
	return c.Wish(ctx, id, job.WishResume, wait)
}

// Wish makes one of the three wishes: cancel, pause or resume.
func (c *Client) Wish(ctx context.Context, id job.ID, w job.Wish, wait time.Duration) (v service.View, obeyed bool,
	err error,
) {
	return c.wish(ctx, id, w, wait, false)
}

func (c *Client) wish(ctx context.Context, id job.ID, w job.Wish, wait time.Duration, force bool) (v service.View,
	obeyed bool, err error,
) {
	for {
		part, begun := min(wait, mostWait), time.Now()
		v, obeyed, err = c.wishOnce(ctx, id, w, part, force && part == wait) // the last time it gives the job up
		spent := time.Since(begun)
		if wait -= spent; err != nil || obeyed || wait <= 0 || spent < part {
			return v, obeyed, err // a service that stops answers before the time is over
		}
	}
}

// mostWait is for how long a service waits in one call.
const mostWait = 5 * time.Minute

func (c *Client) wishOnce(ctx context.Context, id job.ID, w job.Wish, wait time.Duration, force bool) (v service.View,
	obeyed bool, err error,
) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	if force {
		q.Set("force", "true")
	}
	o, err := c.call(ctx, request{method: http.MethodPost, path: of(id) + "/" + string(w), query: q}, &v)
	if w == job.WishResume && o.repeated && job.KindOf(err) == job.Conflict {
		// It may be the first call that let it go on, whose answer was lost.
		if now, lost := c.Job(ctx, id); lost == nil && now.State != job.Paused && !now.State.Terminal() &&
			now.Wish != job.WishPause {
			return now, true, nil
		}
	}
	return v, o.status == http.StatusOK, err
}
