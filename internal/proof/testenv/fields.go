package testenv

import (
	"reflect"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// JSONFields returns the paths of all fields of a struct, those of nested structs with a dot
// between.
func JSONFields(t reflect.Type, at string) map[string]bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	paths := map[string]bool{}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[job.Spec]().PkgPath() {
		return paths
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		paths[at+name] = true
		for p := range JSONFields(f.Type, at+name+".") {
			paths[p] = true
		}
	}
	return paths
}
