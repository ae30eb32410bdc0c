package service_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// onDisk returns a service on a database of its own, which runs nothing.
func onDisk(t *testing.T, wrap ...func(store.Store) store.Store) *service.Service {
	t.Helper()
	db, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var st store.Store = db
	for _, w := range wrap {
		st = w(st)
	}
	return service.New(service.Config{Store: st, Broker: &local.Broker{}, Machine: "m1"})
}

// Who only looks for a run begins none.
func TestFindRun(t *testing.T) {
	svc, ctx := onDisk(t), t.Context()
	run := service.FileRun{Path: "/home/ada/job.yaml", Sum: "1"}
	ask := func(find bool) service.FileAnswer {
		t.Helper()
		run := run
		run.Find = find
		a, err := svc.RunFile(ctx, run, together("", task("mail", 0), task("mail", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(true); a.Jobs != nil {
		t.Errorf("found %v before there was a run", a.Jobs)
	}
	if list, err := svc.List(ctx, store.Query{}); err != nil || len(list.Jobs) > 0 {
		t.Errorf("%v, %v", list.Jobs, err)
	}
	begun := ask(false)
	if a := ask(true); begun.Existed || !slices.Equal(a.Jobs, begun.Jobs) || !a.Existed {
		t.Errorf("%+v was found, of %+v", a, begun)
	}
	if _, err := svc.Cancel(ctx, begun.Jobs...); err != nil {
		t.Fatal(err)
	}
	if a := ask(true); a.Jobs != nil {
		t.Errorf("found %v of a run that has ended", a.Jobs)
	}
}

func TestRunFile(t *testing.T) {
	ctx := context.Background()
	runs := func(t *testing.T, svc *service.Service, run service.FileRun, jobs int) service.FileAnswer {
		t.Helper()
		reqs := make([]service.Request, jobs)
		for i := range reqs {
			reqs[i] = task("mail", i)
		}
		a, err := svc.RunFile(ctx, run, together("", reqs...))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Jobs) != jobs {
			t.Fatalf("%d jobs for %d requests", len(a.Jobs), jobs)
		}
		for _, id := range a.Jobs {
			if _, err := svc.Job(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		return a
	}
	end := func(t *testing.T, svc *service.Service, ids ...job.ID) {
		t.Helper()
		if _, err := svc.Cancel(ctx, ids...); err != nil {
			t.Fatal(err)
		}
	}
	one := service.FileRun{Path: "/home/ada/job.yaml", Sum: "1"}
	two := service.FileRun{Path: one.Path, Sum: "2"}

	t.Run("a call for another run that is repeated makes no more of them", func(t *testing.T) {
		svc := onDisk(t)
		first := runs(t, svc, one, 2)
		again := service.FileRun{Path: one.Path, Sum: one.Sum, New: true, Call: "c1"}
		second := runs(t, svc, again, 2)
		if slices.Equal(first.Jobs, second.Jobs) {
			t.Error("no other run was made")
		}
		if third := runs(t, svc, again, 2); !slices.Equal(second.Jobs, third.Jobs) {
			t.Errorf("repeated it answers %v, was %v", third.Jobs, second.Jobs)
		}
		again.Call = "c2"
		if other := runs(t, svc, again, 2); slices.Equal(second.Jobs, other.Jobs) {
			t.Error("another call makes no other run")
		}
	})
	t.Run("the same bytes are the same jobs while one of them has not ended", func(t *testing.T) {
		svc := onDisk(t)
		a := runs(t, svc, one, 2)
		if a.Existed || len(a.Older) > 0 {
			t.Errorf("the first run: %+v", a)
		}
		end(t, svc, a.Jobs[0])
		if b := runs(t, svc, one, 2); !b.Existed || !slices.Equal(b.Jobs, a.Jobs) || len(b.Older) > 0 {
			t.Errorf("%+v after %+v", b, a)
		}
		end(t, svc, a.Jobs[1])
		if b := runs(t, svc, one, 2); b.Existed || b.Jobs[0] == a.Jobs[0] || len(b.Older) > 0 {
			t.Errorf("all have ended, and yet %+v after %+v", b, a)
		}
	})
	t.Run("other bytes, another file and a new run are other jobs; the older ones are named", func(t *testing.T) {
		svc := onDisk(t)
		a := runs(t, svc, one, 2)
		end(t, svc, a.Jobs[0])
		b := runs(t, svc, two, 1)
		if b.Existed || len(b.Older) != 1 || b.Older[0].Sum != "1" || !slices.Equal(b.Older[0].Jobs, a.Jobs[1:]) {
			t.Errorf("%+v after %+v", b, a)
		}
		again := two
		again.New = true
		c := runs(t, svc, again, 1)
		if c.Existed || len(c.Older) != 2 || c.Older[0].Jobs[0] != b.Jobs[0] || c.Older[1].Jobs[0] != a.Jobs[1] {
			t.Errorf("%+v after %+v", c, b)
		}
		if d := runs(t, svc, two, 1); !d.Existed || d.Jobs[0] != c.Jobs[0] {
			t.Errorf("the newest run is %+v, not %+v", c, d)
		}
		if d := runs(t, svc, service.FileRun{Path: "/home/ada/other.yaml", Sum: "1"}, 2); d.Existed || len(d.Older) > 0 {
			t.Errorf("another file: %+v", d)
		}
	})
	t.Run("many at once submit one run", func(t *testing.T) {
		svc := onDisk(t)
		answers := make([]service.FileAnswer, 16)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				a, err := svc.RunFile(ctx, one, together("", task("mail", 1), task("mail", 2)))
				if err != nil {
					t.Error(err)
				}
				answers[i] = a
			})
		}
		all.Wait()
		first := 0
		for _, a := range answers {
			if !slices.Equal(a.Jobs, answers[0].Jobs) {
				t.Errorf("%v and %v", a.Jobs, answers[0].Jobs)
			}
			if !a.Existed {
				first++
			}
		}
		if page, err := svc.List(ctx, store.Query{}); err != nil || len(page.Jobs) != 2 || first != 1 {
			t.Errorf("%d jobs, and %d say that they submitted them; %v", len(page.Jobs), first, err)
		}
	})
	t.Run("a crash before the submit loses nothing", func(t *testing.T) {
		dying := &deadly{}
		svc := onDisk(t, func(s store.Store) store.Store { dying.Store = s; return dying })
		dying.dead = true
		if _, err := svc.RunFile(ctx, one, together("", task("mail", 1))); job.KindOf(err) != job.Closed {
			t.Fatal(err)
		}
		dying.dead = false
		other := runs(t, svc, two, 1) // the run that was not submitted is remembered, and is nobody's older one
		if len(other.Older) > 0 {
			t.Errorf("older: %+v", other.Older)
		}
		a := runs(t, svc, one, 1)
		if a.Existed || a.Jobs[0] != dying.meant[0] {
			t.Errorf("submitted %+v, noted was %v", a, dying.meant)
		}
		if b := runs(t, svc, one, 1); !b.Existed || b.Jobs[0] != a.Jobs[0] {
			t.Errorf("%+v after %+v", b, a)
		}
	})
	t.Run("a wrong request leaves nothing behind", func(t *testing.T) {
		svc := onDisk(t)
		if _, err := svc.RunFile(ctx, one, together("", task("mail", 1), service.Request{})); job.KindOf(err) != job.Invalid {
			t.Fatal(err)
		}
		if a := runs(t, svc, one, 1); a.Existed {
			t.Errorf("%+v", a)
		}
	})
	t.Run("an external id stands for its job", func(t *testing.T) {
		svc := onDisk(t)
		spec := service.NewTask("mail", 1)
		spec.ExternalID = "once"
		a, err := svc.RunFile(ctx, one, together("", service.Request{Spec: spec}))
		if err != nil {
			t.Fatal(err)
		}
		end(t, svc, a.Jobs...)
		b, err := svc.RunFile(ctx, one, together("", service.Request{Spec: spec}))
		if err != nil || !b.Existed || b.Jobs[0] != a.Jobs[0] {
			t.Errorf("%+v after %+v, %v", b, a, err)
		}
	})
}

// deadly is a store whose process dies before a submit.
type deadly struct {
	store.Store
	dead  bool
	meant []job.ID
}

func (d *deadly) Submit(ctx context.Context, s store.Submission) ([]store.Submitted, store.Effects, error) {
	if d.dead {
		for _, n := range s.Jobs {
			d.meant = append(d.meant, n.Job.ID)
		}
		return nil, store.Effects{}, job.Errorf(job.Closed, "dead")
	}
	return d.Store.Submit(ctx, s)
}
