package pawl_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// shrink is a task whose declaration says all that one can say.
var shrink = pawl.Task[Resize, Thumb]{
	Kind: "shrink", Unique: pawl.UntilDone("image"), Order: pawl.InOrder("image").Passing(), Limits: []string{"license"},
	Retry: &job.RetryPolicy{MaxAttempts: 3}, Timeout: time.Minute, Stall: 10 * time.Second, Slots: 4,
	Keep:   map[job.State]time.Duration{job.Finished: 24 * time.Hour},
	Schema: json.RawMessage(`{"type": "object", "required": ["image"], "properties": {"width": {"type": "integer", "minimum": 1}}}`),
}

// submitted submits a task as other programs do, which say only what they must.
func submitted(t *testing.T, svc *pawl.Service, spec string) (job.Job, error) {
	t.Helper()
	as, err := svc.Jobs().Submit(t.Context(), service.Request{Given: json.RawMessage(spec)})
	if err != nil {
		return job.Job{}, err
	}
	j, err := svc.Jobs().Job(t.Context(), as[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return j, nil
}

// A service that is stopped before it has kept its declarations stops in good order.
func TestStoppedWhileItDeclares(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		shrink.Handle(svc, func(context.Context, *pawl.Job[Resize]) (Thumb, error) { return Thumb{}, nil })
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := svc.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// What a declaration says holds for jobs that other programs submit, and for those of schedules.
func TestDeclarationIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		shrink.Handle(svc, func(_ context.Context, j *pawl.Job[Resize]) (Thumb, error) {
			return Thumb{j.Args.Image}, nil
		})
		running(t, svc)
		for { // Run keeps it, then its limit
			l, err := svc.Jobs().Limit(t.Context(), "kind/shrink")
			if err == nil && l.Set != nil && l.Set.Most == 4 {
				break
			}
			if err != nil && job.KindOf(err) != job.NotFound {
				t.Fatal(err)
			}
		}
		doc, err := svc.Jobs().Kinds().Resource(t.Context(), "shrink")
		if err != nil {
			t.Fatal(err)
		}
		if k := doc.Doc; k.Timeout != job.Duration(time.Minute) || k.Stall != job.Duration(10*time.Second) ||
			k.Unique.Until != job.UntilDone ||
			k.Keep[job.Finished] != job.Duration(24*time.Hour) {
			t.Errorf("%+v", k)
		}

		// A job of another process, which does not know the declaration.
		later := `"not_before": "2100-01-01T00:00:00Z"`
		j, err := submitted(t, svc, `{"kind":"shrink","args":{"image":"cat.png","width":1e0},`+later+`}`)
		if err != nil {
			t.Fatal(err)
		}
		if j.MaxAttempts != 3 || !strings.HasPrefix(j.Order, "order/shrink/") || !slices.Contains(j.Limits, "kind/shrink") || !slices.Contains(j.Limits, "license") {
			t.Errorf("%d attempts, order %s, limits %v", j.MaxAttempts, j.Order, j.Limits)
		}
		if spec, err := job.ParseSpec(j.Request); err != nil || spec.Retry.MaxAttempts != 3 || spec.Unique.Until != job.UntilDone ||
			!strings.Contains(string(j.Request), `"width":1e0`) {
			t.Errorf("its request is %s: %v", j.Request, err)
		}
		if same, err := submitted(t, svc, `{"kind":"shrink","args":{"image":"cat.png","width":2}}`); err != nil || same.ID != j.ID {
			t.Errorf("an equal job is %s, want %s: %v", same.ID, j.ID, err)
		}
		own, err := submitted(t, svc, `{"kind":"shrink","args":{"image":"cat.png"},"unique":{"key":"x"},"limits":[],"retry":{"max_attempts":9},`+later+`}`)
		if err != nil || own.MaxAttempts != 9 || len(own.Limits) != 1 {
			t.Errorf("what a job says itself: %d attempts, %v, %v", own.MaxAttempts, own.Limits, err)
		}

		// Arguments that do not meet the schema.
		for _, c := range []struct{ spec, want string }{
			{`{"kind":"shrink","args":{"width":2.5}}`, "args.image: is missing: give it\nargs.width (2.5): is a number, not an integer: give an integer"},
			{`{"kind":"shrink","args":{"image":"a","width":0}}`, "args.width (0): does not fit: minimum: got 0, want 1: correct it: pawl get kind shrink -o yaml"},
			{`{"kind":"shrink"}`, "args: is missing: give an object"},
		} {
			if _, err := submitted(t, svc, c.spec); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v\nwant %s", c.spec, err, c.want)
			}
		}
		if _, err := shrink.Enqueue(t.Context(), svc, Resize{Image: "a", Width: -1}); job.KindOf(err) != job.Invalid {
			t.Errorf("the library enqueues what the schema refuses: %v", err)
		}
		if _, err := submitted(t, svc, `{"kind":"shrink","args":{"width":"wide"},"args_version":2,"unique":{"key":"2"},`+later+`}`); err != nil {
			t.Errorf("arguments of another version than that of the schema: %v", err)
		}
		wrong := json.RawMessage(`{"name":"s","every":"1h","jobs":[{"command":["true"]},{"kind":"shrink","args":{}}]}`)
		if _, _, err := svc.Jobs().Schedules().Apply(t.Context(), wrong, service.AnyVersion); err == nil ||
			!strings.Contains(err.Error(), "jobs[1].args.image: is missing") {
			t.Errorf("a schedule of such jobs: %v", err)
		}
		right := json.RawMessage(`{"name":"s","every":"1h","jobs":[{"kind":"shrink","args":{"image":"dog.png"},"delay":"1h"}]}`)
		if _, _, err := svc.Jobs().Schedules().Apply(t.Context(), right, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		as, err := svc.Jobs().RunSchedule(t.Context(), "", "s")
		if err != nil {
			t.Fatal(err)
		}
		if j, err := svc.Jobs().Job(t.Context(), as[0].ID); err != nil || j.MaxAttempts != 3 || !strings.HasPrefix(j.Order, "order/shrink/") {
			t.Errorf("of a schedule: %+v, %v", j, err)
		}
	})
}

// A repeated call is answered with its job, whatever the kind has become.
func TestRepeatedCallOfAKindThatChanged(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		submit := func() (job.ID, error) {
			as, err := svc.Jobs().SubmitAll(t.Context(), service.Submission{Key: "once", Jobs: []service.Request{
				{Given: json.RawMessage(`{"kind":"shrink","args":{"image":"cat.png"}}`)},
			}})
			if err != nil {
				return job.ID{}, err
			}
			return as[0].ID, nil
		}
		first, err := submit()
		if err != nil {
			t.Fatal(err)
		}
		changed := shrink
		changed.Schema, changed.Order = json.RawMessage(`{"required": ["format"]}`), pawl.InOrder("image")
		if err := changed.Declare(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		if again, err := submit(); err != nil || again != first {
			t.Errorf("%s, want %s: %v", again, first, err)
		}
		if _, err := svc.Jobs().Kinds().Disable(t.Context(), "shrink", true, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if again, err := submit(); err != nil || again != first {
			t.Errorf("%s, want %s: %v", again, first, err)
		}
		if _, err := submitted(t, svc, `{"kind":"shrink","args":{"format":"png"}}`); job.KindOf(err) != job.Conflict ||
			!strings.Contains(err.Error(), "kind (shrink): is disabled") {
			t.Errorf("of a disabled kind: %v", err)
		}
	})
}

// Every process may declare a kind again. A newer declaration replaces it, and an older build does
// not take that back. What people say of it stays.
func TestNewerDeclarationStays(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		all := svc.Jobs().Kinds()
		declare := func(task pawl.Task[Resize, Thumb]) service.Resource[kinds.Kind] {
			t.Helper()
			if err := task.Declare(t.Context(), svc); err != nil {
				t.Fatal(err)
			}
			r, err := all.Resource(t.Context(), task.Kind)
			if err != nil && job.KindOf(err) != job.NotFound {
				t.Fatal(err)
			}
			return r
		}
		task := pawl.Task[Resize, Thumb]{Kind: "resize"}
		if r := declare(task); r.Version != 0 {
			t.Errorf("a declaration that says nothing made version %d", r.Version)
		}
		task.Timeout = time.Minute
		first := declare(task)
		if again := declare(task); again.Version != first.Version {
			t.Errorf("the same once more made version %d of %d", again.Version, first.Version)
		}
		doc := json.RawMessage(`{"name":"resize","description":"cats","disabled":true,"timeout":"1m","slots":2,"schema":{"type":"object"}}`)
		if _, _, err := all.Apply(t.Context(), doc, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		newer := task
		newer.Timeout, newer.Revision, newer.Queue = 2*time.Minute, 1, "images"
		if k := declare(newer).Doc; k.Timeout != job.Duration(2*time.Minute) || k.Queue != "images" || !k.Disabled || k.Description != "cats" ||
			k.Slots != 2 || string(k.Schema) != `{"type":"object"}` {
			t.Errorf("%+v", k)
		}
		if k := declare(task).Doc; k.Timeout != job.Duration(2*time.Minute) || k.Revision != 1 {
			t.Errorf("an older build took it back: %+v", k)
		}
		newer.Timeout = 0
		if k := declare(newer).Doc; k.Timeout != 0 {
			t.Errorf("the last one of a revision does not stay: %+v", k)
		}
		wrong := pawl.Task[Resize, Thumb]{Kind: "resize", Revision: 2, Limits: []string{"a b/"}, Schema: json.RawMessage(`{"type":"int"}`)}
		if err := wrong.Declare(t.Context(), svc); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "task resize: limits[0]") ||
			!strings.Contains(err.Error(), "schema: is no JSON Schema") {
			t.Errorf("%v", err)
		}
	})
}

// Many processes declare different things at once: one of the declarations is there, whole.
func TestManyDeclareAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		const n = 8
		errs := make(chan error, n)
		for i := range n {
			task := pawl.Task[Resize, Thumb]{Kind: "resize", Revision: i, Slots: i + 1, Timeout: time.Duration(i+1) * time.Second}
			go func() { errs <- task.Declare(t.Context(), svc) }()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if r, err := svc.Jobs().Kinds().Resource(t.Context(), "resize"); err != nil || r.Doc.Slots != n || r.Doc.Timeout != job.Duration(n*time.Second) {
			t.Errorf("%+v, %v", r, err)
		}
		if l, err := svc.Jobs().Limit(t.Context(), "kind/resize"); err != nil || l.Set == nil || l.Set.Most != n {
			t.Errorf("its limit is %+v, %v", l.Set, err)
		}
	})
}

// Jobs are found by their arguments, whether their kind has an index of them or not.
func TestFoundByArguments(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		for _, task := range []pawl.Task[Resize, Thumb]{{Kind: "plain"}, {Kind: "indexed", Index: []string{"image"}}} {
			if err := task.Declare(t.Context(), svc); err != nil {
				t.Fatal(err)
			}
			var want []job.ID
			for _, image := range []string{"cat.png", "dog.png", "cat.png"} {
				h, err := task.Enqueue(t.Context(), svc, Resize{Image: image, Width: 2})
				if err != nil {
					t.Fatal(err)
				}
				if image == "cat.png" {
					want = append([]job.ID{h.ID}, want...)
				}
			}
			f := job.Where("args.image", job.Is, "cat.png").And("kind", job.Is, task.Kind)
			page, err := svc.Jobs().List(t.Context(), store.Query{Filter: f})
			var got []job.ID
			for _, j := range page.Jobs {
				got = append(got, j.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v; want %v", task.Kind, got, err, want)
			}
			n, err := svc.Jobs().Count(t.Context(), job.Where("args.width", job.Is, "2.0").And("kind", job.Is, task.Kind))
			if err != nil || n.States[job.Pending] != 3 {
				t.Errorf("%s: %v, %v", task.Kind, n, err)
			}
			told, over := 0, make(chan struct{})
			close(over)
			for e, err := range svc.Jobs().News(t.Context(), service.NewsQuery{Filter: f, Until: over}) {
				if err != nil || !slices.Contains(want, e.Job) {
					t.Errorf("%+v, %v", e, err)
				}
				told++
			}
			if told != 2 {
				t.Errorf("%s: %d events of 2", task.Kind, told)
			}
		}
		// Code that says nothing of an index leaves the one that people have made.
		silent := pawl.Task[Resize, Thumb]{Kind: "indexed", Timeout: time.Minute}
		if err := silent.Declare(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		r, err := svc.Jobs().Kinds().Resource(t.Context(), "indexed")
		if err != nil || !slices.Equal(r.Doc.Index, []string{"image"}) {
			t.Errorf("%+v, %v", r.Doc, err)
		}
	})
}
