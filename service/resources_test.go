package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestQueues(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	names := func() (names []string) {
		list, err := svc.Queues().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			names = append(names, q.Doc.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{"default"}, names()); diff != "" {
		t.Errorf("queues there are without a document (-want +got):\n%s", diff)
	}
	q, created, err := svc.Queues().Apply(ctx, []byte(`{"name":"night","max_waiting":2}`), 0)
	if err != nil || !created || q.Version != 1 || q.Doc.MaxWaiting != 2 {
		t.Fatalf("%+v, %t, %v", q, created, err)
	}
	t.Run("a version decides who writes", func(t *testing.T) {
		if _, _, err := svc.Queues().Apply(ctx, []byte(`{"name":"night"}`), 0); job.KindOf(err) != job.Conflict {
			t.Errorf("new once more: %v", err)
		}
		if _, _, err := svc.Queues().Apply(ctx, []byte(`{"name":"night"}`), 7); job.KindOf(err) != job.Conflict {
			t.Errorf("of a version that is not there: %v", err)
		}
		if q, created, err := svc.Queues().Apply(ctx, []byte(`{"name":"night"}`), service.AnyVersion); err != nil ||
			created || q.Version != 2 {
			t.Errorf("%+v, %t, %v", q, created, err)
		}
	})
	t.Run("what is there without a document can get one, and goes back to what it was", func(t *testing.T) {
		if _, err := svc.Queues().Disable(ctx, "default", true, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"default", "night"}, names()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, err := svc.Submit(ctx, task("mail", 1)); job.KindOf(err) != job.Conflict {
			t.Errorf("to a disabled queue: %v", err)
		}
		if err := svc.Queues().Delete(ctx, "default", service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		submit(t, svc, task("mail", 1))
	})
	t.Run("a document that is wrong", func(t *testing.T) {
		for doc, path := range map[string]string{
			`{"name":"a/b"}`: "name", `{}`: "name", `{"name":"x","max_waiting":-1}`: "max_waiting",
			`{"name":"x","max":1}`: "max", `[]`: "(queue)", `{`: "(queue)",
		} {
			_, _, err := svc.Queues().Apply(ctx, []byte(doc), 0)
			var wrong *job.SpecError
			if !errors.As(err, &wrong) || wrong.Problems[0].Path != path {
				t.Errorf("%s: %v", doc, err)
			}
		}
	})
	if err := svc.Queues().Delete(ctx, "nothing", service.AnyVersion); job.KindOf(err) != job.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := svc.Queues().Resource(ctx, "nothing"); job.KindOf(err) != job.NotFound {
		t.Errorf("%v", err)
	}
}

// TestPlaces submits to queues and systems that are not there, or do not take the job. A system
// that is disabled takes it.
func TestPlaces(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	for _, doc := range []string{`{"name":"off","disabled":true}`, `{"name":"small","max_waiting":2}`} {
		if _, _, err := svc.Queues().Apply(ctx, []byte(doc), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, doc := range []string{
		`{"name":"lab","most":{"cores":4,"minutes":60,"memory":"1GiB"}}`, `{"name":"down","disabled":true}`,
		`{"name":"far","host":{"kind":"ssh","address":"far.example.org","user":"ada","keys":"everywhere"}}`,
	} {
		if _, _, err := svc.Systems().Apply(ctx, []byte(doc), 0); err != nil {
			t.Fatal(err)
		}
	}
	on := func(system string, r *job.Resources) service.Request {
		return service.Request{Spec: job.Spec{Command: []string{"true"}, System: system, Resources: r}}
	}
	in := func(queue string) service.Request {
		r := task("mail", 0)
		r.Spec.Queue = queue
		return r
	}
	patient := on("lab", nil)
	patient.Spec.Recovery = &job.Patience{Policy: "calm"}
	for _, c := range []struct {
		name string
		reqs []service.Request
		kind job.ErrorKind
		text string
	}{
		{
			"an unknown queue",
			[]service.Request{in("none")},
			job.Invalid,
			"queue (none): is unknown: give one that pawl get queues lists, or make it",
		},
		{
			"a disabled one",
			[]service.Request{in("off")},
			job.Conflict,
			"queue (off): is disabled: it takes no new jobs until it is enabled",
		},
		{
			"more than wait in one",
			[]service.Request{in("small"), in("small"), in("small")},
			job.Invalid,
			"queue small has room for 2 waiting jobs, and these are 3: submit fewer at once",
		},
		{
			"an unknown system",
			[]service.Request{on("none", nil)},
			job.Invalid,
			"system (none): is unknown: give one that pawl get systems lists, or make it",
		},
		{
			"disabled ones of many",
			[]service.Request{in("off"), in(""), in("off")},
			job.Conflict,
			"jobs[0].queue (off): is disabled: it takes no new jobs until it is enabled\n" +
				"jobs[2].queue (off): is disabled: it takes no new jobs until it is enabled",
		},
		{
			"an unknown policy",
			[]service.Request{patient},
			job.Invalid,
			"recovery.policy (calm): is unknown: give one that pawl get policies lists, or make it",
		},
		{
			"more than a system gives",
			[]service.Request{on("lab",
				&job.Resources{Cores: 5, Memory: 2 << 30, Minutes: 61})},
			job.Invalid,
			"resources.cores: is more than system lab gives to one job: give up to 4\n" +
				"resources.memory: is more than system lab gives to one job: give up to 1GiB\nresources.minutes: " +
				"is more than system lab gives to one job: give up to 60",
		},
		{
			"several nodes, which only a scheduler has",
			[]service.Request{on("", &job.Resources{Nodes: 2}), on("lab", &job.Resources{Nodes: 3, Cores: 5})},
			job.Invalid,
			"jobs[0].resources.nodes (2): is too many: system local has no scheduler, so a job there has one node: " +
				"give 1, or name a system with runner: slurm\njobs[1].resources.nodes (3): is too many: system lab has " +
				"no scheduler, so a job there has one node: give 1, or name a system with runner: slurm\njobs[1].resources.cores: is more than system lab gives to one job: give up to 4",
		},
		{
			"several of many",
			[]service.Request{in("none"), in(""), on("none", nil)},
			job.Invalid,
			"jobs[0].queue (none): is unknown: give one that pawl get queues lists, or make it\n" +
				"jobs[2].system (none): is unknown: give one that pawl get systems lists, or make it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := svc.Submit(ctx, c.reqs...)
			if job.KindOf(err) != c.kind || c.text != "" && err.Error() != c.text {
				t.Errorf("%v, want %s", err, c.text)
			}
		})
	}
	if n, err := svc.Count(ctx, nil); err != nil || len(n.States) != 0 {
		t.Errorf("%v, %v: want no job", n, err)
	}
	submit(t, svc, in("small"), in("small"), on("lab", &job.Resources{Cores: 4}), on("lab", nil), on("", nil),
		on("down", nil))
	t.Run("a call that is repeated is answered as it was, whatever has become of its queue", func(t *testing.T) {
		first, err := svc.SubmitAll(ctx, together("key", in("")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := svc.Queues().Disable(ctx, "default", true, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		again, err := svc.SubmitAll(ctx, together("key", in("")))
		if err != nil || again[0].ID != first[0].ID || !again[0].Existed {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestDeletedJobOfAKey(t *testing.T) {
	svc := onDisk(t)
	first, err := svc.SubmitAll(t.Context(), together("key", task("mail", 0), task("mail", 1)))
	if err != nil {
		t.Fatal(err)
	}
	id := first[1].ID
	if answers, err := svc.Cancel(t.Context(), id); err != nil || !answers[0].Done {
		t.Fatal(answers, err)
	}
	if errs, err := svc.Delete(t.Context(), id); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	_, err = svc.SubmitAll(t.Context(), together("key", task("mail", 0), task("mail", 1)))
	if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), id.String()) {
		t.Errorf("%v", err)
	}
}

// TestServedQueues makes a queue while the service runs, and takes it away.
func TestServedQueues(t *testing.T) {
	bubble(t, func(t *testing.T, svc *service.Service, run func()) {
		ctx := context.Background()
		service.Handle(svc, "mail", func(context.Context, *service.Task[int]) (int, error) { return 1, nil })
		run()
		if _, _, err := svc.Queues().Apply(ctx, []byte(`{"name":"night"}`), 0); err != nil {
			t.Fatal(err)
		}
		r := task("mail", 0)
		r.Spec.Queue = "night"
		if j := one(t, svc, r); j.State != job.Finished || j.Queue != "night" {
			t.Errorf("%+v", j)
		}
		if err := svc.Queues().Delete(ctx, "night", service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if _, err := svc.Submit(ctx, r); job.KindOf(err) != job.Invalid {
			t.Errorf("%v", err)
		}
		if j := one(t, svc, task("mail", 0)); j.State != job.Finished {
			t.Errorf("%+v", j)
		}
	})
}

// A system that was enabled blocks nobody, whatever another process has known of it a moment
// before, which nobody has told.
func TestEnabledAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		desk, other := service.New(service.Config{Store: db, Broker: &local.Broker{}}),
			service.New(service.Config{Store: db, Broker: &local.Broker{}})
		j := &job.Job{Tenant: "default", Kind: job.KindApp, Request: json.RawMessage(`{"command":["true"]}`)}
		for _, disabled := range []bool{true, false} {
			if _, err := desk.Systems().Disable(t.Context(), job.SystemLocal, disabled, service.AnyVersion); err != nil {
				t.Fatal(err)
			}
			if b := other.Blocks(t.Context(), j); (b != nil) != disabled {
				t.Errorf("disabled: %t, and a program is blocked by %v", disabled, b)
			}
		}
	})
}
