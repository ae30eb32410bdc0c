package crashstore

import (
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// reads have no points, for nothing follows from them but an answer to a person: a crash there is a
// crash before or after. Documents, limits, annotations, events of users, removals and modes of
// sessions are written by people, each in one call that can be repeated, and no loop depends on
// what comes after. (A removal that retention began goes on with its next look.) Moments that a
// crash keeps from whoever asked for them are lost, and nothing follows from that.
var reads = map[string]bool{
	"List": true, "Count": true, "Events": true, "Overdue": true, "Sessions": true, "Unattended": true, "Demand": true,
	"Put": true, "Resources": true, "Delete": true,
	"Annotate": true, "AddEvent": true, "Remove": true, "SetMode": true, "ChangeLimit": true, "Limits": true,
	"Turns": true, "Behind": true, "Reserve": true, "Moments": true,
	"Tests": true, "Groups": true,
}

// finds are the queries of Find that have points.
var finds = map[string]store.FindQuery{"held": {Session: job.NewID()}, "watched": {Watch: "m"}}

// operations returns the names of the methods that have points.
func operations() (names []string) {
	for _, i := range []reflect.Type{
		reflect.TypeFor[store.Jobs](), reflect.TypeFor[store.Leases](), reflect.TypeFor[store.Reader](),
		reflect.TypeFor[store.Resources](),
		reflect.TypeFor[store.Limits](), reflect.TypeFor[store.Groups](),
	} {
		for n := range i.NumMethod() {
			switch name := i.Method(n).Name; {
			case name == "Find":
				names = append(names, slices.Collect(maps.Keys(finds))...)
			case !reads[name]:
				names = append(names, name)
			}
		}
	}
	return names
}

// TestEveryOperationHasItsPoints calls each operation in a process that is to die before or after
// it.
func TestEveryOperationHasItsPoints(t *testing.T) {
	if name := os.Getenv("CRASHSTORE_TEST_CALL"); name != "" {
		call(t, name, os.Getenv("CRASHSTORE_TEST_DIR"))
		return
	}
	known := map[string]bool{}
	for _, p := range crash.Points() {
		known[p] = strings.HasPrefix(p, "store.")
	}
	for _, name := range operations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range []struct {
				when, dir string
				dies      bool
			}{
				{".before", "", true}, // there is no store to call
				{".after", "", false},
				{".after", t.TempDir(), true},
			} {
				point := "store." + strings.ToLower(name) + test.when
				if !known[point] {
					t.Fatalf("there is no point %s", point)
				}
				c := exec.Command(os.Args[0], "-test.run=^TestEveryOperationHasItsPoints$")
				c.Env = append(os.Environ(), crash.Variable+"="+point, "CRASHSTORE_TEST_CALL="+name,
					"CRASHSTORE_TEST_DIR="+test.dir)
				out, err := c.CombinedOutput()
				if died := c.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL; died != test.dies || err == nil {
					t.Errorf("at %s, with a store in %q: died %t (%v), want %t\n%s", point, test.dir, died, err,
						test.dies, out)
				}
			}
		})
	}
}

// call calls one operation with arguments that mean nothing. In the folder "" there is no store,
// and it panics.
func call(t *testing.T, name, dir string) {
	var st store.Store
	if dir != "" {
		var err error
		if st, err = sqlite.Open(t.Context(), dir, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if q, ok := finds[name]; ok {
		Wrap(st).Find(t.Context(), q)
		t.Fatal("still alive")
	}
	m := reflect.ValueOf(Wrap(st)).MethodByName(name)
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	for i := 1; i < m.Type().NumIn(); i++ {
		args = append(args, reflect.Zero(m.Type().In(i)))
	}
	m.Call(args)
	t.Fatal("still alive")
}
