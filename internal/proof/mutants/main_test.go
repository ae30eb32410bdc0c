package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/guards"
)

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
		failed, _, err := b.test(t.Context(), guards.Tests{Package: ".", Run: "Test"}, "epoch")
		if failed != c.failed || errors.Is(err, errBroken) != (c.failed == "") {
			t.Errorf("%s: %q, %v", name, failed, err)
		}
	}
}
