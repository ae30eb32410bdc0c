package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
)

type place struct {
	City string `json:"city"`
}

type visit struct {
	place                  // its fields are those of visit
	User  struct{ ID int } `json:"user"`
	Note  *string          `json:",omitempty"`
	More  map[string]place `json:"more"`
	Any   json.RawMessage  `json:"any"`
	At    time.Time        `json:"at"`
	Skip  string           `json:"-"`
}

// Each mistake in a declaration says what to change, wherever the declaration is used first. Above
// all a misspelled field must not make all jobs equal.
func TestWrongDeclarations(t *testing.T) {
	kind := func(change func(*pawl.Task[visit, int])) pawl.Task[visit, int] {
		task := pawl.Task[visit, int]{Kind: "visit"}
		change(&task)
		return task
	}
	for want, task := range map[string]pawl.Task[visit, int]{
		"a pawl.Task has no Kind: give it a name, such as thumbnail":  {},
		"task app: Kind app is that of programs: give another name":   {Kind: "app"},
		"kind (my task): is not a name|name (my task): is not a name": {Kind: "my task"},
		"task visit: Version -1 is negative: give 1 or more":          kind(func(v *pawl.Task[visit, int]) { v.Version = -1 }),
		"task visit: Schema is not JSON: correct it":                  kind(func(v *pawl.Task[visit, int]) { v.Schema = []byte("{") }),
		`task visit: Unique names the field "town", and pawl_test.visit has no field "town" in JSON: give one of city, user, Note, more, any, at`: kind(
			func(v *pawl.Task[visit, int]) { v.Unique = pawl.UntilDone("city", "town") }),
		`task visit: Unique names the field "City"`: kind(func(v *pawl.Task[visit, int]) { v.Unique = pawl.WhileRunning("City") }),
		`task visit: Unique names the field "Skip"`: kind(func(v *pawl.Task[visit, int]) { v.Unique = pawl.UntilStart("Skip") }),
		`task visit: Order names the field "user.id", and pawl_test.visit has no field "id" in JSON: give one of ID`: kind(
			func(v *pawl.Task[visit, int]) { v.Order = pawl.InOrder("user.id") }),
		`task visit: Order names no field: write pawl.InOrder("account")`: kind(
			func(v *pawl.Task[visit, int]) { v.Order = pawl.InOrder().By("due") }),
		`task visit: Order.By names the field "when"`: kind(
			func(v *pawl.Task[visit, int]) { v.Order = pawl.InOrder("city").By("args.when") }),
		`task visit: Index names the field "city.name", and pawl_test.visit has no field "name" in JSON: it has no fields`: kind(
			func(v *pawl.Task[visit, int]) { v.Index = []string{"city.name"} }),
		"task visit: Migrate[1] would never be called, as Version is 1: raise Version, or remove it": kind(
			func(v *pawl.Task[visit, int]) { v.Migrate = migrations(1) }),
		"task visit: Migrate[0] would never be called, as Version is 2": kind(
			func(v *pawl.Task[visit, int]) { v.Version, v.Migrate = 2, migrations(3, 0, 1) }),
	} {
		svc := pawltest.Open(t)
		schedule := task.Schedule(t.Context(), svc, "daily", pawl.Every(time.Hour), visit{})
		_, enqueue := task.Enqueue(t.Context(), svc, visit{})
		task.Handle(svc, func(context.Context, *pawl.Job[visit]) (int, error) { return 0, nil })
		for where, err := range map[string]error{
			"Enqueue": enqueue, "Schedule": schedule, "Declare": task.Declare(t.Context(), svc), "Run": svc.Run(t.Context()),
		} {
			one, other, _ := strings.Cut(want, "|")
			said := fmt.Sprint(err)
			if job.KindOf(err) != job.Invalid || !strings.Contains(said, one) && (other == "" || !strings.Contains(said, other)) {
				t.Errorf("%s says %v, want %s", where, err, want)
			}
		}
	}
}

func migrations(from ...int) map[int]func(json.RawMessage) (json.RawMessage, error) {
	all := map[int]func(json.RawMessage) (json.RawMessage, error){}
	for _, v := range from {
		all[v] = func(args json.RawMessage) (json.RawMessage, error) { return args, nil }
	}
	return all
}

// Fields that the arguments have, or may have, are taken.
func TestFieldsOfArguments(t *testing.T) {
	svc := pawltest.Open(t)
	task := pawl.Task[visit, int]{
		Kind: "visit", Order: pawl.InOrder("user.ID", "Note").By("args.at"),
		Unique: pawl.UntilStart("city", "more.x.city", "any.thing", "user"), Index: []string{"city", "user.ID"},
	}
	if _, err := task.Enqueue(t.Context(), svc, visit{Any: []byte("1")}); err != nil {
		t.Error(err)
	}
	loose := pawl.Task[map[string]any, int]{Kind: "loose", Unique: pawl.UntilDone("a.b")}
	if _, err := loose.Enqueue(t.Context(), svc, nil); err != nil {
		t.Error(err)
	}
}

// A mistake in the order of calls is a defect of the program, and is told at once.
func TestWrongCalls(t *testing.T) {
	task := pawl.Task[int, int]{Kind: "count"}
	handler := func(context.Context, *pawl.Job[int]) (int, error) { return 0, nil }
	svc := pawltest.Open(t)
	task.Handle(svc, handler)
	begun := make(chan bool)
	begin := pawl.Task[int, int]{Kind: "begin"}
	begin.Handle(svc, func(context.Context, *pawl.Job[int]) (int, error) { close(begun); return 0, nil })
	if _, err := begin.Enqueue(t.Context(), svc, 1); err != nil {
		t.Fatal(err)
	}
	stop := pawltest.Start(t, svc)
	<-begun
	test := func(context.Context, map[string]string) error { return nil }
	for want, call := range map[string]func(){
		"pawl: Handle of task late after Run: register handlers before Run": func() {
			pawl.Task[int, int]{Kind: "late"}.Handle(svc, handler)
		},
		"pawl: Tester late after Run: register testers before Run": func() { svc.Tester("late", test) },
		"pawl: task count has a handler already: call Handle once, and give each declaration its own Kind": func() {
			other := pawltest.Open(t)
			task.Handle(other, handler)
			pawl.Task[string, int]{Kind: "count"}.Handle(other, func(context.Context, *pawl.Job[string]) (int, error) { return 0, nil })
		},
		"pawl: Handle of task count: the handler is nil":        func() { task.Handle(pawltest.Open(t), nil) },
		"pawl: a tester has no name: give it one, such as shop": func() { pawltest.Open(t).Tester("", test) },
		"pawl: tester x is there already: call Tester once for each name": func() {
			other := pawltest.Open(t)
			other.Tester("x", test)
			other.Tester("x", test)
		},
		"pawl: tester x is nil": func() { pawltest.Open(t).Tester("x", nil) },
		"pawl: Alone of no Unique: write pawl.UntilStart(...).Alone()": func() { pawl.Unique{}.Alone() },
		"pawl: By of no Order: write pawl.InOrder(...).By":             func() { pawl.Order{}.By("due") },
		"pawl: Passing of no Order: write pawl.InOrder(...).Passing":   func() { pawl.Order{}.Passing() },
	} {
		func() {
			defer func() {
				if p := recover(); p != want {
					t.Errorf("the panic is %v, want %s", p, want)
				}
			}()
			call()
		}()
	}
	if err := svc.Run(t.Context()); job.KindOf(err) != job.Conflict || err.Error() != "the service runs already: call Run once" {
		t.Errorf("a second Run: %v", err)
	}
	stop()
	pawl.Task[int, int]{Kind: "late"}.Handle(svc, handler)
}

func TestWrongArguments(t *testing.T) {
	svc := pawltest.Open(t)
	_, err := pawl.Task[float64, int]{Kind: "half"}.Enqueue(t.Context(), svc, math.NaN())
	if want := "arguments of half cannot be written as JSON: json: unsupported value: NaN"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	for _, key := range []string{strings.Repeat("x", job.MaxKey+1), "a\x00b", "a\xff"} {
		_, err := pawl.Task[int, int]{Kind: "count"}.Enqueue(t.Context(), svc, 1, pawl.WithKey(key))
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "is not an idempotency key: use up to 255 printable") {
			t.Errorf("%v", err)
		}
	}
}

// Who waits in vain is told why.
func TestWaitInVain(t *testing.T) {
	svc := pawltest.Open(t)
	h, err := pawl.Task[int, int]{Kind: "count"}.Enqueue(t.Context(), svc, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = h.Wait(ctx)
	for _, want := range []string{"has not ended: it is PENDING", "no live process claims jobs of kind count"} {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := svc.Jobs().Cancel(t.Context(), h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err = h.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "has ended by now: it is CANCELED: ") {
		t.Errorf("with a context that is over, of a job that has ended: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err = h.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A transaction of another database would make a job that the service never sees.
func TestTransactionOfAnotherService(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	other := opened(t, sqlite.At(t.TempDir()))
	memory := pawltest.Open(t)
	task := pawl.Task[int, int]{Kind: "count"}
	task.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (int, error) {
		return 0, pawl.Fail(j.FinishIn(ctx, postgres.In(nil), 1))
	})
	running(t, svc)
	refused := func(err error, want string) {
		t.Helper()
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, wrong := range []*pawl.Service{other, memory} {
		err := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := task.Enqueue(ctx, wrong, 1, sqlite.In(tx))
			return err
		})
		refused(err, "sqlite.In: the transaction is one of another service")
		_, err = task.Enqueue(t.Context(), wrong, 1, postgres.InSQL(nil))
		refused(err, "postgres.InSQL: the service is not on PostgreSQL: open it with postgres.At, in a test too")
	}
	refused(sqlite.WithTx(t.Context(), memory, nil), "sqlite.WithTx: the service is not in a folder: open it with sqlite.At")
	_, err := enqueue(t, task, svc, 1).Wait(t.Context())
	var ended *pawl.Ended
	if !errors.As(err, &ended) || !strings.Contains(ended.Message, "postgres.In: the service is not on PostgreSQL") {
		t.Errorf("%v", err)
	}
}

// The first process that handles a task makes its queue.
func TestQueueOfATask(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		mail := pawl.Task[int, int]{Kind: "mail", Queue: "mails"}
		mail.Handle(svc, func(_ context.Context, j *pawl.Job[int]) (int, error) { return j.Args, nil })
		if _, err := mail.Enqueue(t.Context(), svc, 1); job.KindOf(err) != job.Invalid {
			t.Errorf("before: %v", err)
		}
		pawltest.Start(t, svc)
		synctest.Wait()
		if n, err := enqueue(t, mail, svc, 1).Wait(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A tester goes by the name that it was registered with.
func TestTesterByName(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		task := pawl.Task[string, int]{Kind: "ship"}
		task.Handle(svc, func(_ context.Context, j *pawl.Job[string]) (int, error) {
			if j.Recoveries() == 0 {
				return 0, pawl.Block("the carrier is away", j.Args, nil)
			}
			return 1, nil
		})
		svc.Tester("carrier", func(context.Context, map[string]string) error { return nil })
		pawltest.Start(t, svc)
		for _, name := range []string{"carrier", "go/carrier"} {
			if n, err := enqueue(t, task, svc, name).Wait(t.Context()); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
	})
}

func TestFindOfAnotherKind(t *testing.T) {
	svc := pawltest.Open(t)
	task := pawl.Task[int, int]{Kind: "count"}
	task.Handle(svc, func(context.Context, *pawl.Job[int]) (int, error) { return 7, nil })
	pawltest.Start(t, svc)
	h := enqueue(t, task, svc, 1)
	if n, err := task.Find(svc, h.ID).Wait(t.Context()); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, id := range []job.ID{h.ID, enqueue(t, task, svc, 2, pawl.After(time.Hour)).ID} { // one has ended, one waits
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := pawl.Task[int, int]{Kind: "secret"}.Find(svc, id).Wait(ctx)
		if job.KindOf(err) != job.Invalid ||
			!strings.Contains(err.Error(), "is of kind count, and is asked for as one of secret") {
			t.Errorf("%v", err)
		}
		cancel()
	}
	if _, err := task.Find(svc, job.NewID()).Wait(t.Context()); job.KindOf(err) != job.NotFound {
		t.Errorf("%v", err)
	}
}

func TestWrongOptions(t *testing.T) {
	for want, option := range map[string]pawl.Option{
		"pawl.Slots(0): give 1 or more":                   pawl.Slots(0),
		`"a b" is not the name of a tenant: use up to 64`: pawl.Tenant("a b"),
		`"" is not the name of a tenant`:                  pawl.Tenant(""),
		`"" is not the name of a user: use 1 to 128`:      pawl.Principal(""),
		`is not the name of a user: use 1 to 128 print`:   pawl.Principal("a\x00"),
		"pawl.Log(nil): give one, or leave":               pawl.Log(nil),
		"pawl.Around(nil): give one, or leave":            pawl.Around(nil),
		"pawl.OnError(nil): give one, or leave":           pawl.OnError(nil),
		"pawl.Configure(nil): give one, or leave":         pawl.Configure(nil),
		"pawl.Open: an option is nil: leave it out":       nil,
		"lease (-1s): is shorter than 10ms: give more":    pawl.Configure(func(c *service.Config) { c.Lease = -time.Second }),
		"lease (1ns): is shorter than 10ms: give more":    pawl.Configure(func(c *service.Config) { c.Lease = 1 }),
	} {
		_, err := pawl.Open(t.Context(), sqlite.At(t.TempDir()), pawl.Slots(2), option, pawl.Queues("default"))
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestUnknownQueueIsLogged(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := pawl.Log(slog.New(slog.NewTextHandler(&out, nil)))
		svc := pawltest.Open(t, log, pawl.Queues("emials", "default"))
		stop := pawltest.Start(t, svc)
		synctest.Wait()
		stop()
		if said := out.String(); !strings.Contains(said, "queue=emials") || strings.Contains(said, "queue=default") {
			t.Errorf("the log is %s", said)
		}
	})
}

// A task whose queue is not there yet says what makes it, also in a transaction.
func TestQueueThatIsNotThere(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	task := pawl.Task[int, int]{Kind: "count", Queue: "counts"}
	_, one := task.Enqueue(t.Context(), svc, 1)
	_, many := task.EnqueueAll(t.Context(), svc, []int{1, 2})
	tx := sqlite.WithTx(t.Context(), svc, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := task.Enqueue(ctx, svc, 1, sqlite.In(tx))
		return err
	})
	for name, err := range map[string]error{"Enqueue": one, "EnqueueAll": many, "WithTx": tx} {
		if job.KindOf(err) != job.Invalid || !strings.Contains(fmt.Sprint(err), "queue counts is not there: Run makes it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := task.Declare(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	enqueue(t, task, svc, 1)
}

// A call that shall be repeatable and has no name would not be.
func TestEmptyName(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	task := pawl.Task[int, int]{Kind: "count"}
	for name, o := range map[string]pawl.EnqueueOption{"WithID": pawl.WithID(""), "WithKey": pawl.WithKey("")} {
		_, err := task.Enqueue(t.Context(), svc, 1, o)
		late := task.Schedule(t.Context(), svc, "daily", pawl.Every(time.Hour), 1, o)
		for _, err := range []error{err, late} {
			if job.KindOf(err) != job.Invalid || !strings.Contains(fmt.Sprint(err), "pawl."+name+`("")`) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Who waits with a context that ends with a cause gets an error that is that of the context, too.
func TestWaitEndsWithACause(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		h := enqueue(t, pawl.Task[int, int]{Kind: "count"}, svc, 1)
		gone := errors.New("the browser is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(gone) })
		if _, err := h.Wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
			t.Errorf("after a cancel it is %v", err)
		}
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, gone)
		defer stop()
		if _, err := h.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gone) ||
			!strings.Contains(err.Error(), "has not ended: it is PENDING") {
			t.Errorf("after a timeout it is %v", err)
		}
	})
}

// What is nil and cannot be is an error that says so, wherever it is given.
func TestNil(t *testing.T) {
	svc := opened(t, sqlite.At(t.TempDir()))
	task := pawl.Task[int, int]{Kind: "count"}
	finish := make(chan error, 1)
	task.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (int, error) {
		finish <- j.FinishIn(ctx, nil, 1)
		return 0, nil
	})
	running(t, svc)
	if _, err := enqueue(t, task, svc, 1).Wait(t.Context()); err != nil {
		t.Error(err)
	}
	_, one := task.Enqueue(t.Context(), svc, 1, pawl.WithPriority(1), nil)
	_, many := task.EnqueueAll(t.Context(), svc, []int{1, 2}, nil)
	schedule := task.Schedule(t.Context(), svc, "daily", pawl.Every(time.Hour), 1, nil)
	_, open := pawl.Open(t.Context(), nil)
	within := sqlite.WithTx(t.Context(), svc, nil)
	for want, errs := range map[string][]error{
		"Enqueue of task count: an option is nil: leave it out":                                       {one, many},
		"Schedule of task count: an option is nil: leave it out":                                      {schedule},
		"FinishIn: this option names no transaction: give postgres.In(tx) or sqlite.In(tx)":           {<-finish},
		"sqlite.WithTx: the function is nil: give one that uses the transaction":                      {within},
		`pawl.Open: the source is nil: give sqlite.At("data") or postgres.At("postgres://HOST/NAME")`: {open},
	} {
		for _, err := range errs {
			if job.KindOf(err) != job.Invalid || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

func noHandler(service.Handler) service.Handler { return nil }

// Middleware that returns no handler, or panics, fails the attempt, with an error that all hear of
// whose middleware saw nothing.
func TestMiddlewareWithoutAHandler(t *testing.T) {
	for want, middleware := range map[string]func(service.Handler) service.Handler{
		"middleware of Around returned a nil handler: return next, or a function that calls it": noHandler,
		"panic: boom": func(service.Handler) service.Handler { panic("boom") },
	} {
		virtual.Test(t, func(t *testing.T) {
			task := pawl.Task[int, int]{Kind: "count", Retry: &job.RetryPolicy{MaxAttempts: 2}}
			var heard []string
			hear := pawl.OnError(func(_ context.Context, _ *service.TaskRun, err error) { heard = append(heard, err.Error()) })
			through := func(next service.Handler) service.Handler { return next }
			svc := pawltest.Open(t, hear, pawl.Around(through, middleware, through))
			task.Handle(svc, func(context.Context, *pawl.Job[int]) (int, error) { return 1, nil })
			_, err := pawltest.Work(t, svc, task, 1)
			var ended *pawl.Ended
			if !errors.As(err, &ended) || !strings.Contains(ended.Message, want) {
				t.Errorf("%v, want %s", err, want)
			}
			if len(heard) != 2 || heard[0] != want || heard[1] != want {
				t.Errorf("OnError heard %q, want %s", heard, want)
			}
		})
	}
}
