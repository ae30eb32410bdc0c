package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
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

// rarely is for tests that last for days: sessions are renewed once an hour.
var rarely = service.Config{Options: engine.Options{Lease: 3 * time.Hour, Sweep: 24 * time.Hour}}

// A shelf is a kind whose jobs have files until these are removed. Its jobs never run: they are
// canceled before.
type shelf struct {
	mu      sync.Mutex
	removed []job.ID // guarded by mu: whose files were removed, by each call
	broken  job.ID   // guarded by mu: whose files cannot be removed
}

func (*shelf) Step(context.Context, *engine.Run) engine.Outcome { return engine.Back() }

func (s *shelf) Remove(_ context.Context, j *job.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.ID == s.broken {
		return errors.New("the disk is read-only")
	}
	s.removed = append(s.removed, j.ID)
	return nil
}

// breaks sets whose files cannot be removed.
func (s *shelf) breaks(id job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = id
}

// had returns whose files were removed since it was asked last.
func (s *shelf) had() []job.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.removed
	s.removed = nil
	slices.SortFunc(ids, func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// kept returns cfg with a process that also watches over the programs of the machine "here", which
// are on a shelf.
func kept(cfg service.Config) (service.Config, *shelf) {
	s := &shelf{}
	cfg.Machine, cfg.Kinds = "here", map[string]engine.Kind{job.KindApp: s}
	cfg.Roles = []store.Role{store.RoleWorker, store.RoleRecovery, store.RoleWatcher}
	return cfg, s
}

// canceled makes n programs of a service that were canceled now.
func (w *world) canceled(svc *service.Service, n int) []job.ID {
	w.Helper()
	reqs := make([]service.Request, n)
	for i := range reqs {
		reqs[i].Spec = job.Spec{Command: []string{"true"}, Delay: job.Duration(10000 * time.Hour)}
	}
	answers, err := svc.Submit(context.Background(), reqs...)
	if err != nil {
		w.Fatal(err)
	}
	ids := make([]job.ID, n)
	for i, a := range answers {
		ids[i] = a.ID
	}
	w.wish(svc.Cancel, ids...)
	return ids
}

// keep applies a retention.
func (w *world) keep(svc *service.Service, doc string) {
	w.Helper()
	if _, _, err := svc.Retentions().Apply(context.Background(), []byte(`{"name":"default",`+doc+`}`), service.AnyVersion); err != nil {
		w.Fatal(err)
	}
}

// keepKind applies a document of a kind of task.
func (w *world) keepKind(svc *service.Service, doc string) {
	w.Helper()
	if _, _, err := svc.Kinds().Apply(context.Background(), []byte(`{`+doc+`}`), service.AnyVersion); err != nil {
		w.Fatal(err)
	}
}

// there waits until everything has come to rest and checks which jobs are there.
func (w *world) there(want bool, ids ...job.ID) {
	w.Helper()
	synctest.Wait()
	found, err := w.store.Find(context.Background(), store.FindQuery{IDs: ids})
	if err != nil {
		w.Fatal(err)
	}
	if n := len(found); want && n != len(ids) || !want && n != 0 {
		w.Errorf("%d of %d jobs are there, want all: %t", n, len(ids), want)
	}
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRetain(t *testing.T) {
	t.Run("jobs go when they are kept no longer, each by its tenant and state", func(t *testing.T) {
		cfg, files := kept(rarely)
		bubble(t, cfg, func(w *world) {
			service.Handle(w.svc, "work", func(_ context.Context, task *service.Task[int]) (int, error) {
				if task.Args > 0 {
					return 0, service.Permanent(errors.New("no"))
				}
				return 0, nil
			})
			cfg := w.cfg
			cfg.Tenant = "other"
			other := service.New(cfg)
			w.keep(w.svc, `"keep":{"CANCELED":"2h","FAILED":"50h"}`)
			w.keep(other, `"keep":{"CANCELED":"30h"}`)
			w.start()
			ended := w.submit("work", 2)
			w.finish(job.Finished, ended[0])
			w.finish(job.Failed, ended[1])
			ours, theirs := w.canceled(w.svc, 1), w.canceled(other, 1)
			w.look = ended[:1]
			w.pass(90 * time.Minute)
			w.there(true, slices.Concat(ended, ours, theirs)...)
			w.pass(2 * time.Hour)
			w.there(false, ours...)
			w.there(true, slices.Concat(ended, theirs)...)
			w.pass(28 * time.Hour)
			w.there(false, theirs...)
			w.there(true, ended...)
			w.pass(20 * time.Hour)
			w.there(false, ended[1])
			w.pass(1000 * time.Hour)
			w.there(true, ended[0])
			if diff := cmp.Diff(slices.Concat(ours, theirs), files.had()); diff != "" {
				t.Errorf("files that were removed: %s", diff)
			}
			got := map[job.State]int64{}
			for _, s := range job.Ends {
				got[s] = w.svc.Removed(s)
			}
			if diff := cmp.Diff(map[job.State]int64{job.Finished: 0, job.Failed: 1, job.Canceled: 2}, got); diff != "" {
				t.Error(diff)
			}
		})
	})

	t.Run("a kind may have times of its own", func(t *testing.T) {
		cfg, _ := kept(rarely)
		bubble(t, cfg, func(w *world) {
			for _, kind := range []string{"work", "rare", "other"} {
				service.Handle(w.svc, kind, func(context.Context, *service.Task[int]) (int, error) { return 0, nil })
			}
			w.keep(w.svc, `"keep":{"FINISHED":"20h"}`)
			w.keepKind(w.svc, `"name":"work","keep":{"FINISHED":"2h"}`)
			w.keepKind(w.svc, `"name":"rare","keep":{"FINISHED":"100h"}`)
			w.start()
			ran := func(kind string) job.ID {
				id := w.submit(kind, 1)[0]
				w.finish(job.Finished, id)
				return id
			}
			for range 3 { // a look begins where the one before it was
				work, rare, other := ran("work"), ran("rare"), ran("other")
				w.look = nil
				w.pass(90 * time.Minute)
				w.there(true, work, rare, other)
				w.pass(2 * time.Hour)
				w.there(false, work)
				w.pass(16 * time.Hour)
				w.there(true, rare, other)
				w.pass(2 * time.Hour)
				w.there(false, other)
				w.there(true, rare)
				w.look = nil
			}
			rare := ran("rare")
			w.look = nil
			w.pass(30 * time.Hour)
			w.there(true, rare)
			w.keepKind(w.svc, `"name":"rare"`) // it has the tenant's again, also for jobs that were passed over
			w.there(false, rare)
			work := ran("work")
			w.look = nil
			w.keep(w.svc, `"keep":{"FINISHED":"20h"},"disabled":true`)
			w.pass(200 * time.Hour)
			w.there(true, work)
		})
	})

	t.Run("a document counts at once, and no longer when it is disabled or gone", func(t *testing.T) {
		cfg, _ := kept(rarely)
		bubble(t, cfg, func(w *world) {
			w.start()
			first := w.canceled(w.svc, 3)
			w.pass(24 * time.Hour)
			w.there(true, first...)
			w.keep(w.svc, `"keep":{"CANCELED":"30h"}`)
			w.there(true, first...)
			w.keep(w.svc, `"keep":{"CANCELED":"1h"},"disabled":true`)
			w.there(true, first...)
			if _, err := w.svc.Retentions().Disable(context.Background(), "default", false, service.AnyVersion); err != nil {
				t.Fatal(err)
			}
			w.there(false, first...)
			second := w.canceled(w.svc, 1)
			if err := w.svc.Retentions().Delete(context.Background(), "default", service.AnyVersion); err != nil {
				t.Fatal(err)
			}
			w.pass(24 * time.Hour)
			w.there(true, second...)
		})
	})

	t.Run("there are no more than some jobs to a step", func(t *testing.T) {
		cfg, files := kept(rarely)
		bubble(t, cfg, func(w *world) {
			ids := w.canceled(w.svc, 1200)
			w.pass(2 * time.Hour)
			w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
			most := 0
			w.store.fail(func(_ context.Context, call string, arg any) error {
				if ids, ok := arg.([]job.ID); ok && call == "remove" {
					most = max(most, len(ids))
				}
				return nil
			}, nil)
			w.start()
			w.there(false, ids...)
			if most != 500 || len(files.had()) != 1200 {
				t.Errorf("%d jobs were removed at once, want 500", most)
			}
			if n := w.store.count()["remove"]; n != 3 {
				t.Errorf("%d removals, want 3", n)
			}
		})
	})

	t.Run("jobs of another machine are left to it, until it has long been gone", func(t *testing.T) {
		cfg, files := kept(rarely)
		bubble(t, cfg, func(w *world) {
			theirs := w.cfg
			theirs.Machine = "there"
			s := store.Session{ID: job.NewID(), Process: store.Process{Host: "there", Machine: "there"}, Lease: time.Hour}
			if err := w.store.Begin(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.End(context.Background(), s.ID); err != nil {
				t.Fatal(err)
			}
			ids, ours := w.canceled(service.New(theirs), 600), w.canceled(w.svc, 2)
			w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
			w.start()
			w.pass(3 * time.Hour)
			w.there(true, ids...)
			w.there(false, ours...) // behind more than a step of the others
			w.pass(store.MachineKept - 5*time.Hour)
			w.there(true, ids...)
			w.pass(5 * time.Hour)
			w.there(false, ids...)
			if diff := cmp.Diff(ours, files.had()); diff != "" {
				t.Errorf("files that were removed: %s", diff)
			}
		})
	})

	t.Run("what cannot be removed holds up nobody, and is tried again", func(t *testing.T) {
		cfg, files := kept(rarely)
		var log bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		bubble(t, cfg, func(w *world) {
			ids := w.canceled(w.svc, 3)
			files.breaks(ids[1])
			w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
			w.start()
			w.pass(3 * time.Hour)
			w.there(false, ids[0], ids[2])
			w.there(true, ids[1])
			files.breaks(job.ID{})
			w.pass(time.Hour)
			w.there(false, ids...)
			for _, want := range []string{"left=1 error=\"the disk is read-only\"", "CANCELED=2", "CANCELED=1"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("no %s in the log:\n%s", want, &log)
				}
			}
			if strings.Contains(log.String(), ids[1].String()) {
				t.Errorf("the log names a job:\n%s", &log)
			}
		})
	})

	t.Run("a removal that came to a halt between files and rows goes on", func(t *testing.T) {
		// Three duties ask for all resources when they begin.
		for call, n := range map[string]int{"remove": 2, "overdue": 2, "all resources": 3} {
			t.Run(call, func(t *testing.T) {
				cfg, _ := kept(rarely)
				bubble(t, cfg, func(w *world) {
					ids := w.canceled(w.svc, 3)
					w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
					w.pass(2 * time.Hour)
					w.store.fail(lossy(n, call), nil)
					w.start()
					w.there(true, ids...)
					w.pass(2 * time.Hour)
					w.there(false, ids...)
				})
			})
		}
	})

	t.Run("jobs that another process removes meanwhile are not counted", func(t *testing.T) {
		cfg, _ := kept(rarely)
		var log bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		bubble(t, cfg, func(w *world) {
			ids := w.canceled(w.svc, 2)
			w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
			w.pass(2 * time.Hour)
			w.store.fail(func(ctx context.Context, call string, _ any) error {
				if call == "remove" {
					_, err := w.store.Store.Remove(ctx, "default", ids[:1])
					return err
				}
				return nil
			}, nil)
			w.start()
			w.there(false, ids...)
			if n := w.svc.Removed(job.Canceled); n != 1 {
				t.Errorf("%d jobs were removed, want 1", n)
			}
			if strings.Contains(log.String(), "not all jobs") {
				t.Errorf("it is a failure for the log:\n%s", &log)
			}
		})
	})

	t.Run("the name of a job that was removed is free again", func(t *testing.T) {
		cfg, _ := kept(rarely)
		bubble(t, cfg, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.keep(w.svc, `"keep":{"FINISHED":"1h"}`)
			w.start()
			known := func(r *service.Request) { r.Spec.ExternalID = "x" }
			first := w.submit("hold", 1, known)[0]
			w.finish(job.Finished, first)
			if again := w.submit("hold", 1, known, func(r *service.Request) { r.ID = job.NewID() })[0]; again != first {
				t.Errorf("job %s was made beside %s", again, first)
			}
			w.pass(3 * time.Hour)
			w.there(false, first)
			second := w.submit("hold", 1, known)[0]
			w.finish(job.Finished, second)
			w.there(true, second)
			w.look = []job.ID{second}
		})
	})

	t.Run("a document that cannot be read keeps all of its tenant", func(t *testing.T) {
		cfg, _ := kept(rarely)
		bubble(t, cfg, func(w *world) {
			cfg := w.cfg
			cfg.Tenant = "other"
			other := service.New(cfg)
			bad := store.Resource{Tenant: "default", Kind: job.KindRetention, Name: "default", Doc: []byte(`{"name":"default","keep":{"CANCELED":"1h"},"until":"1h"}`)}
			if _, err := w.store.Put(context.Background(), bad); err != nil {
				t.Fatal(err)
			}
			w.keep(other, `"keep":{"CANCELED":"1h"}`)
			ours, theirs := w.canceled(w.svc, 1), w.canceled(other, 1)
			w.start()
			w.pass(3 * time.Hour)
			w.there(true, ours...)
			w.there(false, theirs...)
		})
	})

	t.Run("only those remove whose part it is", func(t *testing.T) {
		for name, change := range map[string]func(*service.Config){
			"a worker":                func(c *service.Config) { c.Roles = []store.Role{store.RoleWorker} },
			"a process for some jobs": func(c *service.Config) { c.Only = []job.ID{job.NewID()} },
			"a watcher of another":    func(c *service.Config) { c.Machine, c.Roles = "elsewhere", []store.Role{store.RoleWatcher} },
			"recovery, of a program":  func(c *service.Config) { c.Roles = []store.Role{store.RoleRecovery} },
		} {
			t.Run(name, func(t *testing.T) {
				cfg, _ := kept(rarely)
				bubble(t, cfg, func(w *world) {
					s := store.Session{ID: job.NewID(), Process: store.Process{Host: "here", Machine: "here"}, Lease: 1000 * time.Hour}
					if err := w.store.Begin(context.Background(), s); err != nil {
						t.Fatal(err)
					}
					ids := w.canceled(w.svc, 1)
					w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
					change(&w.cfg)
					w.svc = service.New(w.cfg)
					w.start()
					w.pass(5 * time.Hour)
					w.there(true, ids...)
					if _, err := w.store.End(context.Background(), s.ID); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	})
}

// TestRetainIdle: where no tenant says how long jobs are kept, and where none is kept for too long.
func TestRetainIdle(t *testing.T) {
	cfg, _ := kept(rarely)
	bubble(t, cfg, func(w *world) {
		w.start()
		w.canceled(w.svc, 10)
		w.pass(time.Minute)
		for _, want := range []map[string]int{{"all resources": 50}, {"all resources": 50, "overdue": 20}} {
			w.store.count()
			w.pass(10 * time.Hour)
			got := w.store.count()
			for _, loop := range []string{"renew", "due", "recount"} {
				delete(got, loop)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("calls in ten hours, for a machine and for none: %s", diff)
			}
			w.keep(w.svc, `"keep":{"CANCELED":"1000h"}`)
			synctest.Wait()
		}
	})
}

// TestRetainTogether: of two processes one removes, and when it ends the other.
func TestRetainTogether(t *testing.T) {
	cfg, _ := kept(rarely)
	bubble(t, cfg, func(w *world) {
		w.keep(w.svc, `"keep":{"CANCELED":"1h"}`)
		w.start()
		synctest.Wait()
		other := w.beside()
		other.start()
		first := w.canceled(w.svc, 1)
		w.pass(3 * time.Hour)
		w.there(false, first...)
		if n := w.svc.Removed(job.Canceled); n != 1 {
			t.Errorf("the first has removed %d, want 1", n)
		}
		w.quiet()
		second := w.canceled(w.svc, 1)
		w.pass(3 * time.Hour)
		w.there(false, second...)
		if n := other.svc.Removed(job.Canceled); n != 1 {
			t.Errorf("the other has removed %d, want 1", n)
		}
		other.stop()
	})
}
