package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
	"github.com/pawl-jobs/pawl/store"
)

// quiet keeps what services log out of the examples.
var quiet = pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil)))

// open opens a service in a folder of its own; closing it removes the folder.
func open(ctx context.Context, options ...pawl.Option) (*pawl.Service, func()) {
	dir, err := os.MkdirTemp("", "pawl")
	if err != nil {
		panic(err)
	}
	svc, err := pawl.Open(ctx, sqlite.At(dir), append(options, quiet)...)
	if err != nil {
		panic(err)
	}
	return svc, func() {
		svc.Close()
		os.RemoveAll(dir)
	}
}

// start runs the service until the function that it returns is called.
func start(ctx context.Context, svc *pawl.Service) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- svc.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

type Resize struct {
	Image string `json:"image"`
	Width int    `json:"width"`
}

type Thumb struct {
	URL string `json:"url"`
}

// Thumbnail is declared once. The code that enqueues it and the code that handles it share it.
var Thumbnail = pawl.Task[Resize, Thumb]{Kind: "thumbnail", Unique: pawl.UntilStart("image")}

func Example() {
	ctx := context.Background()
	svc, done := open(ctx) // pawl.Open(ctx, sqlite.At("data"))
	defer done()

	Thumbnail.Handle(svc, func(ctx context.Context, j *pawl.Job[Resize]) (Thumb, error) {
		return Thumb{URL: "/small/" + j.Args.Image}, nil
	})
	defer start(ctx, svc)() // go svc.Run(ctx)

	h, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png", Width: 100})
	if err != nil {
		panic(err)
	}
	thumb, err := h.Wait(ctx)
	fmt.Println(thumb.URL, err)
	// Output: /small/cat.png <nil>
}

// Equal jobs are one job until it starts: an image that changes twice is shrunk once.
func ExampleUntilStart() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	first, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png", Width: 100})
	if err != nil {
		panic(err)
	}
	second, err := Thumbnail.Enqueue(ctx, svc, Resize{Image: "cat.png", Width: 200})
	if err != nil {
		panic(err)
	}
	fmt.Println(second.ID == first.ID, second.Existed)
	// Output: true true
}

// What a declaration says holds for jobs that come from elsewhere, too: over HTTP, from SQL, or, as
// here, from code that knows only the name of the kind.
func ExampleTask_Declare() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	scale := pawl.Task[Resize, Thumb]{
		Kind: "scale", Retry: &job.RetryPolicy{MaxAttempts: 3},
		Schema: json.RawMessage(`{"type": "object", "required": ["image"], "properties": {"width": {"minimum": 1}}}`),
	}
	if err := scale.Declare(ctx, svc); err != nil { // Run does it for the tasks that the process handles
		panic(err)
	}
	answers, err := svc.Jobs().Submit(ctx, service.Request{Spec: service.NewTask("scale", Resize{Image: "cat.png", Width: 9})})
	if err != nil {
		panic(err)
	}
	j, err := svc.Jobs().Job(ctx, answers[0].ID)
	fmt.Println(j.MaxAttempts, "attempts", err)
	_, err = svc.Jobs().Submit(ctx, service.Request{Spec: service.NewTask("scale", map[string]int{"width": 9})})
	fmt.Println(err)
	// Output:
	// 3 attempts <nil>
	// args.image: is missing: give it
}

// A handler that was interrupted goes on where its last checkpoint was.
func ExampleJob_Checkpoint() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	count := pawl.Task[[]string, int]{Kind: "count"}
	count.Handle(svc, func(ctx context.Context, j *pawl.Job[[]string]) (int, error) {
		var at struct{ Next, Words int }
		if _, err := j.Restore(&at); err != nil {
			return 0, err
		}
		for at.Next < len(j.Args) {
			at.Words += len(strings.Fields(j.Args[at.Next]))
			at.Next++
			if err := j.Checkpoint(ctx, at); err != nil {
				return 0, err
			}
			j.Progress(int64(at.Next), int64(len(j.Args)), "counting")
			if j.Attempt() == 1 && at.Next == 2 {
				return 0, errors.New("something went wrong in the middle")
			}
		}
		return at.Words, nil
	})
	defer start(ctx, svc)()

	h, err := count.Enqueue(ctx, svc, []string{"one two", "three", "four five six"})
	if err != nil {
		panic(err)
	}
	words, err := h.Wait(ctx)
	j, _ := h.Job(ctx)
	fmt.Println(words, "words in", j.Attempt, "attempts", err)
	// Output: 6 words in 2 attempts <nil>
}

// Jobs that are there already are told, in one call, too.
func ExampleTask_EnqueueAll() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	hs, err := Thumbnail.EnqueueAll(ctx, svc, []Resize{{Image: "cat.png"}, {Image: "dog.png"}, {Image: "cat.png"}})
	if err != nil {
		panic(err)
	}
	for _, h := range hs {
		fmt.Println(h.Existed)
	}
	fmt.Println(hs[2].ID == hs[0].ID)
	// Output:
	// false
	// false
	// true
	// true
}

// Who waits for a job that nobody runs is told so when time is up.
func ExampleHandle_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	svc, done := open(context.Background())
	defer done()

	h, err := Thumbnail.Enqueue(context.Background(), svc, Resize{Image: "cat.png"})
	if err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	_, why, _ := strings.Cut(err.Error(), "has not ended: ")
	why, _, _ = strings.Cut(why, ";")
	fmt.Println(why)
	// Output:
	// true
	// it is PENDING: no live process claims jobs of kind thumbnail in queue default
}

// Jobs are found by what they are and by their arguments, shown, and canceled.
func ExampleService_Jobs() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()
	_, err := Thumbnail.EnqueueAll(ctx, svc, []Resize{{Image: "cat.png"}, {Image: "dog.png"}}, pawl.After(time.Hour))
	if err != nil {
		panic(err)
	}

	filter, err := job.ParseFilter("kind=thumbnail state=WAITING args.image=cat.png", time.Now())
	if err != nil {
		panic(err)
	}
	page, err := svc.Jobs().Views(ctx, store.Query{Filter: filter})
	if err != nil {
		panic(err)
	}
	for _, v := range page.Jobs {
		answers, err := svc.Jobs().Cancel(ctx, v.ID)
		fmt.Println(answers[0].Done, err)
		v, err := svc.Jobs().View(ctx, v.ID)
		fmt.Println(v.State, v.Code, err)
	}
	// Output:
	// true <nil>
	// CANCELED CANCELED_BY_USER <nil>
}

// An error that another attempt would not mend ends the job.
func ExampleFail() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	charge := pawl.Task[int, struct{}]{Kind: "charge"}
	charge.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (struct{}, error) {
		return struct{}{}, pawl.Fail(errors.New("the card is no longer valid"))
	})
	defer start(ctx, svc)()

	h, err := charge.Enqueue(ctx, svc, 100)
	if err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	var ended *pawl.Ended
	if errors.As(err, &ended) {
		fmt.Println(ended.State, ended.Code, ended.Message)
	}
	// Output: FAILED TASK_FAILED the card is no longer valid
}

// A job that comes too early is called again later, and no attempt is spent.
func ExampleSnooze() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	report := pawl.Task[string, string]{Kind: "report"}
	asked := 0
	report.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
		if asked++; asked < 3 {
			return "", pawl.Snooze(time.Millisecond)
		}
		return fmt.Sprintf("%s in attempt %d", j.Args, j.Attempt()), nil
	})
	defer start(ctx, svc)()

	h, err := report.Enqueue(ctx, svc, "ready")
	if err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	// Output: ready in attempt 1 <nil>
}

// Jobs whose carrier is away wait until a tester reaches it. That is asked after 10 s for the first
// time, once for all of them, and no attempt is spent.
func ExampleBlock() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	reach := func(ctx context.Context, carrier string) error { return errors.New(carrier + " is away") }
	svc.Tester("carrier", func(ctx context.Context, params map[string]string) error {
		return reach(ctx, params["carrier"])
	})
	ship := pawl.Task[string, string]{Kind: "ship"}
	ship.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
		if err := reach(ctx, j.Args); err != nil {
			return "", pawl.Block(err.Error(), "carrier", map[string]string{"carrier": j.Args})
		}
		return "shipped", nil
	})
	defer start(ctx, svc)()

	h, err := ship.Enqueue(ctx, svc, "dhl")
	if err != nil {
		panic(err)
	}
	for e, err := range svc.Jobs().Events(ctx, h.ID, "") {
		if err != nil {
			panic(err)
		}
		if e.State == job.Blocked {
			fmt.Println(e.Code, e.Message)
			break
		}
	}
	// Output: TASK_BLOCKED dhl is away
}

// A job may find that it is not wanted any more.
func ExampleCancel() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	remind := pawl.Task[string, struct{}]{Kind: "remind"}
	remind.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (struct{}, error) {
		return struct{}{}, pawl.Cancel("the invoice is paid")
	})
	defer start(ctx, svc)()

	h, err := remind.Enqueue(ctx, svc, "invoice 17")
	if err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	var ended *pawl.Ended
	fmt.Println(errors.Is(err, pawl.ErrCanceled), errors.As(err, &ended), ended.Message)
	// Output: true true the invoice is paid
}

// Middleware is a function around the handler; OnError is one that is told of failures.
func ExampleAround() {
	ctx := context.Background()
	svc, done := open(ctx,
		pawl.OnError(func(_ context.Context, t *service.TaskRun, err error) {
			fmt.Printf("%s, attempt %d: %v\n", t.Job.Kind, t.Job.Attempt, err)
		}),
		pawl.Around(func(next service.Handler) service.Handler {
			return func(ctx context.Context, t *service.TaskRun) (any, error) {
				fmt.Println("before", t.Job.Kind)
				return next(ctx, t)
			}
		}))
	defer done()

	oops := pawl.Task[int, struct{}]{Kind: "oops"}
	oops.Handle(svc, func(context.Context, *pawl.Job[int]) (struct{}, error) {
		return struct{}{}, pawl.Fail(errors.New("no"))
	})
	defer start(ctx, svc)()

	h, err := oops.Enqueue(ctx, svc, 1)
	if err != nil {
		panic(err)
	}
	_, _ = h.Wait(ctx)
	// Output:
	// before oops
	// oops, attempt 1: no
}

type Week struct {
	Team string `json:"team"`
}

var Report = pawl.Task[Week, string]{Kind: "report"}

// A schedule is kept in the database. Each process may call Schedule when it starts.
func ExampleTask_Schedule() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	due := make(chan bool)
	Report.Handle(svc, func(ctx context.Context, j *pawl.Job[Week]) (string, error) {
		select {
		case due <- !j.Due().IsZero():
		case <-ctx.Done():
		}
		return "the week of " + j.Args.Team, nil
	})
	monday := pawl.Cron("0 9 * * MON").In("Europe/Berlin")
	if err := Report.Schedule(ctx, svc, "weekly", monday, Week{Team: "red"}); err != nil {
		panic(err)
	}
	if err := Report.Schedule(ctx, svc, "beat", pawl.Every(time.Second), Week{Team: "blue"}); err != nil {
		panic(err)
	}
	defer start(ctx, svc)()
	fmt.Println(<-due)

	next, err := svc.Jobs().NextDue(ctx, "weekly", 1)
	berlin, _ := time.LoadLocation("Europe/Berlin")
	fmt.Println(next[0].In(berlin).Format("Mon 15:04"), err)
	// Output:
	// true
	// Mon 09:00 <nil>
}

// Receipts are in tables of the program. A receipt and the end of its job are one transaction.
func ExampleJob_FinishIn() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()
	err := sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE receipts (n INTEGER)")
		return err
	})
	if err != nil {
		panic(err)
	}

	charge := pawl.Task[int, string]{Kind: "charge"}
	charge.Handle(svc, func(ctx context.Context, j *pawl.Job[int]) (receipt string, err error) {
		receipt = fmt.Sprintf("receipt %d", j.Args)
		return receipt, sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO receipts VALUES (?)", j.Args); err != nil {
				return err
			}
			return j.FinishIn(ctx, sqlite.In(tx), receipt)
		})
	})
	defer start(ctx, svc)()

	h, err := charge.Enqueue(ctx, svc, 7)
	if err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	// Output: receipt 7 <nil>
}
