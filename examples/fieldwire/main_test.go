package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/pawltest"
)

func TestMain(m *testing.M) {
	if os.Getenv("FIELDWIRE") != "" { // see TestEachBlogOnce
		main()
		return
	}
	os.Exit(m.Run())
}

// What is enqueued can be seen without a database, and without running it.
func TestChanges(t *testing.T) {
	svc := pawltest.Open(t)
	if _, err := process.EnqueueAll(t.Context(), svc, changed); err != nil {
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
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "FIELDWIRE=main"), t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
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
