package pawl

import (
	"cmp"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// check reports what is wrong with a declaration and cannot be seen in the document of its kind.
// Above all a misspelled field would make all jobs equal, or put all of them in one order.
func (t *Task[A, R]) check() error {
	wrong := func(format string, args ...any) error {
		return job.Errorf(job.Invalid, "task "+t.Kind+": "+format, args...)
	}
	switch {
	case t.Kind == "":
		return job.Errorf(job.Invalid, "a pawl.Task has no Kind: give it a name, such as thumbnail")
	case t.Kind == job.KindApp:
		return wrong("Kind %s is that of programs: give another name", job.KindApp)
	case t.Version < 0:
		return wrong("Version %d is negative: give 1 or more", t.Version)
	case t.Order.o != nil && len(t.Order.o.Args) == 0:
		return wrong(`Order names no field: write pawl.InOrder("account"), with fields of the arguments`)
	case t.Schema != nil && !json.Valid(t.Schema):
		return wrong("Schema is not JSON: correct it")
	}
	for _, v := range slices.Sorted(maps.Keys(t.Migrate)) {
		if v < 1 || v >= max(t.Version, 1) {
			return wrong("Migrate[%d] would never be called, as Version is %d: raise Version, or remove it",
				v, max(t.Version, 1))
		}
	}
	args := reflect.TypeFor[A]()
	fields := func(of string, paths []string) error {
		for _, path := range paths {
			if part, have, ok := findField(args, path); !ok {
				return wrong("%s names the field %q, and %s has no field %q in JSON: %s", of, path, args, part, offer(have))
			}
		}
		return nil
	}
	if t.Unique.u != nil {
		if err := fields("Unique", t.Unique.u.Args); err != nil {
			return err
		}
	}
	if t.Order.o != nil {
		if err := fields("Order", t.Order.o.Args); err != nil {
			return err
		}
		if by, ok := strings.CutPrefix(t.Order.o.By, job.ArgsField); ok {
			if err := fields("Order.By", []string{by}); err != nil {
				return err
			}
		}
	}
	for _, key := range t.Limits {
		if err := fields("Limits", job.LimitFields(key)); err != nil {
			return err
		}
	}
	return fields("Index", t.Index)
}

// offer says which fields there are.
func offer(have []string) string {
	if len(have) == 0 {
		return "it has no fields"
	}
	return "give one of " + strings.Join(have, ", ")
}

// findField reports whether values of a type can have the field of a path, such as user.id, in
// JSON. If they cannot, part is the part of the path that is not there, and have are those in its
// place.
func findField(t reflect.Type, path string) (part string, have []string, ok bool) {
	for part = range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer && !writesItself(t) {
			t = t.Elem()
		}
		switch {
		case writesItself(t), t.Kind() == reflect.Interface:
			return "", nil, true // nobody knows what it has
		case t.Kind() == reflect.Map:
			t = t.Elem()
			continue
		case t.Kind() != reflect.Struct:
			return part, nil, false
		}
		all := jsonFields(t, 0)
		i := slices.IndexFunc(all, func(f jsonField) bool { return f.name == part })
		if i < 0 {
			for _, f := range all {
				have = append(have, f.name)
			}
			return part, have, false
		}
		t = all[i].t
	}
	return "", nil, true
}

// writesItself reports whether a type has its own way into JSON.
func writesItself(t reflect.Type) bool {
	for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(own) || reflect.PointerTo(t).Implements(own) {
			return true
		}
	}
	return false
}

type jsonField struct {
	name string
	t    reflect.Type
}

// maxEmbedded is how deep structs are embedded in each other; a deeper one embeds itself.
const maxEmbedded = 16

// jsonFields returns the fields of a struct as encoding/json names them.
func jsonFields(t reflect.Type, depth int) (all []jsonField) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && of.Kind() == reflect.Struct:
			if depth < maxEmbedded {
				all = append(all, jsonFields(of, depth+1)...)
			}
		case f.IsExported():
			all = append(all, jsonField{cmp.Or(name, f.Name), f.Type})
		}
	}
	return all
}
