package cli

import (
	"fmt"
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

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
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
		want := slices.Sorted(maps.Keys(testenv.JSONFields(reflect.TypeFor[job.Spec](), "")))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-types +document)\n%s", diff)
		}
	})
	t.Run("docs/systems.md has every field", func(t *testing.T) {
		want := maps.Clone(testenv.JSONFields(reflect.TypeFor[job.System](), ""))
		maps.DeleteFunc(want, func(name string, _ bool) bool {
			return strings.HasPrefix(name, "most.") || strings.HasPrefix(name, "partitions.most.")
		})
		got := slices.Sorted(maps.Keys(tables(t, "../../docs/systems.md")["Fields"]))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
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
		for _, c := range rootCommand(Program{}).Commands() {
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
	t.Run("help lists every command in a group, in 80 columns", func(t *testing.T) {
		for _, c := range rootCommand(Program{}).Commands() {
			if !c.Hidden && !c.IsAdditionalHelpTopicCommand() && c.GroupID == "" {
				t.Errorf("%s is in no group", c.Name())
			}
			if line := fmt.Sprintf("  %-11s %s", c.Name(), c.Short); len(line) > 80 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	})
	t.Run("docs/operations/recovery.md has the policy of every condition", func(t *testing.T) {
		want := map[string][]string{}
		for _, c := range job.Codes {
			if p := job.PolicyOf(c.Code); c.Recoverable {
				want["`"+string(c.Code)+"`"] = []string{term.Stages(p.Stages), term.KeptFor(job.Duration(p.Wait()))}
			}
		}
		got := map[string][]string{}
		for _, row := range rows(t, "../../docs/operations/recovery.md")["Policies"] {
			got[row[0]] = row[1:]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-code +document)\n%s", diff)
		}
	})
	t.Run("docs/api.md has every field of filters", func(t *testing.T) {
		want := [][]string{}
		for _, f := range job.FilterFields {
			indexed := ""
			if f.Indexed {
				indexed = "yes"
			}
			want = append(want, []string{"`" + f.Name + "`", string(f.Type), indexed, f.Doc})
		}
		want = append(want, []string{
			"`" + job.LabelField + "KEY`", string(job.FieldWord), "yes",
			"the value of a label",
		}, []string{
			"`" + job.ArgsField + "NAME`", string(job.FieldJSON), "",
			"an argument of a task, with `=` or `!=`: `args.image`, or `args.user.id` for a field in a field",
		})
		var got [][]string
		for _, row := range rows(t, "../../docs/api.md")["Filters"] {
			if len(row) == len(want[0]) {
				got = append(got, row)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-types +document)\n%s", diff)
		}
	})
	t.Run("docs/api.md has the defaults of pawl serve for all limits", func(t *testing.T) {
		listed := map[string]string{}
		for _, row := range rows(t, "../../docs/api.md")["Limits"] {
			listed[strings.Trim(row[0], "`")] = strings.ReplaceAll(row[1], " ", "")
		}
		for _, s := range config.Settings {
			if !strings.HasPrefix(s.Key, "limits.") {
				continue
			}
			// 0 stands for words that say what holds then.
			if is, ok := listed[s.Key]; !ok || s.Default != "0" && !strings.HasPrefix(is, s.Default) {
				t.Errorf("%s is %s by default, and the document says %q", s.Key, s.Default, is)
			}
			delete(listed, s.Key)
		}
		for name := range listed {
			t.Errorf("%s is no setting", name)
		}
	})
	t.Run("docs/decisions has every module that go.mod requires itself", func(t *testing.T) {
		modules, err := os.ReadFile("../../go.mod")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("../../docs/decisions/dependencies.md")
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				listed[name] = true
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(modules), -1) {
			if !listed[m[1]] {
				t.Errorf("%s has no line", m[1])
			}
			delete(listed, m[1])
		}
		delete(listed, "module")
		for name := range listed {
			if strings.Contains(name, "/") {
				t.Errorf("%s has a line, and go.mod does not require it", name)
			}
		}
	})
	t.Run("README.md has every exit code", func(t *testing.T) {
		for _, c := range term.ExitCodes {
			if got := readme["Commands"][strconv.Itoa(c.Code)]; got != c.Meaning {
				t.Errorf("code %d: %q, want %q", c.Code, got, c.Meaning)
			}
		}
	})
}

// TestWords holds the list of words to the code: each name is in the file that it says, and the
// words are sorted.
func TestWords(t *testing.T) {
	text, err := os.ReadFile("../../docs/words.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(\\w+)` in `([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		code, err := os.ReadFile(filepath.Join("../..", m[2]))
		if err != nil {
			t.Error(err)
		} else if !regexp.MustCompile(`\b` + m[1] + `\b`).Match(code) {
			t.Errorf("%s has no %s", m[2], m[1])
		}
	}
	var words []string
	for _, m := range regexp.MustCompile(
		`(?m)^\| ([a-z][^|]*) \| [^|]+ \| [^|]+ \| [^|]+ \|$`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "word" {
			words = append(words, strings.ToLower(m[1]))
		}
	}
	if len(words) < 50 || !slices.IsSorted(words) {
		t.Errorf("%d words, which are not sorted: %q", len(words), words)
	}
}

// TestWays holds docs/architecture.md to the code: each step of a way is declared in a file that
// its row names, and each backend has its place.
func TestWays(t *testing.T) {
	const page = "../../docs/architecture.md"
	named := regexp.MustCompile("`([^`]+)`")
	for _, way := range []string{"The way of one submission", "The way of one change"} {
		steps := rows(t, page)[way]
		if len(steps) < 10 {
			t.Errorf("%s: %d steps", way, len(steps))
		}
		for _, cells := range steps {
			var code []byte
			for _, m := range named.FindAllStringSubmatch(cells[0], -1) {
				text, err := os.ReadFile(filepath.Join("../..", m[1]))
				if err != nil {
					t.Error(err)
				}
				code = append(code, text...)
			}
			for _, m := range named.FindAllStringSubmatch(cells[1], -1) {
				if !regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|var |\t)` + m[1] + `(?:\(|\s+=)`).Match(code) {
					t.Errorf("%s: %s has no %s", way, cells[0], m[1])
				}
			}
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, contract := range []string{"store", "broker", "runner", "host", "files"} {
		folders, err := os.ReadDir(filepath.Join("../..", contract))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range folders {
			name := f.Name()
			if !f.IsDir() || name == "fake" || name == "testdata" || name == "internal" || strings.HasSuffix(name, "test") {
				continue
			}
			if !strings.Contains(string(text), "`"+contract+"/"+name+"`") {
				t.Errorf("the table of backends has no %s/%s", contract, name)
			}
		}
	}
}

// TestDecisions holds each decision to ten lines, and the index to the pages.
func TestDecisions(t *testing.T) {
	pages, err := filepath.Glob("../../docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile("../../docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("the index does not lead to %s", name)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range regexp.MustCompile(`(?m)^- .*\n(?:  .*\n)*`).FindAllString(string(text), -1) {
			if n := strings.Count(entry, "\n"); n > 10 {
				t.Errorf("%s: %d lines, ten at most:\n%s", name, n, entry)
			}
		}
	}
}

// tables returns, for each title of a document, what its tables have in the last column, by the
// names in the first. A cell of the first column may hold several names.
func tables(t *testing.T, name string) map[string]map[string]string {
	t.Helper()
	code := regexp.MustCompile("`([^`]+)`")
	all := map[string]map[string]string{}
	for title, list := range rows(t, name) {
		all[title] = map[string]string{}
		for _, cells := range list {
			for _, m := range code.FindAllStringSubmatch(cells[0], -1) {
				all[title][m[1]] = cells[len(cells)-1]
			}
		}
	}
	return all
}

// rows returns, for each title of a document, the rows of its tables that begin with a name, cell
// by cell.
func rows(t *testing.T, name string) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all, title := map[string][][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, "# "); ok && strings.HasPrefix(line, "#") {
			title = after
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) < 2 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all[title] = append(all[title], cells)
	}
	return all
}

// TestLinks follows the links of the documents to other files and to titles, and looks for the
// files of code that they name.
func TestLinks(t *testing.T) {
	var documents []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	link, code := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("`((?:\\w+/)+\\w+\\.go)`")
	titles := map[string][]string{} // by document
	for _, name := range documents {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil && !strings.Contains(m[1], "NAME") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if anchor == "" {
				continue
			}
			if titles[target] == nil {
				titles[target] = anchors(t, target)
			}
			if !slices.Contains(titles[target], anchor) {
				t.Errorf("%s: %s has no title for #%s", name, target, anchor)
			}
		}
	}
}

// anchors returns the names by which links reach the titles of a document.
func anchors(t *testing.T, name string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		title := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(title, " ", "-"))
	}
	return all
}
