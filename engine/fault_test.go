package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func after(id job.ID) func(*pawl.Request) {
	return func(r *pawl.Request) { r.After = []store.After{{Job: id, Need: job.NeedFinished}} }
}

// TestStop: the context of Run ends.
func TestStop(t *testing.T) {
	t.Run("steps may end in their own time", func(t *testing.T) {
		bubble(t, pawl.Config{Grace: time.Minute}, func(w *world) {
			pawl.Handle(w.svc, "nap", func(context.Context, *pawl.Task[int]) (none, error) {
				time.Sleep(30 * time.Second)
				return none{}, nil
			})
			w.start()
			id := w.submit("nap", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.stop()
			w.at(id, job.Finished, job.None)
		})
	})

	t.Run("what is not done by then goes back without a mark, and the next Run finishes it", func(t *testing.T) {
		bubble(t, pawl.Config{Grace: time.Minute, Slots: map[job.Lane]int{job.LaneTask: 5}}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 7)
			synctest.Wait()
			began := time.Now()
			w.stop()
			if took := time.Since(began); took != time.Minute {
				t.Errorf("the grace was %v, want a minute", took)
			}
			c.are(t, 5, pawl.ErrInterrupted)
			for _, id := range ids {
				if j := w.at(id, job.Pending, job.Ready); j.Attempt != 1 || j.Recoveries != 0 || j.Suspect != 0 {
					t.Errorf("attempt %d, %d recoveries, suspect %d", j.Attempt, j.Recoveries, j.Suspect)
				}
			}
			close(letGo)
			w.start()
			w.finish(job.Finished, ids...)
		})
	})

	t.Run("there may be no grace", func(t *testing.T) {
		bubble(t, pawl.Config{Grace: -1}, func(w *world) {
			c, _ := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			began := time.Now()
			w.stop()
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
			c.are(t, 1, pawl.ErrInterrupted)
			w.at(id, job.Pending, job.Ready)
		})
	})

	t.Run("a step that does not stop is left behind and writes nothing", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			f := w.frozen()
			w.start()
			id := w.submit("freeze", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.stop()
			w.at(id, job.Pending, job.Ready)
			w.start()
			w.finish(job.Finished, id)
			path := w.path(id)
			close(f.thaw)
			synctest.Wait()
			if diff := cmp.Diff(path, w.path(id)); diff != "" {
				t.Errorf("the one left behind wrote: %s", diff)
			}
			if j := w.job(id); string(j.Result) != "2" {
				t.Errorf("result %s, want that of the second run", j.Result)
			}
		})
	})

	t.Run("before anything was done", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			began := make(chan none)
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "begin" {
					close(began)
					return errDown // it has begun, and nobody knows
				}
				return nil
			})
			w.start()
			<-began
			w.stop()
		})
	})

	t.Run("a claim under way is waited for", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			claimed, answer := make(chan none), make(chan none)
			var once sync.Once
			w.store.fail(nil, func(_ context.Context, call string, _ any) error {
				if call == "claim" {
					once.Do(func() { close(claimed); <-answer })
				}
				return nil
			})
			id := w.submit("hold", 1)[0]
			w.start()
			<-claimed
			w.quit(nil)
			synctest.Wait()
			close(answer)
			w.stop()
			w.at(id, job.Finished, job.None)
		})
	})
}

// frozen registers the kind freeze, whose handler ignores its context the first time it is called. Its result is how
// often it was called.
func (w *world) frozen() *frozen {
	f := &frozen{thaw: make(chan none)}
	pawl.Handle(w.svc, "freeze", func(ctx context.Context, _ *pawl.Task[int]) (int64, error) {
		n := f.runs.Add(1)
		if n == 1 {
			context.AfterFunc(ctx, func() { f.causes.add(context.Cause(ctx)) })
			<-f.thaw
		}
		return n, nil
	})
	return f
}

type frozen struct {
	runs   atomic.Int64
	causes causes
	thaw   chan none
}

// TestLostAnswers: a call was committed and its answer was lost.
func TestLostAnswers(t *testing.T) {
	for _, call := range []string{"begin", "claim", "apply", "renew", "due", "pay", "expire"} {
		t.Run("of "+call, func(t *testing.T) {
			bubble(t, pawl.Config{Slots: map[job.Lane]int{job.LaneTask: 3}}, func(w *world) {
				var y tally
				pawl.Handle(w.svc, "task", func(_ context.Context, task *pawl.Task[int]) (int, error) {
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

	t.Run("an answer that takes long makes no strangers", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			var y tally
			pawl.Handle(w.svc, "task", func(_ context.Context, task *pawl.Task[int]) (none, error) {
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
		bubble(t, pawl.Config{}, func(w *world) {
			var y tally
			pawl.Handle(w.svc, "task", func(_ context.Context, task *pawl.Task[int]) (none, error) {
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
			bubble(t, pawl.Config{Slots: map[job.Lane]int{job.LaneTask: 20}}, func(w *world) {
				var bad atomic.Pointer[job.ID]
				pawl.Handle(w.svc, "nap", func(context.Context, *pawl.Task[int]) (none, error) {
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

	// A kind of several steps goes on while its changes are on their way: the refused one may be any of them.
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
			cfg := pawl.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}}
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
		cfg := pawl.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}}
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
			bubble(t, pawl.Config{Slots: map[job.Lane]int{job.LaneTask: 20}}, func(w *world) {
				pawl.Handle(w.svc, "nap", func(context.Context, *pawl.Task[int]) (none, error) {
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
				c, err := w.svc.Count(context.Background())
				if err != nil || c[job.Failed] != 0 || c[job.Finished]+c[job.Pending] != 20 {
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

// TestLeaseLost: the store cannot be reached for longer than a lease.
func TestLeaseLost(t *testing.T) {
	const outage = 40 * time.Second // of a lease of 15
	down := func(calls ...string) func() fault {
		return func() fault {
			until := time.Now().Add(outage)
			return func(_ context.Context, call string, _ any) error {
				if time.Now().Before(until) && (calls == nil || slices.Contains(calls, call)) {
					return errDown
				}
				return nil
			}
		}
	}
	for _, row := range []struct {
		name  string
		fault func() fault
	}{
		{"nothing is answered", down()},
		{"no renewal is answered", down("renew")},
		{"nothing can be committed", down("apply")},
		{"calls hang", func() fault {
			until := time.Now().Add(outage)
			return func(ctx context.Context, _ string, _ any) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(until)):
					return nil
				}
			}
		}},
		{"claims hang, and nothing else is answered", func() fault {
			refuse := down()()
			until := time.Now().Add(outage)
			return func(ctx context.Context, call string, arg any) error {
				if call != "claim" {
					return refuse(ctx, call, arg)
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(until)):
					return nil
				}
			}
		}},
	} {
		t.Run("all jobs end after an outage in which "+row.name, func(t *testing.T) {
			bubble(t, pawl.Config{Slots: map[job.Lane]int{job.LaneTask: 5}}, func(w *world) {
				c, letGo := w.hold()
				var y tally
				pawl.Handle(w.svc, "task", func(_ context.Context, task *pawl.Task[int]) (none, error) {
					defer y.enter(task.Job.ID)()
					time.Sleep(time.Second)
					return none{}, nil
				})
				w.start()
				held := w.submit("hold", 3)
				w.at(held[2], job.Running, job.Worker)
				w.store.fail(row.fault(), nil)
				tasks := w.submit("task", 20)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				c.are(t, 3, pawl.ErrLeaseLost)
				time.Sleep(outage)
				close(letGo)
				w.finish(job.Finished, held...)
				w.finish(job.Finished, tasks...)
				for _, id := range held {
					if j := w.job(id); j.Attempt != 1 || j.Recoveries < 1 { // each session that is lost counts
						t.Errorf("attempt %d, %d recoveries", j.Attempt, j.Recoveries)
					}
				}
			})
		})
	}

	t.Run("a step that ignores it writes nothing and holds up nobody", func(t *testing.T) {
		bubble(t, pawl.Config{Slots: map[job.Lane]int{job.LaneTask: 1}}, func(w *world) {
			f := w.frozen()
			w.start()
			id := w.submit("freeze", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.store.fail(down()(), nil)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			f.causes.are(t, 1, pawl.ErrLeaseLost)
			w.finish(job.Finished, id)
			path := w.path(id)
			close(f.thaw)
			synctest.Wait()
			if diff := cmp.Diff(path, w.path(id)); diff != "" {
				t.Errorf("it wrote: %s", diff)
			}
			if j := w.job(id); string(j.Result) != "2" {
				t.Errorf("result %s, want that of the second run", j.Result)
			}
		})
	})

	t.Run("a short outage costs nothing", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 3)
			w.at(ids[2], job.Running, job.Worker)
			until := time.Now().Add(9 * time.Second)
			w.store.fail(func(context.Context, string, any) error {
				if time.Now().Before(until) {
					return errDown
				}
				return nil
			}, nil)
			time.Sleep(time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, ids...)
			if j := w.job(ids[0]); j.Recoveries != 0 {
				t.Errorf("%d recoveries", j.Recoveries)
			}
		})
	})

	t.Run("an expiry that cannot be carried out keeps no renewal waiting", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			c, letGo := w.hold()
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "expire" {
					return errDown
				}
				return nil
			}, nil)
			w.start()
			id := w.submit("hold", 1)[0]
			time.Sleep(2 * time.Minute)
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, id)
		})
	})

	t.Run("the jobs of a dead process are taken up when its lease ends", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			ids := w.submit("hold", 3)
			dead := store.Session{ID: job.NewID(), Process: "dead", Lease: time.Minute}
			ctx := context.Background()
			if err := w.store.Begin(ctx, dead); err != nil {
				t.Fatal(err)
			}
			_, err := w.store.Claim(ctx, store.Claim{
				ID: job.NewID(), Session: dead.ID, Queues: []string{job.DefaultQueue}, Kinds: []string{"hold"}, Slots: map[job.Lane]int{job.LaneTask: 9},
			})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.start()
			w.finish(job.Finished, ids...)
			if took := time.Since(began); took < time.Minute || took > time.Minute+10*time.Millisecond {
				t.Errorf("it took %v, want a minute and a little", took)
			}
		})
	})
}

func TestDuties(t *testing.T) {
	t.Run("one process has it, and the next one takes over", func(t *testing.T) {
		var holders, most atomic.Int64
		var terms sync.Map
		duty := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			most.Store(max(most.Load(), holders.Add(1)))
			terms.Store(h.Fence().Term, true)
			<-ctx.Done()
			holders.Add(-1)
			return ctx.Err()
		}}
		bubble(t, pawl.Config{Duties: []engine.Duty{duty}}, func(w *world) {
			w.start()
			synctest.Wait()
			cfg := w.cfg
			cfg.Broker = &local.Broker{}
			second := pawl.New(cfg)
			ctx, quit := context.WithCancel(context.Background())
			defer quit()
			ended := make(chan error)
			go func() { ended <- second.Run(ctx) }()
			time.Sleep(time.Minute)
			if n := holders.Load(); n != 1 {
				t.Errorf("%d hold the duty, want 1", n)
			}
			w.quit(nil)
			if err := w.end(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if n := holders.Load(); n != 1 {
				t.Errorf("%d hold the duty, want 1", n)
			}
			quit()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if holders.Load() != 0 || most.Load() != 1 {
				t.Errorf("%d hold the duty after the end, at most %d did at once", holders.Load(), most.Load())
			}
			for _, term := range []int64{1, 2} {
				if _, ok := terms.Load(term); !ok {
					t.Errorf("nobody had term %d", term)
				}
			}
		})
	})

	t.Run("it is lost with the lease and comes back under a new term", func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		duty := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%s %d", what, h.Fence().Term))
			}
			note("begin")
			<-ctx.Done()
			note("end")
			return errors.New("an error after the end is nobody's business")
		}}
		bubble(t, pawl.Config{Duties: []engine.Duty{duty}}, func(w *world) {
			w.start()
			synctest.Wait()
			until := time.Now().Add(30 * time.Second)
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if time.Now().Before(until) {
					return errDown
				}
				return nil
			}, nil)
			time.Sleep(2 * time.Minute)
			w.stop()
			if diff := cmp.Diff([]string{"begin 1", "end 1", "begin 2", "end 2"}, log); diff != "" {
				t.Error(diff)
			}
		})
	})

	t.Run("its error ends Run", func(t *testing.T) {
		broken := errors.New("broken")
		duty := engine.Duty{Name: "watch", Run: func(context.Context, *engine.Held) error { return broken }}
		bubble(t, pawl.Config{Duties: []engine.Duty{duty}}, func(w *world) {
			c, _ := w.hold()
			id := w.submit("hold", 1)[0]
			w.start()
			if err := w.end(); !errors.Is(err, broken) {
				t.Errorf("Run: %v", err)
			}
			w.noSession()
			if len(c.all) > 0 {
				c.are(t, 1, pawl.ErrLeaseLost)
			}
			w.at(id, job.Pending, job.Ready)
		})
	})

	t.Run("its holder moves the jobs in monitor, and nobody else", func(t *testing.T) {
		kind := kindFunc(func(ctx context.Context, r *engine.Run) engine.Outcome {
			switch r.Job.State {
			case job.ProcessingInputs:
				return engine.Next(job.StagingInputs)
			case job.StagingInputs:
				return engine.Next(job.StagingJob)
			case job.StagingJob:
				return engine.Next(job.SubmittingJob)
			case job.SubmittingJob:
				if err := r.Record(ctx, job.Entry{}, job.Patch{Intent: true}, nil); err != nil {
					return engine.Back()
				}
				return engine.Launched(job.Running)
			}
			return engine.Done(nil)
		})
		held := make(chan *engine.Held, 2)
		duty := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			held <- h
			<-ctx.Done()
			return nil
		}}
		cfg := pawl.Config{Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind}, Duties: []engine.Duty{duty}}
		bubble(t, cfg, func(w *world) {
			ctx := context.Background()
			told, err := w.broker.Subscribe(ctx, engine.WatchTopic("here"))
			if err != nil {
				t.Fatal(err)
			}
			defer told.Close()
			w.start()
			ids := w.programs(2)
			w.at(ids[0], job.Running, job.Monitor)
			w.at(ids[1], job.Running, job.Monitor)
			if len(told.Messages()) == 0 {
				t.Error("the watcher was not told")
			}
			end := func(h *engine.Held, id job.ID) store.Outcome {
				j := w.job(id)
				a, err := h.Apply(ctx, []job.Change{{
					Job: id, From: j.Guard(h.Fence()), Path: []job.Entry{{State: job.Archiving}}, To: job.Ready, Set: job.Patch{Over: true},
				}})
				if err != nil {
					t.Fatal(err)
				}
				return a[0].Outcome
			}
			w.store.fail(nil, lossy(2, "apply"))
			first := <-held
			if o := end(first, ids[0]); o != store.OK {
				t.Errorf("outcome %s", o)
			}
			w.finish(job.Finished, ids[0])
			w.stop()
			if o := end(first, ids[1]); o != store.Fenced {
				t.Errorf("outcome %s, want fenced: the duty is gone", o)
			}
			w.start()
			if o := end(<-held, ids[1]); o != store.OK {
				t.Errorf("outcome %s", o)
			}
			w.finish(job.Finished, ids[1])
		})
	})
}

func TestIdle(t *testing.T) {
	bubble(t, pawl.Config{Lease: 15 * time.Second, Sweep: time.Minute}, func(w *world) {
		_, letGo := w.hold()
		w.start()
		w.submit("hold", 3) // jobs at work are no work for the store
		time.Sleep(time.Minute)
		synctest.Wait()
		w.store.count()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"renew": 120, "due": 10, "recount": 10}, w.store.count()); diff != "" {
			t.Error(diff)
		}
		close(letGo)
	})
}

// TestForgotten: wake-ups that went to nobody. Another service on the same store stands for a process that died
// between its commit and its word of it.
func TestForgotten(t *testing.T) {
	t.Run("ready jobs are told of by the renewal", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			mute := w.mute()
			began := time.Now()
			answers, err := mute.Submit(context.Background(), pawl.Request{Spec: pawl.NewTask("hold", 1)})
			if err != nil {
				t.Fatal(err)
			}
			w.finish(job.Finished, answers[0].ID)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v, more than a renewal", took)
			}
		})
	})

	t.Run("a job that is due is found by the sweep", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			r := pawl.Request{Spec: pawl.NewTask("hold", 1)}
			delay(time.Second)(&r)
			answers, err := w.mute().Submit(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			w.finish(job.Finished, answers[0].ID)
			w.repairs = 1
		})
	})

	t.Run("unpaid follow-ups are told of by the renewal", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			w.start()
			first := w.submit("hold", 1, delay(time.Hour))[0]
			id := w.submit("hold", 1, after(first))[0]
			synctest.Wait()
			w.wish(w.mute().Cancel, first)
			w.at(id, job.Waiting, job.Gate)
			w.finish(job.Canceled, id)
			w.repairs = 1
		})
	})
}

// mute returns a service on the same store whose wake-ups reach nobody.
func (w *world) mute() *pawl.Service {
	cfg := w.cfg
	cfg.Broker = &local.Broker{}
	return pawl.New(cfg)
}
