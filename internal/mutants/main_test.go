package main

import (
	"regexp"
	"testing"

	"github.com/pawl-jobs/pawl/internal/guard"
)

func TestEachGuardHasTests(t *testing.T) {
	seen := map[guard.Guard]bool{}
	for _, g := range guard.All {
		if seen[g.Guard] || g.Holds == "" || len(noticedBy[g.Guard]) == 0 {
			t.Errorf("%s: twice %t, holds %q, noticed by %v", g.Guard, seen[g.Guard], g.Holds, noticedBy[g.Guard])
		}
		seen[g.Guard] = true
	}
	for g, all := range noticedBy {
		if !seen[g] {
			t.Errorf("%s is no guard", g)
		}
		for _, n := range all {
			if _, err := regexp.Compile(n.run); err != nil || n.run == "" {
				t.Errorf("%s: the tests %q of %s: %v", g, n.run, n.pkg, err)
			}
		}
	}
}

func TestNoGuardIsOff(t *testing.T) {
	for _, g := range guard.All {
		t.Setenv("PAWL_WITHOUT", string(g.Guard))
		if g.Off() || g.SQL("with", "without") != "with" {
			t.Errorf("%s can be switched off in a binary that was not built for it", g.Guard)
		}
	}
}

func TestBlamed(t *testing.T) {
	for output, want := range map[string]string{
		"ok\n": "ok",
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n        --- FAIL: TestA/b/c (0.1s)\n    --- FAIL: TestA/d (0.1s)\nFAIL\n": "TestA/b/c",
		"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestA (1m0s)\n":                                                         "TestA (hangs)",
		"panic: no\n\ngoroutine 1\n": "panic: no",
	} {
		if got := blamed([]byte(output)); got != want {
			t.Errorf("%q blames %q, want %q", output, got, want)
		}
	}
}
