package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// launcher is a kind whose jobs run somewhere else.
type launcher struct{}

func (launcher) Step(_ context.Context, r *engine.Run) engine.Outcome {
	switch r.Job.State {
	case job.ProcessingInputs:
		return engine.Next(job.StagingInputs)
	case job.StagingInputs:
		return engine.Next(job.StagingJob)
	case job.StagingJob:
		return engine.Next(job.SubmittingJob)
	}
	return engine.Launched(job.Running)
}

func TestObeyed(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		ctx, stop := context.WithCancel(context.Background())
		say := make(chan func(*job.Job, job.Fence) job.Change)
		var id job.ID
		watch := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			for {
				select {
				case change := <-say:
					j, err := store.FindJob(ctx, db, "default", id)
					if err != nil {
						return err
					}
					answers, err := h.Apply(ctx, []job.Change{change(&j, h.Fence())})
					if err != nil || answers[0].Outcome != store.OK && answers[0].Outcome != store.Diverted {
						t.Errorf("%+v, %v", answers, err)
					}
				case <-ctx.Done():
					return nil
				}
			}
		}}
		svc := service.New(service.Config{
			Store: db, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Kinds: map[string]engine.Kind{"far": launcher{}}, Options: engine.Options{Duties: []engine.Duty{watch}},
		})
		id = submit(t, svc, task("far", 0))[0].ID
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if j, err := svc.Job(ctx, id); err != nil || j.Custody != job.Monitor {
			t.Fatalf("%s, %v", j.Place, err)
		}
		// obeyed asks within a minute. What the watcher has to say in that time is said in the
		// middle of it.
		obeyed := func(w job.Wish, want bool, changes ...func(*job.Job, job.Fence) job.Change) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, testenv.Patience)
			defer cancel()
			answer := make(chan bool, 1)
			go func() {
				done, err := svc.Obeyed(ctx, id, w)
				if err != nil {
					t.Error(err)
				}
				answer <- done
			}()
			synctest.Wait()
			for _, c := range changes {
				say <- c
			}
			if got := <-answer; got != want {
				t.Errorf("%s is obeyed: %t, want %t", w, got, want)
			}
		}
		wish := func(f func(context.Context, ...job.ID) ([]store.Wished, error)) {
			t.Helper()
			if answers, err := f(ctx, id); err != nil || answers[0].Err != nil {
				t.Fatalf("%+v, %v", answers, err)
			}
		}
		stays := func(message string) func(*job.Job, job.Fence) job.Change {
			return func(j *job.Job, f job.Fence) job.Change {
				return job.Change{
					Job: j.ID, From: j.Guard(f),
					Path: []job.Entry{{State: j.State, Message: message}}, To: job.Monitor,
				}
			}
		}
		over := func(j *job.Job, f job.Fence) job.Change {
			return job.Change{
				Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: job.Pending}}, To: job.Ready,
				Set: job.Patch{Over: true},
			}
		}

		wish(svc.Pause)
		gone, leave := context.WithCancel(ctx)
		leave()
		if done, err := svc.Obeyed(gone, id, job.WishPause); done || err != nil {
			t.Errorf("nobody waits any more: %t, %v", done, err)
		}
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, false, stays("half way"))
		if _, err := svc.AddEvent(ctx, id,
			job.CustomEvent{Name: "note", Message: "suspended, says the program"}); err != nil {
			t.Fatal(err)
		}
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, true, stays("suspended by ada"))
		obeyed(job.WishPause, true)
		wish(svc.Resume)
		obeyed(job.WishResume, false)
		obeyed(job.WishResume, true, stays("goes on after 1m"))
		obeyed(job.WishResume, true)
		wish(svc.Pause)
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, true, over) // PAUSED instead
		if j, err := svc.Job(ctx, id); err != nil || j.State != job.Paused {
			t.Fatalf("%s, %v", j.Place, err)
		}
		obeyed(job.WishResume, false)
		wish(svc.Cancel)
		obeyed(job.WishCancel, true)
		obeyed(job.WishPause, true) // it has ended
	})
}

func TestBulk(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	const jobs = 1203 // more than a page
	var reqs []service.Request
	for i := range jobs {
		r := task("mail", i)
		r.Spec.Name = fmt.Sprintf("mail-%d", i%3)
		reqs = append(reqs, r)
	}
	submit(t, svc, reqs...)
	for _, c := range []struct {
		b    service.Bulk
		want service.BulkAnswer
	}{
		{service.Bulk{Action: service.ActCancel, DryRun: true}, service.BulkAnswer{Matched: jobs}},
		{
			service.Bulk{Action: service.ActPause, Filter: job.Where("name", job.Is, "mail-0", "mail-1")},
			service.BulkAnswer{Matched: jobs * 2 / 3, Done: jobs * 2 / 3},
		},
		{
			service.Bulk{Action: service.ActResume, Filter: job.Where("name", job.Is, "mail-1", "mail-2")},
			service.BulkAnswer{Matched: jobs * 2 / 3, Done: jobs / 3, Refused: jobs / 3},
		},
		{
			service.Bulk{Action: service.ActCancel, Filter: job.WhereState(job.Paused)},
			service.BulkAnswer{Matched: jobs / 3, Done: jobs / 3},
		},
		{
			service.Bulk{Action: service.ActHide, Filter: job.WhereState(job.Canceled)},
			service.BulkAnswer{Matched: jobs / 3, Done: jobs / 3},
		},
		{service.Bulk{Action: service.ActHide}, service.BulkAnswer{Matched: jobs * 2 / 3, Refused: jobs * 2 / 3}},
		{
			service.Bulk{Action: service.ActUnhide, Filter: job.Where("hidden", job.Is, "true")},
			service.BulkAnswer{Matched: jobs / 3, Done: jobs / 3},
		},
		{
			service.Bulk{Action: service.ActResubmit, Filter: job.WhereState(job.Canceled)},
			service.BulkAnswer{Matched: jobs / 3, Done: jobs / 3},
		},
		{
			service.Bulk{Action: service.ActDelete, Filter: job.WhereState(job.Canceled)},
			service.BulkAnswer{Matched: jobs / 3, Done: jobs / 3},
		},
		{service.Bulk{Action: service.ActDelete, DryRun: true}, service.BulkAnswer{Matched: jobs}},
		{service.Bulk{Action: service.ActDelete}, service.BulkAnswer{Matched: jobs, Refused: jobs}},
	} {
		got, err := svc.Bulk(ctx, c.b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(service.BulkAnswer{}, "Refusals", "Since")); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.b.Action, c.b.Filter, diff)
		}
		if len(got.Refusals) != min(100, got.Refused) || got.Refused > 0 && got.Refusals[0].Code != job.Conflict {
			t.Errorf("%s: %d refusals are named: %+v", c.b.Action, len(got.Refusals), got.Refusals[:1])
		}
	}
	if _, err := svc.Bulk(ctx, service.Bulk{Action: "explode"}); job.KindOf(err) != job.Invalid {
		t.Errorf("%v", err)
	}
}

func TestAnnotate(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	r := task("mail", 0)
	r.Spec.Labels, r.Spec.Notes = map[string]string{"a": "1", "b": "2"}, []byte(`{"x":{"y":1},"z":2}`)
	id := submit(t, svc, r)[0].ID
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		a       job.Annotation
		replace bool
		labels  map[string]string
		notes   string
	}{
		{job.Annotation{}, false, map[string]string{"a": "1", "b": "2"}, `{"x":{"y":1},"z":2}`},
		{
			job.Annotation{Labels: map[string]*string{"a": nil, "c": text("3")}},
			false,
			map[string]string{"b": "2", "c": "3"},
			`{"x":{"y":1},"z":2}`,
		},
		{
			job.Annotation{Notes: []byte(`{"x":{"w":[]},"z":null}`)},
			false,
			map[string]string{"b": "2", "c": "3"},
			`{"x":{"w":[],"y":1}}`,
		},
		{job.Annotation{Notes: []byte(`[1]`)}, true, map[string]string{"b": "2", "c": "3"}, `[1]`},
		{job.Annotation{Labels: map[string]*string{}, Notes: []byte(`null`)}, true, nil, ``},
	} {
		v, err := svc.Annotate(ctx, id, c.a, c.replace)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.labels, v.Labels, cmpopts.EquateEmpty()); diff != "" || string(v.Notes) != c.notes {
			t.Errorf("labels (-want +got):\n%snotes %s", diff, v.Notes)
		}
	}
	for _, a := range []job.Annotation{{Labels: map[string]*string{"no good": text("x")}}, {Notes: []byte(`{`)}} {
		if _, err := svc.Annotate(ctx, id, a, false); job.KindOf(err) != job.Invalid {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := svc.Annotate(ctx, job.NewID(), job.Annotation{}, false); job.KindOf(err) != job.NotFound {
		t.Errorf("%v", err)
	}
}

func TestAddEvent(t *testing.T) {
	t.Run("a handler writes while it has the job", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			var late *service.Task[int]
			service.Handle(svc, "mail", func(ctx context.Context, task *service.Task[int]) (int, error) {
				late = task
				return 0, task.AddEvent(ctx,
					job.CustomEvent{Name: "sent", Message: "half of them", Data: []byte(`{"sent":5}`)})
			})
			run()
			j := one(t, svc, task("mail", 0))
			history, err := svc.History(t.Context(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			e := history[2]
			if e.Name != "sent" || e.Sub != 1 || e.N != 2 || e.Cause != job.CauseJob || e.State != job.Running ||
				string(e.Data) != `{"sent":5}` || len(history) != 4 {
				t.Errorf("%+v", history)
			}
			if err := late.AddEvent(t.Context(), job.CustomEvent{Name: "late"}); job.KindOf(err) != job.Conflict {
				t.Errorf("after its end: %v", err)
			}
		})
	})
	t.Run("a user writes, and what is no event is refused", func(t *testing.T) {
		svc := onDisk(t).As("bob")
		id := submit(t, svc, task("mail", 0))[0].ID
		e, err := svc.AddEvent(t.Context(), id, job.CustomEvent{Name: "seen", Message: "by me"})
		if err != nil || e.Actor != "bob" || e.Cause != job.CauseUser || e.Cursor == "" {
			t.Errorf("%+v, %v", e, err)
		}
		for _, name := range []string{"no name", "FINISHED"} {
			if _, err := svc.AddEvent(t.Context(), id, job.CustomEvent{Name: name}); job.KindOf(err) != job.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := all(t, svc, service.NewsQuery{Types: []string{"seen"}}); len(got) != 1 || got[0].Message != "by me" {
			t.Errorf("%+v", got)
		}
	})
}

// intender is a launcher whose jobs may run from their launch on.
type intender struct{ launcher }

func (i intender) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if !r.Job.Live {
		if err := r.Record(ctx, job.Entry{Message: job.Launching}, job.Patch{Intent: true}, nil); err != nil {
			return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: err.Error()})
		}
	}
	return i.launcher.Step(ctx, r)
}

// A job that is blocked while its program may still run has no deadline, whoever looks at it, and
// it keeps nobody's clock from going on. Who gives it up is told what to do instead.
func TestBlockedWhileItMayRun(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		db := fake.New(nil)
		ctx, stop := context.WithCancel(context.Background())
		var id job.ID
		block := &job.Block{
			Code: job.HostUnreachable, Message: "host far is away", Tester: "ssh",
			Params: map[string]string{"host": "far"},
			Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Minute), Times: 3}}},
		}
		launched := make(chan struct{})
		watch := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			select {
			case <-ctx.Done():
				return nil
			case <-launched:
			}
			j, err := store.FindJob(ctx, db, "default", id)
			if err != nil {
				return err
			}
			c := job.Change{
				Job: id, From: j.Guard(h.Fence()), To: job.Recovery,
				Path: []job.Entry{{State: job.Blocked, Code: block.Code, Message: block.Message}},
			}
			c.Set.Block, c.Set.Resume = block, job.SubmittingJob
			if answers, err := h.Apply(ctx, []job.Change{c}); err != nil || answers[0].Outcome != store.OK {
				t.Errorf("%+v, %v", answers, err)
			}
			<-ctx.Done()
			return nil
		}}
		svc := service.New(service.Config{
			Store: db, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Kinds: map[string]engine.Kind{"far": intender{}}, Options: engine.Options{Duties: []engine.Duty{watch}},
		})
		id = submit(t, svc, task("far", 0))[0].ID
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(launched)
		synctest.Wait()
		late := task("far", 1)
		late.Spec.Delay = job.Duration(time.Hour)
		other := submit(t, svc, late)[0].ID
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		v, err := svc.View(ctx, id)
		if err != nil || v.State != job.Blocked || !v.Live || !v.Until.IsZero() ||
			!strings.Contains(v.Why, "it has no deadline, for launch 1 of it may still run") {
			t.Errorf("it is seen at %s until %v, live: %t, %s; %v", v.Place, v.Until, v.Live, v.Why, err)
		}
		vs, err := svc.Views(ctx, store.Query{})
		if err != nil || len(vs.Jobs) != 2 || !vs.Jobs[1].Until.IsZero() {
			t.Errorf("the list has %d jobs, the first of which fails at %v; %v", len(vs.Jobs),
				vs.Jobs[len(vs.Jobs)-1].Until, err)
		}
		if j, err := svc.Job(ctx, other); err != nil || j.State != job.Running {
			t.Errorf("a job whose time came meanwhile is %s, %v", j.Place, err)
		}
		if errs, err := svc.ActOnJobs(ctx, groups.GiveUp, id); err != nil || job.KindOf(errs[0]) != job.Conflict {
			t.Errorf("giving it up: %v, %v", errs, err)
		}
	})
}
