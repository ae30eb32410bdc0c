package folder

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

// opened opens a folder, and returns what was told.
func opened(dir string) (told string, err error) {
	d, err := Open(dir, func(s string) { told += s })
	if err == nil {
		d.Close()
	}
	return told, err
}

func put(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestOpenMakesAFolderForItsOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	if told, err := opened(dir); err != nil || told != "" || modeOf(t, dir) != 0o700 {
		t.Errorf("%q, %v, mode %v", told, err, modeOf(t, dir))
	}
}

func TestOpenClosesAFolderToOthers(t *testing.T) {
	for _, mode := range []os.FileMode{0o755, 0o750, 0o711, 0o777} {
		dir := t.TempDir()
		if mode&0o022 == 0 {
			put(t, filepath.Join(dir, "other"), 0o644)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if told, err := opened(dir); err != nil || !strings.Contains(told, dir+" was open to others") || modeOf(t, dir) != 0o700 {
			t.Errorf("%v: %q, %v, mode %v", mode, told, err, modeOf(t, dir))
		}
	}
}

func TestOpenRefusesWhatOthersCanChange(t *testing.T) {
	other := os.Geteuid() + 1
	for name, c := range map[string]struct {
		spoil  func(dir string) error
		advice string
	}{
		"a folder that others may write": {func(dir string) error { put(t, filepath.Join(dir, "x"), 0o600); return os.Chmod(dir, 0o770) }, "chmod 700 "},
		"a folder of another user":       {func(dir string) error { return os.Chown(dir, other, other) }, "chown -R "},
		"a token of another user": {func(dir string) error {
			put(t, filepath.Join(dir, "token"), 0o600)
			return os.Chown(filepath.Join(dir, "token"), other, -1)
		}, "remove it"},
		"settings that others may write":   {func(dir string) error { put(t, filepath.Join(dir, "pawl.yaml"), 0o664); return nil }, "chmod go-w "},
		"a database that others may write": {func(dir string) error { put(t, filepath.Join(dir, "pawl.db-wal"), 0o622); return nil }, "chmod go-w "},
		"ends that others may write":       {func(dir string) error { return os.Mkdir(filepath.Join(dir, "ends"), 0o700) }, ""},
		"a link to a folder of another user": {func(dir string) error {
			there := t.TempDir()
			return firstOf(os.Chown(there, other, -1), os.Symlink(there, filepath.Join(dir, "work")))
		}, "chown -R "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "another user") && os.Geteuid() != 0 {
				t.Skip("only root can give a file to another user")
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if c.advice == "" {
				if err := os.Chmod(filepath.Join(dir, "ends"), 0o777); err != nil {
					t.Fatal(err)
				}
				c.advice = "chmod go-w "
			}
			if _, err := opened(dir); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), c.advice) {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestReadOwn(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "own"), 0o644)
	if b, err := ReadOwn(filepath.Join(dir, "own")); string(b) != "x\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	put(t, filepath.Join(dir, "open"), 0o666)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "huge"), 0o600)
	if err := os.Truncate(filepath.Join(dir, "huge"), 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"open", "pipe", "huge", "."} {
		if b, err := ReadOwn(filepath.Join(dir, name)); job.KindOf(err) != job.Invalid {
			t.Errorf("%s is read: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestMoved(t *testing.T) {
	for name, move := range map[string]func(parent, dir string) error{
		"moved":      func(parent, dir string) error { return os.Rename(dir, filepath.Join(parent, "elsewhere")) },
		"removed":    func(_, dir string) error { return os.RemoveAll(dir) },
		"its parent": func(parent, _ string) error { return os.Rename(parent, parent+"-elsewhere") },
		"replaced":   func(_, dir string) error { return firstOf(os.Rename(dir, dir+"-elsewhere"), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "parent")
			dir := filepath.Join(parent, "data")
			d, err := Open(dir, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			virtual.Test(t, func(t *testing.T) {
				said := make(chan error, 1)
				go func() { said <- d.Moved(t.Context()) }()
				synctest.Wait()
				time.Sleep(3 * lookAgain) // in the bubble
				if len(said) > 0 {
					t.Fatalf("before it is moved: %v", <-said)
				}
				if err := move(parent, dir); err != nil {
					t.Fatal(err)
				}
				if err := <-said; job.KindOf(err) != job.Corrupt || !strings.Contains(err.Error(), dir) {
					t.Errorf("told of: %v", err)
				}
			})
		})
	}
	d, err := Open(t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 1)
	go func() { said <- d.Moved(ctx) }()
	cancel()
	if err := <-said; err != nil {
		t.Errorf("a folder that stays where it is: %v", err)
	}
}

func TestMachineOfAFolderThatIsNotNew(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ends"), 0o700); err != nil {
		t.Fatal(err)
	}
	if id, err := Machine(dir); job.KindOf(err) != job.Corrupt || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("the machine is %q, %v", id, err)
	}
}
