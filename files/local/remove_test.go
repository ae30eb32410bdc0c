package local_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

const nobody = 65534

// shared is a folder in which anybody may make files.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asNobody calls f as a user for whom modes count. Root gives up its rights for that, in a thread
// that ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
	if t.Failed() {
		t.FailNow()
	}
}

// mount mounts a folder at a name until the test is over.
func mount(t *testing.T, folder, name string) {
	t.Helper()
	if err := syscall.Mount(folder, name, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mount a folder: %v (it takes root)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(name, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestRights(t *testing.T) {
	open := func(t *testing.T) (files.FS, string) { return local.FS{}, shared(t) }
	filestest.RunRights(t, open, filestest.Rights{
		As: asNobody, Chmod: os.Chmod,
		Hold: func(t *testing.T, name string) { mount(t, name, name) },
	})
}

// TestRemoveMounted: what is mounted in a folder is somebody else's, on whatever file system it is.
func TestRemoveMounted(t *testing.T) {
	dir := t.TempDir()
	theirs, at := filepath.Join(dir, "theirs"), filepath.Join(dir, "job", "mnt")
	for _, name := range []string{theirs, at} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(theirs, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mount(t, theirs, at)
	err := local.FS{}.Remove(t.Context(), filepath.Join(dir, "job"))
	if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), at+" cannot be removed: something is mounted there: unmount it") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(theirs, "file")); err != nil {
		t.Error(err)
	}
}

// TestRemoveOthers: what belongs to another user, or is immutable, is named with the reason.
func TestRemoveOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes files for others")
	}
	t.Run("another user's", func(t *testing.T) {
		dir := shared(t)
		theirs := filepath.Join(dir, "top", "theirs")
		if err := os.MkdirAll(theirs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(theirs, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, "top"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			err := local.FS{}.Remove(t.Context(), filepath.Join(dir, "top"))
			if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), theirs+"/file cannot be removed: it, or the folder that it is in, belongs to another user: its user id is 0") {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("immutable", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const immutable = 0x10 // FS_IMMUTABLE_FL
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
			t.Skipf("make a file immutable: %v", err)
		}
		err = local.FS{}.Remove(t.Context(), filepath.Dir(name))
		if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "chattr -i -a") {
			t.Errorf("%v", err)
		}
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestRemoveDeep: names below may be longer than any path, and deeper than a process has files
// open.
func TestRemoveDeep(t *testing.T) {
	const depth = 1200
	dir := t.TempDir()
	top := filepath.Join(dir, "top")
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := range depth {
		if err != nil {
			t.Fatal(err)
		}
		name := "top"
		if i > 0 {
			name = "folder"
		}
		var next int
		if err = unix.Mkdirat(at, name, 0o755); err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	if err := (local.FS{}).Remove(t.Context(), top); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}

// TestRemoveWhileLinksAreMade: a program that still runs puts links in the place of its folders.
func TestRemoveWhileLinksAreMade(t *testing.T) {
	dir := t.TempDir()
	theirs, top := filepath.Join(dir, "theirs"), filepath.Join(dir, "top")
	if err := os.Mkdir(theirs, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(theirs, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		sub := path.Join(top, "sub")
		if err := os.MkdirAll(path.Join(sub, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				os.Rename(sub, sub+"-away") // either may be gone
				os.Symlink(theirs, sub)     // the same
				os.Remove(sub)              // the same
				os.Mkdir(sub, 0o500)        // the same
			}
		}()
		local.FS{}.Remove(t.Context(), top) // it may be made anew all the time
		close(stop)
		<-done
		if info, err := os.Stat(theirs); err != nil || info.Mode().Perm() != 0o555 {
			t.Fatalf("what the link led to: %v", err)
		}
		if _, err := os.Stat(filepath.Join(theirs, "file")); err != nil {
			t.Fatal(err)
		}
		if err := (local.FS{}).Remove(t.Context(), top); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveAgain: a name below a file is not there.
func TestRemoveAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if err := (local.FS{}).Remove(t.Context(), file+"/below"); err != nil {
		t.Error(err)
	}
}
