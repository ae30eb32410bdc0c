package pawl_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
)

// Options say for whom a service acts, what this process runs, and what operators hear.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "pawl")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	svc, err := pawl.Open(ctx, sqlite.At(dir),
		pawl.Tenant("lab"),
		pawl.Principal("ada"), // who owns what is enqueued
		pawl.Queues("default", "night"),
		pawl.Slots(4),
		pawl.Log(slog.New(slog.DiscardHandler)),
		pawl.Configure(func(c *service.Config) { c.Lease = 30 * time.Second }),
	)
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	greet := pawl.Task[string, string]{Kind: "greet"}
	greet.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
		return "hello " + j.Args, nil
	})
	defer start(ctx, svc)()

	h, err := greet.Enqueue(ctx, svc, "world")
	if err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	j, err := h.Job(ctx)
	fmt.Println(j.Tenant, j.Owner, j.Queue, err)
	// Output:
	// hello world <nil>
	// lab ada default <nil>
}

// A process may run the jobs of some queues only. Those of others wait for a process that does.
func ExampleQueues() {
	ctx := context.Background()
	svc, done := open(ctx, pawl.Queues("night"))
	defer done()

	export := pawl.Task[string, struct{}]{Kind: "export", Queue: "night"}
	greet := pawl.Task[string, struct{}]{Kind: "greet"}
	export.Handle(svc, func(context.Context, *pawl.Job[string]) (struct{}, error) { return struct{}{}, nil })
	greet.Handle(svc, func(context.Context, *pawl.Job[string]) (struct{}, error) { return struct{}{}, nil })
	if err := export.Declare(ctx, svc); err != nil {
		panic(err)
	}
	other, err := greet.Enqueue(ctx, svc, "world")
	if err != nil {
		panic(err)
	}
	h, err := export.Enqueue(ctx, svc, "all")
	if err != nil {
		panic(err)
	}
	defer start(ctx, svc)()
	_, err = h.Wait(ctx)
	fmt.Println("export:", err)
	j, err := other.Job(ctx)
	fmt.Println("greet:", j.State, err)
	// Output:
	// export: <nil>
	// greet: PENDING <nil>
}
