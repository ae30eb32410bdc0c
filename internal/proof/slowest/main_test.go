package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhatIsPrinted runs tests of a module of its own, of which some fail.
func TestWhatIsPrinted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n",
		"good/g_test.go": "package good\nimport (\"fmt\"; \"testing\")\nfunc Test(t *testing.T) { " +
			"fmt.Println(\"chatter\"); t.Log(\"more of it\") }\n",
		"bad/b_test.go": "package bad\nimport \"testing\"\nfunc Test(t *testing.T) { t.Run(\"a/b\", func(t " +
			"*testing.T) { t.Error(\"no\") }) }\nfunc TestGood(t *testing.T) { t.Log(\"chatter\") }\n",
		"torn/t_test.go":   "package torn\nimport \"testing\"\nfunc Test(t *testing.T) { panic(\"torn apart\") }\n",
		"broken/b_test.go": "package broken\nimport \"testing\"\nfunc Test(t *testing.T) { nobody() }\n",
		"none/n.go":        "package none\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-trimpath") // and no cgo, as for what else is built beside the tests: it is compiled
	t.Setenv("CGO_ENABLED", "0")
	tests := func(args ...string) (string, int) {
		var out strings.Builder
		code, err := run(&out, args)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), code
	}
	if out, code := tests("./good", "./none"); code != 0 ||
		!regexp.MustCompile(`^(ok  \tx/good\t\S+\n|\?.*\n)the slowest tests:\n +\d\.\d\ds  x/good Test\n(ok  \tx/good\t\S+\n|\?.*\n)$`).MatchString(out) {
		t.Errorf("exit code %d of tests that pass, and they say:\n%s", code, out)
	}
	out, code := tests("./...")
	if code != 1 || strings.Contains(out, "chatter") || !strings.HasSuffix(out, "\nFAIL\n") {
		t.Errorf("exit code %d of tests of which some fail, and they say:\n%s", code, out)
	}
	for _, want := range []string{
		"b_test.go:3: no\n", "--- FAIL: Test/a/b", "FAIL\tx/bad\t",
		"panic: torn apart", "t_test.go:3", "FAIL\tx/torn\t",
		"undefined: nobody", "FAIL\tx/broken [build failed]\n",
		"ok  \tx/good\t", "[no test files]\n", "x/bad Test/a/b\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
