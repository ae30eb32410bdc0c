package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// A handler that has a Stall says now and then that it goes on. One that hangs is told to stop, and
// tried again.
func ExampleJob_Heartbeat() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	crawl := pawl.Task[[]string, int]{Kind: "crawl", Stall: 100 * time.Millisecond, Retry: soon}
	crawl.Handle(svc, func(ctx context.Context, j *pawl.Job[[]string]) (pages int, err error) {
		for _, page := range j.Args {
			if err := j.Heartbeat(ctx); err != nil { // it must stop
				return 0, err
			}
			if page == "slow.html" && j.Attempt() == 1 {
				<-ctx.Done() // its server says nothing
				return 0, context.Cause(ctx)
			}
			pages++
		}
		return pages, nil
	})
	defer start(ctx, svc)()

	h, err := crawl.Enqueue(ctx, svc, []string{"index.html", "slow.html"})
	if err != nil {
		panic(err)
	}
	pages, err := h.Wait(ctx)
	fmt.Println(pages, "pages", err)
	events, err := svc.Jobs().History(ctx, h.ID)
	stalled := slices.ContainsFunc(events, func(e job.Event) bool { return e.Code == job.TaskStalled })
	fmt.Println("an attempt stalled:", stalled, err)
	// Output:
	// 2 pages <nil>
	// an attempt stalled: true <nil>
}

// The context of a run ends when its time is over. The error that the handler then returns is a
// failed attempt.
func ExampleTask_timeout() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	query := pawl.Task[string, int]{
		Kind: "query", Timeout: 10 * time.Millisecond, Retry: &job.RetryPolicy{MaxAttempts: 1},
	}
	query.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (int, error) {
		<-ctx.Done() // a database that does not answer
		fmt.Println(errors.Is(context.Cause(ctx), pawl.ErrTimedOut))
		return 0, ctx.Err()
	})
	defer start(ctx, svc)()

	h, err := query.Enqueue(ctx, svc, "SELECT …")
	if err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	var ended *pawl.Ended
	if errors.As(err, &ended) {
		fmt.Println(ended.Code, ended.Message)
	}
	// Output:
	// true
	// TIME_LIMIT the handler was told to stop after 10ms, which is all that kind query gives it
}

// A handler hears by its context that somebody has canceled the job.
func ExampleErrCanceled() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	started := make(chan bool)
	render := pawl.Task[string, int]{Kind: "render"}
	render.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (int, error) {
		close(started)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	})
	defer start(ctx, svc)()

	h, err := render.Enqueue(ctx, svc, "film")
	if err != nil {
		panic(err)
	}
	<-started
	if _, err := svc.Jobs().Cancel(ctx, h.ID); err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	fmt.Println(errors.Is(err, pawl.ErrCanceled))
	// Output: true
}

// What a handler says is in the history of its job, beside what happened to that.
func ExampleJob_Log() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	send := pawl.Task[[]string, int]{Kind: "send"}
	send.Handle(svc, func(ctx context.Context, j *pawl.Job[[]string]) (int, error) {
		return len(j.Args), j.Log(ctx, "sent %d letters", len(j.Args))
	})
	defer start(ctx, svc)()

	h, err := send.Enqueue(ctx, svc, []string{"ada", "bob"})
	if err != nil {
		panic(err)
	}
	if _, err := h.Wait(ctx); err != nil {
		panic(err)
	}
	events, err := svc.Jobs().History(ctx, h.ID)
	for _, e := range events {
		if e.Name == "log" {
			fmt.Println(e.State, e.Message)
		}
	}
	fmt.Println(err)
	// Output:
	// RUNNING sent 2 letters
	// <nil>
}

// OnError hears of each failed attempt, and of panics with their stack.
func ExampleOnError() {
	ctx := context.Background()
	svc, done := open(ctx, pawl.OnError(func(_ context.Context, t *service.TaskRun, err error) {
		var p *service.PanicError
		fmt.Printf("%s, attempt %d of %d: %v, a panic: %t\n",
			t.Job.Kind, t.Job.Attempt, t.Job.MaxAttempts, err, errors.As(err, &p))
	}))
	defer done()

	mail := pawl.Task[string, string]{Kind: "mail", Retry: soon}
	mail.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
		switch j.Attempt() {
		case 1:
			return "", errors.New("the server is away")
		case 2:
			panic("no letter")
		}
		return "sent to " + j.Args, nil
	})
	defer start(ctx, svc)()

	h, err := mail.Enqueue(ctx, svc, "ada")
	if err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	// Output:
	// mail, attempt 1 of 10: the server is away, a panic: false
	// mail, attempt 2 of 10: panic: no letter, a panic: true
	// sent to ada <nil>
}
