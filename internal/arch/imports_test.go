package arch

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pawl-jobs/pawl"

var update = flag.Bool("update", false, "write the golden files anew")

func TestImports(t *testing.T) {
	var pkgs []Package
	dec := json.NewDecoder(strings.NewReader(golist(t, "-e", "-json=ImportPath,Name,Imports", "./...")))
	for {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if !slices.ContainsFunc(pkgs, func(p Package) bool { return p.ImportPath == module+"/internal/arch" }) {
		t.Fatalf("go list does not show this package among %d: is the module no longer %s?", len(pkgs), module)
	}
	for _, breach := range Check(module, pkgs) {
		t.Error(breach)
	}
}

// The program pawl that people run has no code of tests in it.
func TestTheProductHasNoTestCode(t *testing.T) {
	for p := range strings.FieldsSeq(golist(t, "-deps", "./cmd/pawl")) {
		rel, own := within(module, p)
		if p == "testing" || strings.HasPrefix(p, "testing/") || own && (below(rel, forTests...) || suite(rel)) {
			t.Errorf("cmd/pawl imports %s, itself or through others: that is for tests only", p)
		}
	}
}

// The root folder is what a newcomer sees first.
func TestTheRootHasFewTests(t *testing.T) {
	const most = 12
	names, err := filepath.Glob("../../*_test.go")
	if err != nil || len(names) > most {
		t.Errorf("%d files of tests are in the root folder (%v), at most %d may be: add to one of its subject",
			len(names), err, most)
	}
}

// The modules that come along with package pawl and a database are a price that every user of the
// library pays, so a new one is seen here before it is paid.
func TestClosure(t *testing.T) {
	const golden = "testdata/closure.txt"
	got := "# The modules that the packages of the library import, themselves and through others.\n" +
		"# go test ./internal/arch -update writes it.\n"
	for _, pkg := range []string{".", "./sqlite", "./postgres"} {
		var modules []string
		for line := range strings.Lines(golist(t, "-e", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg)) {
			if m := strings.TrimSpace(line); m != "" && m != module {
				modules = append(modules, m)
			}
		}
		slices.Sort(modules)
		got += "\n# " + pkg + "\n" + strings.Join(append(slices.Compact(modules), ""), "\n")
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the import closure of the library has changed; if that is meant, run go test ./internal/arch "+
			"-update\n--- %s\n%s+++ now\n%s", golden, want, got)
	}
}

// golist runs go list at the module's root.
func golist(t *testing.T, args ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// go test serves this test from its cache unless something changed that the test itself has
	// opened, and what go list opens does not count. So open every folder.
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-buildvcs=false"}, args...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0") // as most builds are: it is compiled then
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// Each row is one import (or, without "->", one package) and a piece of the refusal; "" means that
// it is allowed.
func TestCheck(t *testing.T) {
	for _, tt := range []struct{ edge, want string }{
		{"job -> fmt", ""},
		{"job -> encoding/json", ""},
		{"job -> golang.org/x/text/language", "job imports only the standard library"},
		{"job -> ./store", "job imports only the standard library"},
		{"job -> ./internal/backoff", "job imports only the standard library"},
		{"job -> ./job/turns", "job imports only the standard library"},
		{"job/turns -> ./job", ""},
		{"job/turns -> ./job/groups", "job/turns imports nothing of this module but job"},
		{"job/turns -> ./store", "job/turns imports nothing of this module but job"},
		{"job/groups -> golang.org/x/text/language", "job/groups imports only the standard library"},
		{"store -> ./job/turns", ""},
		{"store/sqlite -> ./job/turns", ""},
		{"files -> ./job/turns", "files imports nothing of this module but job"},

		{"store -> ./job", ""},
		{"store -> ./broker", "store imports nothing of this module but job"},
		{"store -> ./store/sqlite", "only internal/node knows the leaves"},
		{"files -> ./host", "files imports nothing of this module but job"},
		{"host -> ./files", ""},
		{"host -> ./runner", "host imports nothing of this module but job, files"},
		{"runner -> ./host", ""},
		{"runner -> ./files", ""},
		{"runner -> ./engine", "runner imports nothing of this module but"},
		{"broker -> github.com/google/uuid", ""},

		{"store/sqlite -> ./store", ""},
		{"store/sqlite -> ./store/sqlite/schema", ""},
		{"store/sqlite/schema -> ./store/sqlite", ""},
		{"store/sqlite -> ./store/internal/migrate", ""},
		{"store/sqlite -> modernc.org/sqlite", ""},
		{"store/sqlite -> ./store/postgres", "only internal/node knows the leaves"},
		{"store/sqlite -> ./engine", "a package below store imports nothing of this module but"},
		{"store/sqlite -> ./store/storetest", "that is a suite, for tests only"},
		{"store/storetest -> ./store", ""},
		{"store/storetest -> ./store/sqlite", "only internal/node knows the leaves"},
		{"host/ssh -> ./files", ""},
		{"host/ssh -> ./files/sftp", ""},
		{"host/ssh -> ./files/local", "only internal/node knows the leaves"},
		{"host/ssh -> ./host/internal/procfs", ""},
		{"host/ssh -> ./host/ssh/connection", ""},
		{"files/sftp -> ./host/ssh", "only internal/node knows the leaves"},
		{"host/ssh -> ./runner", "a package below host imports nothing of this module but"},
		{"host/hosttest -> ./files/filestest", ""},
		{"runner/process -> ./host", ""},
		{"runner/process -> ./host/local", "only internal/node knows the leaves"},

		{"engine -> ./store", ""},
		{"engine -> ./internal/backoff", ""},
		{"engine -> ./store/sqlite", "only internal/node knows the leaves"},
		{"engine -> ./app", "engine imports nothing of this module but"},
		{"engine -> ./route", "engine imports nothing of this module but"},
		{"engine -> .", "engine imports nothing of this module but"},
		{"engine/enginetest -> ./engine", ""},
		{"engine/enginetest -> ./app", "a package below engine imports nothing of this module but"},
		{"recovery -> ./engine", ""},
		{"recovery -> ./broker/local", "only internal/node knows the leaves"},
		{"app -> ./recovery", ""},
		{"app -> ./runner", ""},
		{"app -> ./runner/process", "only internal/node knows the leaves"},
		{"app -> ./internal/proof/testenv", "that is for tests only"},
		{"app -> ./internal/proof/guards", "that is for tests only"},
		{"store/postgres -> ./internal/proof/guards", "that is for tests only"},

		{". -> ./engine", ""},
		{". -> ./job", ""},
		{". -> ./store/sqlite", "only internal/node knows the leaves"},
		{". -> ./route", "package pawl imports nothing of this module but"},
		{". -> ./api", "package pawl imports nothing of this module but"},
		{". -> ./service", ""},
		{"service -> .", "service imports nothing of this module but"},
		{"service -> ./engine", ""},
		{"postgres -> ./store/postgres", ""},
		{"postgres -> ./store/sqlite", "only internal/node knows the leaves"},

		{"api -> ./service", ""},
		{"api -> ./auth", ""},
		{"api -> ./broker", "a face reaches jobs through package service"},
		{"web -> ./runner", "a face reaches jobs through package service"},
		{"notify -> ./store/postgres", "only internal/node knows the leaves"},
		{"client -> ./cmd/pawl", "a program is nobody's library"},

		{"cmd/pawl -> ./internal/cli", ""},
		{"cmd/pawl -> ./store/postgres", "only internal/node knows the leaves"},
		{"internal/cli/jobs -> ./internal/node", ""},
		{"internal/cli/jobs -> ./client", ""},
		{"internal/cli/jobs -> ./store/sqlite", "only internal/node knows the leaves"},
		{"internal/bench -> ./internal/node", ""},
		{"internal/bench -> ./store/postgres", "only internal/node knows the leaves"},
		{"internal/node -> ./store/postgres", ""},
		{"internal/node -> ./host/ssh", ""},
		{"internal/node -> ./internal/cli/term", "a program is nobody's library"},
		{"internal/node -> ./internal/proof/testenv", "that is for tests only"},
		{"internal/node -> ./store/storetest", "that is a suite, for tests only"},
		{"internal/config -> ./internal/cli/term", "a program is nobody's library"},
		{"client -> ./internal/node", "a program is nobody's library"},
		{"examples/library -> ./store/sqlite", ""},
		{"internal/proof/crashes -> ./store/sqlite", ""},
		{"internal/proof/crashes -> ./internal/proof/testenv", ""},
		{"internal/backoff -> ./store/sqlite", "only internal/node knows the leaves"},
		{"internal/live -> ./job", ""},
		{"internal/live -> ./store", "internal/live imports nothing of this module but job"},
		{"internal/observe -> ./broker", ""},
		{"internal/observe -> ./engine", "internal/observe imports nothing of this module but job, job/…, store, broker"},
		{"internal/config -> ./store", "internal/config imports nothing of this module but job"},
		{"auth -> .", "auth imports nothing of this module but job"},
		{"internal/backoff -> ./engine", "a package of internal imports nothing of this module but"},

		{"app/util", `"util" says nothing`},
		{"internal/common/thing", `"common" says nothing`},
		{"web/models", `"models" says nothing`},
		{"pipelines", "it has no place in the house"},
		{"cmd/other", "it has no place in the house"},
		{"jobs", "it has no place in the house"},
	} {
		t.Run(tt.edge, func(t *testing.T) {
			from, to, imports := strings.Cut(tt.edge, " -> ")
			p := Package{ImportPath: full(from), Name: filepath.Base(full(from))}
			if imports {
				p.Imports = []string{"context", full(to)}
			}
			got := Check(module, []Package{p})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("refused: %q", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one breach with %q", got, tt.want)
			case tt.want != "" && !strings.HasPrefix(got[0], p.ImportPath+": "):
				t.Errorf("%q does not name the package", got[0])
			}
		})
	}

	t.Run("a package's name counts as well as its folder", func(t *testing.T) {
		got := Check(module, []Package{{ImportPath: full("web"), Name: "helpers"}})
		if len(got) != 1 || !strings.Contains(got[0], `"helpers" says nothing`) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("other modules are not ours to judge", func(t *testing.T) {
		got := Check(module, []Package{{
			ImportPath: module + "x/util", Name: "util",
			Imports: []string{full("store/sqlite")},
		}})
		if len(got) != 0 {
			t.Errorf("got %q", got)
		}
	})
}

// full expands the paths of TestCheck: "." is the module's root, "./x" and a bare left side are in
// the module.
func full(path string) string {
	switch {
	case path == ".":
		return module
	case strings.HasPrefix(path, "./"):
		return module + path[1:]
	case slices.ContainsFunc([]string{"context", "fmt", "encoding/json"}, func(s string) bool { return s == path }),
		!standard(path):
		return path
	}
	return module + "/" + path
}
