package api

import (
	"context"
	"net/http"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func (h *handler) registerWishes() {
	wish := func(name, summary, about string) operation {
		return operation{
			id: name + "-job", tag: "jobs", method: http.MethodPost, path: "/v1/jobs/{id}/" + name,
			summary: summary, about: about,
			others: map[int]string{http.StatusAccepted: "The wish stands, and is not obeyed yet."},
			errors: []int{http.StatusConflict},
		}
	}
	register(h, wish("cancel", "Ask that a job end",
		"It is CANCELED once nothing of it runs any more. With force it is given up if it has not obeyed in "+
			"time: it ends with the code ABANDONED, "+
			"and its program may still run."), h.cancel)
	register(h, wish("pause", "Ask that a job stop until it is resumed",
		"A program that runs is suspended where it runs."),
		h.wish(job.WishPause, (*service.Service).Pause))
	register(h, wish("resume", "Let a paused job go on", ""), h.wish(job.WishResume, (*service.Service).Resume))
}

type wishInput struct {
	// The id of the job.
	ID string `path:"id"`

	// How long to wait until the job has obeyed, 5m at most.
	Wait string `query:"wait" example:"30s"`
}

type cancelInput struct {
	// The id of the job.
	ID string `path:"id"`

	// How long to wait until the job has obeyed, 5m at most; with force 10s by default.
	Wait string `query:"wait" example:"30s"`

	// Give the job up if it has not obeyed by then.
	Force bool `query:"force" default:"false"`
}

type ask func(*service.Service, context.Context, ...job.ID) ([]store.Wished, error)

func (h *handler) wish(w job.Wish, ask ask) func(context.Context, *wishInput) (*jobOutput, error) {
	return func(ctx context.Context, in *wishInput) (*jobOutput, error) {
		return h.wished(ctx, &cancelInput{in.ID, in.Wait, false}, w, ask)
	}
}

func (h *handler) cancel(ctx context.Context, in *cancelInput) (*jobOutput, error) {
	return h.wished(ctx, in, job.WishCancel, (*service.Service).Cancel)
}

const forceAfter = 10 * time.Second

// wished makes a wish of a job and answers it as it stands then: 200 once it has obeyed, 202 while
// the wish stands, also if this process is stopping. But a process may also stop because the job
// has ended, and be faster than the call that waits to hear of that.
func (h *handler) wished(ctx context.Context, in *cancelInput, w job.Wish, ask ask) (*jobOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	wait, err := parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if in.Force && in.Wait == "" {
		wait = forceAfter
	}
	done, err := h.asked(ctx, id, w, ask, wait)
	if err == nil && in.Force && !done && ctx.Err() == nil && !h.stops() { // the whole time has passed
		done, err = h.asked(ctx, id, w, (*service.Service).Abandon, 0)
	}
	if err != nil {
		return nil, err
	}
	v, err := serviceOf(ctx).View(context.WithoutCancel(ctx), id)
	out := &jobOutput{http.StatusAccepted, v}
	if done || v.State.Terminal() {
		out.Status = http.StatusOK
	}
	return out, err
}

// asked makes a wish, waits for it to be obeyed, and reports whether it was.
func (h *handler) asked(ctx context.Context, id job.ID, w job.Wish, ask ask, wait time.Duration) (done bool,
	err error,
) {
	if wait > 0 {
		release, err := h.stream()
		if err != nil {
			return false, err
		}
		defer release()
	}
	answers, err := ask(serviceOf(ctx), ctx, id)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil || answers[0].Done || wait == 0 {
		return err == nil && answers[0].Done, err
	}
	waiting, cancel := h.waiting(ctx, wait)
	defer cancel()
	return serviceOf(ctx).Obeyed(waiting, id, w)
}
