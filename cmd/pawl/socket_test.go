package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A socket is there for the owner of the folder only, however long the folder's name is, and in place of a dead one.
func TestSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := reach(t.Context(), dir); err == nil {
		t.Fatal("somebody answers")
	}
	for range 2 {
		d, err := openSockets(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		l, err := listenAt(t.Context(), d.socket(socketName))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if info, err := os.Stat(filepath.Join(dir, socketName)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := reach(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
}
