package recovery_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery/fake"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// These tests are of what is known to go wrong where a group is one record that all its jobs share,
// and a process remembers how it stands.

// hour is a block that is tested every minute, and for which a job waits for an hour.
func hour() *job.Block {
	b := on("lab")
	b.Policy.MaxWait = job.Duration(time.Hour)
	return b
}

// A process that is started anew on the database that the last one left knows since when a job
// waits: it waits for no longer.
func TestRestartStretchesNoDeadline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		open := func() *sqlite.Store {
			st, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		st := open()
		w := newWorld(t, service.Config{Store: st})
		w.start()
		id := w.blocked("x", hour())
		for range 5 { // each by far too early for a deadline that began with the process
			pass(10 * time.Minute)
			w.stop()
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			st = open()
			w.cfg.Store = st
			w.svc = w.service(w.cfg)
			w.start()
		}
		defer func() { st.Close() }()
		pass(10*time.Minute - time.Second)
		w.is(id, job.Blocked)
		pass(2 * time.Second)
		w.is(id, job.Failed)
		if j := w.job(w.svc, id); j.Code != job.RecoveryTimeout || !strings.Contains(j.Message, "its group was tested 59 times") && !strings.Contains(j.Message, "its group was tested 60 times") {
			t.Errorf("%s: %s", j.Code, j.Message)
		}
		w.stop()
	})
}

// Who joins late inherits neither the time that others have waited nor the tests that were made for
// them; and who fails fails alone.
func TestWhoJoinsLateHasAllHisTime(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		b := hour()
		b.Policy.Stages = []job.Stage{{Every: job.Duration(time.Minute), Times: 60}} // and that is the end of it
		first := w.blocked("x", b)
		pass(59*time.Minute + 30*time.Second)
		late := w.blocked("y", b)
		pass(31 * time.Second)
		w.is(first, job.Failed)
		w.is(late, job.Blocked)
		before := len(w.tester.Calls("lab"))
		pass(58 * time.Minute)
		w.is(late, job.Blocked)
		if n := len(w.tester.Calls("lab")) - before; n < 57 {
			t.Errorf("%d tests were made for who joined late, in 58 minutes", n)
		}
		w.tester.Set("lab", fake.Knobs{Up: true})
		pass(time.Minute)
		w.is(late, job.Finished)
	})
}

// Who blocks at once each time that he is let go does not have the others go in storms: the group
// slows down.
func TestReblockingIsNoStorm(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.tester.Set("lab", fake.Knobs{Up: true}) // and yet nobody gets on
		w.set("x", on("lab"))
		const n = 100
		for range n {
			w.submit(w.svc, "x")
		}
		pass(time.Hour)
		count, err := w.svc.Count(context.Background(), job.Filter{})
		if err != nil || count.States[job.Blocked] != n {
			t.Fatalf("%v, %v", count.States, err)
		}
		released := 0
		for _, j := range w.jobs() {
			released += j.Recoveries
		}
		if tests := len(w.tester.Calls("lab")); tests > 60 || tests < 58 {
			t.Errorf("%d tests within an hour, of a policy of one a minute", tests)
		}
		// Each test finds it clear, and at full rate hundreds would go until the next one.
		if released > 2*60 || released == 0 {
			t.Errorf("%d jobs were let go within an hour, to be blocked again", released)
		}
	})
}

// Thousands of jobs that one condition blocks are one group, that is tested once at a time, goes at
// its rate, and costs no memory per job. It is not parallel: the memory of other tests would count.
func TestManyOnOneCondition(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	all := 3000
	if testenv.Long() {
		all = 10_000
	}
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		w := newWorld(t, service.Config{Store: st})
		w.start()
		w.set("x", on("lab"))
		block := func(n int) {
			for n > 0 {
				reqs := make([]service.Request, min(n, 500))
				for i := range reqs {
					reqs[i].Spec = service.NewTask("work", "x")
				}
				if _, err := w.svc.Submit(context.Background(), reqs...); err != nil {
					t.Fatal(err)
				}
				n -= len(reqs)
			}
			synctest.Wait()
		}
		count := func(s job.State) int {
			c, err := w.svc.Count(context.Background(), job.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			return c.States[s]
		}
		block(all / 5) // what is made once is there by then
		few := heap()
		block(all - all/5)
		if n := count(job.Blocked); n != all {
			t.Fatalf("%d jobs are blocked", n)
		}
		if more := heap() - few; more > int64(256*(all-all/5)) { // jobs that are kept are more than 500 bytes each
			t.Errorf("%d more blocked jobs take %d kB of memory", all-all/5, more>>10)
		}
		if groups, err := w.svc.Blocked(context.Background()); err != nil || len(groups) != 1 || groups[0].Jobs != all {
			t.Errorf("%d groups, %v", len(groups), err)
		}
		pass(5*time.Minute + time.Second)
		if n := len(w.tester.Calls("lab")); n != 5 {
			t.Errorf("%d tests in five minutes", n)
		}
		w.set("x", nil)
		w.tester.Set("lab", fake.Knobs{Up: true})
		pass(time.Minute)
		if n := count(job.Finished); n > 10 {
			t.Errorf("%d went at once", n)
		}
		began := count(job.Finished)
		for minute := 1; minute <= 3; minute++ { // no more than 10 in any second
			pass(time.Minute)
			if n := count(job.Finished) - began; n < 540*minute || n > 600*minute {
				t.Errorf("%d have gone within %d min", n, minute)
			}
		}
		if n := len(w.tester.Calls("lab")); n != 6 {
			t.Errorf("%d tests, want one more, which found it clear", n)
		}
		w.stop()
	})
}

// heap is how much memory is in use. What a sync.Pool holds goes with the second collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// jobs lists all jobs.
func (w *world) jobs() []job.Job {
	w.Helper()
	var all []job.Job
	for q := (store.Query{}); ; {
		page, err := w.svc.List(context.Background(), q)
		if err != nil {
			w.Fatal(fmt.Errorf("list: %w", err))
		}
		all = append(all, page.Jobs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}
