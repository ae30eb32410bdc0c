package guards

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestModule holds the guards of Pawl to its code: each old text is there once, and the packages
// compile with all new ones.
func TestModule(t *testing.T) {
	set, err := Read(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(set.Guards); n < 66 {
		t.Errorf("there are %d guards, and there were 66: is one lost?", n)
	}
	dir := t.TempDir()
	files, err := set.Overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := files.Write(name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", name}, set.Packages()...)...)
	cmd.Dir, cmd.Env = set.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, g := range set.Guards {
		for _, by := range g.NoticedBy {
			tests, err := filepath.Glob(filepath.Join(set.root, by.Package, "*_test.go"))
			if err != nil || len(tests) == 0 {
				t.Errorf("guard %s is noticed by tests of %s, which has none: %v", g.Name, by.Package, err)
			}
		}
	}
}

// module writes files into a new folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	source = "package a\n\nfunc f(x, y bool) bool {\n\tif x {\n\t\treturn y\n\t}\n\treturn false\n}\n"
	blocks = `guard: x
holds: x is asked
noticed by: ./a ^TestX$
-- old --
	if x {
-- new --
	if x || without("x") {

guard: y
holds: y is returned
noticed by: ./a ^Test/y or z$
noticed by: . ^TestAll$
-- old --
		return y
-- new --
		if without("y") {
			return true
		}

		return y
-- old --
package a
-- new --
package a // edited
`
)

func TestOverlay(t *testing.T) {
	root := module(t, map[string]string{"a/a.go": source, "a/a.mutants": blocks, "b/testdata/b.mutants": "no block"})
	set, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Guard{
		{"x", "x is asked", []Tests{{"./a", "^TestX$"}}},
		{"y", "y is returned", []Tests{{"./a", "^Test/y or z$"}, {".", "^TestAll$"}}},
	}
	if diff := gocmp.Diff(want, set.Guards); diff != "" {
		t.Errorf("guards (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"./a"}, set.Packages()); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	files, err := set.Overlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, stands := range files {
		text, err := os.ReadFile(stands)
		if err != nil {
			t.Fatal(err)
		}
		got[strings.TrimPrefix(name, root+"/")] = string(text)
	}
	const edited = "package a // edited\n\nfunc f(x, y bool) bool {\n\tif x || without(\"x\") {\n" +
		"\t\tif without(\"y\") {\n\t\t\treturn true\n\t\t}\n\n\t\treturn y\n\t}\n\treturn false\n}\n"
	if diff := gocmp.Diff(edited, got["a/a.go"]); diff != "" {
		t.Errorf("a.go (-want +got):\n%s", diff)
	}
	if len(got) != 2 || !strings.HasPrefix(got["a/without.go"], "package a\n") {
		t.Errorf("files %q, want a.go and without.go of package a", got)
	}
}

// TestWrong: what is wrong with a block is said with its file and line.
func TestWrong(t *testing.T) {
	for name, c := range map[string]struct{ source, blocks, more, says string }{
		"an old text that is gone": {
			source: strings.Replace(source, "if x", "if !x", 1), says: "a/a.mutants:4: its old text is there 0 times",
		},
		"a part of a line": {
			blocks: strings.Replace(blocks, "\t\treturn y\n-- new", "\treturn y\n-- new", 1),
			says:   "a/a.mutants:13: its old text is there 0 times",
		},
		"an old text that is there twice": {
			source: source + source[len("package a\n"):], says: "a/a.mutants:4: its old text is there 2 times",
		},
		"an old text that is empty": {
			blocks: strings.Replace(blocks, "\tif x {\n-- new", "-- new", 1),
			says:   "a/a.mutants:4: its old text is empty",
		},
		"edits that overlap": {
			blocks: strings.Replace(blocks, "\t\treturn y\n-- new", "\tif x {\n\t\treturn y\n-- new", 1),
			says:   "overlaps with another edit",
		},
		"what it holds is said in two ways": {more: "guard: x\nholds: more", says: "a/b.mutants:2: "},
		"no tests": {
			more: "guard: z\nholds: z",
			says: `guard z: it holds "z" and is noticed by []`,
		},
		"nothing that holds":            {more: "guard: z\nnoticed by: . ^TestZ$", says: `guard z: it holds ""`},
		"a package without its path":    {more: "guard: x\nnoticed by: a ^TestX$", says: "a/b.mutants:2: noticed by"},
		"tests that nothing can match":  {more: "guard: x\nnoticed by: ./a (", says: "a/b.mutants:2: noticed by"},
		"a word that is none":           {more: "guard: x\nnotices: ./a ^TestX$", says: "a/b.mutants:2: "},
		"no guard at first":             {more: "holds: x is asked", says: "a/b.mutants:1: "},
		"a new text without an old one": {more: "guard: x\n-- new --", says: "a/b.mutants:2: "},
		"a guard that nothing asks for": {
			blocks: strings.ReplaceAll(blocks, `without("y")`, "true"), says: `guard y: no new text asks without("y")`,
		},
		"what is asked for is no guard": {
			blocks: strings.ReplaceAll(blocks, `without("y")`, `without("z")`), says: `a/a.mutants:13: "z" is no guard`,
		},
		"a file of Go that is not there": {more: "guard: x\n-- old --\na\n-- new --\nb", says: "a/b.go"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a/a.go": cmp.Or(c.source, source), "a/a.mutants": cmp.Or(c.blocks, blocks)}
			if c.more != "" {
				files["a/b.mutants"] = c.more
			}
			set, err := Read(module(t, files))
			if err == nil {
				_, err = set.Overlay(t.TempDir())
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
		})
	}
}
