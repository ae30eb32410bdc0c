// Package halt stops jobs of Slurm and lets them go on, by what an ordinary user may do.
package halt

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/client"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// A Halter does it for the jobs of one account.
type Halter struct {
	Queue  *squeue.Queue
	Client *client.Client
}

// most is how often a job is told: it may begin, or be put back into the queue, in the meantime.
const most = 3

// Halt stops a job, or lets it go on, and returns when Slurm says that it stands still, or does
// not, or that it is over. One that waits is held in the queue. Of one that runs all processes get
// a signal: it keeps its nodes and its memory, and Slurm goes on to count its time. name is as in
// [client.Client.Cancel]; there is no job of it before since. An error of kind Unavailable says
// that Slurm does not do it.
func (h *Halter) Halt(ctx context.Context, name string, since time.Time, stop bool) error {
	said := "Slurm does not tell of it"
	for told := 0; ; told++ {
		s, err := h.Queue.Look(ctx, 0)
		if err != nil {
			return err
		}
		w, there := s.Find(name)
		waits := there && w.Phase() == squeue.Waits
		switch {
		case !there && h.Queue.Missing(s, name, since), there && w.Phase() == squeue.Over, w.State == "COMPLETING":
			return nil
		case w.Suspended() && !w.Stopped(): // it takes no signal
			return job.Errorf(job.Unavailable, "Slurm itself has suspended it: %s", w.Running())
		case there && w.Halted() == stop && (waits || told > 0): // not all may have got the signal before a crash
			return nil
		case told == most:
			return job.Errorf(job.Unavailable, "%s", said)
		case waits:
			said, err = w.Waiting(), h.Client.Hold(ctx, name, stop)
		case there:
			said, err = w.Running(), h.Tell(ctx, name, stop)
		}
		if err != nil {
			return err
		}
	}
}

// Tell sends a job that runs the signal to stop, or to go on: to all its steps, and then to its
// script and what that has started. Slurm 22.05 does not do both at once.
func (h *Halter) Tell(ctx context.Context, name string, stop bool) error {
	signal := "--signal=CONT"
	if stop {
		signal = "--signal=STOP"
	}
	err := h.Client.Cancel(ctx, name, signal)
	if err == nil {
		err = h.Client.Cancel(ctx, name, signal+" --full")
	}
	return err
}
