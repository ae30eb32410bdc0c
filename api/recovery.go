package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
)

func (h *handler) registerRecovery() {
	op := func(id, method, path, summary, about string) operation {
		return operation{
			id: id, tag: "recovery", method: method, path: "/v1/recovery" + path, summary: summary,
			about: about,
		}
	}
	register(h, op("list-groups", http.MethodGet, "", "List the groups of blocked jobs",
		"All jobs that wait for the same condition are one group, and are tested together. Sorted by key; without "+
			"those that nobody waits for."), h.groups)
	register(h, op("get-group", http.MethodGet, "/{group}", "Get a group of blocked jobs", ""), h.group)
	for _, t := range []struct {
		want           groups.Action
		summary, about string
		job, atOnce    string
	}{
		{
			groups.TryNow, "Test now whether a group may go on", "The answer does not wait for the test.",
			"Test now whether a blocked job may go on", "The test is for all jobs of its group.",
		},
		{
			groups.Release, "Let a group go on without a test",
			"Its jobs go one after the other, at the rate of releases, as if the condition had cleared.",
			"Let a blocked job go on without a test", "It goes on at once, as if the condition had cleared.",
		},
		{
			groups.GiveUp, "Give a group up", "Its jobs end FAILED, with the code RECOVERY_GIVEN_UP, except " +
				"jobs whose program may still run: cancel these.",
			"Give a blocked job up", "It ends FAILED, with the code RECOVERY_GIVEN_UP. A job whose program " +
				"may still run is refused: cancel it, with force if its end can never be confirmed.",
		},
	} {
		verb := strings.ReplaceAll(string(t.want), "_", "-") // it stands in a path
		register(h, op(verb+"-group", http.MethodPost, "/{group}/"+verb, t.summary, t.about), h.turn(t.want))
		register(h, operation{
			id: verb + "-job", tag: "jobs", method: http.MethodPost, path: "/v1/jobs/{id}/" + verb, summary: t.job,
			about:  t.atOnce,
			errors: []int{http.StatusConflict},
		}, h.turnJob(t.want))
	}
}

type groupList struct {
	// The groups, by key.
	Items []service.BlockedGroup `json:"items"`
}

type groupsOutput struct{ Body groupList }

func (h *handler) groups(ctx context.Context, _ *struct{}) (*groupsOutput, error) {
	items, err := serviceOf(ctx).Blocked(ctx)
	return &groupsOutput{groupList{items}}, err
}

type groupInput struct {
	// The key of the group.
	Group string `path:"group" example:"0f3a1c2f51a4b7d9e2c46a80"`
}

type groupOutput struct{ Body service.BlockedGroup }

func (h *handler) group(ctx context.Context, in *groupInput) (*groupOutput, error) {
	g, err := serviceOf(ctx).BlockedBy(ctx, in.Group)
	return &groupOutput{g}, err
}

func (h *handler) turn(want groups.Action) func(context.Context, *groupInput) (*groupOutput, error) {
	return func(ctx context.Context, in *groupInput) (*groupOutput, error) {
		g, err := serviceOf(ctx).ActOnGroup(ctx, want, in.Group)
		return &groupOutput{g}, err
	}
}

func (h *handler) turnJob(want groups.Action) func(context.Context, *target) (*jobOutput, error) {
	return func(ctx context.Context, in *target) (*jobOutput, error) {
		id, err := idOf(in.ID)
		if err != nil {
			return nil, err
		}
		errs, err := serviceOf(ctx).ActOnJobs(ctx, want, id)
		if err == nil {
			err = errs[0]
		}
		if err != nil {
			return nil, err
		}
		return h.job(ctx, in)
	}
}
