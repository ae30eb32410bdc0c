package testenv

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FieldWords returns what the comments in the source of a folder say of the fields of its structs:
// by the name of the type, and by the name that a tag gives to the field. Names within a nested
// struct have a dot before them.
func FieldWords(t *testing.T, dir, tag string) map[string]map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]map[string]string{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		const mode = parser.ParseComments | parser.SkipObjectResolution
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				fields := map[string]string{}
				fieldWords(s, tag, "", fields)
				if len(fields) > 0 {
					words[spec.Name.Name] = fields
				}
			}
			return false
		})
	}
	return words
}

func fieldWords(s *ast.StructType, tag, within string, words map[string]string) {
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(f.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(text).Get(tag), ",")
		if err != nil || name == "" || name == "-" {
			continue
		}
		if inner, ok := f.Type.(*ast.StructType); ok {
			fieldWords(inner, tag, within+name+".", words)
		}
		if says := strings.Join(strings.Fields(f.Doc.Text()), " "); says != "" {
			words[within+name] = says
		}
	}
}

// HoldWords compares words with a file, or writes it.
func HoldWords(t *testing.T, name string, words any, write bool) {
	t.Helper()
	want, err := json.MarshalIndent(words, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if write {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what the comments say: run this test with -update (-want +got)\n%s", name, diff)
	}
}
