package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
)

// everywhere runs a test on each database.
func everywhere(t *testing.T, f func(t *testing.T, at pawl.Source)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, sqlite.At(t.TempDir())) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, postgres.At(testenv.Postgres(t).Database(t))) })
}

func opened(t *testing.T, at pawl.Source, options ...pawl.Option) *pawl.Service {
	t.Helper()
	svc, err := pawl.Open(t.Context(), at, append(options, quiet)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	})
	return svc
}

// running runs a service until the end of the test, or until the function that it returns is
// called.
func running(t *testing.T, svc *pawl.Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	stop = func() {
		if cancel(); ended == nil {
			return
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended = nil
	}
	t.Cleanup(stop)
	return stop
}

func enqueue[A, R any](t *testing.T, task pawl.Task[A, R], svc *pawl.Service, args A, options ...pawl.EnqueueOption) *pawl.Handle[R] {
	t.Helper()
	h, err := task.Enqueue(t.Context(), svc, args, options...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Fieldwire's job: one of equal jobs waits while one runs, and no more.
func TestUniqueUntilStartAndAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		begun, end := make(chan int), make(chan struct{})
		blog := pawl.Task[map[string]int, int]{
			Kind: "blog", Unique: pawl.UntilStart("blog").Alone(), Order: pawl.InOrder("blog"),
		}
		blog.Handle(svc, func(ctx context.Context, j *pawl.Job[map[string]int]) (int, error) {
			begun <- j.Args["n"]
			<-end
			return j.Args["n"], nil
		})
		running(t, svc)
		first := enqueue(t, blog, svc, map[string]int{"blog": 1, "n": 1})
		<-begun
		second := enqueue(t, blog, svc, map[string]int{"blog": 1, "n": 2})
		third := enqueue(t, blog, svc, map[string]int{"blog": 1, "n": 3})
		other := enqueue(t, blog, svc, map[string]int{"blog": 2, "n": 4})
		if second.ID == first.ID || second.Existed || third.ID != second.ID || !third.Existed {
			t.Errorf("first %s, second %s, third %s", first.ID, second.ID, third.ID)
		}
		if n := <-begun; n != 4 {
			t.Errorf("%d began while 1 runs, want 4: a job of another blog", n)
		}
		close(end)
		if n := <-begun; n != 2 {
			t.Errorf("%d began after 1, want 2", n)
		}
		for _, h := range []*pawl.Handle[int]{first, second, other} {
			if _, err := h.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Equal JSON values make equal jobs, however their numbers are written.
func TestEqualNumbers(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	task := pawl.Task[json.RawMessage, int]{Kind: "sum", Unique: pawl.UntilDone()}
	one := enqueue(t, task, svc, json.RawMessage(`{"a":1,"b":[100,-0.5]}`))
	for _, same := range []string{`{"b":[1e2,-5e-1],"a":1.0}`, `{"a":1e0,"b":[0.1e+3,-0.50]}`} {
		if h := enqueue(t, task, svc, json.RawMessage(same)); h.ID != one.ID {
			t.Errorf("%s is another job", same)
		}
	}
	for _, other := range []string{`{"a":1,"b":[100,0.5]}`, `{"a":10,"b":[100,-0.5]}`, `{"a":"1","b":[100,-0.5]}`} {
		if h := enqueue(t, task, svc, json.RawMessage(other)); h.ID == one.ID {
			t.Errorf("%s is the same job", other)
		}
	}
}

// A process that dies or stops leaves what its handler has kept.
func TestGoesOnFromItsCheckpoint(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at, pawl.Configure(func(c *service.Config) { c.Grace = -1 }))
		reached := make(chan struct{}, 1)
		walk := pawl.Task[int, []int]{Kind: "walk"}
		walk.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) ([]int, error) {
			var pages []int
			found, err := j.Restore(&pages)
			if err != nil {
				return nil, err
			}
			if found {
				return pages, nil
			}
			if err := j.Checkpoint(ctx, []int{1, 2, 3}); err != nil {
				return nil, err
			}
			j.Progress(3, 9, "pages")
			reached <- struct{}{}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		stop := running(t, svc)
		h := enqueue(t, walk, svc, 9)
		<-reached
		v, err := svc.Jobs().View(t.Context(), h.ID)
		for err == nil && v.Progress == nil { // it is told a little later
			v, err = svc.Jobs().View(t.Context(), h.ID)
		}
		if err != nil || *v.Progress != (job.Progress{What: "pages", Done: 3, Total: 9}) {
			t.Errorf("progress %v, %v", v.Progress, err)
		}
		stop()
		running(t, svc)
		pages, err := h.Wait(t.Context())
		if err != nil || fmt.Sprint(pages) != "[1 2 3]" {
			t.Errorf("%v, %v", pages, err)
		}
		if j, err := h.Job(t.Context()); err != nil || j.Attempt != 1 {
			t.Errorf("attempt %d, %v", j.Attempt, err)
		}
	})
}

// What a handler says of its progress is text, and short, and no count is below 0.
func TestProgressIsText(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		task := pawl.Task[string, string]{Kind: "say"}
		task.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
			j.Progress(-1, -2, j.Args)
			if err := j.Checkpoint(ctx, 1); err != nil { // it has been written then
				return "", err
			}
			v, err := svc.Jobs().View(ctx, j.ID())
			if err != nil {
				return "", err
			}
			if p := v.Progress; p.Done != 0 || p.Total != 0 {
				t.Errorf("%d of %d", p.Done, p.Total)
			}
			return v.Progress.What, nil
		})
		pawltest.Start(t, svc)
		for said, want := range map[string]string{
			"é": "é", "a\x00b": "a?b", strings.Repeat("x", 9999): strings.Repeat("x", 232) + "… (9999 bytes in all)",
		} {
			if got, err := enqueue(t, task, svc, said).Wait(t.Context()); got != want || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}

// A handler that gives no sign of life is told to stop, and its attempt has failed.
func TestStalled(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	hang := pawl.Task[int, int]{Kind: "hang", Stall: 50 * time.Millisecond, Retry: &job.RetryPolicy{MaxAttempts: 1}}
	hang.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (int, error) {
		for range 5 {
			if err := j.Heartbeat(ctx); err != nil {
				t.Error(err)
			}
		}
		<-ctx.Done()
		return 0, j.Heartbeat(ctx)
	})
	running(t, svc)
	_, err := enqueue(t, hang, svc, 1).Wait(t.Context())
	var ended *pawl.Ended
	const want = "the handler was told to stop: for 50ms it did not say that it goes on"
	if !errors.As(err, &ended) || ended.Code != job.TaskStalled || ended.Message != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestDeadline(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	for kind, timeout := range map[string]time.Duration{"bound": time.Hour, "endless": 0} {
		task := pawl.Task[int, bool]{Kind: kind, Timeout: timeout}
		task.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (bool, error) {
			ends, has := ctx.Deadline()
			return has == (timeout > 0) && j.Deadline().Equal(ends), nil
		})
	}
	running(t, svc)
	for _, kind := range []string{"bound", "endless"} {
		if right, err := enqueue(t, pawl.Task[int, bool]{Kind: kind}, svc, 1).Wait(t.Context()); !right || err != nil {
			t.Errorf("%s: the deadline is right: %t, %v", kind, right, err)
		}
	}
}

type greetV1 struct{ Name string }

type greetV2 struct{ First, Last string }

// Jobs of an older version are brought up to date. Those of a newer one wait for a process that
// knows it.
func TestVersionsOfArguments(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at, pawl.Configure(func(c *service.Config) { c.Grace = -1 }))
		old := pawl.Task[greetV1, string]{Kind: "greet"}
		new := pawl.Task[greetV2, string]{
			Kind: "greet", Version: 2,
			Migrate: map[int]func(json.RawMessage) (json.RawMessage, error){1: func(args json.RawMessage) (json.RawMessage, error) {
				var was greetV1
				if err := json.Unmarshal(args, &was); err != nil {
					return nil, err
				}
				first, last, _ := strings.Cut(was.Name, " ")
				return json.Marshal(greetV2{first, last})
			}},
		}
		old.Handle(svc, func(_ context.Context, j *pawl.Job[greetV1]) (string, error) { return j.Args.Name, nil })
		stop := running(t, svc)
		newer := enqueue(t, new, svc, greetV2{"Ada", "Lovelace"})
		var j job.Job
		for e, err := range svc.Jobs().Events(t.Context(), newer.ID, "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.State == job.Blocked {
				break
			}
		}
		if j, _ = newer.Job(t.Context()); j.Code != job.ArgsUnreadable || !strings.Contains(j.Message, "have version 2 of kind greet") {
			t.Errorf("%s: %s", j.Code, j.Message)
		}
		older := enqueue(t, old, svc, greetV1{"Grace Hopper"}, pawl.After(time.Hour))
		stop()
		svc.Close()

		// the same database, another build
		svc = opened(t, at)
		newer, older = new.Find(svc, newer.ID), old.Find(svc, older.ID)
		new.Handle(svc, func(_ context.Context, j *pawl.Job[greetV2]) (string, error) {
			return j.Args.Last + ", " + j.Args.First, nil
		})
		running(t, svc)
		now := enqueue(t, old, svc, greetV1{"Grace Hopper"})
		for want, h := range map[string]*pawl.Handle[string]{"Lovelace, Ada": newer, "Hopper, Grace": now} {
			if got, err := h.Wait(t.Context()); got != want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
		if _, err := svc.Jobs().Cancel(t.Context(), older.ID); err != nil {
			t.Error(err)
		}
		if _, err := older.Wait(t.Context()); !errors.Is(err, pawl.ErrCanceled) {
			t.Errorf("%v", err)
		}
	})
}

// Arguments that this build cannot read are no failure of their job. It waits for another build.
func TestArgumentsThatDoNotFit(t *testing.T) {
	type numbers struct{ N int }
	type texts struct{ N string }
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at, pawl.Configure(func(c *service.Config) { c.Grace = -1 }))
		old := pawl.Task[numbers, string]{Kind: "plain", Retry: &job.RetryPolicy{MaxAttempts: 1}}
		new := pawl.Task[texts, string]{Kind: "plain", Retry: old.Retry}
		handle := func(context.Context, *pawl.Job[numbers]) (string, error) { return "called", nil }
		old.Handle(svc, handle)
		for kind, migrate := range map[string]func(json.RawMessage) (json.RawMessage, error){
			"migrated": func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no number") },
			"emptied":  func(json.RawMessage) (json.RawMessage, error) { return nil, nil },
			"panicked": func(json.RawMessage) (json.RawMessage, error) { panic("what is this?") },
		} {
			pawl.Task[numbers, string]{
				Kind: kind, Version: 2, Migrate: map[int]func(json.RawMessage) (json.RawMessage, error){1: migrate},
			}.Handle(svc, handle)
		}
		stop := running(t, svc)
		first := pawl.Task[texts, string]{Kind: "migrated"}
		plain, older := enqueue(t, new, svc, texts{"three"}), enqueue(t, first, svc, texts{"three"})
		none := enqueue(t, pawl.Task[texts, string]{Kind: "emptied"}, svc, texts{"three"})
		panicked := enqueue(t, pawl.Task[texts, string]{Kind: "panicked", Retry: old.Retry}, svc, texts{"three"})
		for h, why := range map[*pawl.Handle[string]]string{
			plain: "cannot unmarshal string", older: "from version 1: no number",
			none: "from version 1: the function returned no arguments", panicked: "from version 1: panic: what is this?",
		} {
			for e, err := range svc.Jobs().Events(t.Context(), h.ID, "") {
				if err != nil {
					t.Fatal(err)
				}
				if e.State == job.Blocked {
					break
				}
			}
			j, err := h.Job(t.Context())
			if err != nil || j.Code != job.ArgsUnreadable || j.Attempt != 1 || !strings.Contains(j.Message, why) {
				t.Errorf("%s, attempt %d: %s, %v", j.Code, j.Attempt, j.Message, err)
			}
		}
		stop()
		svc.Close()

		// the same database, another build
		svc = opened(t, at)
		read := func(_ context.Context, j *pawl.Job[texts]) (string, error) { return j.Args.N, nil }
		new.Handle(svc, read)
		first.Handle(svc, read)
		running(t, svc)
		for _, h := range []*pawl.Handle[string]{new.Find(svc, plain.ID), first.Find(svc, older.ID)} {
			if got, err := h.Wait(t.Context()); got != "three" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}

// Without OnError failures are logged, and the stack of a panic.
func TestFailuresAreLogged(t *testing.T) {
	for _, heard := range []bool{false, true} {
		virtual.Test(t, func(t *testing.T) {
			var out strings.Builder
			options, told := []pawl.Option{pawl.Log(slog.New(slog.NewTextHandler(&out, nil)))}, 0
			if heard {
				options = append(options, pawl.OnError(func(context.Context, *service.TaskRun, error) { told++ }))
			}
			svc := pawltest.Open(t, options...)
			fragile, snoozed := pawl.Task[int, int]{Kind: "fragile"}, false
			fragile.Handle(svc, func(_ context.Context, j *pawl.Job[int]) (int, error) {
				switch j.Attempt() {
				case 1:
					return 0, errors.New("broken")
				case 2:
					panic("torn")
				}
				if snoozed = !snoozed; snoozed {
					return 0, pawl.Snooze(time.Minute)
				}
				return j.Args, nil
			})
			stop := pawltest.Start(t, svc)
			if _, err := enqueue(t, fragile, svc, 7).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			stop()
			for _, want := range []string{
				`level=WARN msg="a handler failed" kind=fragile job=`, ` attempt=1 of=10 error=broken`,
				`level=ERROR msg="a handler panicked" kind=fragile job=`, ` attempt=2 of=10 error="panic: torn" stack=`,
			} {
				if strings.Contains(out.String(), want) == heard {
					t.Errorf("heard %t, and the log is\n%s", heard, &out)
				}
			}
			if n := strings.Count(out.String(), "a handler "); n != 2 && !heard || heard && (n != 0 || told != 2) {
				t.Errorf("heard %t, %d logged, %d told", heard, n, told)
			}
		})
	}
}

// Failures that come after the handler, and that no middleware sees, are told of as well.
func TestFailuresAfterTheHandler(t *testing.T) {
	for kind, want := range map[string]string{
		"result": "result is not JSON: json: unsupported value: NaN",
		"write":  "panic: not today",
		"around": "panic: loose",
		"goexit": "the handler ended its goroutine",
		"block":  "the handler found a condition for which no job can wait",
	} {
		for _, heard := range []bool{false, true} {
			virtual.Test(t, func(t *testing.T) {
				var out strings.Builder
				var told []string
				options := []pawl.Option{pawl.Log(slog.New(slog.NewTextHandler(&out, nil)))}
				if heard {
					options = append(options, pawl.OnError(func(_ context.Context, _ *service.TaskRun, err error) {
						told = append(told, err.Error())
					}))
				}
				svc := pawltest.Open(t, append(options, pawl.Around(func(next service.Handler) service.Handler {
					return func(ctx context.Context, r *service.TaskRun) (any, error) {
						defer func() {
							if kind == "around" {
								panic("loose")
							}
						}()
						return next(ctx, r)
					}
				}))...)
				task := pawl.Task[int, any]{Kind: kind, Retry: &job.RetryPolicy{MaxAttempts: 1}}
				task.Handle(svc, func(context.Context, *pawl.Job[int]) (any, error) {
					switch kind {
					case "result":
						return math.NaN(), nil
					case "write":
						return unwritable{}, nil
					case "goexit":
						runtime.Goexit()
					case "block":
						return nil, pawl.Block("the shop is away", "", nil)
					}
					return 1, nil
				})
				if _, err := pawltest.Work(t, svc, task, 1); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %s", kind, err, want)
				}
				if logged := strings.Count(out.String(), "a handler "); logged+len(told) != 1 || heard != (len(told) == 1) ||
					heard && !strings.Contains(told[0], want) || !heard && !strings.Contains(out.String(), want) {
					t.Errorf("%s: told %q, and the log is\n%s", kind, told, &out)
				}
			})
		}
	}
}

type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("not today") }
