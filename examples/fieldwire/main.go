// Command fieldwire processes blogs as Fieldwire's pipeline of unique jobs does: a blog that changes
// many times is processed once, never twice at once, and in order.
//
//	go run ./examples/fieldwire
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/sqlite"
)

type blog struct {
	ID int `json:"blog_id"`
}

var process = pawl.Task[blog, string]{
	Kind:   "blog",
	Unique: pawl.UntilStart("blog_id").Alone(), // one waits, one runs, and no more
	Order:  pawl.InOrder("blog_id").By("due"),  // first ready, first served
	Retry:  &job.RetryPolicy{MaxAttempts: 5},   // with exponential backoff
	Stall:  time.Minute,                        // a handler that says nothing for so long is stopped
}

func main() {
	if err := run(context.Background(), "fieldwire", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fieldwire:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, out io.Writer) error {
	svc, err := pawl.Open(ctx, sqlite.At(dir))
	if err != nil {
		return err
	}
	defer svc.Close()
	process.Handle(svc, handle)
	handles, err := changes(ctx, svc)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(running) }()
	for _, h := range handles {
		text, err := h.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, text)
	}
	stop()
	return <-ended
}

func handle(ctx context.Context, j *pawl.Job[blog]) (string, error) {
	return fmt.Sprintf("blog %d, processed by job %s", j.Args.ID, j.ID().Short()), j.Heartbeat(ctx)
}

// changes enqueues what changes of blogs ask for: three blogs change three times each.
func changes(ctx context.Context, svc *pawl.Service) (handles []*pawl.Handle[string], err error) {
	for i := range 9 {
		h, err := process.Enqueue(ctx, svc, blog{i % 3}, pawl.After(100*time.Millisecond))
		if err != nil {
			return nil, err
		}
		handles = append(handles, h)
	}
	return handles, nil
}
