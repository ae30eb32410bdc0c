package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// Two builds of a program run side by side, as while it is rolled out. What only the new one can
// read waits for it, and is run by it from then on, in the first attempt.
func TestTwoBuildsSideBySide(t *testing.T) {
	type numbers struct{ N int }
	type texts struct{ N string }
	once := &job.RetryPolicy{MaxAttempts: 1}
	of := pawl.Task[numbers, string]{Kind: "builds", Retry: once}
	with := pawl.Task[texts, string]{Kind: "builds", Retry: once}
	v1 := pawl.Task[numbers, string]{Kind: "versions", Retry: once}
	v2 := pawl.Task[texts, string]{
		Kind: "versions", Retry: once, Version: 2,
		Migrate: map[int]func(json.RawMessage) (json.RawMessage, error){
			1: func(was json.RawMessage) (json.RawMessage, error) {
				var args numbers
				err := json.Unmarshal(was, &args)
				return json.RawMessage(fmt.Sprintf(`{"N":"%d"}`, args.N)), err
			},
		},
	}

	a := start(t)
	old, new := a.svc, a.open()
	number := func(_ context.Context, j *pawl.Job[numbers]) (string, error) {
		return fmt.Sprint("old ", j.Args.N), nil
	}
	text := func(_ context.Context, j *pawl.Job[texts]) (string, error) { return "new " + j.Args.N, nil }
	of.Handle(old, number)
	v1.Handle(old, number)
	with.Handle(new, text)
	v2.Handle(new, text)
	a.runs(old)
	send := func(task pawl.Task[texts, string], n int) (all []*pawl.Handle[string]) {
		args := make([]texts, n)
		for i := range args {
			args[i].N = fmt.Sprintf("n%d", i)
		}
		all, err := task.EnqueueAll(t.Context(), new, args)
		a.must(err)
		return all
	}
	all := [][]*pawl.Handle[string]{send(with, 5), send(v2, 5)}
	for _, hs := range all {
		for _, h := range hs { // so the old one makes the tests
			for e, err := range old.Jobs().Events(t.Context(), h.ID, "") {
				a.must(err)
				if e.State == job.Blocked {
					break
				}
			}
		}
	}
	a.runs(new)
	for _, hs := range append(all, send(with, 20), send(v2, 20)) {
		for i, h := range hs {
			got, err := h.Wait(t.Context())
			a.must(err)
			j, err := h.Job(t.Context())
			a.must(err)
			if want := fmt.Sprintf("new n%d", i); got != want || j.Attempt != 1 {
				t.Errorf("%s: %q in attempt %d, want %q in the first", j.Kind, got, j.Attempt, want)
			}
			if j.Recoveries > 3 { // when the new one begins, and when the old one learns that it is there
				t.Errorf("%s: claimed %d times in vain", j.Kind, j.Recoveries)
			}
		}
	}
	h, err := v1.Enqueue(t.Context(), old, numbers{7})
	a.must(err)
	if got, err := h.Wait(t.Context()); err != nil || got != "old 7" && got != "new 7" {
		t.Errorf("%q, %v: both can read it", got, err)
	}
}
