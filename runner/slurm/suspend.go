package slurm

import (
	"context"
	"fmt"

	"github.com/pawl-jobs/pawl/runner"
)

// Suspend implements [runner.Runner]. A launch that waits is held. The script of one that runs is
// stopped, too, with all its steps.
func (r *Runner) Suspend(ctx context.Context, h runner.Handle) error {
	return r.halt(ctx, "suspend", h, true)
}

// Resume implements [runner.Runner].
func (r *Runner) Resume(ctx context.Context, h runner.Handle) error {
	return r.halt(ctx, "resume", h, false)
}

func (r *Runner) halt(ctx context.Context, what string, h runner.Handle, stop bool) error {
	l, err := r.find(h)
	if err != nil {
		return err
	}
	if err := r.halter.Halt(ctx, l.Name, l.armed(), stop); err != nil {
		return fmt.Errorf("%s %s: %w", what, h.Key, err)
	}
	return nil
}
