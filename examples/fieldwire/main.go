// Command fieldwire processes blogs as Fieldwire's pipeline of unique jobs does: a blog that
// changes many times is processed once, never twice at once, and in order.
//
//	go run ./examples/fieldwire
package main

import (
	"context"
	"fmt"
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

var changed = []blog{{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}, {2}}

func main() {
	ctx := context.Background()
	svc, err := pawl.Open(ctx, sqlite.At("fieldwire"))
	must(err)
	process.Handle(svc, handle)
	go func() { must(svc.Run(ctx)) }()
	jobs, err := process.EnqueueAll(ctx, svc, changed, pawl.After(100*time.Millisecond))
	must(err)
	for _, j := range jobs {
		text, err := j.Wait(ctx)
		must(err)
		fmt.Println(text)
	}
	must(svc.Close())
}

func handle(ctx context.Context, j *pawl.Job[blog]) (string, error) {
	return fmt.Sprintf("blog %d, processed by job %s", j.Args.ID, j.ID().Short()), j.Heartbeat(ctx)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fieldwire:", err)
		os.Exit(1)
	}
}
