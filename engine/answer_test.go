package engine_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestLostAnswers: a call was committed and its answer was lost.
func TestLostAnswers(t *testing.T) {
	for _, call := range []string{"begin", "claim", "apply", "renew", "due", "pay", "expire"} {
		t.Run("of "+call, func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 3}}}, func(w *world) {
				var y tally
				service.Handle(w.svc, "task", func(_ context.Context, task *service.Task[int]) (int, error) {
					defer y.enter(task.Job.ID)()
					return task.Args, nil
				})
				w.store.fail(nil, lossy(3, call))
				w.start()
				ids := w.submit("task", 10)
				ids = append(ids, w.submit("task", 1, after(ids[9]))...)
				ids = append(ids, w.submit("task", 1, delay(time.Second))...)
				w.finish(job.Finished, ids...)
				y.each(t, 1, ids...)
				for _, id := range ids {
					if j := w.job(id); j.Recoveries != 0 || j.Attempt != 1 {
						t.Errorf("%d recoveries, attempt %d", j.Recoveries, j.Attempt)
					}
				}
			})
		})
	}

	t.Run("of begin, and the next try comes when that lease is over", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			tries := 0
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "begin" {
					if tries++; tries == 2 {
						time.Sleep(16 * time.Second)
					}
				}
				return nil
			}, lossy(1, "begin"))
			w.start()
			id := w.submit("hold", 1)[0]
			time.Sleep(time.Minute)
			w.at(id, job.Finished, job.None)
		})
	})

	t.Run("an answer that takes long makes no strangers", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			var y tally
			service.Handle(w.svc, "task", func(_ context.Context, task *service.Task[int]) (none, error) {
				defer y.enter(task.Job.ID)()
				return none{}, nil
			})
			var once sync.Once
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "claim" && w.running() > 0 {
					once.Do(func() { time.Sleep(time.Minute) }) // four leases, each renewed
				}
				return nil
			})
			w.start()
			ids := w.submit("task", 3)
			w.finish(job.Finished, ids...)
			y.each(t, 1, ids...)
			for _, id := range ids {
				if diff := cmp.Diff([]string{"PENDING/ready", "RUNNING/worker", "FINISHED/none"}, w.path(id)); diff != "" {
					t.Error(diff)
				}
			}
		})
	})

	t.Run("strangers are given back", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			var y tally
			service.Handle(w.svc, "task", func(_ context.Context, task *service.Task[int]) (none, error) {
				defer y.enter(task.Job.ID)()
				return none{}, nil
			})
			hidden := 0
			w.store.claimed = func(jobs []job.Job) []job.Job {
				if hidden == 0 && len(jobs) > 1 {
					hidden++
					return jobs[1:]
				}
				return jobs
			}
			w.start()
			ids := w.submit("task", 3)
			w.finish(job.Finished, ids...)
			y.each(t, 1, ids...)
			if j := w.job(ids[0]); hidden != 1 || j.Recoveries != 0 || len(w.path(ids[0])) != 5 {
				t.Errorf("hidden %d, %d recoveries, path %v", hidden, j.Recoveries, w.path(ids[0]))
			}
		})
	})
}

// TestRefused: the store refuses one change of many for good.
func TestRefused(t *testing.T) {
	for _, kind := range []job.ErrorKind{job.Internal, job.Invalid, job.Conflict} {
		t.Run("with "+string(kind), func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 20}}}, func(w *world) {
				var bad atomic.Pointer[job.ID]
				service.Handle(w.svc, "nap", func(context.Context, *service.Task[int]) (none, error) {
					time.Sleep(time.Second) // so that all end at once
					return none{}, nil
				})
				w.store.fail(refuse(&bad, func(c *job.Change) bool { return c.Last().Code != job.InternalError }, kind), nil)
				ids := w.submit("nap", 20)
				bad.Store(&ids[7])
				w.start()
				w.finish(job.Finished, slices.Concat(ids[:7], ids[8:])...)
				w.finish(job.Failed, ids[7])
				if j := w.job(ids[7]); j.Code != job.InternalError || j.Message != "apply: the test does not like it" {
					t.Errorf("%s %q", j.Code, j.Message)
				}
			})
		})
	}

	// A kind of several steps goes on while its changes are on their way: the refused one may be any
	// of them.
	for _, state := range []job.State{job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Archiving} {
		t.Run("on the way to "+string(state), func(t *testing.T) {
			next := map[job.State]job.State{
				job.ProcessingInputs: job.StagingInputs, job.StagingInputs: job.StagingJob, job.StagingJob: job.SubmittingJob,
			}
			kind := kindFunc(func(_ context.Context, r *engine.Run) engine.Outcome {
				if s, more := next[r.Job.State]; more {
					return engine.Next(s)
				}
				if r.Job.State == job.SubmittingJob {
					return engine.Requeue(job.Archiving)
				}
				return engine.Done(nil)
			})
			cfg := service.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}}
			bubble(t, cfg, func(w *world) {
				var bad atomic.Pointer[job.ID]
				w.store.fail(refuse(&bad, func(c *job.Change) bool {
					return slices.ContainsFunc(c.Path, func(e job.Entry) bool { return e.State == state })
				}, job.Internal), nil)
				ids := w.programs(5)
				bad.Store(&ids[2])
				began := time.Now()
				w.start()
				w.finish(job.Finished, slices.Concat(ids[:2], ids[3:])...)
				w.finish(job.Failed, ids[2])
				if j := w.job(ids[2]); j.Code != job.InternalError || j.Message != "apply: the test does not like it" {
					t.Errorf("%s %q", j.Code, j.Message)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}

	t.Run("while the step goes on", func(t *testing.T) {
		var cause causes
		kind := kindFunc(func(ctx context.Context, r *engine.Run) engine.Outcome {
			if r.Job.State == job.ProcessingInputs {
				return engine.Next(job.StagingInputs)
			}
			<-ctx.Done()
			cause.add(context.Cause(ctx))
			return engine.Next(job.StagingJob) // it did not notice
		})
		cfg := service.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}}
		bubble(t, cfg, func(w *world) {
			var bad atomic.Pointer[job.ID]
			w.store.fail(refuse(&bad, func(c *job.Change) bool { return c.Last().State == job.StagingInputs }, job.Internal), nil)
			id := w.programs(1)[0]
			bad.Store(&id)
			w.start()
			w.finish(job.Failed, id)
			if j := w.job(id); j.Code != job.InternalError || j.Message != "apply: the test does not like it" {
				t.Errorf("%s %q", j.Code, j.Message)
			}
			if job.KindOf(cause.all[0]) != job.Internal {
				t.Errorf("cause %v", cause.all)
			}
		})
	})

	for _, kind := range []job.ErrorKind{job.Closed, job.Corrupt} {
		t.Run(string(kind)+" ends Run and fails no job", func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 20}}}, func(w *world) {
				service.Handle(w.svc, "nap", func(context.Context, *service.Task[int]) (none, error) {
					time.Sleep(time.Second)
					return none{}, nil
				})
				stage := 0 // calls of apply come one after the other
				w.store.fail(func(_ context.Context, call string, arg any) error {
					if call != "apply" {
						return nil
					}
					switch {
					case stage == 0 && len(arg.([]job.Change)) == 1:
						time.Sleep(time.Second) // others gather meanwhile
						return nil
					case stage == 0:
						stage = 1
						return job.Errorf(job.Invalid, "halve it")
					case stage == 1:
						stage = 2
						return nil // the first half
					}
					return job.Errorf(kind, "the test broke the disk")
				}, nil)
				w.start()
				w.submit("nap", 20)
				if err := w.end(); job.KindOf(err) != kind {
					t.Errorf("Run: %v", err)
				}
				w.noSession()
				c, err := w.svc.Count(context.Background(), nil)
				if err != nil || c.States[job.Failed] != 0 || c.States[job.Finished]+c.States[job.Pending] != 20 {
					t.Errorf("%v, %v", c, err)
				}
			})
		})
	}
}

// refuse returns a fault that refuses the changes of one job that match.
func refuse(bad *atomic.Pointer[job.ID], match func(*job.Change) bool, kind job.ErrorKind) fault {
	return func(_ context.Context, call string, arg any) error {
		id := bad.Load()
		if call != "apply" || id == nil {
			return nil
		}
		for _, c := range arg.([]job.Change) {
			if c.Job == *id && match(&c) {
				return job.Errorf(kind, "the test does not like it")
			}
		}
		return nil
	}
}
