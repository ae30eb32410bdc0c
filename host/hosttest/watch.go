package hosttest

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
)

// appears watches the folder and returns a function that waits for a name in it.
func (f fixture) appears(t *testing.T) func(name string) {
	t.Helper()
	events, err := f.host.Watch(t.Context(), f.dir)
	must(t, err)
	return func(name string) {
		t.Helper()
		for e := range events {
			if e.Name == name {
				return
			}
		}
		t.Fatalf("the watch ended before %s appeared", name)
	}
}

func watch(t *testing.T, f fixture) {
	put := func(name string) {
		t.Helper()
		must(t, f.fs.Put(t.Context(), path.Join(f.dir, name), strings.NewReader(""), files.PutOptions{NoSync: true}))
	}
	put("before")
	events, err := f.host.Watch(t.Context(), f.dir)
	must(t, err)
	var got []string
	until := func(name string) {
		for e := range events {
			if e.Overflow || len(got) > 0 && got[len(got)-1] == e.Name {
				continue
			}
			if got = append(got, e.Name); e.Name == name {
				break
			}
		}
	}
	next := func(name string) { // the name may go
		if f.polls {
			until(name)
		}
	}
	put(".hidden")
	put("put")
	next("put")
	must(t, f.fs.Rename(t.Context(), path.Join(f.dir, "put"), path.Join(f.dir, "renamed")))
	next("renamed")
	must(t, f.fs.Link(t.Context(), path.Join(f.dir, "renamed"), path.Join(f.dir, "linked")))
	next("linked")
	must(t, f.fs.Rename(t.Context(), path.Join(f.dir, "linked"), path.Join(f.dir, "new\nline")))
	next("new\nline")
	put("last")
	until("last")
	if diff := cmp.Diff([]string{"put", "renamed", "linked", "new\nline", "last"}, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// watchBell: names are told whether or not somebody rings.
func watchBell(t *testing.T, f fixture) {
	wait := f.appears(t)
	f.sh(t, "mkfifo "+host.Bell+"; : >made")
	wait("made")
	wait = f.appears(t)
	for _, name := range []string{"rung", "silent", "again"} {
		ring := "; echo 1<>" + host.Bell
		if name == "silent" {
			ring = ""
		}
		f.sh(t, ": >"+name+ring)
		wait(name)
	}
}

func watchThenList(t *testing.T, f fixture) {
	const n = 200
	f.sh(t, `i=0; while [ $i -lt $1 ]; do : >temp; mv temp n$i; i=$((i+1)); done`, strconv.Itoa(n))
	Until(t, "some names are there", func() bool {
		_, err := f.fs.Stat(t.Context(), path.Join(f.dir, "n3"))
		return err == nil
	})
	events, err := f.host.Watch(t.Context(), f.dir)
	must(t, err)
	seen := map[string]bool{}
	list := func() {
		infos, err := f.fs.List(t.Context(), f.dir)
		must(t, err)
		for _, i := range infos {
			if strings.HasPrefix(i.Name(), "n") {
				seen[i.Name()] = true
			}
		}
	}
	for list(); len(seen) < n; {
		e, ok := <-events
		switch {
		case !ok:
			t.Fatal("the watch ended")
		case e.Overflow:
			list()
		case strings.HasPrefix(e.Name, "n"):
			seen[e.Name] = true
		}
	}
}

func watchEnds(t *testing.T, f fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	events, err := f.host.Watch(ctx, f.dir)
	must(t, err)
	cancel()
	for range events {
	}
	if _, err := f.host.Watch(ctx, f.dir); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch with a context that has ended: %v", err)
	}
}

func watchLost(t *testing.T, f fixture) {
	sub := path.Join(f.dir, "sub")
	must(t, f.fs.Mkdir(t.Context(), sub))
	events, err := f.host.Watch(t.Context(), sub)
	must(t, err)
	must(t, f.fs.Remove(t.Context(), sub))
	for range events {
	}
}

func watchAbsent(t *testing.T, f fixture) {
	if _, err := f.host.Watch(t.Context(), path.Join(f.dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Watch: %v, want fs.ErrNotExist", err)
	}
}
