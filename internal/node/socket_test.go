package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A socket is there for the owner of the folder only, however long the folder's name is, and in
// place of a dead one.
func TestSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Reach(t.Context(), dir); err == nil {
		t.Fatal("somebody answers")
	}
	for range 2 {
		d, err := openSockets(dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.listen(t.Context(), socketName)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Stat(filepath.Join(dir, socketName)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := Reach(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
}

// The server that accepts from a socket closes it, and so does who made it, perhaps at once.
func TestSocketClosedTwice(t *testing.T) {
	for range 50 {
		d, err := openSockets(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.listen(t.Context(), socketName)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// Processes that begin at once on a folder leave each other's sockets alone, and remove those of
// the dead.
func TestSocketsSwept(t *testing.T) {
	dir := t.TempDir()
	open := func() socketDir {
		d, err := openSockets(dir)
		if err != nil {
			t.Error(err)
		}
		return d
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for round := range 200 {
				name := fmt.Sprintf("%s-%d", socketName, i)
				l, err := open().listen(t.Context(), name)
				if err != nil {
					t.Errorf("process %d, start %d: %v", i, round, err)
					return
				}
				d := open()
				d.sweep(t.Context())
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Errorf("process %d, start %d: %v", i, round, err)
				}
				d.Close()
				l.Close()
			}
		})
	}
	wg.Wait()

	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName+"-7"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	d := open()
	defer d.Close()
	d.sweep(t.Context())
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("%v, %v: want nothing left", names, err)
	}
}
