package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

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

// A file becomes another name's as well only while its content stands. What may change is copied.
func TestAdopt(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(t *testing.T, name string)
		adopted bool
	}{
		"a file that nobody writes": {func(*testing.T, string) {}, true},
		"one that is read":          {func(t *testing.T, name string) { held(t, name, os.O_RDONLY) }, true},
		"one that is written":       {func(t *testing.T, name string) { held(t, name, os.O_WRONLY) }, false},
		"one that is mapped": {func(t *testing.T, name string) {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			m, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_WRITE, syscall.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			t.Cleanup(func() { syscall.Munmap(m) })
		}, false},
		"one of two names": {func(t *testing.T, name string) {
			if err := os.Link(name, name+".other"); err != nil {
				t.Fatal(err)
			}
		}, false},
		"one that runs as its owner": {func(t *testing.T, name string) {
			if err := os.Chmod(name, 0o700|os.ModeSetuid); err != nil {
				t.Fatal(err)
			}
		}, false},
		"a link": {func(t *testing.T, name string) {
			if err := errors.Join(os.Rename(name, name+".file"), os.Symlink(name+".file", name)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			if err := os.WriteFile(from, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			test.spoil(t, from)
			c, err := files.Copy(t.Context(), local.FS{}, to, local.FS{}, from, files.CopyOptions{Settled: true})
			if err != nil || c.Size != 7 {
				t.Fatalf("%+v, %v", c, err)
			}
			was, err := os.Stat(from)
			if err != nil {
				t.Fatal(err)
			}
			is, err := os.Lstat(to)
			if err != nil {
				t.Fatal(err)
			}
			if os.SameFile(was, is) != test.adopted {
				t.Errorf("adopted: %t, want %t", !test.adopted, test.adopted)
			}
			if err := (local.FS{}).Adopt(t.Context(), from, to); err == nil {
				t.Error("a name that is there was replaced")
			}
		})
	}
}

// held keeps a file open until the test ends.
func held(t *testing.T, name string, how int) {
	f, err := os.OpenFile(name, how, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

func TestSpread(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	for range 2 {
		if err := files.Spread(t.Context(), local.FS{}, dir); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kind unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &kind); err != nil {
		t.Fatal(err)
	}
	if kind.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("the file system is not ext4, and takes no such hint")
	}
	if a, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || a&0x20000 == 0 {
		t.Errorf("attributes %x, %v: want T", a, err)
	}
}

// TestShows: links in /proc lead to places that have no name here, so they are not followed.
func TestShows(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{"cwd": "/proc/self/cwd", "up": "/proc/self/cwd/../../etc", "plain": "/etc"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"/proc": true, "/proc/self/root/etc": true, "/dev/fd/0": true, dir + "/cwd/x": true, dir + "/up": true,
		dir + "/plain": false, "/procs": false, "/": false,
	} {
		real, err := files.Real(t.Context(), local.FS{}, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if shows, err := files.Shows(t.Context(), local.FS{}, real); shows != want || err != nil {
			t.Errorf("%s leads to %s: %t, %v", name, real, shows, err)
		}
	}
}
