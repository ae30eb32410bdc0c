package storetest

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var advanceTests = []test{
	{"due times of a document are counted from when it was planned", advancePlans},
	{"an advance is made with its jobs, once", advanceOnce},
	{"of 16 advances at once one is made, with its jobs", advanceAtOnce},
	{"an advance into the future is refused", advanceFuture},
	{"a call that fails advances nothing", advanceFails},
	{"documents that are looked at next come first", advanceNext},
}

// planned writes a document of a schedule.
func planned(w *world, name string, version int64, plan store.Plan) store.Resource {
	w.Helper()
	r, err := w.s.Put(w.ctx, store.Resource{
		Tenant: acme, Kind: job.KindSchedule, Name: name, Version: version, Doc: json.RawMessage(`{}`), Plan: plan,
	})
	if err != nil {
		w.Fatalf("put: %v", err)
	}
	return r
}

func schedule(w *world, name string) store.Resource {
	w.Helper()
	r, err := store.FindResource(w.ctx, w.s, acme, job.KindSchedule, name)
	if err != nil {
		w.Fatalf("schedule %s: %v", name, err)
	}
	return r
}

// advance returns the advance of r by d.
func advance(r store.Resource, d time.Duration) *store.Advance {
	through := r.Through.Add(d)
	return &store.Advance{
		Kind: r.Kind, Name: r.Name, Version: r.Version, From: r.Through, Through: through, Next: through.Add(time.Hour),
	}
}

func count(w *world) int {
	w.Helper()
	page, err := w.s.List(w.ctx, store.Query{Tenant: acme})
	if err != nil {
		w.Fatalf("list: %v", err)
	}
	return len(page.Jobs)
}

func advancePlans(w *world) {
	r := planned(w, "s", 0, store.PlanAnew)
	if !r.Through.Equal(r.Updated) || !r.Next.Equal(r.Updated) || r.Plan != store.PlanKept {
		w.Errorf("planned anew: %+v", r)
	}
	if _, _, err := w.s.Submit(w.ctx, store.Submission{Tenant: acme, Advance: &store.Advance{
		Kind: r.Kind, Name: r.Name, Version: 1, From: r.Through, Through: r.Through, Trouble: "no queue",
	}}); err != nil {
		w.Fatalf("advance: %v", err)
	}
	if r = schedule(w, "s"); !r.Next.IsZero() || r.Trouble != "no queue" || r.Version != 1 {
		w.Errorf("advanced: %+v", r)
	}
	kept := planned(w, "s", 1, store.PlanKept)
	if !kept.Through.Equal(r.Through) || !kept.Next.IsZero() || kept.Trouble != "no queue" || kept.Version != 2 {
		w.Errorf("kept: %+v", kept)
	}
	if none := planned(w, "s", 2, store.PlanNone); !none.Through.IsZero() || !none.Next.IsZero() || none.Trouble != "" {
		w.Errorf("planned to be due never: %+v", none)
	}
	if again := planned(w, "s", 3, store.PlanAnew); again.Through.Before(r.Through) || again.Next.IsZero() {
		w.Errorf("planned anew: %+v", again)
	}
}

func advanceOnce(w *world) {
	r := planned(w, "s", 0, store.PlanAnew)
	to := advance(r, 0)
	w.clock.Advance(2 * time.Millisecond)
	to.Through = to.Through.Add(time.Millisecond)
	sub := store.Submission{Tenant: acme, Advance: to, Jobs: []store.New{newTask()}}
	sub.Jobs[0].Unique = []store.Unique{{Mode: job.UntilDone, Key: "schedule/s"}}
	got, _, err := w.s.Submit(w.ctx, sub)
	if err != nil || len(got) != 1 || got[0].Existed {
		w.Fatalf("submit: %+v, %v", got, err)
	}
	now := schedule(w, "s")
	if !now.Through.Equal(to.Through) || !now.Next.Equal(to.Next) || now.Version != r.Version {
		w.Errorf("advanced: %+v", now)
	}
	sub.Jobs = []store.New{newTask()}
	_, _, err = w.s.Submit(w.ctx, sub)
	w.kind(err, job.Fenced)
	sub.Advance = advance(now, 0)
	sub.Advance.Version++
	_, _, err = w.s.Submit(w.ctx, sub)
	w.kind(err, job.Fenced)
	sub.Advance.Name = "another"
	_, _, err = w.s.Submit(w.ctx, sub)
	w.kind(err, job.Fenced)
	sub.Advance = advance(now, 0)
	sub.Tenant = "another"
	_, _, err = w.s.Submit(w.ctx, sub)
	w.kind(err, job.Fenced)
	if n := count(w); n != 1 {
		w.Errorf("%d jobs, want 1", n)
	}
}

func advanceAtOnce(w *world) {
	for round := range 5 {
		r := planned(w, "s", int64(round), store.PlanAnew)
		w.clock.Advance(time.Millisecond)
		var won atomic.Int64
		w.together(16, func(i int) error {
			n := newTask()
			n.Job.Name = "writer-" + strconv.Itoa(i)
			if i%2 == 0 {
				n.Unique = []store.Unique{{Mode: job.UntilDone, Key: "round " + strconv.Itoa(round)}}
			}
			to := advance(r, time.Microsecond)
			to.Trouble = strconv.Itoa(i)
			_, _, err := w.s.Submit(w.ctx, store.Submission{Tenant: acme, Advance: to, Jobs: []store.New{n}})
			if err == nil {
				won.Add(1)
				return nil
			}
			if job.KindOf(err) == job.Fenced {
				return nil
			}
			return err
		})
		if won.Load() != 1 {
			w.Errorf("%d advances were made, want 1", won.Load())
		}
	}
	if n := count(w); n != 5 {
		w.Errorf("%d jobs, want 5", n)
	}
}

func advanceFuture(w *world) {
	r := planned(w, "s", 0, store.PlanAnew)
	_, _, err := w.s.Submit(w.ctx, store.Submission{
		Tenant: acme, Advance: advance(r, time.Hour), Jobs: []store.New{newTask()},
	})
	w.kind(err, job.Fenced)
	if now := schedule(w, "s"); !now.Through.Equal(r.Through) || !now.Next.Equal(r.Next) {
		w.Errorf("advanced: %+v", now)
	}
	if n := count(w); n != 0 {
		w.Errorf("%d jobs, want none", n)
	}
}

func advanceFails(w *world) {
	r := planned(w, "s", 0, store.PlanAnew)
	n := newTask()
	n.Refusal = job.Errorf(job.Invalid, "no such queue")
	_, _, err := w.s.Submit(w.ctx, store.Submission{Tenant: acme, Advance: advance(r, 0), Jobs: []store.New{n}})
	w.kind(err, job.Invalid)
	if now := schedule(w, "s"); !now.Through.Equal(r.Through) || !now.Next.Equal(r.Next) {
		w.Errorf("advanced: %+v", now)
	}
}

func advanceNext(w *world) {
	for i, name := range []string{"c", "a", "b", "never"} {
		r := planned(w, name, 0, store.PlanAnew)
		to := advance(r, 0)
		if to.Next = time.Date(2030, 1, 1, i, 0, 0, 0, time.UTC); name == "never" {
			to.Next = time.Time{}
		}
		if _, _, err := w.s.Submit(w.ctx, store.Submission{Tenant: acme, Advance: to}); err != nil {
			w.Fatalf("advance: %v", err)
		}
	}
	for _, n := range []int{2, 10} {
		found, err := w.s.Resources(w.ctx, store.ResourceQuery{Kind: job.KindSchedule, Next: n})
		if err != nil {
			w.Fatalf("resources: %v", err)
		}
		var names []string
		for _, r := range found {
			names = append(names, r.Name)
		}
		equal(w, "names", names, []string{"c", "a", "b"}[:min(n, 3)])
	}
}
