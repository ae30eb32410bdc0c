package slurm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// An answer is shared, an error says nothing, and a launch is missing only in two answers.
func TestQueueIsAskedRarely(t *testing.T) {
	asked, fails := 0, false
	q := queue{ask: func(context.Context) (a squeue.Answer, err error) {
		asked++
		if fails {
			err = errors.New("no answer")
		}
		return a, err
	}}
	look := func(age time.Duration) *snapshot {
		t.Helper()
		s, err := q.look(t.Context(), age)
		if (err != nil) != fails {
			t.Error(err)
		}
		return s
	}
	l := &launch{place: place{Name: "T"}}
	for range 3 {
		if q.missing(look(time.Hour), l) {
			t.Error("missing after one answer")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	fails = true
	if q.missing(look(0), l) {
		t.Error("missing after an error")
	}
	fails = false
	if !q.missing(look(0), l) {
		t.Error("not missing after a second answer")
	}
	young := &launch{place: place{Name: "Y", Armed: time.Now().Add(time.Hour).UnixMilli()}}
	for range 3 {
		if q.missing(look(0), young) {
			t.Error("missing before it was launched")
		}
	}
}

// Who has just submitted is told soon why a launch waits, three times. The next ones wait.
func TestReasonsSoon(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	r := b.runner
	r.cfg.Interval, r.cfg.Soon = time.Hour, time.Nanosecond
	r.queue.earlier = rate.NewLimiter(rate.Every(time.Hour), 3)
	asked := 0
	r.queue.ask = func(ctx context.Context) (squeue.Answer, error) {
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
