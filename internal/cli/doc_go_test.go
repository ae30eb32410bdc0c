package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inGo stands before each block of Go in a document: what the pages take for granted.
const inGo = `package p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
	"github.com/pawl-jobs/pawl/store"
)

type (
	Resize struct { Image string }
	Thumb struct { URL string }
	Order struct { N int }
	Receipt struct { N int }
	Week struct { Team string }
	Args struct { Path string }
	Count int
)

var (
	Thumbnail pawl.Task[Resize, Thumb]
	Charge pawl.Task[Order, Receipt]
	Report pawl.Task[Week, string]

	ctx context.Context
	svc *pawl.Service
	pool *pgxpool.Pool
	receipt Receipt
	token string
	shrink func(context.Context, *pawl.Job[Resize]) (Thumb, error)
	count func(path string) (Count, error)

	h *pawl.Handle[Thumb] // of the names in running text
	j *pawl.Job[Resize]
)

`

// TestDocsInGo holds the pages with Go to the code. Each block compiles, with what inGo declares.
// In docs/go.md each name such as pawl.Fail or h.Wait is there, and so is each example. It names
// all examples of the root folder: it is their table of contents.
func TestDocsInGo(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pages := map[string]string{}
	for _, name := range []string{"README.md", "docs/api.md", "docs/go.md"} {
		pages[name] = read(name)
	}
	c := newGoCode(t)
	for name, text := range pages {
		n := 0
		for _, b := range blocks(text) {
			if b.lang == "go" {
				n++
				c.check(t, name, b)
			}
		}
		if n == 0 {
			t.Errorf("%s has no block of Go", name)
		}
	}

	pkg := c.check(t, "inGo", block{line: 1})
	within := pkg.Scope().Child(0).End() - 1 // where the imports of its file are known
	prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(pages["docs/go.md"], "")
	name := regexp.MustCompile(`\b(?:pawl|pawltest|postgres|sqlite|svc|h|j)(?:(?:\(\))?\.[A-Z]\w*)+`)
	found := 0
	for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(prose, -1) {
		for _, is := range name.FindAllString(span, -1) {
			found++
			if strings.Contains(is, ".Example") {
				continue
			}
			if _, err := types.Eval(c.files, pkg, within, is); err != nil {
				t.Errorf("docs/go.md says %s: %v", span, err)
			}
		}
	}
	if found < 30 {
		t.Errorf("docs/go.md has %d names, which is less than it had", found)
	}

	cited := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:\\w+\\.)?Example\\w*)`").FindAllStringSubmatch(pages["docs/go.md"], -1) {
		cited[m[1]] = true
	}
	examples := goExamples(t)
	for is := range cited {
		if !examples[is] {
			t.Errorf("docs/go.md names %s, which is no example: there are %q", is, slices.Sorted(maps.Keys(examples)))
		}
	}
	for is := range examples {
		if !cited[is] {
			t.Errorf("docs/go.md does not name %s: name it where it says what that shows", is)
		}
	}
}

// goExamples returns the names of the examples of the library, those of packages below the root
// with the package: Example, sqlite.ExampleIn.
func goExamples(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, dir := range []string{"", "sqlite", "postgres", "pawltest"} {
		names, err := filepath.Glob(filepath.Join("../..", dir, "example*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(d.Name.Name, "Example") {
					all[strings.TrimPrefix(dir+"."+d.Name.Name, ".")] = true
				}
			}
		}
	}
	return all
}

// goCode compiles code that uses this module.
type goCode struct {
	files *token.FileSet
	types.Importer
}

func newGoCode(t *testing.T) *goCode {
	// go test knows a test from its cache by what it has opened: here all folders, as the compiler
	// does.
	err := filepath.WalkDir("../..", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", inGo, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-export", "-deps",
		"-json=ImportPath,Export")
	for _, i := range f.Imports {
		list.Args = append(list.Args, strings.Trim(i.Path.Value, `"`))
	}
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // as most builds are: it is compiled then
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	c := &goCode{files: token.NewFileSet()}
	c.Importer = importer.ForCompiler(c.files, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check compiles a block of a page. It stands in a function, unless it is one. A body { … } is
// empty, and variables that nothing uses are no fault of a page.
func (c *goCode) check(t *testing.T, page string, b block) *types.Package {
	t.Helper()
	text := fmt.Sprintf("//line %s:%d\n%s", page, b.line, strings.ReplaceAll(b.text, "{ … }", "{}"))
	if !strings.HasPrefix(b.text, "func ") {
		text = "func _() {\n" + text + "\n}\n"
	}
	f, err := parser.ParseFile(c.files, "block.go", inGo+text, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	conf := types.Config{Importer: c, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); ok && !e.Soft {
			t.Error(err)
		}
	}}
	pkg, _ := conf.Check("p", c.files, []*ast.File{f}, nil) // its errors are told above
	return pkg
}
