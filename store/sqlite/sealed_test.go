package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// onlyRead takes the right to write from a folder: by its mode, and for root, who passes by that,
// by a mount.
func onlyRead(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil { //nolint:gosec // a folder
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(dir, 0o700) }) //nolint:gosec // as above
		return
	}
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mount a folder: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

// A folder that may only be read can be looked at, whether its process ended or was killed.
func TestFolderThatMayOnlyBeRead(t *testing.T) {
	for name, ended := range map[string]bool{"its process ended": true, "its process was killed": false} {
		t.Run(name, func(t *testing.T) {
			was, dir := t.TempDir(), t.TempDir()
			s := openAt(t, was)
			if err := submit(t.Context(), s, newTask(10)); err != nil {
				t.Fatal(err)
			}
			if ended {
				s.Close()
			}
			for _, file := range []string{File, File + "-wal", File + "-shm"} { // as a kill would leave them
				b, err := os.ReadFile(filepath.Join(was, file))
				if os.IsNotExist(err) && ended {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			onlyRead(t, dir)
			r, err := Open(t.Context(), dir, Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if n, err := r.Count(t.Context(), "t", nil); err != nil || len(n.States) != 1 {
				t.Errorf("%+v %v", n, err)
			}
		})
	}
}
