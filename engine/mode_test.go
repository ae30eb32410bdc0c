package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// tell tells the only process that lives.
func (w *world) tell(c store.Mode) {
	w.Helper()
	if _, err := w.svc.SetMode(context.Background(), w.worker().ID, c); err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

// worker is the only process that lives.
func (w *world) worker() service.Worker {
	w.Helper()
	all, err := w.svc.Workers(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	var live []service.Worker
	for _, x := range all {
		if x.State != service.WorkerEnded && x.State != service.WorkerGone {
			live = append(live, x)
		}
	}
	if len(live) != 1 {
		w.Fatalf("%d processes live, want 1: %+v", len(live), all)
	}
	return live[0]
}

func TestModes(t *testing.T) {
	t.Run("a process that drains claims nothing more, and goes on when told to", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 2}}}, func(w *world) {
			c, letGo := w.hold()
			w.start()
			first := w.submit("hold", 1)[0]
			w.at(first, job.Running, job.Worker)
			w.tell(store.Drain)
			second := w.submit("hold", 1)[0]
			time.Sleep(time.Hour)
			w.at(first, job.Running, job.Worker)
			w.at(second, job.Pending, job.Ready)
			if got := w.worker(); got.State != service.WorkerDraining || got.Held != 1 ||
				got.Slots[job.LaneTask] != (service.Slots{Used: 1, All: 2}) {
				t.Errorf("it shows %+v", got)
			}
			c.are(t, 0, nil)
			close(letGo)
			w.finish(job.Finished, first)
			time.Sleep(time.Hour)
			w.at(second, job.Pending, job.Ready)
			w.tell(store.Work)
			w.finish(job.Finished, second)
		})
	})

	t.Run("a lost message costs one renewal", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Lease: 15 * time.Second}}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			began := time.Now()
			// nobody is woken
			if _, err := w.store.SetMode(context.Background(), w.worker().ID, store.Stop); err != nil {
				t.Fatal(err)
			}
			if err := w.end(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it ended after %v, want a renewal at most", took)
			}
			w.noSession()
		})
	})

	t.Run("a process that is told to stop ends when what runs has ended", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: time.Minute}}, func(w *world) {
			_, letGo := w.hold()
			w.start()
			ids := w.submit("hold", 3)
			synctest.Wait()
			w.tell(store.Stop)
			late := w.submit("hold", 1)[0]
			time.Sleep(time.Hour) // more than the grace
			for _, id := range ids {
				w.at(id, job.Running, job.Worker)
			}
			if got := w.worker(); got.State != service.WorkerStopping {
				t.Errorf("it shows %s", got.State)
			}
			close(letGo)
			if err := w.end(); err != nil {
				t.Errorf("Run: %v", err)
			}
			w.noSession()
			for _, id := range ids {
				w.at(id, job.Finished, job.None)
			}
			w.at(late, job.Pending, job.Ready)
			w.start() // it is a new one, which was told nothing
			w.finish(job.Finished, late)
		})
	})

	t.Run("a process that claims nothing stops too", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Roles: []store.Role{store.RoleAPI}}}, func(w *world) {
			w.start()
			synctest.Wait()
			w.tell(store.Stop)
			if err := w.end(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})

	t.Run("a context that ends does not wait for what runs", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Grace: -1}}, func(w *world) {
			c, _ := w.hold()
			w.start()
			id := w.submit("hold", 1)[0]
			w.at(id, job.Running, job.Worker)
			w.tell(store.Stop)
			w.stop()
			c.are(t, 1, service.ErrInterrupted)
			w.at(id, job.Pending, job.Ready)
		})
	})

	t.Run("who loses its lease has not forgotten what it was told", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			w.tell(store.Drain)
			before := w.worker().ID
			w.store.fail(func(_ context.Context, call string, _ any) error {
				if call == "renew" {
					return errDown
				}
				return nil
			}, nil)
			time.Sleep(20 * time.Second)
			w.store.fail(nil, nil)
			time.Sleep(time.Minute)
			id := w.submit("hold", 1)[0]
			time.Sleep(time.Minute)
			if got := w.worker(); got.ID == before || got.State != service.WorkerDraining {
				t.Errorf("session %s after %s is %s", got.ID, before, got.State)
			}
			w.at(id, job.Pending, job.Ready)
			w.tell(store.Work)
			w.finish(job.Finished, id)
		})
	})
}

func TestRoles(t *testing.T) {
	t.Run("a process that is no worker claims nothing", func(t *testing.T) {
		bubble(t, service.Config{
			Options: engine.Options{Roles: []store.Role{store.RoleAPI, store.RoleRecovery}},
		}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			ids := w.submit("hold", 2, delay(time.Minute))
			time.Sleep(time.Hour)
			for _, id := range ids {
				w.at(id, job.Pending, job.Ready) // which took the clock
			}
			if n := w.store.count()["claim"]; n != 0 {
				t.Errorf("%d claims", n)
			}
			if got := w.worker(); len(got.Kinds) != 0 || len(got.Slots) != 0 {
				t.Errorf("it shows kinds %v, slots %v", got.Kinds, got.Slots)
			}
		})
	})

	t.Run("a process that is no recovery looks after nothing but its own", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Roles: []store.Role{store.RoleWorker}}}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			first := w.submit("hold", 1)[0]
			next := w.submit("hold", 1, after(first))[0]
			w.finish(job.Finished, first, next) // what its own jobs owe is paid
			time.Sleep(time.Hour)
			calls := w.store.count()
			for _, call := range []string{"due", "expire", "recount"} {
				if calls[call] != 0 {
					t.Errorf("%d calls of %s", calls[call], call)
				}
			}
		})
	})

	t.Run("one that is narrowed to tenants runs their jobs only", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Tenants: []string{"other"}}}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			cfg := w.cfg
			cfg.Tenant = "other"
			ids, err := service.New(cfg).Submit(context.Background(), service.Request{Spec: service.NewTask("hold", 1)})
			if err != nil {
				t.Fatal(err)
			}
			mine := w.submit("hold", 1)[0]
			w.start()
			time.Sleep(time.Minute)
			w.at(mine, job.Pending, job.Ready)
			if j, err := store.FindJob(context.Background(), w.store, "other", ids[0].ID); err != nil ||
				j.State != job.Finished {
				t.Errorf("%s, %v", j.State, err)
			}
		})
	})
}

func TestProcess(t *testing.T) {
	t.Run("it tells who it is, and what has changed with the next renewal", func(t *testing.T) {
		var address atomic.Value
		address.Store("")
		cfg := service.Config{
			Machine: "m1", Queues: []string{"default", "night"},
			Options: engine.Options{
				Version: "1.2.3", Slots: map[job.Lane]int{job.LaneTask: 2, job.LaneFinish: 1},
				Address: func() string { return address.Load().(string) },
			},
		}
		bubble(t, cfg, func(w *world) {
			_, letGo := w.hold()
			w.start()
			synctest.Wait()
			want := store.Process{
				Version: "1.2.3", Machine: "m1", Queues: []string{"default", "night"}, Kinds: []string{"hold"},
				Roles: []store.Role{store.RoleWorker, store.RoleRecovery}, Slots: map[job.Lane]int{job.LaneTask: 2},
			}
			is := func() {
				t.Helper()
				got := w.worker().Process
				if got.Host == "" || got.PID == 0 {
					t.Errorf("host %q, pid %d", got.Host, got.PID)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Process{}, "Host", "PID")); diff != "" {
					t.Errorf("(-want +told)\n%s", diff)
				}
			}
			is()
			var mu sync.Mutex
			told := 0 // renewals that tell something
			w.store.fail(func(_ context.Context, call string, arg any) error {
				if r, ok := arg.(store.Renew); ok && (r.Process != nil || r.Used != nil) {
					mu.Lock()
					defer mu.Unlock()
					told++
				}
				return nil
			}, nil)
			address.Store("http://here")
			time.Sleep(time.Minute)
			want.Address = "http://here"
			is()
			id := w.submit("hold", 1)[0]
			time.Sleep(time.Minute)
			if got := w.worker(); got.Slots[job.LaneTask] != (service.Slots{Used: 1, All: 2}) || got.Oldest == nil ||
				got.Oldest.ID != id {
				t.Errorf("it shows %+v", got)
			}
			close(letGo)
			w.finish(job.Finished, id)
			time.Sleep(time.Minute)
			if got := w.worker(); got.Slots[job.LaneTask] != (service.Slots{All: 2}) || got.Oldest != nil {
				t.Errorf("it shows %+v", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if told != 3 {
				t.Errorf("%d renewals told something, want 3: the address, and a slot twice", told)
			}
		})
	})

	t.Run("other queues are told at once", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			if _, _, err := w.svc.Queues().Apply(context.Background(), []byte(`{"name":"night"}`),
				service.AnyVersion); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if diff := cmp.Diff([]string{"default", "night"}, w.worker().Queues); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestDrainedDuty(t *testing.T) {
	var mu sync.Mutex
	var holder string // guarded by mu
	duty := func(name string) []engine.Duty {
		return []engine.Duty{{Name: "watch", Run: func(ctx context.Context, _ *engine.Held) error {
			mu.Lock()
			holder = name
			mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}}}
	}
	has := func(w *world, want string) {
		w.Helper()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if holder != want {
			w.Errorf("%s has the duty, want %s", holder, want)
		}
	}
	bubble(t, service.Config{Options: engine.Options{Duties: duty("first")}}, func(w *world) {
		w.start()
		has(w, "first")
		first := w.worker().ID
		w.tell(store.Drain)
		time.Sleep(time.Hour)
		has(w, "first") // nobody else is there

		cfg := w.cfg
		cfg.Duties = duty("second")
		second := service.New(cfg)
		ctx, quit := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- second.Run(ctx) }()
		has(w, "second")
		time.Sleep(time.Hour)
		has(w, "second")
		if _, err := w.svc.SetMode(context.Background(), first, store.Work); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Hour)
		has(w, "second")
		quit()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		time.Sleep(time.Minute)
		has(w, "first")
	})
}
