package sftp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Stopping(m)) }

const nobody = 65534

// A server is OpenSSH's SFTP server in a process of its own, with the rights of an account that is
// not root.
type server struct {
	cmd    *exec.Cmd
	out    io.ReadCloser
	in     io.WriteCloser
	client *sftp.Client
}

// serve starts a server. script runs it as "$@"; "" is exec "$@".
func serve(t testing.TB, script string, args ...string) *server {
	t.Helper()
	var bin string
	for _, name := range []string{"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"} {
		if _, err := os.Stat(name); err == nil {
			bin = name
		}
	}
	switch {
	case bin == "" && os.Getenv("PAWL_TEST_REQUIRE") != "":
		t.Fatal("there is no sftp-server: install it (Debian: openssh-sftp-server)")
	case bin == "":
		t.Skip("there is no sftp-server: install it (Debian: openssh-sftp-server)")
	}
	if script == "" {
		script = `exec "$@"`
	}
	s := &server{cmd: exec.Command("/bin/sh", append([]string{"-c", script, "sh", bin, "-u", "022"}, args...)...)}
	if os.Geteuid() == 0 {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.client != nil {
			s.client.Close()
		}
		s.in.Close()
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	return s
}

// files is the file system of the server.
func (s *server) files(t testing.TB) *FS {
	t.Helper()
	var err error
	if s.client, err = Connect(s.out, s.in); err != nil {
		t.Fatal(err)
	}
	return &FS{Client: func(context.Context) (*sftp.Client, error) { return s.client, nil }}
}

// own is an empty folder that belongs to the server's account.
func own(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		return dir
	}
	for at := dir; at != "/" && at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFiles(t *testing.T) {
	filestest.Run(t, func(t *testing.T) (files.FS, string) { return serve(t, "").files(t), own(t) })
}

// TestFilesNoise: a login file may print before the server speaks.
func TestFilesNoise(t *testing.T) {
	t.Run("is skipped", func(t *testing.T) {
		f, name := serve(t, `printf 'Welcome!\n\0\0\0\002\nQuota: 93 %%\n'; exec "$@"`).files(t), path.Join(own(t), "f")
		if err := f.Put(t.Context(), name, strings.NewReader("text"), files.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	for what, test := range map[string]struct{ script, want string }{
		"an account without a shell": {`echo 'This account is not available.'`, "This account is not available."},
		"no end of it":               {`yes noise`, "let the account's login files print only in a terminal"},
		"nothing at all":             {`exit 1`, "the SFTP server does not answer"},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, test.script)
			if _, err := Connect(s.out, s.in); job.KindOf(err) != job.Unavailable ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestFilesDenied: other servers, and older ones of OpenSSH, lack what a site may also deny.
func TestFilesDenied(t *testing.T) {
	f, dir := serve(t, "", "-P", "fsync,posix-rename,hardlink,limits").files(t), own(t)
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	content := strings.Repeat("0123456789", 100_000) // in packets of the usual size
	put := func(name string) error {
		return f.Put(t.Context(), name, strings.NewReader(content), files.PutOptions{})
	}
	if err := put(a); err != nil {
		t.Fatal(err)
	}
	if got, err := files.ReadFile(t.Context(), f, a, 1<<20); string(got) != content {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if err := f.Rename(t.Context(), a, b); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"put over a file":    put(b),
		"rename over a file": errors.Join(put(a), f.Rename(t.Context(), a, b)),
		"link":               f.Link(t.Context(), b, path.Join(dir, "c")),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "@openssh.com") {
			t.Errorf("%s: %v, want an error that names the extension", what, err)
		}
	}
	wantFolder(t, dir, "a", "b")
}

// wantFolder looks into a folder of this machine, where no name is hidden.
func wantFolder(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("names in the folder: %q, want %q", got, want)
	}
}

// endless is a source that calls at after n bytes.
type endless struct {
	n  int
	at func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n -= len(p); e.n < 0 && e.at != nil {
		e.at()
		e.at = nil
	}
	return len(p), nil
}

// TestFilesCut: the server dies in the middle.
func TestFilesCut(t *testing.T) {
	s, dir := serve(t, ""), own(t)
	f, name := s.files(t), path.Join(dir, "f")
	if err := f.Put(t.Context(), name, io.LimitReader(&endless{}, 20<<20), files.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	kill := func() { s.cmd.Process.Kill() }
	err = f.Put(t.Context(), name, &endless{8 << 20, kill}, files.PutOptions{})
	if job.KindOf(err) != job.Unavailable {
		t.Errorf("put: %v, want kind unavailable", err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != 20<<20 {
		t.Errorf("the old file: %v, %v", info, err)
	}
	if _, err := io.Copy(io.Discard, r); job.KindOf(err) != job.Unavailable {
		t.Errorf("read: %v, want kind unavailable", err)
	}
	_, stat := f.Stat(t.Context(), name)
	_, list := f.List(t.Context(), dir)
	for what, err := range map[string]error{
		"stat": stat, "list": list,
		"mkdir":  f.Mkdir(t.Context(), path.Join(dir, "d")),
		"link":   f.Link(t.Context(), name, path.Join(dir, "g")),
		"rename": f.Rename(t.Context(), name, path.Join(dir, "g")),
		"remove": f.Remove(t.Context(), name),
	} {
		if job.KindOf(err) != job.Unavailable {
			t.Errorf("%s: %v, want kind unavailable", what, err)
		}
	}
}

// TestFilesContext: a call ends with its context, though the server hangs, and tidies up as soon as
// it goes on.
func TestFilesContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, dir := serve(t, ""), own(t)
	f, name := s.files(t), path.Join(dir, "f")
	defer s.client.Close()
	stop := func() { s.cmd.Process.Signal(syscall.SIGSTOP) }
	ctx, cancel := context.WithCancel(t.Context())
	err := f.Put(ctx, name, &endless{4 << 20, cancel}, files.PutOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	wantFolder(t, dir)

	if err := f.Put(t.Context(), name, io.LimitReader(&endless{}, 8<<20), files.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	r, err := f.Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	var wg sync.WaitGroup
	for what, call := range map[string]func() error{
		"stat":   func() error { _, err := f.Stat(ctx, name); return err },
		"open":   func() error { _, err := f.Open(ctx, name); return err },
		"list":   func() error { _, err := f.List(ctx, dir); return err },
		"remove": func() error { return f.Remove(ctx, path.Join(dir, "g")) },
		"read":   func() error { _, err := io.Copy(io.Discard, r); return err },
	} {
		wg.Go(func() {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	cancel()
	wg.Wait()
	s.cmd.Process.Signal(syscall.SIGCONT)
	r.Close()
	if _, err := f.Stat(t.Context(), name); err != nil { // the server answers one request after another
		t.Error(err)
	}
}

// TestFilesMemory: what a copy takes does not grow with the file.
func TestFilesMemory(t *testing.T) {
	const size, most = 64 << 20, 40 << 20
	f, name := serve(t, "").files(t), path.Join(own(t), "f")
	var peak uint64
	sample := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}
	runtime.GC()
	source := io.LimitReader(readerFunc(func(p []byte) (int, error) { sample(); return len(p), nil }), size)
	if err := f.Put(t.Context(), name, source, files.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	up := peak
	peak = 0
	runtime.GC()
	r, err := f.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sink := writerFunc(func(p []byte) (int, error) { sample(); return len(p), nil })
	n, err := io.CopyBuffer(sink, r, make([]byte, 256<<10))
	if n != size || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	t.Logf("%d MiB up, %d MiB down", up>>20, peak>>20)
	if up > most || peak > most {
		t.Errorf("%d and %d bytes of memory for %d bytes of content", up, peak, size)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFilesChanging: what is read of a file that changes meanwhile has no gap.
func TestFilesChanging(t *testing.T) {
	f, name := serve(t, "").files(t), path.Join(own(t), "f")
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = byte(i / 1000)
	}
	for what, test := range map[string]struct{ before, after int }{
		"it grows": {300_000, 900_000}, "it shrinks": {900_000, 200_000}, "it begins": {0, 300_000},
	} {
		if err := os.WriteFile(name, text[:test.before], 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := f.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text[:test.after], 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text[:test.after]) {
			t.Errorf("%s: read %d bytes, %v; want %d", what, len(got), err, test.after)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text[test.after:]) {
			t.Errorf("%s: read %d bytes more, %v; want %d", what, len(got), err, len(text)-test.after)
		}
		r.Close()
	}
}

// TestFilesHoles: a copy to the far machine keeps the holes, however large they are.
func TestFilesHoles(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	src := filepath.Join(t.TempDir(), "src")
	file, err := os.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 1 << 40
	_, begin := file.WriteAt([]byte("begin"), 0)
	_, middle := file.WriteAt(bytes.Repeat([]byte("m"), 500_000), 1<<39)
	if err := errors.Join(begin, middle, file.Truncate(size)); err != nil {
		t.Skip(err)
	}
	got, err := files.Copy(t.Context(), f, path.Join(dir, "dst"), local.FS{}, src, files.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := files.DigestBlocks(t.Context(), local.FS{}, path.Join(dir, "dst"))
	if err != nil || got.Blocks != want || got.Size != size {
		t.Errorf("%+v, want %s, %v", got, want, err)
	}
}

// TestFilesMade: a file has its own mode before anybody else can open it, and a folder never more
// than its mode, whatever the umask is.
func TestFilesMade(t *testing.T) {
	f, dir := serve(t, "", "-u", "000").files(t), own(t)
	looked := false
	look := readerFunc(func([]byte) (int, error) {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		info, err := entries[0].Info()
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("the temporary file has mode %o", mode)
		}
		looked = true
		return 0, io.EOF
	})
	if err := f.Put(t.Context(), path.Join(dir, "f"), look, files.PutOptions{Mode: 0o600}); err != nil || !looked {
		t.Fatal(looked, err)
	}
	if err := f.Mkdir(t.Context(), path.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path.Join(dir, "d")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestFilesExecuted: a program can be executed as soon as it is put.
func TestFilesExecuted(t *testing.T) {
	f, name := serve(t, "").files(t), path.Join(own(t), "program")
	for range 50 {
		for _, o := range []files.PutOptions{{Mode: 0o755, Passing: true}, {Mode: 0o755, NoSync: true}} {
			if err := f.Put(t.Context(), name, strings.NewReader("#!/bin/sh\n"), o); err != nil {
				t.Fatal(err)
			}
			if err := exec.Command(name).Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFilesErrors: SFTP says little; what it means is found out.
func TestFilesErrors(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	at := func(name string) string { return path.Join(dir, name) }
	if err := errors.Join(os.Mkdir(at("d"), 0o777), os.WriteFile(at("file"), nil, 0o666), os.Mkdir(at("shut"), 0o777),
		os.WriteFile(at("shut/file"), nil, 0o666), syscall.Mkfifo(at("pipe"), 0o666)); err != nil {
		t.Fatal(err)
	}
	_, pipe := f.Open(t.Context(), at("pipe"))
	if job.KindOf(pipe) != job.Invalid {
		t.Errorf("open of a pipe: %v", pipe)
	}
	err := f.Rename(t.Context(), at("d"), at("file"))
	if !errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of a folder over a file: %v", err)
	}
	if err := f.Remove(t.Context(), at("file/below")); err != nil {
		t.Errorf("remove below a file: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chown(at("shut"), nobody, nobody), os.Chmod(at("shut"), 0o400)); err != nil {
		t.Fatal(err)
	}
	// Who cannot look into a folder must not take it for empty.
	if _, err := f.List(t.Context(), at("shut")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("list of a folder that may not be searched: %v", err)
	}
	err = f.Put(t.Context(), "/etc/pawl-test", strings.NewReader(""), files.PutOptions{})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("put where nobody may: %v", err)
	}
}

// mount mounts a file system of its own until the test is over.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mount a file system: %v (it takes root)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestFilesFull: a full file system is told from other trouble, and nothing is left there.
func TestFilesFull(t *testing.T) {
	f, dir := serve(t, "").files(t), own(t)
	mount(t, dir, "size=2m,mode=777")
	err := f.Put(t.Context(), path.Join(dir, "f"), io.LimitReader(&endless{}, 8<<20), files.PutOptions{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("put: %v, want ENOSPC", err)
	}
	wantFolder(t, dir)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(t.Context(), path.Join(dir, "d")); !errors.Is(err, syscall.EROFS) {
		t.Errorf("mkdir: %v, want EROFS", err)
	}
}

func TestFilesRemove(t *testing.T) {
	t.Run("what is mounted stays", func(t *testing.T) {
		f, dir := serve(t, "").files(t), own(t)
		at := path.Join(dir, "job", "mnt")
		for _, name := range []string{"a", "mnt"} {
			if err := f.Mkdir(t.Context(), path.Join(dir, "job", name)); err != nil {
				t.Fatal(err)
			}
		}
		mount(t, at, "size=1m,mode=777")
		if err := f.Put(t.Context(), path.Join(at, "f"), strings.NewReader(""), files.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path.Join(dir, "job"), at} {
			err := f.Remove(t.Context(), name)
			want := at + " cannot be removed: something is mounted there"
			if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		}
		wantFolder(t, at, "f")
		wantFolder(t, path.Dir(at), "mnt")
	})
	t.Run("many names and deep ones", func(t *testing.T) {
		f, dir := serve(t, "").files(t), own(t)
		top := path.Join(dir, "top")
		script := `umask 0; mkdir "$1"; cd "$1"; for i in $(seq 300); do : > "$i"; done
			for i in $(seq 60); do mkdir "$2"; cd -P "$2"; : > file; done`
		cmd := exec.Command("/bin/sh", "-c", script, "sh", top, strings.Repeat("n", 150))
		cmd.SysProcAttr = serve(t, "").cmd.SysProcAttr
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := f.Remove(t.Context(), top); err != nil {
			t.Error(err)
		}
		wantFolder(t, dir)
	})
	t.Run("a link of another user's is named", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root makes files for others")
		}
		f, dir := serve(t, "").files(t), own(t)
		theirs := path.Join(dir, "theirs")
		for _, target := range []string{"gone", "/tmp", "/etc/passwd"} {
			if err := errors.Join(os.Mkdir(theirs, 0o755), os.Symlink(target, path.Join(theirs, "link"))); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{theirs, path.Join(theirs, "link")} {
				err := f.Remove(t.Context(), name)
				want := "theirs/link cannot be removed: it, or the folder that it is in, belongs to another user " +
					"(its user id is 0)"
				if job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), want) {
					t.Errorf("a link to %s: %v", target, err)
				}
			}
			wantFolder(t, theirs, "link")
			if err := os.RemoveAll(theirs); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a program that goes on", func(t *testing.T) {
		f, dir := serve(t, "").files(t), own(t)
		top := path.Join(dir, "top")
		program := exec.Command("/bin/sh", "-c", `while :; do mkdir -p "$1/a/b"; : > "$1/a/b/f"; done 2>/dev/null`,
			"sh", top)
		program.SysProcAttr = serve(t, "").cmd.SysProcAttr
		program.Stdout = new(bytes.Buffer) // so Wait waits for the last mkdir, too
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t.Context(), func() bool { _, err := os.Stat(path.Join(top, "a", "b", "f")); return err == nil })
		for range 20 {
			if err := f.Remove(t.Context(), top); err != nil && job.KindOf(err) != job.Conflict {
				t.Errorf("%v", err)
			}
		}
		program.Process.Kill()
		program.Wait()
		if err := f.Remove(t.Context(), top); err != nil {
			t.Error(err)
		}
		wantFolder(t, dir)
	})
}
