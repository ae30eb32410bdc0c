package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestClaimIsIntent: where a program comes to its launch by a claim, that is the intent. What a
// step makes of it otherwise launches nothing, and leaves nothing behind that may run.
func TestClaimIsIntent(t *testing.T) {
	// staged is a kind whose programs come to their launch by a claim.
	staged := func(submit func(context.Context, *engine.Run) engine.Outcome) service.Config {
		return service.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: submitting(engine.Requeue(job.SubmittingJob), submit)}}
	}
	before := []string{
		"PENDING/ready", "PROCESSING_INPUTS/worker", "STAGING_INPUTS/worker", "STAGING_JOB/worker", "SUBMITTING_JOB/ready", "SUBMITTING_JOB/worker",
	}
	launch := func(ctx context.Context, t *testing.T, r *engine.Run) {
		was := r.Job
		if was.Live {
			t.Errorf("launch %d is to be seen before it is asked for", was.Launch)
		}
		if err := r.Launch(ctx); err != nil || !r.Job.Live || r.Job.Launch != was.Launch+1 {
			t.Errorf("launch %d, live %t, after launch %d: %v", r.Job.Launch, r.Job.Live, was.Launch, err)
		}
	}
	for name, test := range map[string]struct {
		submit   func(ctx context.Context, t *testing.T, r *engine.Run, first bool) engine.Outcome
		path     []string // that follows
		launches int
	}{
		"it is launched": {func(ctx context.Context, t *testing.T, r *engine.Run, _ bool) engine.Outcome {
			launch(ctx, t, r)
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, []string{"ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"}, 1},
		"it is launched twice": {func(ctx context.Context, t *testing.T, r *engine.Run, _ bool) engine.Outcome {
			launch(ctx, t, r)
			if err := r.Record(ctx, job.Entry{Message: "not started"}, job.Patch{Over: true}, nil); err != nil {
				t.Error(err)
			}
			launch(ctx, t, r)
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, []string{"SUBMITTING_JOB/worker", "SUBMITTING_JOB/worker", "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"}, 2},
		"the intent is recorded": {func(ctx context.Context, t *testing.T, r *engine.Run, _ bool) engine.Outcome {
			if err := r.Record(ctx, job.Entry{Message: "taken over"}, job.Patch{Intent: true}, nil); err != nil || !r.Job.Live || r.Job.Launch != 1 {
				t.Errorf("launch %d, live %t: %v", r.Job.Launch, r.Job.Live, err)
			}
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, []string{"SUBMITTING_JOB/worker", "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"}, 1},
		"the step fails": {func(context.Context, *testing.T, *engine.Run, bool) engine.Outcome {
			return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: "no"})
		}, []string{"FAILED/none"}, 1},
		"the step panics, and the next attempt is launched": {func(ctx context.Context, t *testing.T, r *engine.Run, first bool) engine.Outcome {
			if first {
				panic("no")
			}
			launch(ctx, t, r)
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, append(append([]string{"WAITING/gate"}, before...), "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"), 2},
		"it goes back": {func(ctx context.Context, t *testing.T, r *engine.Run, first bool) engine.Outcome {
			if first {
				return engine.Back()
			}
			launch(ctx, t, r)
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, []string{"SUBMITTING_JOB/ready", "SUBMITTING_JOB/worker", "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"}, 2},
		"something else is recorded": {func(ctx context.Context, t *testing.T, r *engine.Run, _ bool) engine.Outcome {
			if err := r.Record(ctx, job.Entry{Message: "hm"}, job.Patch{}, nil); err != nil {
				t.Error(err)
			}
			if j := r.Job; j.Live {
				t.Errorf("launch %d may run", j.Launch)
			}
			launch(ctx, t, r)
			return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
		}, []string{"SUBMITTING_JOB/worker", "SUBMITTING_JOB/worker", "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			bubble(t, staged(func(ctx context.Context, r *engine.Run) engine.Outcome {
				was := first
				first = false
				return test.submit(ctx, t, r, was)
			}), func(w *world) {
				w.start()
				spec := job.Spec{Command: []string{"true"}, Retry: &job.RetryPolicy{MaxAttempts: 2}}
				id := w.accept(service.Request{Spec: spec})[0]
				end, _, _ := strings.Cut(test.path[len(test.path)-1], "/")
				w.finish(job.State(end), id)
				if diff := cmp.Diff(append(append([]string{}, before...), test.path...), w.path(id)); diff != "" {
					t.Error(diff)
				}
				if j := w.job(id); j.Live || j.Launch != test.launches {
					t.Errorf("%d launches, live %t", j.Launch, j.Live)
				}
			})
		})
	}
	t.Run("it is canceled before its launch", func(t *testing.T) {
		bubble(t, staged(func(ctx context.Context, r *engine.Run) engine.Outcome {
			<-ctx.Done()
			if err := r.Launch(ctx); err == nil {
				t.Error("launched")
			}
			return engine.Back()
		}), func(w *world) {
			w.start()
			id := w.programs(1)[0]
			synctest.Wait()
			if j := w.job(id); !j.Intended() || j.Launch != 1 {
				t.Errorf("claimed at %s with launch %d, live %t: %q", j.Place, j.Launch, j.Live, j.Message)
			}
			w.wish(w.svc.Cancel, id)
			w.finish(job.Canceled, id)
			if diff := cmp.Diff(append(append([]string{}, before...), "CANCELED/none"), w.path(id)); diff != "" {
				t.Error(diff)
			}
		})
	})
}
