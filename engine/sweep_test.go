package engine_test

import (
	"context"
	"errors"
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
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestIdle(t *testing.T) {
	bubble(t, service.Config{Options: engine.Options{Lease: 15 * time.Second, Sweep: time.Minute}}, func(w *world) {
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

// TestIdleTogether: with two processes one of them sweeps, and neither makes more statements than
// it would alone. When that one has gone, the other sweeps.
func TestIdleTogether(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		_, letGo := w.hold()
		close(letGo)
		w.start()
		synctest.Wait()
		other := w.beside()
		other.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.store.count()
		other.store.count()
		statements := w.store.Store.(*sqlite.Store).Statements
		before := statements()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"renew": 120, "due": 10, "recount": 10}, w.store.count()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int{"renew": 120}, other.store.count()); diff != "" {
			t.Error(diff)
		}
		if n := statements() - before; n != 140+120 {
			t.Errorf("%d statements in ten minutes, want 140 and 120", n)
		}
		w.quiet()
		time.Sleep(time.Minute)
		synctest.Wait()
		other.store.count()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"renew": 120, "due": 10, "recount": 10}, other.store.count()); diff != "" {
			t.Error(diff)
		}
		other.stop()
	})
}

// TestForgotten: wake-ups that went to nobody. Another service on the same store stands for a
// process that died between its commit and its word of it.
func TestForgotten(t *testing.T) {
	t.Run("ready jobs are told of by the renewal", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			began := time.Now()
			w.finish(job.Finished, w.silently())
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v, more than a renewal", took)
			}
		})
	})

	// later submits a job that nobody is told of, and returns how late it was run.
	later := func(w *world, d time.Duration) time.Duration {
		at := time.Now().Add(d)
		w.finish(job.Finished, w.silently(delay(d)))
		return time.Since(at)
	}

	t.Run("the process that sweeps hears when a job is due", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.start()
			synctest.Wait()
			if late := later(w, time.Second); late > 4*time.Second {
				t.Errorf("a job that was due before the next renewal was %v late", late)
			}
			if late := later(w, time.Minute); late != 0 {
				t.Errorf("a job that was due after a renewal was %v late", late)
			}
		})
	})

	t.Run("the other processes look when that one does not", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			s := w.dead(time.Hour, "sweep")
			w.start()
			synctest.Wait()
			if late := later(w, time.Minute); late <= 5*time.Second || late > 10*time.Second {
				t.Errorf("it was %v late, want more than one renewal and no more than two", late)
			}
			if _, err := w.store.End(context.Background(), s.ID); err != nil {
				t.Fatal(err)
			}
		})
	})

	t.Run("a job that is due is found by the sweep, when the renewals tell of none", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			_, letGo := w.hold()
			close(letGo)
			w.store.renewed = func(a *store.Renewal) { a.Due = time.Time{} }
			w.start()
			synctest.Wait()
			later(w, time.Second)
			w.repairs = 1
		})
	})

	// A process dies that had nothing in its hands; its lease ends between two renewals of another.
	for _, row := range []struct {
		name string
		left func(w *world) (id job.ID, before job.Place) // what it leaves behind 200 ms before
		want job.Place
	}{
		{"what a dead process owed is paid when its session is closed", func(w *world) (job.ID, job.Place) {
			first := w.submit("hold", 1, delay(time.Hour))[0]
			waits := w.submit("hold", 1, after(first))[0]
			w.wish(w.mute().Cancel, first)
			return waits, job.Place{State: job.Waiting, Custody: job.Gate}
		}, job.Place{State: job.Canceled, Custody: job.None}},
		{"what a dead process had put behind a gate is found when its session is closed", func(w *world) (job.ID, job.Place) {
			return w.silently(delay(100 * time.Millisecond)), job.Place{State: job.Waiting, Custody: job.Gate}
		}, job.Place{State: job.Finished, Custody: job.None}},
		{"what a dead process had made ready is found when its session is closed", func(w *world) (job.ID, job.Place) {
			return w.silently(), job.Place{State: job.Pending, Custody: job.Ready}
		}, job.Place{State: job.Finished, Custody: job.None}},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				_, letGo := w.hold()
				close(letGo)
				w.dead(58 * time.Second)
				sweeps := w.dead(time.Hour, "sweep")
				w.start()
				time.Sleep(58*time.Second - 200*time.Millisecond)
				id, before := row.left(w)
				time.Sleep(190 * time.Millisecond)
				w.at(id, before.State, before.Custody)
				time.Sleep(20 * time.Millisecond)
				w.at(id, row.want.State, row.want.Custody)
				if _, err := w.store.End(context.Background(), sweeps.ID); err != nil {
					t.Fatal(err)
				}
			})
		})
	}

	t.Run("who takes care of dead sessions tells those who serve what was made ready", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			other := w.beside()
			brokers := []*local.Broker{w.broker, other.broker}
			w.cfg.Roles, other.cfg.Roles = []store.Role{store.RoleWorker}, []store.Role{store.RoleRecovery}
			for _, one := range []*world{w, other} {
				one.cfg.Broker = hall{one.broker, brokers}
				one.svc = service.New(one.cfg)
			}
			_, letGo := w.hold()
			close(letGo)
			w.dead(58 * time.Second)
			w.start()
			other.start()
			time.Sleep(58*time.Second - 200*time.Millisecond)
			id := w.silently()
			time.Sleep(190 * time.Millisecond)
			w.at(id, job.Pending, job.Ready)
			time.Sleep(20 * time.Millisecond)
			w.at(id, job.Finished, job.None)
			other.quiet()
		})
	})

	t.Run("unpaid follow-ups are told of by the renewal", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			w.start()
			first := w.submit("hold", 1, delay(time.Hour))[0]
			id := w.submit("hold", 1, after(first))[0]
			synctest.Wait()
			owed := time.Now()
			w.wish(w.mute().Cancel, first)
			w.at(id, job.Waiting, job.Gate)
			w.finish(job.Canceled, id)
			if took := time.Since(owed); took <= 5*time.Second || took > 10*time.Second {
				t.Errorf("it took %v, want more than one renewal and no more than two", took)
			}
			w.unpaid = true
		})
	})
}

// TestPayers: another process has taken what is owed into its hands, and does not let go of it.
func TestPayers(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		_, letGo := w.hold()
		first := w.submit("hold", 1, delay(time.Hour))[0]
		waits := w.submit("hold", 1, after(first))[0]
		var free atomic.Bool
		w.store.busy = func() bool { return !free.Load() }
		w.start()
		synctest.Wait()
		w.store.count()
		w.wish(w.svc.Cancel, first)
		time.Sleep(time.Minute)
		w.unpaid = true
		w.at(waits, job.Waiting, job.Gate)
		if n := w.store.count()["pay"]; n > 25 {
			t.Errorf("asked to pay %d times in a minute", n)
		}

		// What is owed by others meanwhile is paid at once.
		free.Store(true)
		second := w.submit("hold", 1, delay(time.Hour))[0]
		other := w.submit("hold", 1, after(second))[0]
		w.wish(w.svc.Cancel, second)
		w.at(other, job.Canceled, job.None)
		w.at(waits, job.Canceled, job.None)
		close(letGo)
	})
}

// TestPayersLull: what may wait is paid after a while also where a payer has waited long for
// somebody else.
func TestPayersLull(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		_, letGo := w.hold()
		first := w.submit("hold", 1)[0]
		waits := w.submit("hold", 1, after(first))[0]
		due := w.submit("hold", 1, delay(time.Hour))[0]
		w.submit("hold", 1, after(due))
		var free atomic.Bool
		w.store.busy = func() bool { return !free.Load() }
		w.store.later = true
		w.start()
		synctest.Wait()
		w.wish(w.svc.Cancel, due)
		time.Sleep(time.Minute)
		w.unpaid = true
		free.Store(true)
		close(letGo)
		time.Sleep(store.FollowUpDelay)
		synctest.Wait()
		w.at(first, job.Finished, job.None)
		w.at(waits, job.Finished, job.None)
	})
}

// silently submits a task of the kind hold, and nobody is told.
func (w *world) silently(edit ...func(*service.Request)) job.ID {
	w.Helper()
	r := service.Request{Spec: service.NewTask("hold", 1)}
	for _, f := range edit {
		f(&r)
	}
	answers, err := w.mute().Submit(context.Background(), r)
	if err != nil {
		w.Fatal(err)
	}
	return answers[0].ID
}

// mute returns a service on the same store whose wake-ups reach nobody and that pays nothing, as if
// it died once it has committed.
func (w *world) mute() *service.Service {
	cfg := w.cfg
	cfg.Broker, cfg.Store = &local.Broker{}, unable{cfg.Store}
	return service.New(cfg)
}

// unable is a store of which nobody pays what is owed.
type unable struct{ store.Store }

func (unable) Pay(context.Context, int) (int, store.Effects, error) {
	return 0, store.Effects{}, job.Errorf(job.Unavailable, "who would pay has died")
}

// TestPaidAtOnce: a process that runs nothing pays all that it owes by itself, and nobody waits for
// a renewal.
func TestPaidAtOnce(t *testing.T) {
	const n = 1200 // more than one call of Pay lets go, or looks at for a limit
	tests := []struct {
		name string
		most int
		do   func(desk *service.Service, limit job.Limit, reqs []service.Request) error
	}{
		{"jobs, of which not all may go at once", 1, func(desk *service.Service, limit job.Limit, reqs []service.Request) error {
			_, err := desk.Submit(context.Background(), reqs[:2]...)
			return err
		}},
		{"more jobs than are let go at once", n - 100, func(desk *service.Service, limit job.Limit, reqs []service.Request) error {
			_, err := desk.Submit(context.Background(), reqs...)
			return err
		}},
		{"a limit that is raised", n - 100, func(desk *service.Service, limit job.Limit, reqs []service.Request) error {
			low := limit
			low.Most = 0
			err := desk.SetLimit(context.Background(), low)
			_, failed := desk.Submit(context.Background(), reqs...)
			return errors.Join(err, failed, desk.SetLimit(context.Background(), limit))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 2 * n}}}, func(w *world) {
				_, letGo := w.hold()
				w.start()
				synctest.Wait()
				desk := service.New(w.cfg)
				limit := job.Limit{Key: "gpu", Most: tt.most}
				if err := desk.SetLimit(context.Background(), limit); err != nil {
					t.Fatal(err)
				}
				reqs := make([]service.Request, n)
				for i := range reqs {
					reqs[i].Spec = service.NewTask("hold", i)
					reqs[i].Spec.Limits = []string{"gpu"}
				}
				began := time.Now()
				if err := tt.do(desk, limit, reqs); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				count, err := desk.Count(context.Background(), job.Filter{})
				if err != nil || count.States[job.Running] != tt.most {
					t.Errorf("%d jobs run after %v, and %d may; %v", count.States[job.Running], time.Since(began), tt.most, err)
				}
				close(letGo)
			})
		})
	}
}

// TestPaidTogether: what may wait is paid after a while, all at once, or with something that may
// not.
func TestPaidTogether(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		_, letGo := w.hold()
		first := w.submit("hold", 2)
		w.start()
		w.store.later = true
		var waits []job.ID
		for _, id := range first {
			waits = append(waits, w.submit("hold", 1, after(id))[0])
		}
		due := w.submit("hold", 1, delay(time.Hour))[0]
		urgent := w.submit("hold", 1, after(due))[0]
		soon := w.submit("hold", 1, delay(time.Minute))[0]
		along := w.submit("hold", 1, after(soon))[0]
		synctest.Wait()
		w.store.count()

		close(letGo)
		time.Sleep(store.FollowUpDelay - time.Millisecond)
		for i := range first {
			w.at(first[i], job.Finished, job.None)
			w.at(waits[i], job.Waiting, job.Gate)
		}
		time.Sleep(time.Millisecond)
		w.at(waits[0], job.Finished, job.None)
		w.at(waits[1], job.Finished, job.None)
		if n := w.store.count()["pay"]; n != 1 {
			t.Errorf("asked to pay %d times, want once", n)
		}

		time.Sleep(time.Minute - store.FollowUpDelay)
		w.at(soon, job.Finished, job.None)
		w.at(along, job.Waiting, job.Gate)
		w.wish(w.svc.Cancel, due)
		w.at(urgent, job.Canceled, job.None)
		w.at(along, job.Finished, job.None)
	})
}

// TestClocks: the clock of the database is another one than that of the process.
func TestClocks(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 20 * time.Millisecond, -20 * time.Millisecond, time.Millisecond / 2, -time.Millisecond / 2} {
		t.Run(ahead.String(), func(t *testing.T) {
			bubbleAhead(t, service.Config{}, ahead, func(w *world) {
				_, letGo := w.hold()
				close(letGo)
				w.start()
				synctest.Wait()
				if wrong := w.svc.Now().Sub(time.Now().Add(ahead)).Abs(); wrong >= time.Millisecond {
					t.Errorf("the time of the database is taken for another one: by %v", wrong)
				}
				w.store.count()
				began := time.Now()
				w.finish(job.Finished, w.submit("hold", 1, delay(12*time.Second))...)
				if took := time.Since(began); took < 12*time.Second || took > 12*time.Second+20*time.Millisecond {
					t.Errorf("it took %v, want 12 s", took)
				}
				if n := w.store.count()["due"]; n > 3 {
					t.Errorf("looked for it %d times", n)
				}
			})
		})
	}
}
