package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// openExample opens a service in a folder of its own.
func openExample(ctx context.Context) (svc *service.Service, done func()) {
	dir, err := os.MkdirTemp("", "pawl")
	if err != nil {
		panic(err)
	}
	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		panic(err)
	}
	svc = service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
	return svc, func() {
		st.Close()
		os.RemoveAll(dir)
	}
}

// runExample runs the service until the function that it returns is called.
func runExample(ctx context.Context, svc *service.Service) (stop func()) {
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

// A handler is registered for a kind of task, a task is submitted, and its result is read when it
// has ended.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "pawl")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		panic(err)
	}
	defer st.Close()

	svc := service.New(service.Config{Store: st, Broker: &local.Broker{}})
	type sum struct{ A, B int }
	service.Handle(svc, "add", func(ctx context.Context, t *service.Task[sum]) (int, error) {
		return t.Args.A + t.Args.B, nil
	})

	// Once Submit has returned, the job is durable: it is run even if this process dies here.
	jobs, err := svc.Submit(ctx, service.Request{Spec: service.NewTask("add", sum{A: 2, B: 3})})
	if err != nil {
		panic(err)
	}

	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- svc.Run(running) }()

	j, err := svc.Wait(ctx, jobs[0].ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(j.State, string(j.Result))

	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
	// Output: FINISHED 5
}

// A job may wait for others to end.
func ExampleService_Submit_after() {
	ctx := context.Background()
	svc, done := openExample(ctx)
	defer done()
	service.Handle(svc, "say", func(ctx context.Context, t *service.Task[string]) (struct{}, error) {
		fmt.Println(t.Args)
		return struct{}{}, nil
	})

	first, err := svc.Submit(ctx, service.Request{Spec: service.NewTask("say", "first")})
	if err != nil {
		panic(err)
	}
	then, err := svc.Submit(ctx, service.Request{
		Spec:  service.NewTask("say", "then"),
		After: []store.After{{Job: first[0].ID, Need: job.NeedFinished}},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("the second is", then[0].Place.State)

	defer runExample(ctx, svc)()
	if _, err := svc.Wait(ctx, then[0].ID); err != nil {
		panic(err)
	}
	// Output:
	// the second is WAITING
	// first
	// then
}

// A cancel reaches a job wherever it is; a handler hears of it by its context.
func ExampleService_Cancel() {
	ctx := context.Background()
	svc, done := openExample(ctx)
	defer done()
	started := make(chan struct{})
	service.Handle(svc, "long", func(ctx context.Context, t *service.Task[string]) (string, error) {
		close(started)
		<-ctx.Done()
		fmt.Println("told to stop:", context.Cause(ctx))
		return "", ctx.Err()
	})
	defer runExample(ctx, svc)()

	jobs, err := svc.Submit(ctx, service.Request{Spec: service.NewTask("long", "work")})
	if err != nil {
		panic(err)
	}
	<-started
	if _, err := svc.Cancel(ctx, jobs[0].ID); err != nil {
		panic(err)
	}
	j, err := svc.Wait(ctx, jobs[0].ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(j.State, j.Code)
	// Output:
	// told to stop: the job was canceled
	// CANCELED CANCELED_BY_USER
}

// An error fails an attempt. What it said is kept, and there is another attempt after a backoff; an
// error made by Permanent ends the job at once.
func ExamplePermanent() {
	ctx := context.Background()
	svc, done := openExample(ctx)
	defer done()
	service.Handle(svc, "fetch", func(ctx context.Context, t *service.Task[string]) (string, error) {
		if t.Job.Attempt == 1 {
			return "", fmt.Errorf("the line was busy")
		}
		return "", service.Permanent(fmt.Errorf("no such number"))
	})
	defer runExample(ctx, svc)()

	spec := service.NewTask("fetch", "555-0100")
	spec.Retry = &job.RetryPolicy{MaxAttempts: 5, Backoff: job.Backoff{Base: job.Duration(time.Millisecond)}}
	jobs, err := svc.Submit(ctx, service.Request{Spec: spec})
	if err != nil {
		panic(err)
	}
	for e, err := range svc.Events(ctx, jobs[0].ID, "") {
		if err != nil {
			panic(err)
		}
		if e.Message != "" {
			fmt.Printf("%s: %s\n", e.State, e.Message)
		}
	}
	// Output:
	// WAITING: the line was busy
	// FAILED: no such number
}
