package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

func Test(t *testing.T) {
	filestest.Run(t, func(t *testing.T) (files.FS, string) { return local.FS{}, t.TempDir() })
}

func TestOpenNeverWaits(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (local.FS{}).Open(t.Context(), pipe); job.KindOf(err) != job.Invalid {
		t.Errorf("Open of a pipe: %v", err)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	infos, err := local.FS{}.List(t.Context(), dir)
	if err != nil || len(infos) != 1 || infos[0].Mode().Type() != os.ModeSymlink {
		t.Errorf("List: %v, %v", infos, err)
	}
	if err := (local.FS{}).Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("Remove went through a link: %v", err)
	}
}

func TestModeIgnoresUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	name := filepath.Join(t.TempDir(), "f")
	if err := (local.FS{}).Put(t.Context(), name, strings.NewReader(""), files.PutOptions{Mode: 0o666}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
