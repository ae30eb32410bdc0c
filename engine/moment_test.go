package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// launching is a kind whose programs end as soon as they are launched.
func launching() map[string]engine.Kind {
	return map[string]engine.Kind{job.KindApp: submitting(engine.Next(job.SubmittingJob), func(ctx context.Context, r *engine.Run) engine.Outcome {
		if err := r.Launch(ctx); err != nil {
			return engine.Back()
		}
		return engine.Requeue(job.Archiving).Set(job.Patch{Over: true})
	})}
}

// paced is a process that runs such programs.
func paced() service.Config { return service.Config{Machine: "here", Kinds: launching()} }

const (
	starts   = "starts/system/local"
	launches = "launches/system/local"
)

// rate sets a rate.
func (w *world) rate(key string, most int, per time.Duration) *job.Limit {
	w.Helper()
	l := job.Limit{Key: key, Most: most, Per: job.Duration(per)}
	if err := w.svc.SetLimit(context.Background(), l); err != nil {
		w.Fatal(err)
	}
	return &l
}

// launched returns when programs were launched, by the database's clock: those launches are left
// out whose moment had passed.
func (w *world) launched(ids ...job.ID) []time.Time {
	w.Helper()
	return w.times(ids, func(e job.Event) bool { return e.Message == job.Launching })
}

// begun returns when jobs went on to the step that follows the first one.
func (w *world) begun(ids ...job.ID) []time.Time {
	w.Helper()
	return w.times(ids, func(e job.Event) bool { return e.State == job.StagingInputs })
}

func (w *world) times(ids []job.ID, is func(job.Event) bool) (at []time.Time) {
	w.Helper()
	for _, id := range ids {
		var last time.Time
		for _, e := range w.history(id) {
			if is(e) {
				last = e.At
			}
		}
		if !last.IsZero() {
			at = append(at, last)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// within fails the test where some time of the length of the rate holds more than it allows.
func within(t testing.TB, l *job.Limit, at []time.Time) {
	t.Helper()
	for i, first := range at {
		if j := i + l.Most; j < len(at) && at[j].Sub(first) < time.Duration(l.Per) {
			t.Errorf("%d within %v, %s: %v", l.Most+1, at[j].Sub(first), l.Terms(), at[i:j+1])
			return
		}
	}
}

func TestMoments(t *testing.T) {
	t.Run("launches come evenly, and no moment is left out", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			const n = 100
			l := w.rate(launches, 8, 2*time.Second)
			w.start()
			ids := w.programs(n)
			w.finish(job.Finished, ids...)
			at := w.launched(ids...)
			within(t, l, at)
			if d := at[n-1].Sub(at[0]); d != (n-1)*l.Every() {
				t.Errorf("%d launches took %v, want %v", n, d, (n-1)*l.Every())
			}
		})
	})

	t.Run("jobs begin evenly, and no moment is left out", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			const n = 30
			l := w.rate("starts/system/*", 10, 2*time.Second)
			w.start()
			ids := w.programs(n)
			w.finish(job.Finished, ids...)
			at := w.begun(ids...)
			within(t, l, at)
			if d := at[n-1].Sub(at[0]); d != (n-1)*l.Every() {
				t.Errorf("%d jobs began in %v, want %v", n, d, (n-1)*l.Every())
			}
		})
	})

	t.Run("under both, and with turns", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			s, l := w.rate(starts, 4, time.Second), w.rate(launches, 1, time.Second)
			if err := w.svc.SetLimit(context.Background(), job.Limit{Key: "system/local", Most: 3, Ahead: 2}); err != nil {
				t.Fatal(err)
			}
			w.start()
			ids := w.programs(40)
			w.finish(job.Finished, ids...)
			at := w.launched(ids...)
			within(t, s, w.begun(ids...))
			within(t, l, at)
			if d := at[39].Sub(at[0]); d != 39*l.Every() {
				t.Errorf("40 launches took %v, want %v", d, 39*l.Every())
			}
		})
	})

	t.Run("without a rate a program asks twice, and a task never", func(t *testing.T) {
		cfg := paced()
		cfg.Kinds["send"] = kindFunc(func(context.Context, *engine.Run) engine.Outcome { return engine.Done(nil) })
		bubble(t, cfg, func(w *world) {
			w.start()
			w.finish(job.Finished, w.submit("send", 100)...)
			if n := w.store.count()["reserve"]; n != 0 {
				t.Errorf("tasks asked %d times", n)
			}
			w.finish(job.Finished, w.programs(1)...)
			if n := w.store.count()["reserve"]; n != 2 {
				t.Errorf("a program asked %d times", n)
			}
		})
	})

	t.Run("those that come together ask together", func(t *testing.T) {
		cfg := paced()
		cfg.Slots = map[job.Lane]int{job.LanePrepare: 50, job.LaneLaunch: 50, job.LaneFinish: 50}
		bubble(t, cfg, func(w *world) {
			w.store.fail(slow(50*time.Millisecond, "reserve"), nil)
			w.start()
			w.finish(job.Finished, w.programs(50)...)
			if n := w.store.count()["reserve"]; n > 8 {
				t.Errorf("50 programs asked %d times", n)
			}
		})
	})

	t.Run("far from its moment a job waits in the gate, and says so", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			l := w.rate(launches, 1, time.Minute)
			w.start()
			ids := w.programs(1)
			w.finish(job.Finished, ids[0])
			since := time.Now().Local().Format(time.RFC3339)
			for i := range 3 { // one after the other, so that they ask in this order
				ids = append(ids, w.programs(1)...)
				w.at(ids[i+1], job.SubmittingJob, job.Gate)
			}
			v, err := w.svc.View(context.Background(), ids[1])
			if want := "waits for its moment to be launched on system local (at most 1 within 1m0s), since " + since + ", due in 1m0s"; err != nil || v.Why != want {
				t.Errorf("%q, %v; want %q", v.Why, err, want)
			}
			w.wish(w.svc.Cancel, ids[2])
			w.wish(w.svc.Pause, ids[3])
			w.at(ids[2], job.Canceled, job.None)
			w.at(ids[3], job.Paused, job.User)
			w.wish(w.svc.Resume, ids[3])
			w.finish(job.Finished, ids[1], ids[3])
			at := w.launched(ids...)
			within(t, l, at)
			if d := at[2].Sub(at[0]); d != 3*l.Every() { // that of the third is lost
				t.Errorf("the last was launched %v after the first", d)
			}
		})
	})

	t.Run("a rate that is raised or removed lets them go at once", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			w.rate(launches, 1, time.Hour)
			w.start()
			ids := w.programs(1)
			w.finish(job.Finished, ids[0])
			ids = append(ids, w.programs(11)...)
			for _, id := range ids[1:] {
				w.at(id, job.SubmittingJob, job.Gate)
			}
			l := w.rate(launches, 2, 10*time.Second)
			w.finish(job.Finished, ids[:6]...)
			at := w.launched(ids...)
			within(t, l, at)
			if d := time.Since(at[0]); d > time.Minute {
				t.Errorf("that took %v", d)
			}
			if err := w.svc.RemoveLimit(context.Background(), launches); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.finish(job.Finished, ids...)
			if d := time.Since(at[0]); d > time.Minute {
				t.Errorf("that took %v", d)
			}
		})
	})

	t.Run("a moment that was missed is asked for anew", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			l := w.rate(launches, 8, 2*time.Second)
			w.store.fail(slow(150*time.Millisecond, "apply"), nil) // each intent comes too late
			w.start()
			id := w.programs(1)[0]
			w.finish(job.Finished, id)
			if n := w.job(id).Launch; n != 2 {
				t.Errorf("%d launches were recorded, want one that was too late, and the last, which had more room", n)
			}
			w.store.fail(slow(30*time.Millisecond, "reserve", "apply"), nil)
			ids := w.programs(20)
			w.finish(job.Finished, ids...)
			within(t, l, w.launched(ids...))
			for _, id := range ids {
				if j := w.job(id); j.Launch != 1 {
					t.Errorf("%d launches", j.Launch)
				}
			}
		})
	})

	t.Run("however slow the database is, no moment is used that was missed", func(t *testing.T) {
		cfg := paced()
		cfg.Slots = map[job.Lane]int{job.LanePrepare: 10, job.LaneLaunch: 10, job.LaneFinish: 10}
		bubble(t, cfg, func(w *world) {
			l := w.rate(launches, 3, 2*time.Second)
			w.rate(starts, 3, time.Second)
			n, calls := 0, atomic.Int64{}
			w.store.fail(func(ctx context.Context, call string, arg any) error {
				d := time.Duration(calls.Add(997)%3000) * time.Millisecond
				return slow(d, "reserve", "apply")(ctx, call, arg)
			}, nil)
			w.start()
			ids := w.programs(10)
			w.finish(job.Finished, ids...)
			within(t, l, w.launched(ids...))
			for _, id := range ids {
				n += w.job(id).Launch
			}
			if n <= len(ids) {
				t.Errorf("%d launches of %d programs: none was late", n, len(ids))
			}
		})
	})

	t.Run("who waits in the gate keeps its room", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			l := w.rate(launches, 1, time.Minute)
			w.store.fail(slow(2*time.Second, "reserve"), nil) // too slow for 100 ms, for 200 and for 500
			w.start()
			ids := w.programs(5)
			w.finish(job.Finished, ids...)
			at := w.launched(ids...)
			within(t, l, at)
			if d := at[4].Sub(at[0]); d > 40*l.Every() {
				t.Errorf("5 launches took %v", d)
			}
		})
	})

	t.Run("lost answers cost moments, and nothing else", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			l, s := w.rate(launches, 8, 2*time.Second), w.rate(starts, 10, 2*time.Second)
			w.store.fail(lossy(5, "reserve"), lossy(5, "reserve"))
			w.start()
			ids := w.programs(40)
			w.finish(job.Finished, ids...)
			within(t, l, w.launched(ids...))
			within(t, s, w.begun(ids...))
		})
	})

	t.Run("several processes", func(t *testing.T) {
		bubble(t, paced(), func(w *world) {
			const n = 60
			l := w.rate(launches, 20, 2*time.Second)
			var wg sync.WaitGroup
			others := make([]*world, 3)
			for i := range others {
				others[i] = w.beside()
				others[i].cfg.Broker = w.broker
				others[i].svc = service.New(others[i].cfg)
				others[i].start()
			}
			w.start()
			ids := w.programs(n)
			w.count(job.Finished, n)
			at := w.launched(ids...)
			within(t, l, at)
			if d := at[n-1].Sub(at[0]); d > n*l.Every() {
				t.Errorf("%d launches took %v, want about %v", n, d, n*l.Every())
			}
			for _, o := range others {
				wg.Go(o.quiet)
			}
			wg.Wait()
		})
	})
}

// slow is a fault that makes calls take their time.
func slow(d time.Duration, calls ...string) fault {
	return func(ctx context.Context, call string, _ any) error {
		if slices.Contains(calls, call) {
			time.Sleep(d)
		}
		return nil
	}
}

// TestAnyPace: whatever the rates, the turns and the trouble, no program begins or is launched
// before its time, and all of them go.
func TestAnyPace(t *testing.T) {
	seeds := testenv.Times(10, 40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			virtual.Test(t, func(t *testing.T) { anyPace(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func anyPace(t *testing.T, r *rand.Rand) {
	w := &world{T: t, store: &faulty{Store: fake.New(nil), calls: map[string]int{}}, broker: &local.Broker{}, cfg: paced()}
	w.cfg.Store, w.cfg.Broker, w.cfg.Log = w.store, w.broker, slog.New(slog.DiscardHandler)
	w.svc = service.New(w.cfg)
	reserve, apply := time.Duration(r.IntN(40))*time.Millisecond, time.Duration(r.IntN(30))*time.Millisecond
	late := r.IntN(4) == 0 // moments are missed
	if late {
		reserve, apply = time.Duration(r.IntN(2000))*time.Millisecond, time.Duration(r.IntN(2000))*time.Millisecond
	}
	lose := lossy(r.IntN(5), "reserve")
	w.store.fail(func(ctx context.Context, call string, arg any) error {
		return cmp.Or(slow(reserve, "reserve")(ctx, call, arg), slow(apply, "apply")(ctx, call, arg))
	}, lose)
	draw := func(key string) *job.Limit {
		return w.rate(key, 1+r.IntN(20), time.Duration(1+r.IntN(5000))*time.Millisecond)
	}
	l, s := draw(launches), draw(starts)
	if turns := r.IntN(5); turns > 0 {
		if err := w.svc.SetLimit(t.Context(), job.Limit{Key: "system/local", Most: turns}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	defer w.stop()
	ids := w.programs(1 + r.IntN(30))
	for range r.IntN(4) {
		id := ids[r.IntN(len(ids))]
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		w.svc.Pause(t.Context(), id) // it may have ended; the same below
		time.Sleep(time.Second)
		w.svc.Resume(t.Context(), id)
	}
	w.finish(job.Finished, ids...)
	within(t, l, w.launched(ids...))
	if !late { // else when a job began is not when that was written down
		within(t, s, w.begun(ids...))
	}
	for _, id := range ids {
		if j := w.job(id); j.Launch > 1 && !late {
			t.Errorf("%d launches, and none can be late", j.Launch)
		}
	}
	storetest.Check(t, w.store, "default")
}
