package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A hall is the broker of one of several processes that all hear what one announces.
type hall struct {
	*local.Broker
	brokers []*local.Broker // of all
}

func (h hall) Announce(ctx context.Context, lines ...job.Line) error {
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

// crew makes processes of w with so many slots each, which hear each other, and lets them run. naps counts the jobs that
// each of them was given; they take a minute.
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
		one.svc = pawl.New(one.cfg)
		y := &tally{}
		pawl.Handle(one.svc, "nap", func(_ context.Context, task *pawl.Task[int]) (none, error) {
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
			bubble(t, pawl.Config{}, func(w *world) {
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

	t.Run("what others leave is taken soon", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			lazy := store.Session{ID: job.NewID(), Lease: time.Hour, Process: store.Process{
				Queues: []string{job.DefaultQueue}, Kinds: []string{"nap"}, Slots: map[job.Lane]int{job.LaneTask: 10},
			}}
			if err := w.store.Begin(context.Background(), lazy); err != nil {
				t.Fatal(err)
			}
			_, naps := w.crew(10)
			ids := w.submit("nap", 8)
			synctest.Wait()
			got := []int{naps[0].count()}
			time.Sleep(time.Second / 10)
			if got = append(got, naps[0].count()); !cmp.Equal(got, []int{4, 8}) {
				t.Errorf("%d jobs run at first and then %d, want 4 and 8", got[0], got[1])
			}
			w.finish(job.Finished, ids...)
			if _, err := w.store.End(context.Background(), lazy.ID); err != nil {
				t.Fatal(err)
			}
		})
	})

	t.Run("a suspect is shared with nobody", func(t *testing.T) {
		bubble(t, pawl.Config{}, func(w *world) {
			ids := w.suspects("nap", 1, job.AloneAt)
			all, _ := w.crew(10, 10)
			w.finish(job.Finished, ids...)
			all[1].quiet()
		})
	})
}

// TestPassedOver: a claim gets nothing, because another process has locked the ready jobs; then that lets go of them, and
// tells nobody.
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
			bubble(t, pawl.Config{Lease: time.Hour, Slots: map[job.Lane]int{job.LaneTask: 10}}, func(w *world) {
				other := w.dead(24 * time.Hour)
				var ran tally
				pawl.Handle(w.svc, "blink", func(_ context.Context, task *pawl.Task[int]) (none, error) {
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
