package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostMethods is how many methods the contract of the store has at most: three stores, the
// decorators and the suite pay for each.
const mostMethods = 38

// decorator is the file of the product that has every method of the store because it is there.
const decorator = "internal/observe/store.go"

// TestStoreContract holds the contract of the store to methods that the product calls. A function
// of package store that calls some for others counts for those who call it.
func TestStoreContract(t *testing.T) {
	p := product(t)
	byHelper := p.calls(t, "store")
	called := map[string]bool{}
	for rel, pkg := range p.packages {
		if rel == "store" || strings.HasPrefix(rel, "store/") || !slices.Contains(pkg.Imports, module+"/store") {
			continue
		}
		for _, functions := range p.calls(t, rel) {
			for name := range functions {
				called[name] = true
				for name := range byHelper[name] {
					called[name] = true
				}
			}
		}
	}
	pkg, err := p.Import(module + "/store")
	if err != nil {
		t.Fatal(err)
	}
	contract := pkg.Scope().Lookup("Store").Type().Underlying().(*types.Interface)
	if n := contract.NumMethods(); n > mostMethods {
		t.Errorf("store.Store has %d methods, %d is the most", n, mostMethods)
	}
	for method := range contract.Methods() {
		if !called[method.FullName()] {
			t.Errorf("only stores, decorators and tests call %s: take it out of the contract", method.FullName())
		}
	}
}

// A program is what cmd/pawl is made of, with what the compiler knows of it.
type program struct {
	types.Importer
	files    *token.FileSet
	packages map[string]listed // of this module, by their path in it
}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

func product(t *testing.T) *program {
	t.Helper()
	p := &program{files: token.NewFileSet(), packages: map[string]listed{}}
	exports := map[string]string{}
	dec := json.NewDecoder(strings.NewReader(golist(t, "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,Imports", "./cmd/pawl")))
	for {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[l.ImportPath] = l.Export
		if rel, own := within(module, l.ImportPath); own {
			p.packages[rel] = l
		}
	}
	p.Importer = importer.ForCompiler(p.files, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return p
}

// calls returns the full names of the functions and methods that a package uses, by the full names
// of its own functions that do; those of the decorator are left out.
func (p *program) calls(t *testing.T, rel string) map[string]map[string]bool {
	t.Helper()
	pkg := p.packages[rel]
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		f, err := parser.ParseFile(p.files, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if rel+"/"+name != decorator {
			files = append(files, f)
		}
	}
	// What the decorator declares is missing then, which is no fault here.
	info := types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: p, Error: func(error) {}}
	_, _ = conf.Check(pkg.ImportPath, p.files, files, &info)
	all := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			by, functions := "", map[string]bool{}
			if d, ok := d.(*ast.FuncDecl); ok {
				by = info.Defs[d.Name].(*types.Func).FullName()
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if fn, ok := info.Uses[id].(*types.Func); ok {
						functions[fn.FullName()] = true
					}
				}
				return true
			})
			if all[by] == nil {
				all[by] = map[string]bool{}
			}
			maps.Copy(all[by], functions)
		}
	}
	return all
}
