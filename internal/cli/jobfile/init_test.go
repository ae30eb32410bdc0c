package jobfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// TestTemplates holds the templates to the Go types.
func TestTemplates(t *testing.T) {
	// Fields that cannot stand beside others are spoken of in comments.
	elsewhere := map[string]map[string]bool{
		"program": {
			"script": true, "not_before": true, "args": true, "args_version": true, "unique.args": true,
			"unique.alone": true, "order.args": true, "recovery.policy": true,
		},
		"script": {
			"command": true, "not_before": true, "args": true, "args_version": true, "unique.args": true,
			"unique.alone": true, "order.args": true, "recovery.policy": true,
		},
	}
	leftOut := regexp.MustCompile(`(?m)^#([^#! \n]|  +[a-z-])`)
	for kind, template := range map[string]string{"program": programTemplate, "script": scriptTemplate} {
		t.Run(kind, func(t *testing.T) {
			read := func(content string) Entry {
				t.Helper()
				name := filepath.Join(t.TempDir(), "job.yaml")
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := Read(t.Context(), name, Use{})
				if err != nil {
					t.Fatal(err)
				}
				return f.Jobs[0]
			}
			read(template)
			var all any
			if err := json.Unmarshal(read(leftOut.ReplaceAllString(template, "$1")).Given, &all); err != nil {
				t.Fatal(err)
			}
			for at := range testenv.JSONFields(reflect.TypeFor[job.Spec](), "") {
				switch {
				case elsewhere[kind][at]:
					if !regexp.MustCompile(`(?m)^#.*\b` + at + `\b`).MatchString(template) {
						t.Errorf("%s is not spoken of", at)
					}
				case !has(all, strings.Split(at, ".")):
					t.Errorf("%s is missing", at)
				}
			}
			for i, line := range strings.Split(template, "\n") {
				if n := len([]rune(line)); n > 128 {
					t.Errorf("line %d has %d characters", i+1, n)
				}
			}
		})
	}
}

// has reports whether a path is in v, of a list in any of its elements.
func has(v any, path []string) bool {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			if has(e, path) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return true
	}
	fields, ok := v.(map[string]any)
	below, there := fields[path[0]]
	return ok && there && (len(path) == 1 || has(below, path[1:]))
}
