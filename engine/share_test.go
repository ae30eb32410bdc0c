package engine_test

import (
	"context"
	"fmt"
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

// A hall is the broker of one of several processes that all hear what one announces.
type hall struct {
	*local.Broker
	brokers []*local.Broker // of all
}

func (h hall) Announce(ctx context.Context, lines ...job.QueueKind) error {
	return h.each(func(b *local.Broker) error { return b.Announce(ctx, lines...) })
}

func (h hall) Publish(ctx context.Context, topic string, message []byte) error {
	return h.each(func(b *local.Broker) error { return b.Publish(ctx, topic, message) })
}

func (h hall) each(f func(*local.Broker) error) error {
	for _, b := range h.brokers {
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

// crew makes processes of w with so many slots each, which hear each other, and lets them run. naps
// counts the jobs that each of them was given; they take a minute.
func (w *world) crew(slots ...int) (all []*world, naps []*tally) {
	w.Helper()
	var brokers []*local.Broker
	for i := range slots {
		one := w
		if i > 0 {
			one = w.beside()
		}
		all, brokers = append(all, one), append(brokers, one.broker)
	}
	for i, one := range all {
		one.cfg.Broker, one.cfg.Slots = hall{one.broker, brokers}, map[job.Lane]int{job.LaneTask: slots[i]}
		one.svc = service.New(one.cfg)
		y := &tally{}
		service.Handle(one.svc, "nap", func(_ context.Context, task *service.Task[int]) (none, error) {
			defer y.enter(task.Job.ID)()
			time.Sleep(time.Minute)
			return none{}, nil
		})
		one.start()
		naps = append(naps, y)
		synctest.Wait() // the first was alone, and hears of the others
	}
	return all, naps
}

// lazy begins a session of a process that has ten slots and claims nothing, and returns what ends
// it.
func (w *world) lazy(kind string) (end func()) {
	w.Helper()
	s := store.Session{ID: job.NewID(), Lease: time.Hour, Process: store.Process{
		Queues: []string{job.DefaultQueue}, Kinds: []string{kind}, Slots: map[job.Lane]int{job.LaneTask: 10},
	}}
	if err := w.store.Begin(context.Background(), s); err != nil {
		w.Fatal(err)
	}
	return func() {
		if _, err := w.store.End(context.Background(), s.ID); err != nil {
			w.Fatal(err)
		}
	}
}

func TestShares(t *testing.T) {
	for _, test := range []struct {
		slots []int
		jobs  int
	}{
		{[]int{10, 10, 10}, 12},
		{[]int{10, 10, 10}, 1},
		{[]int{10, 10, 10, 10, 10}, 12},
		{[]int{20, 10}, 15},
		{[]int{10, 10}, 20},
		{[]int{4, 4}, 30},
	} {
		t.Run(fmt.Sprintf("%d long jobs for %v slots", test.jobs, test.slots), func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				all, naps := w.crew(test.slots...)
				ids := w.submit("nap", test.jobs)
				time.Sleep(time.Second)
				sum, slots := 0, 0
				for i, n := range test.slots {
					sum, slots = sum+naps[i].count(), slots+n
				}
				if sum != min(test.jobs, slots) {
					t.Errorf("%d jobs run, want %d", sum, min(test.jobs, slots))
				}
				for i, n := range test.slots {
					part := float64(n*min(test.jobs, slots)) / float64(slots)
					if got := naps[i].count(); float64(got) <= part-1 || float64(got) >= part+1 {
						t.Errorf("process %d has %d of %d jobs, its part is %.1f", i, got, test.jobs, part)
					}
				}
				w.finish(job.Finished, ids...)
				for _, other := range all[1:] {
					other.quiet()
				}
			})
		})
	}

	t.Run("one that is slow gets its share", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			all, naps := w.crew(10, 10, 10)
			var ids []job.ID
			for i, row := range []struct {
				jobs int
				late time.Duration // each way
				want int           // that it has then
			}{
				{jobs: 12, late: 10 * time.Millisecond, want: 4},
				{jobs: 6, late: 200 * time.Millisecond, want: 4}, // too slow
				{jobs: 3, late: time.Millisecond, want: 7},       // back in time: it is waited for again
				{jobs: 3, late: 10 * time.Millisecond, want: 8},
			} {
				late := func(_ context.Context, call string, _ any) error {
					if call == "demand" || call == "claim" {
						time.Sleep(row.late)
					}
					return nil
				}
				all[2].store.fail(late, late)
				ids = append(ids, w.submit("nap", row.jobs)...)
				time.Sleep(time.Second)
				if n := naps[2].count(); n != row.want {
					t.Errorf("round %d: it has %d jobs beside %d and %d of the others, want %d", i, n, naps[0].count(), naps[1].count(), row.want)
				}
			}
			w.finish(job.Finished, ids...)
			all[1].quiet()
			all[2].quiet()
		})
	})

	t.Run("what others leave is taken soon, and sooner the next time", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			defer w.lazy("nap")()
			_, naps := w.crew(10)
			var ids []job.ID
			for _, row := range []struct {
				jobs, atOnce int
				after        time.Duration // that the others run
			}{
				{jobs: 4, atOnce: 2, after: 155 * time.Millisecond},
				{jobs: 4, after: 15 * time.Millisecond},
				{jobs: 1, after: 15 * time.Millisecond},
				{jobs: 1, after: 155 * time.Millisecond},
			} {
				ids = append(ids, w.submit("nap", row.jobs)...)
				var got []int
				for _, d := range []time.Duration{0, row.after - time.Millisecond, 2 * time.Millisecond} {
					time.Sleep(d)
					synctest.Wait()
					got = append(got, naps[0].count()-len(ids)+row.jobs)
				}
				if !cmp.Equal(got, []int{row.atOnce, row.atOnce, row.jobs}) {
					t.Errorf("%d of %d jobs run at once, %d just before %v, and %d after it", got[0], row.jobs, got[1], row.after, got[2])
				}
				time.Sleep(2 * time.Second)
			}
			w.finish(job.Finished, ids...)
		})
	})

	for _, stream := range []struct {
		jobs         int
		every, takes time.Duration
	}{
		{jobs: 8, every: 100 * time.Millisecond, takes: time.Millisecond},
		{jobs: 1, every: 200 * time.Millisecond, takes: time.Second},
	} {
		t.Run(fmt.Sprintf("others are not waited for again and again: %d jobs of %v", stream.jobs, stream.takes), func(t *testing.T) {
			bubble(t, service.Config{Options: engine.Options{Slots: map[job.Lane]int{job.LaneTask: 10}}}, func(w *world) {
				defer w.lazy("blink")()
				began := time.Now()
				waits := make(chan time.Duration, 10000)
				service.Handle(w.svc, "blink", func(_ context.Context, task *service.Task[int]) (none, error) {
					waits <- time.Since(began) - time.Duration(task.Args)
					time.Sleep(stream.takes)
					return none{}, nil
				})
				w.start()
				synctest.Wait()
				for time.Since(began) < 10*time.Second {
					w.submit("blink", stream.jobs, func(r *service.Request) { r.Spec = service.NewTask("blink", int(time.Since(began))) })
					time.Sleep(stream.every)
				}
				time.Sleep(2 * time.Second)
				var long int
				for range len(waits) {
					d := <-waits
					if d > 155*time.Millisecond {
						t.Errorf("a job waited for %v", d)
					}
					if d > 35*time.Millisecond {
						long++
					}
				}
				if long > 3 {
					t.Errorf("%d jobs waited for long, want 3 at most", long)
				}
			})
		})
	}

	t.Run("what was left is not forgotten over another lane", func(t *testing.T) {
		bubble(t, service.Config{Options: engine.Options{Lease: time.Hour}}, func(w *world) {
			defer w.lazy("nap")()
			ids := w.suspects("nap", 1, job.AloneAt)
			_, naps := w.crew(10)
			time.Sleep(time.Minute - 3*time.Millisecond)
			ids = append(ids, w.submit("nap", 4)...)
			time.Sleep(200 * time.Millisecond)
			if n := naps[0].count(); n != 5 {
				t.Errorf("%d jobs were run, want 5", n)
			}
			w.finish(job.Finished, ids...)
		})
	})

	t.Run("a suspect is shared with nobody", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			ids := w.suspects("nap", 1, job.AloneAt)
			all, _ := w.crew(10, 10)
			w.finish(job.Finished, ids...)
			all[1].quiet()
		})
	})
}

// TestPassedOver: a claim gets nothing, because another process has locked the ready jobs; then
// that lets go of them, and tells nobody.
func TestPassedOver(t *testing.T) {
	for _, row := range []struct {
		name    string
		jobs    int
		held    time.Duration
		soon    time.Duration // after that they run
		claims  int           // until then
		earlier int           // jobs that make this process believe that there is work for all
	}{
		{name: "a few", jobs: 5, held: 20 * time.Millisecond, soon: 40 * time.Millisecond, claims: 12},
		{name: "more than there are slots", jobs: 30, held: 20 * time.Millisecond, soon: 40 * time.Millisecond, claims: 12},
		{name: "while there was work for all", jobs: 5, earlier: 30, held: 20 * time.Millisecond, soon: 100 * time.Millisecond, claims: 12},
		{name: "for long", jobs: 5, held: time.Minute, soon: 2 * time.Minute, claims: 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, service.Config{
				Options: engine.Options{Lease: time.Hour, Slots: map[job.Lane]int{job.LaneTask: 10}},
			}, func(w *world) {
				other := w.dead(24 * time.Hour)
				var ran tally
				service.Handle(w.svc, "blink", func(_ context.Context, task *service.Task[int]) (none, error) {
					ran.enter(task.Job.ID)()
					return none{}, nil
				})
				w.start()
				synctest.Wait()
				early := w.submit("blink", row.earlier)
				synctest.Wait()
				ran.each(t, 1, early...)
				free := time.Now().Add(row.held)
				w.store.locked = func() bool { return time.Now().Before(free) }
				w.store.count()
				ids := w.submit("blink", row.jobs)
				time.Sleep(row.soon)
				synctest.Wait()
				ran.each(t, 1, ids...)
				if n := w.store.count()["claim"]; n > row.claims {
					t.Errorf("%d claims, want %d at most", n, row.claims)
				}
				if _, err := w.store.End(context.Background(), other.ID); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
