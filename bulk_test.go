package pawl_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

func TestBulk(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	const jobs = 1203 // more than a page
	var reqs []pawl.Request
	for i := range jobs {
		r := task("mail", i)
		r.Spec.Name = fmt.Sprintf("mail-%d", i%3)
		reqs = append(reqs, r)
	}
	submit(t, svc, reqs...)
	for _, c := range []struct {
		b    pawl.Bulk
		want pawl.BulkAnswer
	}{
		{pawl.Bulk{Action: pawl.ActCancel, DryRun: true}, pawl.BulkAnswer{Matched: jobs}},
		{pawl.Bulk{Action: pawl.ActPause, Filter: job.Where("name", "mail-0", "mail-1")}, pawl.BulkAnswer{Matched: jobs * 2 / 3, Done: jobs * 2 / 3}},
		{pawl.Bulk{Action: pawl.ActResume, Filter: job.Where("name", "mail-1", "mail-2")}, pawl.BulkAnswer{Matched: jobs * 2 / 3, Done: jobs / 3, Refused: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActCancel, Filter: job.WhereState(job.Paused)}, pawl.BulkAnswer{Matched: jobs / 3, Done: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActHide, Filter: job.WhereState(job.Canceled)}, pawl.BulkAnswer{Matched: jobs / 3, Done: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActHide}, pawl.BulkAnswer{Matched: jobs * 2 / 3, Refused: jobs * 2 / 3}},
		{pawl.Bulk{Action: pawl.ActUnhide, Filter: job.Where("hidden", "true")}, pawl.BulkAnswer{Matched: jobs / 3, Done: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActResubmit, Filter: job.WhereState(job.Canceled)}, pawl.BulkAnswer{Matched: jobs / 3, Done: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActDelete, Filter: job.WhereState(job.Canceled)}, pawl.BulkAnswer{Matched: jobs / 3, Done: jobs / 3}},
		{pawl.Bulk{Action: pawl.ActDelete, DryRun: true}, pawl.BulkAnswer{Matched: jobs}},
		{pawl.Bulk{Action: pawl.ActDelete}, pawl.BulkAnswer{Matched: jobs, Refused: jobs}},
	} {
		got, err := svc.Bulk(ctx, c.b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(pawl.BulkAnswer{}, "Refusals", "Since")); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.b.Action, c.b.Filter, diff)
		}
		if len(got.Refusals) != min(100, got.Refused) || got.Refused > 0 && got.Refusals[0].Code != job.Conflict {
			t.Errorf("%s: %d refusals are named: %+v", c.b.Action, len(got.Refusals), got.Refusals[:1])
		}
	}
	if _, err := svc.Bulk(ctx, pawl.Bulk{Action: "explode"}); job.KindOf(err) != job.Invalid {
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
		{job.Annotation{Labels: map[string]*string{"a": nil, "c": text("3")}}, false, map[string]string{"b": "2", "c": "3"}, `{"x":{"y":1},"z":2}`},
		{job.Annotation{Notes: []byte(`{"x":{"w":[]},"z":null}`)}, false, map[string]string{"b": "2", "c": "3"}, `{"x":{"w":[],"y":1}}`},
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
		bubble(t, func(t *testing.T, svc *pawl.Service, run func()) {
			var late *pawl.Task[int]
			pawl.Handle(svc, "mail", func(ctx context.Context, task *pawl.Task[int]) (int, error) {
				late = task
				return 0, task.AddEvent(ctx, job.Note{Name: "sent", Message: "half of them", Data: []byte(`{"sent":5}`)})
			})
			run()
			j := one(t, svc, task("mail", 0))
			history, err := svc.History(t.Context(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			e := history[2]
			if e.Name != "sent" || e.Sub != 1 || e.N != 2 || e.Cause != job.CauseJob || e.State != job.Running || string(e.Data) != `{"sent":5}` || len(history) != 4 {
				t.Errorf("%+v", history)
			}
			if err := late.AddEvent(t.Context(), job.Note{Name: "late"}); job.KindOf(err) != job.Conflict {
				t.Errorf("after its end: %v", err)
			}
		})
	})
	t.Run("a user writes, and what is no event is refused", func(t *testing.T) {
		svc := onDisk(t).As("bob")
		id := submit(t, svc, task("mail", 0))[0].ID
		e, err := svc.AddEvent(t.Context(), id, job.Note{Name: "seen", Message: "by me"})
		if err != nil || e.Actor != "bob" || e.Cause != job.CauseUser || e.Cursor == "" {
			t.Errorf("%+v, %v", e, err)
		}
		for _, name := range []string{"no name", "FINISHED"} {
			if _, err := svc.AddEvent(t.Context(), id, job.Note{Name: name}); job.KindOf(err) != job.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := all(t, svc, pawl.NewsQuery{Types: []string{"seen"}}); len(got) != 1 || got[0].Message != "by me" {
			t.Errorf("%+v", got)
		}
	})
}
