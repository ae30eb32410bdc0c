package main

import (
	"errors"
	"os"
	"path/filepath"
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
		"ok\n": "",
		"":     "",
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n        --- FAIL: TestA/b/c (0.1s)\n    --- FAIL: TestA/d (0.1s)\nFAIL\n": "TestA/b/c",
		"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestA (1m0s)\n":                                                         "TestA (hangs)",
		"panic: no\n\ngoroutine 1\n": "",
	} {
		if got := blamed([]byte(output)); got != want {
			t.Errorf("%q blames %q, want %q", output, got, want)
		}
	}
}

// TestBroken: who ends badly without a test that failed has noticed nothing, whatever it said.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct{ script, failed string }{
		"says nothing":        {"exit 1", ""},
		"is killed":           {"kill -9 $$", ""},
		"panics beside tests": {"echo 'panic: no'; exit 2", ""},
		"a test fails":        {"echo '--- FAIL: TestA (0.1s)'; exit 1", "TestA"},
	} {
		bin := filepath.Join(t.TempDir(), "tests")
		if err := os.WriteFile(bin, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		b := &bench{built: map[string]string{".": bin}}
		failed, _, err := b.test(t.Context(), tests{".", "Test"}, guard.Epoch)
		if failed != c.failed || errors.Is(err, errBroken) != (c.failed == "") {
			t.Errorf("%s: %q, %v", name, failed, err)
		}
	}
}
