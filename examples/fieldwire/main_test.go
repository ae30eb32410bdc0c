package main

import (
	"bytes"
	"strings"
	"testing"
)

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
