package storetest

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var resourceTests = []test{
	{"a document is kept under its version", resourceVersions},
	{"of 16 writers at once one wins", resourceAtOnce},
	{"of a writer and a delete of the same version one wins", resourceGoneAtOnce},
	{"a list has one kind, of one tenant or of all", resourceList},
	{"a document of the site is no tenant's", resourceSite},
}

func resourceSite(w *world) {
	doc := document("q", 0, `{"of":"site"}`)
	doc.Tenant = store.Site
	if _, err := w.s.Put(w.ctx, doc); err != nil {
		w.Fatalf("put: %v", err)
	}
	_, err := w.s.Put(w.ctx, doc)
	w.kind(err, job.Conflict)
	_, err = store.FindResource(w.ctx, w.s, acme, "queue", "q")
	w.kind(err, job.NotFound)
	if list, err := w.s.Resources(w.ctx, store.ResourceQuery{Tenant: acme, Kind: "queue"}); err != nil || len(list) > 0 {
		w.Errorf("%+v, %v", list, err)
	}
	got, err := store.FindResource(w.ctx, w.s, store.Site, "queue", "q")
	if err != nil || got.Tenant != store.Site || !sameJSON(got.Doc, doc.Doc) {
		w.Errorf("%+v, %v", got, err)
	}
}

func document(name string, version int64, doc string) store.Resource {
	return store.Resource{Tenant: acme, Kind: "queue", Name: name, Version: version, Doc: json.RawMessage(doc)}
}

func resourceVersions(w *world) {
	_, err := store.FindResource(w.ctx, w.s, acme, "queue", "q")
	w.kind(err, job.NotFound)
	_, err = w.s.Put(w.ctx, document("q", 1, `{}`))
	w.kind(err, job.Conflict)

	first, err := w.s.Put(w.ctx, document("q", 0, `{"slots":1}`))
	if err != nil || first.Version == 0 || first.Updated.IsZero() ||
		!sameJSON(first.Doc, json.RawMessage(`{"slots":1}`)) {
		w.Fatalf("put: %+v, %v", first, err)
	}
	_, err = w.s.Put(w.ctx, document("q", 0, `{"slots":2}`))
	w.kind(err, job.Conflict)
	second, err := w.s.Put(w.ctx, document("q", first.Version, `{"slots":3}`))
	if err != nil || second.Version <= first.Version {
		w.Fatalf("put: %+v, %v", second, err)
	}
	_, err = w.s.Put(w.ctx, document("q", first.Version, `{"slots":4}`))
	w.kind(err, job.Conflict)
	if !errors.Is(err, store.ErrVersion) {
		w.Errorf("put at another version: %v", err)
	}
	got, err := store.FindResource(w.ctx, w.s, acme, "queue", "q")
	if err != nil || got.Version != second.Version || !sameJSON(got.Doc, json.RawMessage(`{"slots":3}`)) ||
		!near(got.Updated, second.Updated) {
		w.Errorf("resource %+v, %v; want %+v", got, err, second)
	}
	if got.Tenant != acme || got.Kind != "queue" || got.Name != "q" {
		w.Errorf("resource %+v", got)
	}

	for _, other := range []int64{0, first.Version, second.Version + 1} {
		if err := w.s.Delete(w.ctx, acme, "queue", "q", other); !errors.Is(err, store.ErrVersion) {
			w.Errorf("delete version %d: %v", other, err)
		}
	}
	if got, err := store.FindResource(w.ctx, w.s, acme, "queue", "q"); err != nil || got.Version != second.Version {
		w.Errorf("after deletes of other versions: %+v, %v", got, err)
	}
	if err := w.s.Delete(w.ctx, acme, "queue", "q", second.Version); err != nil {
		w.Errorf("delete: %v", err)
	}
	w.kind(w.s.Delete(w.ctx, acme, "queue", "q", second.Version), job.NotFound)
	w.kind(w.s.Delete(w.ctx, acme, "queue", "q", store.AnyVersion), job.NotFound)
	_, err = store.FindResource(w.ctx, w.s, acme, "queue", "q")
	w.kind(err, job.NotFound)
	_, err = w.s.Put(w.ctx, document("q", second.Version, `{}`))
	w.kind(err, job.Conflict)
	if _, err := w.s.Put(w.ctx, document("q", 0, `{}`)); err != nil {
		w.Errorf("put after delete: %v", err)
	}
}

func resourceAtOnce(w *world) {
	version := int64(0)
	for range 5 {
		var won, next atomic.Int64
		w.together(16, func(i int) error {
			r, err := w.s.Put(w.ctx, document("q", version, `{"writer":`+strconv.Itoa(i)+`}`))
			if err == nil {
				won.Add(1)
				next.Store(r.Version)
				return nil
			}
			if job.KindOf(err) == job.Conflict {
				return nil
			}
			return err
		})
		if won.Load() != 1 {
			w.Errorf("%d writers won, want 1", won.Load())
		}
		version = next.Load()
	}
}

func resourceGoneAtOnce(w *world) {
	for range 10 {
		r, err := w.s.Put(w.ctx, document("q", 0, `{}`))
		if err != nil {
			w.Fatalf("put: %v", err)
		}
		var wrote, gone atomic.Bool
		w.together(2, func(i int) (err error) {
			won := &wrote
			if i == 0 {
				_, err = w.s.Put(w.ctx, document("q", r.Version, `{"newer":true}`))
			} else {
				won, err = &gone, w.s.Delete(w.ctx, acme, "queue", "q", r.Version)
			}
			if won.Store(err == nil); job.KindOf(err) == job.Conflict {
				return nil
			}
			return err
		})
		left, err := store.FindResource(w.ctx, w.s, acme, "queue", "q")
		if wrote.Load() == gone.Load() || wrote.Load() != (err == nil) {
			w.Fatalf("written: %t, deleted: %t, then %+v, %v", wrote.Load(), gone.Load(), left, err)
		}
		if err := w.s.Delete(w.ctx, acme, "queue", "q", store.AnyVersion); err != nil && wrote.Load() {
			w.Fatalf("delete: %v", err)
		}
	}
}

func resourceList(w *world) {
	want := map[string]bool{"a": true, "b": true, "c": true}
	for name := range want {
		if _, err := w.s.Put(w.ctx, document(name, 0, `{}`)); err != nil {
			w.Fatalf("put: %v", err)
		}
	}
	other := document("a", 0, `{}`)
	other.Kind = "system"
	if _, err := w.s.Put(w.ctx, other); err != nil {
		w.Fatalf("put: %v", err)
	}
	got, err := w.s.Resources(w.ctx, store.ResourceQuery{Tenant: acme, Kind: "queue"})
	if err != nil {
		w.Fatalf("resources: %v", err)
	}
	names := map[string]bool{}
	for _, r := range got {
		names[r.Name] = true
		if r.Kind != "queue" || r.Version == 0 || len(r.Doc) == 0 {
			w.Errorf("resource %+v", r)
		}
	}
	equal(w, "names", names, want)

	theirs := document("b", 0, `{"their":1}`)
	theirs.Tenant = "a tenant"
	if _, err := w.s.Put(w.ctx, theirs); err != nil {
		w.Fatalf("put: %v", err)
	}
	all, err := w.s.Resources(w.ctx, store.ResourceQuery{Kind: "queue"})
	if err != nil {
		w.Fatalf("all resources: %v", err)
	}
	var found []string
	for _, r := range all {
		found = append(found, r.Tenant+"/"+r.Kind+"/"+r.Name)
	}
	equal(w, "documents of all tenants", found,
		[]string{"a tenant/queue/b", "acme/queue/a", "acme/queue/b", "acme/queue/c"})
}
