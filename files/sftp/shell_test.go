package sftp

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// shelled gives a file system a shell of the same account, and counts the scripts.
func shelled(f *FS) *int {
	n := 0
	f.Shell = func(ctx context.Context, script string) (string, error) {
		n++
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "("+script+") 2>/dev/null; true")
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.Output()
		return string(out), err
	}
	return &n
}

// A folder goes by one request. What rm cannot remove SFTP does.
func TestFilesRemoveByShell(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	asked := shelled(f)
	top := path.Join(dir, "it's", "-rf")
	for want, shut := range []bool{false, true} {
		for _, name := range []string{"a/b/c", "d"} {
			if err := f.Mkdir(t.Context(), path.Join(top, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Put(t.Context(), path.Join(top, "a", "f"), strings.NewReader("x"), files.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if shut {
			if err := os.Chmod(path.Join(top, "a"), 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := f.Remove(t.Context(), path.Dir(top)); err != nil {
				t.Fatal(err)
			}
		}
		if *asked != want+1 {
			t.Errorf("shut %t: %d scripts", shut, *asked)
		}
		wantFolder(t, dir)
	}
}

// A shell is asked for what SFTP cannot tell.
func TestFilesLack(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	shelled(f)
	full := path.Join(dir, "it's full")
	if err := f.Mkdir(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	mount(t, full, "size=512k,mode=777")
	if err := f.lack(t.Context(), full); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full: %v", err)
	}
	wantFolder(t, full)
	if err := syscall.Mount("tmpfs", full, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.lack(t.Context(), full); !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: %v", err)
	}
	if err := f.lack(t.Context(), dir); err != nil {
		t.Errorf("there is room: %v", err)
	}
	wantFolder(t, dir, "it's full")
	for said, want := range map[string]error{
		"dd: error writing './x': Disk quota exceeded\n1+0 records in\n":   syscall.EDQUOT,
		"dd: failed to open './x': Quota exceeded\n":                       syscall.EDQUOT, // musl
		"dd: failed to open './x': Permission denied\n":                    nil,
		"8+0 records in\n8+0 records out\n1048576 bytes (1.0 MB) copied\n": nil,
	} {
		if got := reasonIn(said); got != want { //nolint:errorlint // as it is returned
			t.Errorf("%q: %v", said, got)
		}
	}
}

// What only the shell knows is the reason of what fails.
func TestFilesQuota(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	f.Shell = func(context.Context, string) (string, error) { // few machines have quotas
		return "dd: error writing './x': Disk quota exceeded\n", nil
	}
	if err := os.MkdirAll(path.Join(dir, "f", "g"), 0o777); err != nil {
		t.Fatal(err)
	}
	err := f.Put(t.Context(), path.Join(dir, "f"), strings.NewReader(""), files.PutOptions{})
	if !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("put: %v, want EDQUOT", err)
	}
}

// Where a file system can, a copy shares the content of the file on the disk, until one is changed.
func TestFilesCloned(t *testing.T) {
	top := path.Join(own(t), "mounted")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(top, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	testenv.Disk(t, top, 0)
	f := serve(t, "").files(t)
	asked := shelled(f)
	from, to, content := path.Join(top, "it's large"), path.Join(top, "copy"), strings.Repeat("content ", 4<<20)
	if err := f.Put(t.Context(), from, strings.NewReader(content), files.PutOptions{Mode: 0o400}); err != nil {
		t.Fatal(err)
	}
	before, err := f.Space(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	size, err := f.CopyFile(t.Context(), from, to, files.PutOptions{Mode: 0o600}, func(n int) { sum += n })
	if err != nil || size != int64(len(content)) || sum != len(content) || *asked != 1 {
		t.Errorf("%d bytes, progress %d, %d scripts, %v", size, sum, *asked, err)
	}
	if after, err := f.Space(t.Context(), top); err != nil || before.Free-after.Free > 1<<20 {
		t.Errorf("the copy takes %d bytes, %v", before.Free-after.Free, err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(to, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(from); err != nil || string(got) != content {
		t.Errorf("the original is not what it was: %d bytes, %v", len(got), err)
	}
}
