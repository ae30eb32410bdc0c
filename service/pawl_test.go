package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A connection that is closed in the middle of a statement lives on for the 15 s that pgx gives the
// server to answer.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.Stopping(m),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// bubble runs a test with a service on a database of its own, in a bubble of time; run starts it
// until the test ends.
func bubble(t *testing.T, test func(t *testing.T, svc *service.Service, run func())) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		svc := service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer func() {
			stop()
			running.Wait()
		}()
		test(t, svc, func() {
			running.Go(func() {
				if err := svc.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	})
}

// one submits a request and waits for the end of its job.
func one(t *testing.T, svc *service.Service, r service.Request) job.Job {
	t.Helper()
	j, err := svc.Wait(context.Background(), submit(t, svc, r)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func submit(t *testing.T, svc *service.Service, rs ...service.Request) []store.Submitted {
	t.Helper()
	answers, err := svc.Submit(context.Background(), rs...)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// together is requests that are submitted under a key.
func together(key string, rs ...service.Request) service.Submission {
	return service.Submission{Key: key, Jobs: rs}
}

func task(kind string, args any) service.Request {
	return service.Request{Spec: service.NewTask(kind, args)}
}

func TestHandle(t *testing.T) {
	type point struct{ X, Y int }

	t.Run("arguments go in and results come out as JSON", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "swap", func(_ context.Context, t *service.Task[point]) (point, error) {
				return point{t.Args.Y, t.Args.X}, nil
			})
			run()
			j := one(t, svc, task("swap", point{1, 2}))
			if string(j.Result) != `{"X":2,"Y":1}` || j.Code != job.NormalCompletion {
				t.Errorf("result %s, %s", j.Result, j.Code)
			}
		})
	})

	t.Run("no arguments are the zero value, and no result is none", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "none", func(_ context.Context, task *service.Task[point]) (struct{}, error) {
				if task.Args != (point{}) {
					t.Errorf("args %v", task.Args)
				}
				return struct{}{}, nil
			})
			run()
			if j := one(t, svc, service.Request{Spec: job.Spec{Kind: "none"}}); j.State != job.Finished ||
				j.Result != nil {
				t.Errorf("%s, result %s", j.State, j.Result)
			}
		})
	})

	t.Run("arguments that do not fit end the job at once and say so", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "swap", func(context.Context, *service.Task[point]) (point, error) { panic("called") })
			run()
			j := one(t, svc, task("swap", "north"))
			if j.State != job.Failed || j.Code != job.InvalidDefinition ||
				!strings.Contains(j.Message, "args do not fit kind swap") {
				t.Errorf("%s %s %q", j.State, j.Code, j.Message)
			}
		})
	})

	t.Run("a result that is no JSON ends the job", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "odd", func(context.Context, *service.Task[int]) (func(), error) { return func() {}, nil })
			run()
			j := one(t, svc, task("odd", 0))
			if j.State != job.Failed || j.Code != job.TaskFailed || !strings.Contains(j.Message, "not JSON") {
				t.Errorf("%s %s %q", j.State, j.Code, j.Message)
			}
		})
	})

	t.Run("a condition for which no job can wait ends the job and says why", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "odd", func(context.Context, *service.Task[int]) (int, error) {
				return 0, service.Block("the shop is away", "go/shop",
					map[string]string{"basket": strings.Repeat("x", 1100)})
			})
			run()
			want := "the handler found a condition for which no job can wait: TASK_BLOCKED: parameter \"basket\" " +
				"of a tester is too long: keep it to 1024 bytes"
			if j := one(t, svc, task("odd", 0)); j.State != job.Failed || j.Code != job.TaskFailed ||
				j.Message != want {
				t.Errorf("%s %s %q", j.State, j.Code, j.Message)
			}
		})
	})

	t.Run("jobs of a kind without a handler wait for one", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "known", func(context.Context, *service.Task[int]) (int, error) { return 1, nil })
			run()
			id := submit(t, svc, task("unknown", 0))[0].ID
			one(t, svc, task("known", 0))
			synctest.Wait()
			if j, err := svc.Job(context.Background(), id); err != nil || j.State != job.Pending {
				t.Errorf("%s, %v", j.State, err)
			}
		})
	})
}

func TestPermanent(t *testing.T) {
	base := errors.New("base")
	if err := service.Permanent(base); !errors.Is(err, base) || err.Error() != "base" {
		t.Errorf("%v", err)
	}
	if err := service.Permanent(nil); err != nil {
		t.Errorf("%v, want nil", err)
	}
}

func TestSubmit(t *testing.T) {
	ctx := context.Background()

	t.Run("all or none, and every problem is named", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			bad := service.NewTask("fine", 0)
			bad.Name, bad.Queue = strings.Repeat("n", 500), "no such/name"
			_, err := svc.Submit(ctx, task("fine", 0), service.Request{Spec: bad})
			var e *job.SpecError
			if job.KindOf(err) != job.Invalid || !errors.As(err, &e) || len(e.Problems) != 2 ||
				e.Problems[0].Path != "jobs[1].name" || e.Problems[1].Path != "jobs[1].queue" {
				t.Errorf("error %v", err)
			}
			if c, err := svc.Count(ctx, nil); err != nil || len(c.States) != 0 {
				t.Errorf("%v, %v: want no job", c, err)
			}
		})
	})

	t.Run("under a key once", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			first, err := svc.SubmitAll(ctx, together("key", task("a", 1), task("a", 2)))
			if err != nil {
				t.Fatal(err)
			}
			again, err := svc.SubmitAll(ctx, together("key", task("a", 1), task("a", 2)))
			if err != nil {
				t.Fatal(err)
			}
			for i := range first {
				if again[i].ID != first[i].ID || !again[i].Existed || first[i].Existed {
					t.Errorf("%+v and then %+v", first[i], again[i])
				}
			}
			if _, err := svc.SubmitAll(ctx, together("key", task("a", 3), task("a", 2))); job.KindOf(err) != job.Conflict {
				t.Errorf("error %v, want a conflict: the request is another one", err)
			}
		})
	})

	t.Run("a program needs a machine", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			_, err := svc.Submit(ctx, service.Request{Spec: job.Spec{Command: []string{"true"}}})
			if job.KindOf(err) != job.Invalid {
				t.Errorf("error %v", err)
			}
		})
	})

	t.Run("the spec is kept as it was given", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			given := json.RawMessage(`{"kind":"a", "args":{"b":1}}`)
			id := submit(t, svc, service.Request{Given: given})[0].ID
			j, err := svc.Job(ctx, id)
			if err != nil || string(j.Request) != string(given) {
				t.Errorf("%s, %v", j.Request, err)
			}
		})
	})
}

// A counted kind counts how often a spec of it is checked.
type counted struct {
	engine.Kind
	checks int
}

func (c *counted) Check(string, *job.Spec) []job.Problem {
	c.checks++
	return nil
}

func (*counted) Target(*job.Job, *job.Spec) string { return "" }

func TestASpecIsCheckedOnce(t *testing.T) {
	ctx := t.Context()
	kind := &counted{}
	svc := service.New(service.Config{
		Store: fake.New(time.Now), Broker: &local.Broker{}, Kinds: map[string]engine.Kind{"counted": kind},
	})
	given := service.Request{Given: json.RawMessage(`{"kind": "counted", "delay": "1h"}`)}
	unread := service.Request{Given: json.RawMessage(`{"kind": "counted", "priority": "high"}`)}
	first := submit(t, svc, task("counted", 0))[0].ID
	kind.checks = 0
	for _, tt := range []struct {
		name   string
		checks int
		call   func() error
	}{
		{"a spec", 1, func() error { _, err := svc.Submit(ctx, task("counted", 0)); return err }},
		{"one as it was given", 1, func() error { _, err := svc.Submit(ctx, given); return err }},
		{"several", 3, func() error {
			_, err := svc.SubmitAll(ctx, together("key", given, task("counted", 0), given))
			return err
		}},
		{"one that cannot be read whole", 1, func() error {
			if _, err := svc.Submit(ctx, unread); job.KindOf(err) != job.Invalid {
				t.Errorf("error %v", err)
			}
			return nil
		}},
		{"those of a file", 2, func() error {
			_, err := svc.RunFile(ctx, service.FileRun{Path: "/x", Sum: "1"}, together("", given, given))
			return err
		}},
		{"once more", 1, func() error { _, err := svc.Resubmit(ctx, first); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind.checks = 0
			if err := tt.call(); err != nil || kind.checks != tt.checks {
				t.Errorf("checked %d times, want %d; error %v", kind.checks, tt.checks, err)
			}
		})
	}
}

func TestProblemsOfAList(t *testing.T) {
	bad, foreign := task("mail", 0), task("mail", 0)
	bad.Spec.Queue, foreign.Spec.Owner = "no such/name", "ada"
	many := make([]service.Request, job.MaxProblems+1)
	for i := range many {
		many[i] = bad
	}
	paths := func(sub service.Submission) (kind job.ErrorKind, paths []string) {
		sub.MayOwn = func(owner string) bool { return owner == "bob" }
		_, err := onDisk(t).SubmitAll(t.Context(), sub)
		var wrong *job.SpecError
		if errors.As(err, &wrong) {
			for _, p := range wrong.Problems {
				paths = append(paths, p.Path)
			}
		}
		return job.KindOf(err), paths
	}
	for _, tt := range []struct {
		name string
		sub  service.Submission
		kind job.ErrorKind
		want string
	}{
		{"one by itself", together("", bad), job.Invalid, "queue"},
		{"a list of one", service.Submission{List: true, Jobs: []service.Request{bad}}, job.Invalid, "jobs[0].queue"},
		{"several", together("", task("mail", 0), bad), job.Invalid, "jobs[1].queue"},
		{"what is wrong comes before who may not", together("", foreign, bad), job.Invalid, "jobs[1].queue"},
		{"an owner of another", together("", task("mail", 0), foreign), job.Denied, "jobs[1].owner"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if kind, got := paths(tt.sub); kind != tt.kind || strings.Join(got, " ") != tt.want {
				t.Errorf("%s of %v, want %s of %s", kind, got, tt.kind, tt.want)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		if _, got := paths(together("", many...)); len(got) != job.MaxProblems || got[job.MaxProblems-1] != "(more)" {
			t.Errorf("%d problems, the last of %s", len(got), got[len(got)-1])
		}
	})
}

func TestEvents(t *testing.T) {
	ctx := context.Background()

	t.Run("of one job until it ends", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "nap", func(context.Context, *service.Task[int]) (int, error) {
				time.Sleep(time.Minute)
				return 0, nil
			})
			run()
			id := submit(t, svc, task("nap", 0))[0].ID
			var got []job.State
			for e, err := range svc.Events(ctx, id, "") {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.State)
			}
			if diff := cmp.Diff([]job.State{job.Pending, job.Running, job.Finished}, got); diff != "" {
				t.Error(diff)
			}
			if es, err := svc.History(ctx, id); err != nil || len(es) != 3 {
				t.Errorf("%v, %v", es, err)
			}
		})
	})

	t.Run("of all jobs until the context ends", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "a", func(context.Context, *service.Task[int]) (int, error) { return 0, nil })
			ctx, cancel := context.WithCancelCause(ctx)
			enough := errors.New("enough")
			defer cancel(nil)
			run()
			submit(t, svc, task("a", 1), task("a", 2))
			ends := 0
			for e, err := range svc.Events(ctx, job.ID{}, "") {
				if err != nil {
					if !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
						t.Errorf("error %v", err)
					}
					break
				}
				if e.State.Terminal() {
					ends++
				}
				if ends == 2 {
					cancel(enough)
				}
			}
			if ends != 2 {
				t.Errorf("%d ends, want 2", ends)
			}
		})
	})

	t.Run("waiting for a job that there is not", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			for name, f := range map[string]func() error{
				"Job":     func() error { _, err := svc.Job(ctx, job.NewID()); return err },
				"Wait":    func() error { _, err := svc.Wait(ctx, job.NewID()); return err },
				"History": func() error { _, err := svc.History(ctx, job.NewID()); return err },
			} {
				if err := f(); job.KindOf(err) != job.NotFound {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})

	t.Run("many wait for many", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "a", func(context.Context, *service.Task[int]) (int, error) { return 0, nil })
			reqs := make([]service.Request, 50)
			for i := range reqs {
				reqs[i] = task("a", i)
			}
			var waiting sync.WaitGroup
			for _, s := range submit(t, svc, reqs...) {
				waiting.Go(func() {
					if j, err := svc.Wait(ctx, s.ID); err != nil || j.State != job.Finished {
						t.Errorf("%s, %v", j.State, err)
					}
				})
			}
			run()
			waiting.Wait()
		})
	})
}

func TestExternalIDTwiceInOneCall(t *testing.T) {
	svc := onDisk(t)
	of := func(id string, args int) service.Request {
		r := task("mail", args)
		r.Spec.ExternalID = id
		return r
	}
	_, err := svc.Submit(t.Context(), of("a", 1), of("b", 1), of("a", 2))
	var wrong *job.SpecError
	want := []job.Problem{{
		Path: "jobs[2].external_id", Value: "a",
		What: "is that of jobs[0], which is another request", Remedy: "give each job its own",
	}}
	if !errors.As(err, &wrong) || !slices.Equal(wrong.Problems, want) {
		t.Errorf("another request: %v", err)
	}
	answers := submit(t, svc, of("a", 1), of("b", 1), of("a", 1))
	if answers[0].ID != answers[2].ID || answers[0].Existed || !answers[2].Existed {
		t.Errorf("the same request: %+v", answers)
	}
}

// TestTenant: folders are named after a tenant.
func TestTenant(t *testing.T) {
	for _, name := range []string{"*", "../../x", ".", "..", "a/b", ".staging", "a\x00b"} {
		svc := service.New(service.Config{Store: fake.New(time.Now), Broker: &local.Broker{}, Tenant: name})
		if err := svc.Run(t.Context()); job.KindOf(err) != job.Invalid {
			t.Errorf("Run of tenant %q: %v", name, err)
		}
		if _, err := svc.Submit(t.Context(), task("mail", nil)); job.KindOf(err) != job.Invalid {
			t.Errorf("Submit for tenant %q: %v", name, err)
		}
		svc = service.New(service.Config{
			Store: fake.New(time.Now), Broker: &local.Broker{},
			Options: engine.Options{Tenants: []string{"default", name}},
		})
		if err := svc.Run(t.Context()); job.KindOf(err) != job.Invalid {
			t.Errorf("Run for the jobs of tenant %q: %v", name, err)
		}
	}
}

func TestStarted(t *testing.T) {
	bubble(t, func(t *testing.T, svc *service.Service, run func()) {
		begun, end := make(chan time.Time), make(chan error)
		service.Handle(svc, "work", func(ctx context.Context, _ *service.Task[int]) (int, error) {
			begun <- time.Now()
			return 0, <-end
		})
		submitted := time.Now()
		r := task("work", 0)
		r.Spec.Delay = job.Duration(time.Minute)
		r.Spec.Retry = &job.RetryPolicy{
			MaxAttempts: 2,
			Backoff:     job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(time.Hour)},
		}
		id := submit(t, svc, r)[0].ID
		view := func() service.View {
			t.Helper()
			v, err := svc.View(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		near := func(what string, got, want time.Time) {
			t.Helper()
			if d := got.Sub(want); d < -time.Second || d > time.Second {
				t.Errorf("%s is %s, want %s", what, got, want)
			}
		}
		if v := view(); !v.Started.IsZero() || v.Ran != nil {
			t.Errorf("it has not run: %s, %s", v.Started, v.Ran)
		}
		run()
		first := <-begun
		near("the first start", first, submitted.Add(time.Minute))
		time.Sleep(10 * time.Second) // of the bubble
		v := view()
		near("started", v.Started, first)
		if got := time.Duration(*v.Ran).Round(time.Second); got != 10*time.Second {
			t.Errorf("it has run for %s", got)
		}
		page, err := svc.Views(t.Context(), store.Query{})
		if err != nil || len(page.Jobs) != 1 {
			t.Fatal(page, err)
		}
		near("started in a list", page.Jobs[0].Started, first)
		end <- errors.New("once more")
		second := <-begun
		time.Sleep(5 * time.Second)
		end <- nil
		if _, err := svc.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		v = view()
		near("started again", v.Started, second)
		if got := time.Duration(*v.Ran).Round(time.Second); got != 5*time.Second {
			t.Errorf("it ran for %s", got)
		}
	})
}

func TestFind(t *testing.T) {
	svc := onDisk(t)
	id := func(text string) job.ID {
		id, err := job.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	named := func(text, name string) job.ID {
		r := task("mail", 0)
		r.ID, r.Spec.Name = id(text), name
		return submit(t, svc, r)[0].ID
	}
	alone := named("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", "letter")
	twin := named("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b78", "facade")
	thief := named("01926d3d-0000-7000-8000-000000000001", "3e1b77")
	named("01926d3d-0000-7000-8000-000000000002", "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	named("01926d3d-0000-7000-8000-000000000003", "twice")
	named("01926d3d-0000-7000-8000-000000000004", "twice")
	for _, c := range []struct {
		ref  string
		want job.ID
		kind job.ErrorKind
	}{
		{"letter", alone, ""},
		{"facade", twin, ""},
		{"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", alone, ""},
		{"01926D3C-7B1E-7C43-9D52-6F0C8A3E1B77", alone, ""},
		{"8a3e1b78", twin, ""},
		{"8A3E1B78", twin, ""},
		{"9d52-6f0c8a3e1b78", twin, ""},
		{"9d526f0c8a3e1b78", twin, ""},
		{"01926d3d-0000-7000-8000-000000000001", thief, ""},
		{"01926d3d000070008000000000000001", thief, ""},
		{"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b7", job.ID{}, job.Conflict}, // the beginning of two
		{"8a3e1b77", alone, ""},
		{"3e1b77", job.ID{}, job.Conflict}, // a name, and the end of another's id
		{"01926d3c", job.ID{}, job.Conflict},
		{"twice", job.ID{}, job.Conflict},
		{"e1b77", job.ID{}, job.NotFound}, // too short
		{"6f0c8-a3e1b77", job.ID{}, job.NotFound},
		{"6f0c8a", job.ID{}, job.NotFound}, // in the middle
		{"01926d3d-0000-7000-8000-000000000009", job.ID{}, job.NotFound},
		{"nobody", job.ID{}, job.NotFound},
		{strings.Repeat("n", 10_000), job.ID{}, job.NotFound},
		{"*", job.ID{}, job.NotFound},
		{"", job.ID{}, job.Invalid},
		{"a\x00", job.ID{}, job.Invalid},
		{"a\xff", job.ID{}, job.Invalid},
	} {
		v, err := svc.Find(t.Context(), c.ref, false)
		if c.kind == "" && err != nil || c.kind != "" && job.KindOf(err) != c.kind || v.ID != c.want {
			t.Errorf("%.50q: %s, %v", c.ref, v.ID, err)
		}
	}
	if _, err := svc.Find(t.Context(), "3e1b77", false); !strings.Contains(err.Error(), thief.String()) ||
		!strings.Contains(err.Error(), alone.String()) {
		t.Errorf("not both are named: %v", err)
	}

	t.Run("the unfinished one of a name, else the newest, or the newest hidden one", func(t *testing.T) {
		old := named("01926d3e-0000-7000-8000-000000000001", "daily")
		mid := named("01926d3e-0000-7000-8000-000000000002", "daily")
		if _, err := svc.Bulk(t.Context(),
			service.Bulk{Action: service.ActCancel, Filter: job.Where("id", job.Is, mid.String())}); err != nil {
			t.Fatal(err)
		}
		find := func(hidden bool, want job.ID) {
			t.Helper()
			if v, err := svc.Find(t.Context(), "daily", hidden); err != nil || v.ID != want {
				t.Errorf("%s, %v", v.ID, err)
			}
		}
		find(false, old)
		find(true, old)
		if errs, err := svc.Hide(t.Context(), true, mid); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		find(false, old)
		find(true, mid)
	})
}
