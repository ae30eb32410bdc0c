package pawl

import (
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
)

// Another source, type or version is another build. Another machine is not.
func TestBuildOf(t *testing.T) {
	type inner struct{ N int }
	type other struct{ N string }
	seen := map[string]any{}
	for _, v := range []any{
		struct{ A inner }{}, struct{ A other }{}, struct{ B inner }{}, struct{ A []inner }{}, struct {
			A inner `json:"a"`
		}{},
	} {
		build := buildOf(reflect.TypeOf(v), 1)
		if was, is := seen[build]; is || build != buildOf(reflect.TypeOf(v), 1) || build == buildOf(reflect.TypeOf(v), 2) {
			t.Errorf("%T has the build %s, as %T", v, build, was)
		}
		seen[build] = v
	}
	source := func(version, commit, arch string) string {
		var b strings.Builder
		writeSource(&b, &debug.BuildInfo{
			Main:     debug.Module{Path: "example.org/it", Version: version},
			Settings: []debug.BuildSetting{{Key: "GOARCH", Value: arch}, {Key: "vcs.revision", Value: commit}},
		})
		return b.String()
	}
	switch is := source("v1", "c1", "arm64"); {
	case is != source("v1", "c1", "amd64"):
		t.Error("another machine is another source")
	case is == source("v2", "c1", "arm64"), is == source("v1", "c2", "arm64"):
		t.Error("another version, or another commit, is the same source")
	}
}
