package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// example runs a line of a command's help: example 'LINE'.
func example(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: example 'LINE'")
	}
	err := ts.Exec("sh", "-c", args[0])
	switch {
	case err != nil && !neg:
		ts.Fatalf("%s: %v", args[0], err)
	case err == nil && neg:
		ts.Fatalf("%s succeeds", args[0])
	}
}

// exampleLine is a line of a script that runs an example: as it is, or beside what follows.
var exampleLine = regexp.MustCompile(`(?m)^(?:! )?(?:example|exec sh -c) '(?:exec )?(pawl.*)'(?: &(?:\w+&)?)?$`)

// TestExamples sees to it that every command's help has examples, and that a script runs each of
// them.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := filepath.Glob("testdata/postgres/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	scripts = append(scripts, shared...)
	run := map[string]bool{}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exampleLine.FindAllStringSubmatch(string(text), -1) {
			run[strings.ReplaceAll(m[1], "''", "'")] = true
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		switch {
		case c.Hidden, c.IsAdditionalHelpTopicCommand():
			return
		case c.Name() == "bench": // a measurement takes minutes; the tests of bench run each with small numbers
			return
		}
		if c.HasParent() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			line = strings.TrimSpace(line)
			if !strings.Contains(line, "pawl ") {
				t.Errorf("%s: the example %q does not call pawl", c.CommandPath(), line)
			}
			if !run[line] {
				t.Errorf("%s: no script in testdata runs the example: %s", c.CommandPath(), line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(rootCommand(Program{}))
}
