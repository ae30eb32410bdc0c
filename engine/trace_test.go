package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// A scribe is a tracer that writes down what it sees.
type scribe struct {
	mu    sync.Mutex
	lines []string
}

func (s *scribe) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

type scribeKey struct{}

func (s *scribe) Run(ctx context.Context, j *job.Job) (context.Context, func(job.Entry)) {
	s.note("run of attempt %d", j.Attempt)
	return context.WithValue(ctx, scribeKey{}, "run"), func(e job.Entry) { s.note("run came to %s", strings.TrimSpace(string(e.State)+" "+string(e.Code))) }
}

func (s *scribe) Step(ctx context.Context, j *job.Job) (context.Context, func(job.Entry)) {
	s.note("step %s in %v", j.State, ctx.Value(scribeKey{}))
	return context.WithValue(ctx, scribeKey{}, "step"), func(e job.Entry) { s.note("step came to %s", strings.TrimSpace(string(e.State)+" "+string(e.Code))) }
}

// see runs a job to its end.
func (w *world) see(spec job.Spec) {
	w.Helper()
	id := w.accept(service.Request{Spec: spec})[0]
	w.start()
	if _, err := w.svc.Wait(context.Background(), id); err != nil {
		w.Fatal(err)
	}
	w.stop()
}

func TestTracer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler func(*scribe, context.Context, *service.Task[int]) (int, error)
		want    []string
	}{
		{"a task that is done", func(s *scribe, ctx context.Context, _ *service.Task[int]) (int, error) {
			s.note("handler in %v", ctx.Value(scribeKey{}))
			return 1, nil
		}, []string{
			"run of attempt 1", "step RUNNING in run", "handler in step",
			"step came to FINISHED NORMAL_COMPLETION", "run came to FINISHED NORMAL_COMPLETION",
		}},
		{"one that fails, and is done the second time", func(_ *scribe, _ context.Context, task *service.Task[int]) (int, error) {
			if task.Job.Attempt == 1 {
				return 0, errors.New("no")
			}
			return 1, nil
		}, []string{
			"run of attempt 1", "step RUNNING in run", "step came to WAITING TASK_FAILED", "run came to WAITING TASK_FAILED",
			"run of attempt 2", "step RUNNING in run", "step came to FINISHED NORMAL_COMPLETION", "run came to FINISHED NORMAL_COMPLETION",
		}},
		{"one that ends its goroutine", func(_ *scribe, _ context.Context, task *service.Task[int]) (int, error) {
			if task.Job.Attempt == 1 {
				runtime.Goexit()
			}
			panic("twice")
		}, []string{
			"run of attempt 1", "step RUNNING in run", "step came to WAITING TASK_PANICKED", "run came to WAITING TASK_PANICKED",
			"run of attempt 2", "step RUNNING in run", "step came to FAILED TASK_PANICKED", "run came to FAILED TASK_PANICKED",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scribe{}
			bubble(t, service.Config{Options: engine.Options{Tracer: s}}, func(w *world) {
				service.Handle(w.svc, "traced", func(ctx context.Context, task *service.Task[int]) (int, error) { return tt.handler(s, ctx, task) })
				spec := service.NewTask("traced", 1)
				spec.Retry = &job.RetryPolicy{MaxAttempts: 2}
				w.see(spec)
				if diff := cmp.Diff(tt.want, s.lines); diff != "" {
					w.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

// A process that loses its lease says so of its runs, and then another run follows.
func TestTracerOfALostJob(t *testing.T) {
	s := &scribe{}
	bubble(t, service.Config{Options: engine.Options{Tracer: s}}, func(w *world) {
		var runs atomic.Int64
		service.Handle(w.svc, "traced", func(ctx context.Context, _ *service.Task[int]) (int, error) {
			if runs.Add(1) > 1 {
				return 1, nil
			}
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "renew" {
					return job.Errorf(job.Unavailable, "away")
				}
				return nil
			}, nil)
			<-ctx.Done()
			w.store.fail(nil, nil)
			return 0, context.Cause(ctx)
		})
		w.see(service.NewTask("traced", 1))
		want := []string{
			"run of attempt 1", "step RUNNING in run", "step came to", "run came to",
			"run of attempt 1", "step RUNNING in run", "step came to FINISHED NORMAL_COMPLETION", "run came to FINISHED NORMAL_COMPLETION",
		}
		for i := range s.lines {
			s.lines[i] = strings.TrimSpace(s.lines[i])
		}
		if diff := cmp.Diff(want, s.lines); diff != "" {
			w.Errorf("(-want +got)\n%s", diff)
		}
	})
}
