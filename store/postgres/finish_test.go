package postgres_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestFinishes takes the change which says that a task has finished, and puts something else into
// each field that a change has. Some fields the statement of such changes carries; a change that
// says anything else is not for it.
func TestFinishes(t *testing.T) {
	carried := []string{".Job", ".From.Epoch", ".From.N", ".From.Fence.Session", ".From.Limited", ".Set.Clear", ".Set.Result"}
	c := job.Change{
		Job: job.NewID(), From: job.Guard{Place: job.Place{State: job.Running, Custody: job.Worker}, Epoch: 2, N: 2, Fence: job.Fence{Session: job.NewID()}},
		Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}}, To: job.None,
	}
	if !postgres.Finishes(c) {
		t.Error("it is not for its statement")
	}
	var seen []string
	eachField(reflect.ValueOf(&c).Elem(), "", func(name string, v reflect.Value) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Array: // an id
			v.Index(0).SetUint(v.Index(0).Uint() + 1)
		case reflect.Slice: // a document
			v.Set(reflect.ValueOf([]byte(`{}`)).Convert(v.Type()))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		default:
			t.Fatalf("%s is a %s", name, v.Kind())
		}
		if got, want := postgres.Finishes(c), slices.Contains(carried, name); got != want {
			t.Errorf("with another %s it is for that statement: %t", name, got)
		}
		v.Set(was)
		seen = append(seen, name)
	})
	for _, name := range carried {
		if !slices.Contains(seen, name) {
			t.Errorf("a change has no %s; it has %s", name, seen)
		}
	}
	c.Path = append(c.Path, c.Path[0])
	if postgres.Finishes(c) {
		t.Error("two steps are taken for one")
	}
}

// eachField calls f with each field of v, and with those of the structs in it.
func eachField(v reflect.Value, name string, f func(name string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			eachField(v.Field(i), name+"."+v.Type().Field(i).Name, f)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			eachField(v.Index(i), fmt.Sprintf("%s[%d]", name, i), f)
		}
	default:
		f(name, v)
	}
}
