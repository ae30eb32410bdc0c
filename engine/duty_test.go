package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

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
		bubble(t, service.Config{Options: engine.Options{Duties: []engine.Duty{duty}}}, func(w *world) {
			w.start()
			synctest.Wait()
			cfg := w.cfg
			cfg.Broker = &local.Broker{}
			second := service.New(cfg)
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
		bubble(t, service.Config{Options: engine.Options{Duties: []engine.Duty{duty}}}, func(w *world) {
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
		bubble(t, service.Config{Options: engine.Options{Duties: []engine.Duty{duty}}}, func(w *world) {
			c, _ := w.hold()
			id := w.submit("hold", 1)[0]
			w.start()
			if err := w.end(); !errors.Is(err, broken) {
				t.Errorf("Run: %v", err)
			}
			w.noSession()
			if len(c.all) > 0 {
				c.are(t, 1, service.ErrLeaseLost)
			}
			w.at(id, job.Pending, job.Ready)
		})
	})

	t.Run("one that comes is taken, and one that goes is left", func(t *testing.T) {
		var begun, left chan string // of the bubble
		type list struct {
			all     []engine.Duty
			changed chan struct{}
		}
		var wanted atomic.Pointer[list]
		want := func(names ...string) {
			now := &list{changed: make(chan struct{})}
			for _, name := range names {
				now.all = append(now.all, engine.Duty{Name: name, Run: func(ctx context.Context, _ *engine.Held) error {
					begun <- name
					<-ctx.Done()
					left <- name
					return nil
				}})
			}
			if was := wanted.Swap(now); was != nil {
				close(was.changed)
			}
		}
		cfg := service.Config{Options: engine.Options{VaryingDuties: func() ([]engine.Duty, <-chan struct{}) {
			now := wanted.Load()
			return now.all, now.changed
		}}}
		bubble(t, cfg, func(w *world) {
			begun, left = make(chan string, 2), make(chan string, 2)
			want("watch/a")
			w.start()
			if name := <-begun; name != "watch/a" {
				t.Errorf("begun: %s", name)
			}
			before := time.Now()
			want("watch/b")
			if name := <-left; name != "watch/a" {
				t.Errorf("left: %s", name)
			}
			if name, waited := <-begun, time.Since(before); name != "watch/b" || waited > 0 {
				t.Errorf("begun: %s, after %v in virtual time", name, waited)
			}
		})
	})
	t.Run("its machine is silent, and all processes see since when", func(t *testing.T) {
		var says chan error // of the bubble
		duty := engine.Duty{Name: "watch/a", Run: func(ctx context.Context, h *engine.Held) error {
			for {
				select {
				case err := <-says:
					h.Silent(err)
				case <-ctx.Done():
					h.Silent(errors.New("what a holder says that has lost the duty is nothing"))
					return nil
				}
			}
		}}
		bubble(t, service.Config{Options: engine.Options{Duties: []engine.Duty{duty}}}, func(w *world) {
			says = make(chan error)
			w.start()
			is := func(want map[string]store.Silence) {
				t.Helper()
				synctest.Wait() // and no time passes
				all, err := w.store.Sessions(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, all[0].Process.Silent); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
			says <- nil
			is(nil)
			since := time.Now().UTC()
			says <- errors.New("refused")
			is(map[string]store.Silence{"watch/a": {Since: since, Message: "refused"}})
			time.Sleep(time.Hour)
			says <- errors.New("it does not answer")
			is(map[string]store.Silence{"watch/a": {Since: since, Message: "it does not answer"}})
			says <- nil
			is(nil)
			says <- errors.New("refused")
			w.stop()
			w.start()
			is(nil)
		})
	})
	t.Run("its holder moves the jobs in monitor, and nobody else", func(t *testing.T) {
		kind := submitting(engine.Next(job.SubmittingJob), func(ctx context.Context, r *engine.Run) engine.Outcome {
			if err := r.Record(ctx, job.Entry{}, job.Patch{Intent: true}, nil); err != nil {
				return engine.Back()
			}
			return engine.Launched(job.Running)
		})
		held := make(chan *engine.Held, 2)
		duty := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			held <- h
			<-ctx.Done()
			return nil
		}}
		cfg := service.Config{
			Machine: "here", Kinds: map[string]engine.Kind{job.KindApp: kind},
			Options: engine.Options{Duties: []engine.Duty{duty}},
		}
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
