package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Change is the argument of tasks that work for an account.
type Change struct {
	Account string `json:"account"`
	Version int    `json:"version"`
}

// soon tries a task again at once, which only examples do.
var soon = &job.RetryPolicy{MaxAttempts: 10, Backoff: job.Backoff{Base: job.Duration(time.Millisecond)}}

// Equal jobs are one job until it has ended: a handler that enqueues what it does itself gets its
// own job.
func ExampleUntilDone() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	index := pawl.Task[Change, string]{Kind: "index", Unique: pawl.UntilDone("account")}
	index.Handle(svc, func(ctx context.Context, j *pawl.Job[Change]) (string, error) {
		again, err := index.Enqueue(ctx, svc, j.Args)
		if err != nil {
			return "", err
		}
		return fmt.Sprint("it is this job: ", again.ID == j.ID()), nil
	})
	defer start(ctx, svc)()

	first, err := index.Enqueue(ctx, svc, Change{Account: "ada"})
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Wait(ctx))
	next, err := index.Enqueue(ctx, svc, Change{Account: "ada"})
	fmt.Println("it existed:", next.Existed, err)
	// Output:
	// it is this job: true <nil>
	// it existed: false <nil>
}

// Equal jobs are all accepted. One of them goes at a time, and the others wait.
func ExampleWhileRunning() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	sync := pawl.Task[Change, struct{}]{Kind: "sync", Unique: pawl.WhileRunning("account")}
	hs, err := sync.EnqueueAll(ctx, svc, []Change{{Account: "ada"}, {Account: "ada"}, {Account: "bob"}})
	if err != nil {
		panic(err)
	}
	for _, h := range hs {
		j, err := h.Job(ctx)
		fmt.Println(h.Existed, j.State, err)
	}
	// Output:
	// false PENDING <nil>
	// false WAITING <nil>
	// false PENDING <nil>
}

// While a job runs, one equal job may wait, and no more.
func ExampleUnique_Alone() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	build := pawl.Task[Change, struct{}]{Kind: "build", Unique: pawl.UntilStart("account").Alone()}
	started, goOn := make(chan bool, 2), make(chan bool)
	build.Handle(svc, func(context.Context, *pawl.Job[Change]) (struct{}, error) {
		started <- true
		<-goOn
		return struct{}{}, nil
	})
	defer start(ctx, svc)()
	defer close(goOn)

	var hs []*pawl.Handle[struct{}]
	for i := range 3 {
		h, err := build.Enqueue(ctx, svc, Change{Account: "ada", Version: i})
		if err != nil {
			panic(err)
		}
		if i == 0 {
			<-started
		}
		hs = append(hs, h)
	}
	fmt.Println("the second is the first:", hs[1].ID == hs[0].ID)
	fmt.Println("the third is the second:", hs[2].ID == hs[1].ID)
	j, err := hs[1].Job(ctx)
	fmt.Println("it is", j.State, err)
	// Output:
	// the second is the first: false
	// the third is the second: true
	// it is WAITING <nil>
}

// The jobs of an account go one after the other. One that fails, and is tried again, holds up those
// behind it.
func ExampleInOrder() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	apply := pawl.Task[Change, struct{}]{Kind: "apply", Order: pawl.InOrder("account"), Retry: soon}
	apply.Handle(svc, func(ctx context.Context, j *pawl.Job[Change]) (none struct{}, err error) {
		fmt.Println("version", j.Args.Version, "attempt", j.Attempt())
		if j.Args.Version == 1 && j.Attempt() == 1 {
			err = errors.New("the account is locked")
		}
		return none, err
	})
	hs, err := apply.EnqueueAll(ctx, svc, []Change{{"ada", 1}, {"ada", 2}, {"ada", 3}})
	if err != nil {
		panic(err)
	}
	defer start(ctx, svc)()
	_, err = hs[2].Wait(ctx)
	fmt.Println(err)
	// Output:
	// version 1 attempt 1
	// version 1 attempt 2
	// version 2 attempt 1
	// version 3 attempt 1
	// <nil>
}

// Of the jobs that wait the one with the least version goes next, in whatever order they came.
func ExampleOrder_By() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	apply := pawl.Task[Change, struct{}]{Kind: "apply", Order: pawl.InOrder("account").By("args.version")}
	apply.Handle(svc, func(ctx context.Context, j *pawl.Job[Change]) (struct{}, error) {
		fmt.Println("version", j.Args.Version)
		return struct{}{}, nil
	})
	var hs []*pawl.Handle[struct{}]
	for _, version := range []int{1, 4, 3, 2} { // 1 does not wait: it is the first of its account
		h, err := apply.Enqueue(ctx, svc, Change{"ada", version})
		if err != nil {
			panic(err)
		}
		hs = append(hs, h)
	}
	defer start(ctx, svc)()
	_, err := hs[1].Wait(ctx)
	fmt.Println(err)
	// Output:
	// version 1
	// version 2
	// version 3
	// version 4
	// <nil>
}

// A job that is in trouble lets others pass. Here it waits an hour for its next attempt.
func ExampleOrder_Passing() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	apply := pawl.Task[Change, struct{}]{
		Kind: "apply", Order: pawl.InOrder("account").Passing(),
		Retry: &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: job.Duration(time.Hour)}},
	}
	apply.Handle(svc, func(ctx context.Context, j *pawl.Job[Change]) (none struct{}, err error) {
		if j.Args.Version == 1 {
			err = errors.New("the account is locked")
		}
		return none, err
	})
	hs, err := apply.EnqueueAll(ctx, svc, []Change{{"ada", 1}, {"ada", 2}})
	if err != nil {
		panic(err)
	}
	defer start(ctx, svc)()
	_, err = hs[1].Wait(ctx)
	fmt.Println("version 2:", err)
	j, err := hs[0].Job(ctx)
	fmt.Println("version 1:", j.State, err)
	// Output:
	// version 2: <nil>
	// version 1: WAITING <nil>
}

// A limit of a family of keys holds for each key by itself: one job at a time for each account.
func ExampleTask_limits() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	bill := pawl.Task[Change, struct{}]{Kind: "bill", Limits: []string{"account/{account}"}}
	if err := svc.Jobs().SetLimit(ctx, job.Limit{Key: "account/*", Most: 1}); err != nil {
		panic(err)
	}
	_, err := bill.EnqueueAll(ctx, svc, []Change{{Account: "ada"}, {Account: "ada"}, {Account: "bob"}})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"account/ada", "account/bob"} {
		l, err := svc.Jobs().Limit(ctx, key)
		fmt.Println(key, "in use:", l.InUse, "waiting:", l.Waiting, err)
	}
	// Output:
	// account/ada in use: 1 waiting: 1 <nil>
	// account/bob in use: 1 waiting: 0 <nil>
}

// Slots is how many jobs of a kind run at once, however many processes there are.
func ExampleTask_slots() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	render := pawl.Task[int, struct{}]{Kind: "render", Slots: 2}
	if err := render.Declare(ctx, svc); err != nil { // Run does it for the tasks that the process handles
		panic(err)
	}
	if _, err := render.EnqueueAll(ctx, svc, []int{1, 2, 3}); err != nil {
		panic(err)
	}
	l, err := svc.Jobs().Limit(ctx, "kind/render")
	fmt.Println("of", l.Set.Most, "in use:", l.InUse, "waiting:", l.Waiting, err)
	// Output: of 2 in use: 2 waiting: 1 <nil>
}

// A queue of its own is made by Run, or by Declare in a process that only enqueues.
func ExampleTask_queue() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	export := pawl.Task[string, struct{}]{Kind: "export", Queue: "night"}
	_, err := export.Enqueue(ctx, svc, "all")
	fmt.Println(job.KindOf(err))

	if err := export.Declare(ctx, svc); err != nil {
		panic(err)
	}
	h, err := export.Enqueue(ctx, svc, "all")
	if err != nil {
		panic(err)
	}
	j, err := h.Job(ctx)
	fmt.Println(j.Queue, err)
	// Output:
	// invalid
	// night <nil>
}

// A task is tried up to ten times, or as often as Retry says.
func ExampleTask_retry() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	call := pawl.Task[string, string]{Kind: "call", Retry: &job.RetryPolicy{
		MaxAttempts: 3, Backoff: job.Backoff{Base: job.Duration(time.Millisecond), Jitter: true},
	}}
	call.Handle(svc, func(ctx context.Context, j *pawl.Job[string]) (string, error) {
		return "", fmt.Errorf("attempt %d: nobody is there", j.Attempt())
	})
	defer start(ctx, svc)()

	h, err := call.Enqueue(ctx, svc, "ada")
	if err != nil {
		panic(err)
	}
	_, err = h.Wait(ctx)
	var ended *pawl.Ended
	if errors.As(err, &ended) {
		fmt.Println(ended.State, ended.Message)
	}
	// Output: FAILED attempt 3: nobody is there
}

// A job that an older build has enqueued is brought up to date before the handler sees it.
func ExampleTask_versions() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	type greeting1 struct{ Name string }
	type greeting2 struct{ First, Last string }
	old := pawl.Task[greeting1, string]{Kind: "greet"}
	greet := pawl.Task[greeting2, string]{
		Kind: "greet", Version: 2,
		Migrate: map[int]func(json.RawMessage) (json.RawMessage, error){
			1: func(args json.RawMessage) (json.RawMessage, error) { // makes arguments of version 2
				var was greeting1
				if err := json.Unmarshal(args, &was); err != nil {
					return nil, err
				}
				first, last, _ := strings.Cut(was.Name, " ")
				return json.Marshal(greeting2{first, last})
			},
		},
	}
	greet.Handle(svc, func(ctx context.Context, j *pawl.Job[greeting2]) (string, error) {
		return "Dear " + j.Args.Last, nil
	})
	defer start(ctx, svc)()

	h, err := old.Enqueue(ctx, svc, greeting1{"Ada Lovelace"})
	if err != nil {
		panic(err)
	}
	fmt.Println(h.Wait(ctx))
	// Output: Dear Lovelace <nil>
}

// Jobs are kept for ever, or after their end for as long as Keep says.
func ExampleTask_keep() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	mail := pawl.Task[string, struct{}]{Kind: "mail", Keep: map[job.State]time.Duration{
		job.Finished: 24 * time.Hour, job.Failed: 30 * 24 * time.Hour,
	}}
	if err := mail.Declare(ctx, svc); err != nil {
		panic(err)
	}
	kind, err := svc.Jobs().Kinds().Resource(ctx, "mail") // its document, as pawl get kind mail shows it
	fmt.Println(kind.Doc.Keep[job.Finished], kind.Doc.Keep[job.Failed], err)
	// Output: 24h0m0s 720h0m0s <nil>
}

// Jobs are found by their arguments. With an index that is fast among millions of jobs.
func ExampleTask_index() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	shrink := pawl.Task[Resize, Thumb]{Kind: "shrink", Index: []string{"image"}}
	if err := shrink.Declare(ctx, svc); err != nil {
		panic(err)
	}
	if _, err := shrink.EnqueueAll(ctx, svc, []Resize{{"cat.png", 100}, {"dog.png", 100}, {"cat.png", 200}}); err != nil {
		panic(err)
	}
	cats := job.Where("kind", job.Is, "shrink").And("args.image", job.Is, "cat.png")
	page, err := svc.Jobs().List(ctx, store.Query{Filter: cats})
	fmt.Println(len(page.Jobs), "jobs", err)
	count, err := svc.Jobs().Count(ctx, cats)
	fmt.Println(count.States[job.Pending], "are PENDING", err)
	// Output:
	// 2 jobs <nil>
	// 2 are PENDING <nil>
}
