package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

type none = struct{}

func TestSlots(t *testing.T) {
	t.Run("no more tasks run at once than there are slots", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 3}}}, func(w *world) {
			var y tally
			service.Handle(w.svc, "nap", func(_ context.Context, task *service.Task[int]) (none, error) {
				defer y.enter(task.Job.ID)()
				time.Sleep(time.Second)
				return none{}, nil
			})
			w.start()
			ids := w.submit("nap", 50)
			w.finish(job.Finished, ids...)
			y.each(t, 1, ids...)
			if y.max != 3 {
				t.Errorf("%d ran at once, want 3", y.max)
			}
		})
	})

	t.Run("each lane has slots of its own", func(t *testing.T) {
		slots := map[job.Lane]int{job.LanePrepare: 3, job.LaneLaunch: 2, job.LaneFinish: 1}
		lanes := map[job.Lane]*tally{job.LanePrepare: {}, job.LaneLaunch: {}, job.LaneFinish: {}}
		// Each step is a claim of its own.
		next := map[job.State]job.State{
			job.ProcessingInputs: job.StagingInputs, job.StagingInputs: job.StagingJob,
			job.StagingJob: job.SubmittingJob, job.SubmittingJob: job.Archiving,
		}
		kind := kindFunc(func(_ context.Context, r *engine.Run) engine.Outcome {
			defer lanes[r.Job.Lane].enter(r.Job.ID)()
			time.Sleep(time.Second)
			if s, more := next[r.Job.State]; more {
				return engine.Requeue(s)
			}
			return engine.Done(nil)
		})
		cfg := service.Config{
			Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind},
			Options: engine.Options{Slots: slots},
		}
		bubble(t, cfg, func(w *world) {
			w.start()
			ids := w.programs(20)
			w.finish(job.Finished, ids...)
			for lane, y := range lanes {
				if y.max != slots[lane] {
					t.Errorf("%d ran at once in lane %s, want %d", y.max, lane, slots[lane])
				}
			}
		})
	})

	t.Run("a slot is free once the end of its job is durable", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 1}}}, func(w *world) {
			var y tally
			service.Handle(w.svc, "quick", func(_ context.Context, task *service.Task[int]) (none, error) {
				defer y.enter(task.Job.ID)()
				return none{}, nil
			})
			hold := make(chan none)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "apply" {
					<-hold
				}
				return nil
			}, nil)
			w.start()
			ids := w.submit("quick", 2)
			synctest.Wait()
			y.each(t, 1, ids[0])
			y.each(t, 0, ids[1])
			close(hold)
			w.finish(job.Finished, ids...)
		})
	})

	t.Run("a slot is free once the place of its job in another lane is durable", func(t *testing.T) {
		var y tally
		kind := kindFunc(func(_ context.Context, r *engine.Run) engine.Outcome {
			switch r.Job.State {
			case job.ProcessingInputs:
				y.enter(r.Job.ID)()
				return engine.Next(job.StagingInputs)
			case job.StagingInputs:
				return engine.Next(job.StagingJob)
			case job.StagingJob:
				return engine.Next(job.SubmittingJob)
			case job.SubmittingJob:
				return engine.Requeue(job.Archiving)
			}
			return engine.Done(nil)
		})
		cfg := service.Config{
			Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind},
			Options: engine.Options{Slots: map[job.Lane]int{job.LanePrepare: 1, job.LaneLaunch: 2, job.LaneFinish: 2}},
		}
		bubble(t, cfg, func(w *world) {
			hold := make(chan none)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "apply" {
					<-hold
				}
				return nil
			}, nil)
			w.start()
			ids := w.programs(2)
			synctest.Wait()
			y.each(t, 1, ids[0])
			y.each(t, 0, ids[1])
			close(hold)
			w.finish(job.Finished, ids...)
		})
	})
}

// TestHints: a job is announced while a claim is under way that has passed its place.
func TestHints(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		service.Handle(w.svc, "task", func(context.Context, *service.Task[int]) (none, error) { return none{}, nil })
		submitted := make(chan job.ID, 1)
		var once sync.Once
		w.store.claimed = func(jobs []job.Job) []job.Job {
			once.Do(func() {
				submitted <- w.submit("task", 1)[0]
				synctest.Wait() // the hint has come
			})
			return jobs
		}
		w.start()
		id, began := <-submitted, time.Now()
		w.finish(job.Finished, id)
		if d := time.Since(began); d >= time.Second {
			t.Errorf("it was found after %v", d)
		}
	})
}

func TestAttempts(t *testing.T) {
	t.Run("each error is kept, and the clock brings the job back", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			service.Handle(w.svc, "shaky", func(_ context.Context, task *service.Task[int]) (string, error) {
				if task.Job.Attempt < 4 {
					return "", fmt.Errorf("trouble %d", task.Job.Attempt)
				}
				return "done", nil
			})
			w.start()
			id := w.submit("shaky", 1, retry(5, time.Minute))[0]
			w.finish(job.Finished, id)
			want := []string{"PENDING/ready"}
			for range 3 {
				want = append(want, "RUNNING/worker", "WAITING/gate", "PENDING/ready")
			}
			want = append(want, "RUNNING/worker", "FINISHED/none")
			if diff := cmp.Diff(want, w.path(id)); diff != "" {
				t.Error(diff)
			}
			var errs []string
			var waited []time.Duration
			var since time.Time
			for _, e := range w.history(id) {
				switch {
				case e.State == job.Waiting:
					errs, since = append(errs, string(e.Code)+" "+e.Message), e.At
				case e.State == job.Pending && !since.IsZero():
					waited = append(waited, e.At.Sub(since))
				}
			}
			if diff := cmp.Diff([]string{"TASK_FAILED trouble 1", "TASK_FAILED trouble 2", "TASK_FAILED trouble 3"}, errs); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}, waited); diff != "" {
				t.Error(diff)
			}
			if j := w.job(id); string(j.Result) != `"done"` || j.Attempt != 4 || j.Code != job.NormalCompletion {
				t.Errorf("attempt %d, %s, result %s", j.Attempt, j.Code, j.Result)
			}
		})
	})

	type row struct {
		name     string
		handler  func(*service.Task[int]) error
		code     job.Code
		attempts int
		message  string
	}
	for _, row := range []row{
		{"the last attempt's error ends the job", func(*service.Task[int]) error { return errors.New("no way") }, job.TaskFailed, 3, "no way"},
		{
			"a permanent error ends it at once", func(*service.Task[int]) error {
				return fmt.Errorf("wrapped: %w", service.Permanent(errors.New("never")))
			}, job.TaskFailed, 1, "wrapped: never",
		},
		{"a panic fails the attempt", func(*service.Task[int]) error { panic("ouch") }, job.TaskPanicked, 3, "panic: ouch"},
		{"so does the end of the goroutine", func(*service.Task[int]) error { runtime.Goexit(); return nil }, job.TaskPanicked, 3, "the handler ended its goroutine"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				service.Handle(w.svc, "bad", func(_ context.Context, task *service.Task[int]) (none, error) {
					return none{}, row.handler(task)
				})
				w.start()
				id := w.submit("bad", 1, retry(3, time.Second))[0]
				w.finish(job.Failed, id)
				j := w.job(id)
				if j.Code != row.code || j.Attempt != row.attempts || j.Message != row.message {
					t.Errorf("%s %q after %d attempts, want %s %q after %d", j.Code, j.Message, j.Attempt, row.code, row.message, row.attempts)
				}
				n := 0
				for _, e := range w.history(id) {
					if e.Code == row.code && e.Message == row.message {
						n++
						if row.message == "panic: ouch" && !strings.Contains(string(e.Data), "run_test.go") {
							t.Errorf("the stack does not say where: %s", e.Data)
						}
					}
				}
				if n != row.attempts {
					t.Errorf("the history has %d errors, want %d", n, row.attempts)
				}
			})
		})
	}
}

func TestGates(t *testing.T) {
	t.Run("a delayed job waits for its time, and an earlier one is not held up", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			began := time.Now()
			service.Handle(w.svc, "late", func(context.Context, *service.Task[int]) (time.Duration, error) { return time.Since(began), nil })
			w.start()
			long := w.submit("late", 1, delay(10*time.Minute))[0]
			synctest.Wait()
			minute := w.submit("late", 1, delay(time.Minute))[0]
			date := w.submit("late", 1, func(r *service.Request) { r.Spec.NotBefore = began.Add(90 * time.Second) })[0]
			now := w.submit("late", 1)[0]
			w.at(long, job.Waiting, job.Gate)
			w.at(minute, job.Waiting, job.Gate)
			w.at(now, job.Finished, job.None)
			w.finish(job.Finished, long, minute, date)
			for id, want := range map[job.ID]time.Duration{long: 10 * time.Minute, minute: time.Minute, date: 90 * time.Second} {
				if got := string(w.job(id).Result); got != fmt.Sprint(int64(want)) {
					t.Errorf("job ran after %s, want %d", got, want)
				}
			}
		})
	})

	t.Run("many jobs may be due at once", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			service.Handle(w.svc, "late", func(context.Context, *service.Task[int]) (none, error) { return none{}, nil })
			w.start()
			w.submit("late", 1100, delay(time.Minute)) // more than one call moves
			w.count(job.Finished, 1100)
		})
	})

	t.Run("prerequisites release the jobs that wait for them", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			var mu sync.Mutex
			var order []int
			service.Handle(w.svc, "link", func(_ context.Context, task *service.Task[int]) (none, error) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, task.Args)
				return none{}, nil
			})
			w.start()
			var last job.ID
			for i := range 10 {
				r := service.Request{Spec: service.NewTask("link", i)}
				if i > 0 {
					r.After = []store.After{{Job: last, Need: job.NeedFinished}}
				} else {
					r.Spec.Delay = job.Duration(time.Second) // the chain is there before it begins to move
				}
				last = w.accept(r)[0]
			}
			w.at(last, job.Waiting, job.Gate)
			w.finish(job.Finished, last)
			if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order); diff != "" {
				t.Error(diff)
			}
		})
	})

	t.Run("more dependants than one call pays", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			service.Handle(w.svc, "head", func(context.Context, *service.Task[int]) (none, error) { return none{}, nil })
			service.Handle(w.svc, "tail", func(context.Context, *service.Task[int]) (none, error) { return none{}, nil })
			w.start()
			heads := w.submit("head", 2, delay(time.Second))
			w.submit("tail", 1100, func(r *service.Request) {
				r.After = []store.After{{Job: heads[0], Need: job.NeedFinished}, {Job: heads[1], Need: job.NeedEnded}}
			})
			w.wish(w.svc.Cancel, heads[1])
			w.count(job.Finished, 1101)
		})
	})

	t.Run("a prerequisite that did not finish cancels", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			service.Handle(w.svc, "bad", func(context.Context, *service.Task[int]) (none, error) {
				return none{}, service.Permanent(errors.New("no"))
			})
			w.start()
			bad := w.submit("bad", 1)[0]
			id := w.submit("bad", 1, func(r *service.Request) { r.After = []store.After{{Job: bad, Need: job.NeedFinished}} })[0]
			w.finish(job.Canceled, id)
			if j := w.job(id); j.Code != job.PrerequisiteFailed {
				t.Errorf("code %s, want %s", j.Code, job.PrerequisiteFailed)
			}
		})
	})
}

// TestSteps: a kind of several steps.
func TestSteps(t *testing.T) {
	t.Run("steps of one job are joined, and each leaves its row", func(t *testing.T) {
		kind := kindFunc(func(ctx context.Context, r *engine.Run) engine.Outcome {
			switch r.Job.State {
			case job.ProcessingInputs:
				return engine.Next(job.StagingInputs).Set(job.Patch{Resolved: []byte(`{"a":1}`)})
			case job.StagingInputs:
				return engine.Next(job.StagingJob).Work([]byte(`"notes"`))
			case job.StagingJob:
				return engine.Next(job.SubmittingJob)
			case job.SubmittingJob:
				if err := r.Record(ctx, job.Entry{Message: "launching"}, job.Patch{Intent: true}, nil); err != nil {
					return engine.Back()
				}
				if r.Job.Launch != 1 || !r.Job.Live {
					return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: "no intent"}).Set(job.Patch{Over: true})
				}
				return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
			default:
				return engine.Done([]byte(`"ok"`))
			}
		})
		cfg := service.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}}
		bubble(t, cfg, func(w *world) {
			w.start()
			ids := w.programs(10)
			w.finish(job.Finished, ids...)
			for _, id := range ids {
				want := []string{
					"PENDING/ready", "PROCESSING_INPUTS/worker", "STAGING_INPUTS/worker", "STAGING_JOB/worker", "SUBMITTING_JOB/worker",
					"SUBMITTING_JOB/worker", "ARCHIVING/ready", "ARCHIVING/worker", "FINISHED/none",
				}
				if diff := cmp.Diff(want, w.path(id)); diff != "" {
					t.Error(diff)
				}
				if j := w.job(id); string(j.Resolved) != `{"a":1}` || string(j.Work) != `"notes"` || string(j.Result) != `"ok"` || j.Live {
					t.Errorf("resolved %s, work %s, result %s, live %v", j.Resolved, j.Work, j.Result, j.Live)
				}
			}
		})
	})

	t.Run("a job that comes straight back is run again", func(t *testing.T) {
		var y tally
		const rounds = 30
		kind := kindFunc(func(_ context.Context, r *engine.Run) engine.Outcome {
			defer y.enter(r.Job.ID)()
			if r.Job.N < 2*rounds {
				return engine.Requeue(r.Job.State)
			}
			return engine.Fail(job.Entry{Code: job.StagingFailed})
		})
		cfg := service.Config{
			Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind},
			Options: engine.Options{Slots: map[job.Lane]int{job.LanePrepare: 8}},
		}
		bubble(t, cfg, func(w *world) {
			began := time.Now()
			w.start()
			ids := w.programs(4)
			w.finish(job.Failed, ids...)
			y.each(t, rounds, ids...)
			if took := time.Since(began); took != 0 {
				t.Errorf("a job waited %v for a wake-up", took)
			}
		})
	})
}

type kindFunc func(context.Context, *engine.Run) engine.Outcome

func (f kindFunc) Step(ctx context.Context, r *engine.Run) engine.Outcome { return f(ctx, r) }

// submitting is a kind whose programs need no preparation. staged is how they come to their launch,
// which is submit's.
func submitting(staged engine.Outcome, submit func(context.Context, *engine.Run) engine.Outcome) engine.Kind {
	return kindFunc(func(ctx context.Context, r *engine.Run) engine.Outcome {
		switch r.Job.State {
		case job.ProcessingInputs:
			return engine.Next(job.StagingInputs)
		case job.StagingInputs:
			return engine.Next(job.StagingJob)
		case job.StagingJob:
			return staged
		case job.SubmittingJob:
			return submit(ctx, r)
		}
		return engine.Done(nil)
	})
}

// programs submits jobs of kind app.
func (w *world) programs(n int) []job.ID {
	w.Helper()
	reqs := make([]service.Request, n)
	for i := range reqs {
		reqs[i].Spec = job.Spec{Command: []string{"true"}}
	}
	return w.accept(reqs...)
}
