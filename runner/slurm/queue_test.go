package slurm

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// Who has just submitted is told soon why a launch waits, three times. The next ones wait.
func TestReasonsSoon(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	r := b.runner
	r.cfg.Interval, r.cfg.Soon = time.Hour, time.Nanosecond
	r.queue.Earlier = rate.NewLimiter(rate.Every(time.Hour), 3)
	asked := 0
	r.queue.Ask = func(ctx context.Context) (squeue.Answer, error) {
		asked++
		return r.client.Queue(ctx)
	}
	for i, want := range []int{1, 2, 3, 4, 4, 4} { // nothing is known yet at the first
		k, p := b.newJob(t, "true")
		p.Resources = job.Resources{Cores: 65} // more than the node has: it waits
		s := b.status(t, b.launch(t, k, p))
		known := strings.Contains(s.Reason, "Slurm job")
		if s.State != runner.Queued || asked != want || known != (i < 4) || !known && !s.Vague {
			t.Errorf("launch %d: squeue was asked %d times, want %d: %+v", i, asked, want, s)
		}
	}
}
