package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// ears are the queues and kinds where [Config.Heard] wants to hear of ready jobs.
type ears struct {
	where    []job.QueueKind
	replaced chan struct{} // closed when it listens to others
}

// Listen makes e tell [Config.Heard] of ready jobs of these queues and kinds and no others, while
// [Engine.Run] goes on. It need not claim from them itself. It tells of announcements that came
// before, too. It may be called at any time.
func (e *Engine) Listen(where []job.QueueKind) {
	old := e.ears.Swap(&ears{where: slices.Clone(where), replaced: make(chan struct{})})
	close(old.replaced)
}

// hints turns announcements into the flag that wakes the loop of claims, and tells others of them.
func (e *Engine) hints(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := e.hintsOf(ctx, e.served.Load(), e.ears.Load()); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// hintsOf waits for announcements until e serves other queues and kinds, or listens to others.
func (e *Engine) hintsOf(ctx context.Context, sv *served, ears *ears) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-sv.replaced:
			stop(errReplaced)
		case <-ears.replaced:
			stop(errReplaced)
		case <-waiting.Done():
		}
	}()
	where := slices.Clone(sv.queueKinds)
	for _, at := range ears.where {
		if !slices.Contains(sv.queueKinds, at) {
			where = append(where, at)
		}
	}
	for {
		found, err := retry(waiting, e, "wait for work",
			func() ([]job.QueueKind, error) { return e.cfg.Broker.Wait(waiting, where) })
		switch {
		case errors.Is(err, errReplaced):
			return nil
		case err != nil:
			return err
		}
		in := func(of []job.QueueKind) []job.QueueKind {
			return slices.DeleteFunc(slices.Clone(found),
				func(at job.QueueKind) bool { return !slices.Contains(of, at) })
		}
		if len(in(sv.queueKinds)) > 0 {
			e.hint.set()
		}
		if heard := in(ears.where); len(heard) > 0 && e.cfg.Heard != nil {
			e.cfg.Heard(heard)
		}
	}
}

var errReplaced = errors.New("other queues are served")
