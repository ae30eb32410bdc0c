package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// TestDocs holds the tables of the documents to the Go types.
func TestDocs(t *testing.T) {
	reference := tables(t, "../../docs/jobs.md")
	readme := tables(t, "../../README.md")

	t.Run("docs/jobs.md has every field", func(t *testing.T) {
		var got []string
		for _, title := range []string{"Every job", "A program, or a script"} {
			for _, cell := range slices.Sorted(maps.Keys(reference[title])) {
				got = append(got, strings.ReplaceAll(cell, "[]", ""))
			}
		}
		slices.Sort(got)
		want := slices.Sorted(maps.Keys(jsonFields(reflect.TypeFor[job.Spec](), "")))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-types +document)\n%s", diff)
		}
	})
	t.Run("README.md has every field of a program at the top", func(t *testing.T) {
		want := slices.DeleteFunc(specFields(), func(f string) bool { return f == "args" || f == "kind" })
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(readme["What a job file says"]))); diff != "" {
			t.Errorf("(-types +document)\n%s", diff)
		}
	})
	t.Run("docs/jobs.md has every macro and its meaning", func(t *testing.T) {
		want := map[string]string{}
		for _, m := range job.Macros {
			want[m.Name] = m.Meaning
		}
		if diff := cmp.Diff(want, reference["Macros"]); diff != "" {
			t.Errorf("(-types +document)\n%s", diff)
		}
	})
	t.Run("README.md leads to every example, which has a page and is tested", func(t *testing.T) {
		text, err := os.ReadFile("../../README.md")
		if err != nil {
			t.Fatal(err)
		}
		examples, err := os.ReadDir("../../examples")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range examples {
			if !strings.Contains(string(text), "(examples/"+e.Name()) {
				t.Errorf("README.md does not lead to %s", e.Name())
			}
			if _, err := os.Stat(filepath.Join("../../examples", e.Name(), "README.md")); err != nil {
				t.Error(err)
			}
			scripts, err := filepath.Glob(filepath.Join("testdata", e.Name()+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			goTests, err := filepath.Glob(filepath.Join("../../examples", e.Name(), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if len(scripts)+len(goTests) == 0 {
				t.Errorf("example %s has no test", e.Name())
			}
		}
	})
	t.Run("README.md has every command", func(t *testing.T) {
		var want []string
		for _, c := range rootCommand().Commands() {
			if !c.Hidden && !c.IsAdditionalHelpTopicCommand() {
				want = append(want, c.Name())
			}
		}
		slices.Sort(want)
		var got []string
		for _, use := range slices.Sorted(maps.Keys(readme["Commands"])) {
			command, _, _ := strings.Cut(use, " ")
			if _, err := strconv.Atoi(command); err != nil { // else it is an exit code
				got = append(got, command)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-commands +document)\n%s", diff)
		}
	})
	t.Run("README.md has every exit code", func(t *testing.T) {
		for _, c := range exitCodes {
			if got := readme["Commands"][strconv.Itoa(c.code)]; got != c.meaning {
				t.Errorf("code %d: %q, want %q", c.code, got, c.meaning)
			}
		}
	})
}

// tables returns, for each title of a document, what its tables have in the last column, by the names in the first.
// A cell of the first column may hold several names.
func tables(t *testing.T, name string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([^`]+)`")
	all, title := map[string]map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, "# "); ok && strings.HasPrefix(line, "#") {
			title = after
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) < 2 {
			continue
		}
		if all[title] == nil {
			all[title] = map[string]string{}
		}
		for _, m := range code.FindAllStringSubmatch(cells[0], -1) {
			all[title][m[1]] = strings.TrimSpace(cells[len(cells)-1])
		}
	}
	return all
}
