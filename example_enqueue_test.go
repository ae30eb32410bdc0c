package pawl_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// A job waits until its time has come.
func ExampleAt() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	newYear := time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)
	h, err := Report.Enqueue(ctx, svc, Week{Team: "red"}, pawl.At(newYear))
	if err != nil {
		panic(err)
	}
	j, err := h.Job(ctx)
	fmt.Println(j.State, j.Due.UTC().Format(time.DateTime), err)
	// Output: WAITING 2100-01-01 09:00:00 <nil>
}

// After counts by the clock of the database, so that clocks of machines need not agree.
func ExampleAfter() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	h, err := Report.Enqueue(ctx, svc, Week{Team: "red"}, pawl.After(time.Hour))
	if err != nil {
		panic(err)
	}
	j, err := h.Job(ctx)
	fmt.Println(j.State, j.Due.Sub(j.Created), err)
	// Output: WAITING 1h0m0s <nil>
}

// Of the jobs that are ready the one with the lowest number goes first.
func ExampleWithPriority() {
	ctx := context.Background()
	svc, done := open(ctx, pawl.Slots(1)) // this process runs one job at a time
	defer done()

	Report.Handle(svc, func(ctx context.Context, j *pawl.Job[Week]) (string, error) {
		fmt.Println(j.Args.Team)
		return "", nil
	})
	var last *pawl.Handle[string]
	for _, p := range []int{9, 5, 0} {
		h, err := Report.Enqueue(ctx, svc, Week{Team: fmt.Sprint("priority ", p)}, pawl.WithPriority(p))
		if err != nil {
			panic(err)
		}
		if p == 9 {
			last = h
		}
	}
	defer start(ctx, svc)()
	_, err := last.Wait(ctx)
	fmt.Println(err)
	// Output:
	// priority 0
	// priority 5
	// priority 9
	// <nil>
}

// A name of the caller's own makes a call that can be repeated, for as long as the job is kept.
func ExampleWithID() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	first, err := Report.Enqueue(ctx, svc, Week{Team: "red"}, pawl.WithID("order-17"))
	if err != nil {
		panic(err)
	}
	again, err := Report.Enqueue(ctx, svc, Week{Team: "red"}, pawl.WithID("order-17"))
	if err != nil {
		panic(err)
	}
	fmt.Println(again.ID == first.ID, again.Existed)

	_, err = Report.Enqueue(ctx, svc, Week{Team: "blue"}, pawl.WithID("order-17"))
	fmt.Println(job.KindOf(err))
	// Output:
	// true true
	// conflict
}

// A key makes a call that can be repeated within a day, also one of many jobs.
func ExampleWithKey() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	weeks := []Week{{Team: "red"}, {Team: "blue"}}
	first, err := Report.EnqueueAll(ctx, svc, weeks, pawl.WithKey("request 4711"))
	if err != nil {
		panic(err)
	}
	again, err := Report.EnqueueAll(ctx, svc, weeks, pawl.WithKey("request 4711"))
	if err != nil {
		panic(err)
	}
	fmt.Println(again[0].ID == first[0].ID, again[1].ID == first[1].ID)
	// Output: true true
}

// Labels are for filters: pawl list --filter label.customer=17 finds the job, too.
func ExampleWithLabel() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()

	for _, customer := range []string{"17", "18"} {
		_, err := Report.Enqueue(ctx, svc, Week{Team: "red"}, pawl.WithLabel("customer", customer))
		if err != nil {
			panic(err)
		}
	}
	count, err := svc.Jobs().Count(ctx, job.Where("label.customer", job.Is, "17"))
	fmt.Println(count.States[job.Pending], err)
	// Output: 1 <nil>
}

// An id can be kept as text, and leads to the job and its result in any process.
func ExampleTask_Find() {
	ctx := context.Background()
	svc, done := open(ctx)
	defer done()
	Report.Handle(svc, func(ctx context.Context, j *pawl.Job[Week]) (string, error) {
		return "the week of " + j.Args.Team, nil
	})
	defer start(ctx, svc)()

	h, err := Report.Enqueue(ctx, svc, Week{Team: "red"})
	if err != nil {
		panic(err)
	}
	url := "/reports/" + h.ID.String()

	id, err := job.ParseID(url[len("/reports/"):])
	if err != nil {
		panic(err)
	}
	fmt.Println(Report.Find(svc, id).Wait(ctx))
	// Output: the week of red <nil>
}
