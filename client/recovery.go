package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
)

// Blocked returns the groups of blocked jobs; see [service.Service.Blocked].
func (c *Client) Blocked(ctx context.Context) ([]service.BlockedGroup, error) {
	answer, err := fetch[struct {
		Items []service.BlockedGroup `json:"items"`
	}](ctx, c, "/v1/recovery", nil)
	return answer.Items, err
}

// BlockedBy returns one group of blocked jobs.
func (c *Client) BlockedBy(ctx context.Context, group string) (service.BlockedGroup, error) {
	return fetch[service.BlockedGroup](ctx, c, ofGroup(group), nil)
}

// ActOnGroup carries out an action of a person on a group of blocked jobs; see
// [service.Service.ActOnGroup].
func (c *Client) ActOnGroup(ctx context.Context, want groups.Action, group string) (g service.BlockedGroup, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: ofGroup(group) + "/" + verb(want)}, &g)
	return g, err
}

// ActOnJob carries out the action for one blocked job: it lets the job go on at once, fails it, or
// has its group tested.
func (c *Client) ActOnJob(ctx context.Context, want groups.Action, id job.ID) (v service.View, err error) {
	o, err := c.call(ctx, request{method: http.MethodPost, path: of(id) + "/" + verb(want)}, &v)
	if want != groups.TryNow && o.repeated && job.KindOf(err) == job.Conflict {
		// It may be the first call that took it out of its group, whose answer was lost.
		if now, lost := c.Job(ctx, id); lost == nil &&
			(want == groups.Release && !now.State.Terminal() || want == groups.GiveUp &&
				now.Code == job.RecoveryGivenUp) {
			return now, nil
		}
	}
	return v, err
}

func ofGroup(key string) string { return "/v1/recovery/" + url.PathEscape(key) }

// verb is what stands for want in a path.
func verb(want groups.Action) string { return strings.ReplaceAll(string(want), "_", "-") }
