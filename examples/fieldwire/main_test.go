package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/pawltest"
)

// What is enqueued can be seen without a database, and without running it.
func TestChanges(t *testing.T) {
	svc := pawltest.Open(t)
	if _, err := changes(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	if got := pawltest.Enqueued(t, svc, process); !slices.Equal(got, []blog{{0}, {1}, {2}}) {
		t.Errorf("enqueued is %v", got)
	}
	process.Handle(svc, handle)
	pawltest.Start(t, svc)
	pawltest.Drain(t, svc)
}

// Nine changes of three blogs are three jobs. A second run processes each blog once more.
func TestEachBlogOnce(t *testing.T) {
	dir, seen := t.TempDir(), map[string]int{}
	for range 2 {
		var out bytes.Buffer
		if err := run(t.Context(), dir, &out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			seen[line]++
		}
	}
	for line, n := range seen {
		if n != 3 {
			t.Errorf("%q: %d times, want 3", line, n)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d jobs, want 6: %v", len(seen), seen)
	}
}
