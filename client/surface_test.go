package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func TestSubmissions(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		s := client.Submission{
			Jobs:     []json.RawMessage{spec(`{"name":"a"}`), spec(`{"name":"b","labels":{"x":"2"}}`)},
			Defaults: spec(`{"command":["true"],"labels":{"x":"1","y":"1"}}`), Key: "k",
		}
		views, ended, err := c.SubmitWait(ctx, s, time.Minute)
		if err != nil || !ended || len(views) != 2 || views[0].State != job.Finished || views[1].Labels["x"] != "2" || views[1].Labels["y"] != "1" {
			t.Fatalf("%+v, %t, %v", views, ended, err)
		}
		again, err := c.SubmitAll(ctx, s)
		if err != nil || again[1].ID != views[1].ID || !again[1].Existed {
			t.Errorf("%+v, %v", again, err)
		}
		s.Jobs[0] = spec(`{"name":"c"}`)
		if _, err := c.SubmitAll(ctx, s); job.KindOf(err) != job.Conflict {
			t.Errorf("another body under the same key: %v", err)
		}
		waiting, ended, err := c.SubmitWait(ctx, client.Submission{Jobs: []json.RawMessage{spec(`{"kind":"mail"}`)}}, time.Millisecond)
		if err != nil || ended || len(waiting) != 1 || waiting[0].State != job.Pending {
			t.Errorf("%+v, %t, %v", waiting, ended, err)
		}

		var names []string
		for v, err := range c.Jobs(ctx, store.Query{Filter: job.Where("kind", job.Is, "app"), Sort: store.ByName, Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, v.Name)
		}
		if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
			t.Error(diff)
		}
		for range c.Jobs(ctx, store.Query{Limit: 1}) {
			break
		}
		for _, err := range c.Jobs(ctx, store.Query{Cursor: "!"}) {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%v", err)
			}
		}
		if v, err := c.Find(ctx, views[0].ID.Short(), false); err != nil || v.ID != views[0].ID {
			t.Errorf("%s, %v", v.ID, err)
		}
		if _, err := c.Find(ctx, "nobody", true); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		n, err := c.Count(ctx, job.Where("kind", job.Is, "app"))
		if diff := cmp.Diff(client.Counts{States: map[job.State]int{job.Finished: 2}, Total: 2}, n); diff != "" || err != nil {
			t.Errorf("%s, %v", diff, err)
		}
		if n, err := c.Count(ctx, nil); err != nil || n.Total != 3 {
			t.Errorf("%+v, %v", n, err)
		}

		if given, err := c.Request(ctx, views[0].ID, false); err != nil || !strings.Contains(string(given), `"command":["true"]`) {
			t.Errorf("%s, %v", given, err)
		}
		if resolved, err := c.Request(ctx, views[0].ID, true); err != nil || !strings.Contains(string(resolved), `"name"`) {
			t.Errorf("%s, %v", resolved, err)
		}
		if _, err := c.Request(ctx, waiting[0].ID, true); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		h, err := c.History(ctx, views[0].ID)
		if err != nil || len(h.Spent) == 0 || h.Spent[0].State != job.Pending || h.Spent[0].Times != 1 {
			t.Errorf("%+v, %v", h.Spent, err)
		}

		f, r, err := c.OpenOutput(ctx, views[0].ID, "pawl-manifest.json")
		if err != nil {
			t.Fatal(err)
		}
		whole := all(t, r)
		part, r, err := c.OpenOutputFrom(ctx, views[0].ID, "pawl-manifest.json", 10)
		if err != nil {
			t.Fatal(err)
		}
		if rest := all(t, r); rest != whole[10:] || part.Size != f.Size-10 {
			t.Errorf("%q of %d bytes, want %q", rest, part.Size, whole[10:])
		}
	})
}

func TestNotes(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		name, open := gate(t)
		id := one(ctx, t, c, command(`read x <"$1"`, name))
		value := "1"
		v, err := c.Annotate(ctx, id, job.Annotation{Labels: map[string]*string{"k": &value}, Notes: spec(`{"a":1}`)}, false)
		if err != nil || v.Labels["k"] != "1" {
			t.Errorf("%+v, %v", v.Labels, err)
		}
		if v, err = c.Annotate(ctx, id, job.Annotation{Notes: spec(`{"b":2}`)}, false); err != nil || string(v.Notes) != `{"a":1,"b":2}` {
			t.Errorf("%s, %v", v.Notes, err)
		}
		if v, err = c.Annotate(ctx, id, job.Annotation{Notes: spec(`{"c":3}`)}, true); err != nil || string(v.Notes) != `{"c":3}` || v.Labels["k"] != "1" {
			t.Errorf("%s, %v, %v", v.Notes, v.Labels, err)
		}
		e, err := c.AddEvent(ctx, id, job.CustomEvent{Name: "half", Message: "of it", Data: spec(`1`)})
		if err != nil || e.Name != "half" || e.Sub != 1 || e.Cause != job.CauseUser {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := c.AddEvent(ctx, id, job.CustomEvent{}); job.KindOf(err) != job.Invalid {
			t.Errorf("%v", err)
		}
		var types []string
		q := client.EventQuery{
			Filter: job.Where("id", job.Is, id.String()), Types: []string{"half", "FINISHED"}, Follow: true,
		}
		for e, err := range c.Events(ctx, q) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Name != "" {
				types = append(types, e.Name)
				open()
				continue
			}
			types = append(types, string(e.State))
			break
		}
		if diff := cmp.Diff([]string{"half", "FINISHED"}, types); diff != "" {
			t.Error(diff)
		}

		if v, err := c.Hide(ctx, id, true); err != nil || !v.Hidden {
			t.Errorf("%t, %v", v.Hidden, err)
		}
		if page, err := c.List(ctx, store.Query{}); err != nil || len(page.Jobs) != 0 {
			t.Errorf("%+v, %v", page, err)
		}
		if v, err := c.Hide(ctx, id, false); err != nil || v.Hidden {
			t.Errorf("%t, %v", v.Hidden, err)
		}
		if err := c.Delete(ctx, id); err != nil {
			t.Error(err)
		}
		if _, err := c.Job(ctx, id); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		if err := c.Delete(ctx, id); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
	})
}

func TestBulk(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		if _, err := c.Submit(ctx, "", spec(`{"kind":"mail","queue":"default"}`), spec(`{"kind":"mail"}`), spec(`{"kind":"letter"}`)); err != nil {
			t.Fatal(err)
		}
		b := service.Bulk{Action: service.ActCancel, Filter: job.Where("kind", job.Is, "mail"), DryRun: true}
		if a, err := c.Bulk(ctx, b); err != nil || a.Matched != 2 || a.Done != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		b.DryRun = false
		if a, err := c.Bulk(ctx, b); err != nil || a.Done != 2 {
			t.Errorf("%+v, %v", a, err)
		}
		if a, err := c.Bulk(ctx, service.Bulk{Action: service.ActDelete}); err != nil || a.Done != 2 || a.Refused != 1 || a.Refusals[0].Code != job.Conflict {
			t.Errorf("%+v, %v", a, err)
		}
		page, err := c.List(ctx, store.Query{})
		if err != nil || len(page.Jobs) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		if v, obeyed, err := c.ForceCancel(ctx, page.Jobs[0].ID, time.Second); err != nil || !obeyed || v.State != job.Canceled {
			t.Errorf("%s, %t, %v", v.State, obeyed, err)
		}
	})
}

func TestResources(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		r, created, err := c.Queues().Apply(ctx, "night", spec(`{"max_waiting":1}`), service.AnyVersion)
		if err != nil || !created || r.Doc.Name != "night" || r.Doc.MaxWaiting != 1 {
			t.Fatalf("%+v, %t, %v", r, created, err)
		}
		if _, _, err := c.Queues().Apply(ctx, "night", spec(`{}`), 0); err == nil || job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		if _, _, err := c.Queues().Apply(ctx, "night", spec(`{}`), r.Version+1); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		second, created, err := c.Queues().Apply(ctx, "night", spec(`{"max_waiting":1,"description":"long runs"}`), r.Version)
		if err != nil || created || second.Version <= r.Version {
			t.Errorf("%+v, %t, %v", second, created, err)
		}
		if _, err := c.Queues().Disable(ctx, "night", true, r.Version); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		if err := c.Queues().Delete(ctx, "night", r.Version); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		if r, err := c.Queues().Disable(ctx, "night", true, second.Version); err != nil || !r.Doc.Disabled {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := c.Queues().Disable(ctx, "night", false, service.AnyVersion); err != nil || r.Doc.Disabled {
			t.Errorf("%+v, %v", r, err)
		}
		list, err := c.Queues().List(ctx)
		if err != nil || len(list) != 2 || list[1].Doc.Description != "long runs" {
			t.Errorf("%+v, %v", list, err)
		}
		full := spec(`{"kind":"mail","queue":"night"}`)
		if _, err := c.Submit(ctx, "", full); err != nil {
			t.Error(err)
		}
		if _, err := c.Submit(ctx, "", full); job.KindOf(err) != job.Exhausted {
			t.Errorf("%v", err)
		}
		if err := c.Queues().Delete(ctx, "night", service.AnyVersion); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		if r, err := c.Systems().Resource(ctx, "local"); err != nil || r.Doc.Host.Kind != "local" {
			t.Errorf("%+v, %v", r, err)
		}
		if found, err := c.CheckSystem(ctx, "local"); err != nil || !found.Works || found.Failed() != nil {
			t.Errorf("%+v, %v", found, err)
		}
		if found, err := c.ListSystem(ctx, "local", "/", 2); err != nil || len(found.Entries) != 2 || !found.More {
			t.Errorf("%+v, %v", found, err)
		}
		if _, err := c.Systems().Resource(ctx, "a/b c"); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}

		kinds, err := c.Schemas(ctx)
		if err != nil || !slices.Contains(kinds, "queue") {
			t.Errorf("%v, %v", kinds, err)
		}
		if s, err := c.Schema(ctx, "queue"); err != nil || !strings.Contains(string(s), "max_waiting") {
			t.Errorf("%s, %v", s, err)
		}
		if id, err := c.Whoami(ctx); err != nil || id.Principal != "ada" || id.Tenant != "default" {
			t.Errorf("%+v, %v", id, err)
		}
		if v, err := c.Version(ctx); err != nil || v.API != client.Revision {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

func TestWorkers(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		name, open := gate(t)
		id := one(ctx, t, c, command(`read x <"$1"`, name))
		all, err := c.Workers(ctx)
		if err != nil || len(all) != 1 || all[0].State != service.WorkerLive || all[0].Slots[job.LaneFinish].All == 0 || all[0].Machine != "m1" {
			t.Fatalf("%+v, %v", all, err)
		}
		w := all[0].ID
		if v, err := c.Drain(ctx, w); err != nil || v.State != service.WorkerDraining {
			t.Errorf("%s, %v", v.State, err)
		}
		if v, err := c.Worker(ctx, w); err != nil || v.State != service.WorkerDraining || v.Jobs == nil {
			t.Errorf("%+v, %v", v, err)
		}
		if v, err := c.Undrain(ctx, w); err != nil || v.State != service.WorkerLive {
			t.Errorf("%s, %v", v.State, err)
		}
		open()
		for e, err := range c.Events(ctx, client.EventQuery{Job: id, Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.State.Terminal() {
				break
			}
		}
		if v, err := c.Stop(ctx, w); err != nil || v.State != service.WorkerStopping {
			t.Errorf("%s, %v", v.State, err)
		}
		if _, err := c.Undrain(ctx, w); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
	})
}

// TestEverything holds the client to the OpenAPI document: it asks for each operation below /v1,
// right or wrong.
func TestEverything(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	h := api.New(api.Config{Service: embedded.Open(t).Service, Answered: func(a api.Answer) {
		mu.Lock()
		defer mu.Unlock()
		asked[a.Operation] = true
	}})
	c := client.New(client.Local(h))
	ctx, id := t.Context(), job.NewID()
	worker := c.As(strings.Repeat("x", claims.MinSecret))
	report := func(verb string) func() error {
		return func() error { _, err := worker.Report(ctx, verb, claims.Held{ID: id, Epoch: 2}); return err }
	}
	for _, ask := range []func() error{
		func() error { _, err := c.Submit(ctx, "", spec(`{}`)); return err },
		func() error { _, err := c.RunFile(ctx, service.FileRun{Path: "/x", Sum: "1"}, spec(`{}`)); return err },
		func() error { _, err := c.Job(ctx, id); return err },
		func() error { _, err := c.List(ctx, store.Query{}); return err },
		func() error { _, err := c.Count(ctx, nil); return err },
		func() error { _, err := c.Request(ctx, id, false); return err },
		func() error { _, err := c.History(ctx, id); return err },
		func() error { _, err := c.Resubmit(ctx, id); return err },
		func() error { return c.Delete(ctx, id) },
		func() error { _, err := c.Hide(ctx, id, true); return err },
		func() error { _, err := c.Hide(ctx, id, false); return err },
		func() error { _, err := c.Annotate(ctx, id, job.Annotation{}, false); return err },
		func() error { _, err := c.Annotate(ctx, id, job.Annotation{}, true); return err },
		func() error { _, err := c.Bulk(ctx, service.Bulk{Action: service.ActHide, DryRun: true}); return err },
		func() error { _, _, err := c.Cancel(ctx, id, 0); return err },
		func() error { _, _, err := c.Pause(ctx, id, 0); return err },
		func() error { _, _, err := c.Resume(ctx, id, 0); return err },
		func() error { _, err := c.Output(ctx, id); return err },
		func() error { _, _, err := c.OpenOutput(ctx, id, "x"); return err },
		func() error { _, err := c.Log(ctx, id, service.LogQuery{}); return err },
		func() error { _, err := c.Cursor(ctx); return err },
		func() error {
			for _, err := range c.Events(ctx, client.EventQuery{Job: id}) {
				return err
			}
			return nil
		},
		func() error { _, err := c.AddEvent(ctx, id, job.CustomEvent{Name: "x"}); return err },
		func() error { _, err := c.Find(ctx, "nobody", false); return err },
		func() error { _, err := c.Queues().List(ctx); return err },
		func() error { _, err := c.Queues().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Queues().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Queues().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Queues().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Queues().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.CheckSystem(ctx, "x"); return err },
		func() error { _, err := c.ListSystem(ctx, "x", "/", 1); return err },
		func() error { _, err := c.Systems().List(ctx); return err },
		func() error { _, err := c.Systems().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Systems().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Systems().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Systems().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Systems().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.Retentions().List(ctx); return err },
		func() error { _, err := c.Retentions().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Retentions().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Retentions().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Retentions().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Retentions().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.Policies().List(ctx); return err },
		func() error { _, err := c.Policies().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Policies().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Policies().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Policies().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Policies().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.Kinds().List(ctx); return err },
		func() error { _, err := c.Kinds().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Kinds().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Kinds().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Kinds().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Kinds().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.Schedules().List(ctx); return err },
		func() error { _, err := c.Schedules().Resource(ctx, "x"); return err },
		func() error { _, _, err := c.Schedules().Apply(ctx, "x", spec(`{}`), 0); return err },
		func() error { _, err := c.Schedules().Disable(ctx, "x", true, service.AnyVersion); return err },
		func() error { _, err := c.Schedules().Disable(ctx, "x", false, service.AnyVersion); return err },
		func() error { return c.Schedules().Delete(ctx, "x", service.AnyVersion) },
		func() error { _, err := c.RunSchedule(ctx, "x"); return err },
		func() error { _, err := c.NextDue(ctx, "x", 3); return err },
		func() error { _, err := c.Blocked(ctx); return err },
		func() error { _, err := c.BlockedBy(ctx, "x"); return err },
		func() error { _, err := c.ActOnGroup(ctx, groups.TryNow, "x"); return err },
		func() error { _, err := c.ActOnGroup(ctx, groups.Release, "x"); return err },
		func() error { _, err := c.ActOnGroup(ctx, groups.GiveUp, "x"); return err },
		func() error { _, err := c.ActOnJob(ctx, groups.TryNow, id); return err },
		func() error { _, err := c.ActOnJob(ctx, groups.Release, id); return err },
		func() error { _, err := c.ActOnJob(ctx, groups.GiveUp, id); return err },
		func() error { _, err := c.Limits(ctx); return err },
		func() error { _, err := c.Limit(ctx, "x/*"); return err },
		func() error { _, err := c.SetLimit(ctx, job.Limit{Key: "x/*", Most: 1}); return err },
		func() error { return c.RemoveLimit(ctx, "x/*") },
		func() error { _, err := c.Workers(ctx); return err },
		func() error { _, err := worker.Claim(ctx, claims.Ask{Kinds: []string{"x"}, Slots: 1}); return err },
		func() error { _, err := worker.Renew(ctx, 0, 0, nil); return err },
		report("finish"), report("fail"), report("checkpoint"), report("progress"), report("log"), report("snooze"),
		report("block"), report("cancel"), report("release"),
		func() error { return worker.End(ctx) },
		func() error { _, err := c.Worker(ctx, id); return err },
		func() error { _, err := c.Drain(ctx, id); return err },
		func() error { _, err := c.Undrain(ctx, id); return err },
		func() error { _, err := c.Stop(ctx, id); return err },
		func() error { _, err := c.Schemas(ctx); return err },
		func() error { _, err := c.Schema(ctx, "job"); return err },
		func() error { _, err := c.Whoami(ctx); return err },
		func() error { _, err := c.Version(ctx); return err },
	} {
		switch err := ask(); job.KindOf(err) {
		case job.NotFound, job.Invalid:
		default:
			if err != nil {
				t.Error(err)
			}
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || len(doc.Paths) == 0 {
		t.Fatal(err, w.Body)
	}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if strings.HasPrefix(path, "/v1/") && !asked[op.ID] {
				t.Errorf("the client does not know %s %s (%s)", method, path, op.ID)
			}
		}
	}
}
