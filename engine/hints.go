package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// ears are the lines at which [Config.Heard] wants to hear of ready jobs.
type ears struct {
	lines    []job.QueueKind
	replaced chan struct{} // closed when it listens at other lines
}

// Listen makes e tell [Config.Heard] of ready jobs at these lines and no others, while [Engine.Run]
// goes on. It need not claim from them itself. It tells of announcements that came before, too. It
// may be called at any time.
func (e *Engine) Listen(lines []job.QueueKind) {
	old := e.ears.Swap(&ears{lines: slices.Clone(lines), replaced: make(chan struct{})})
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

// hintsOf waits for announcements of some lines until e serves other lines, or listens at others.
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
	lines := slices.Clone(sv.queueKinds)
	for _, l := range ears.lines {
		if !slices.Contains(sv.queueKinds, l) {
			lines = append(lines, l)
		}
	}
	for {
		found, err := retry(waiting, e, "wait for work",
			func() ([]job.QueueKind, error) { return e.cfg.Broker.Wait(waiting, lines) })
		switch {
		case errors.Is(err, errReplaced):
			return nil
		case err != nil:
			return err
		}
		in := func(of []job.QueueKind) []job.QueueKind {
			return slices.DeleteFunc(slices.Clone(found),
				func(l job.QueueKind) bool { return !slices.Contains(of, l) })
		}
		if len(in(sv.queueKinds)) > 0 {
			e.hint.set()
		}
		if heard := in(ears.lines); len(heard) > 0 && e.cfg.Heard != nil {
			e.cfg.Heard(heard)
		}
	}
}

var errReplaced = errors.New("other queues are served")
