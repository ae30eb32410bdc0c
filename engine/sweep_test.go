package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
)

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
