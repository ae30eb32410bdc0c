package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFollowOnlyFilesOfTheJob(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(dir, name string) error{
		"a pipe":             func(_, name string) error { return syscall.Mkfifo(name, 0o600) },
		"a folder":           func(_, name string) error { return os.Mkdir(name, 0o700) },
		"a device":           func(_, name string) error { return os.Symlink("/dev/zero", name) },
		"a link to a file":   func(_, name string) error { return os.Symlink(secret, name) },
		"a link that climbs": func(_, name string) error { return os.Symlink("../../../../../../.."+secret, name) },
		"a link to itself":   func(_, name string) error { return os.Symlink("stdout", name) },
		"a link to a pipe inside": func(dir, name string) error {
			return firstError(syscall.Mkfifo(filepath.Join(dir, "p"), 0o600), os.Symlink("p", name))
		},
		"a file": func(_, name string) error { return os.WriteFile(name, []byte("line\n"), 0o600) },
		"a link inside": func(dir, name string) error {
			return firstError(os.WriteFile(filepath.Join(dir, "log"), []byte("line\n"), 0o600), os.Symlink("log", name))
		},
	} {
		dir := t.TempDir()
		if err := put(dir, filepath.Join(dir, "stdout")); err != nil {
			t.Fatal(err)
		}
		var got []string
		f := &follower{line: func(l string) { got = append(got, l) }, part: func(string) {}}
		l := logFile{name: "stdout", folder: dir, archived: filepath.Join(dir, "none")}
		l.print(f, false)
		l.print(f, true)
		want := "[]"
		if what == "a file" || what == "a link inside" {
			want = "[line]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %q, want %s", what, got, want)
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLogFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdout")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	f := &follower{line: func(l string) { fmt.Fprintln(&out, l) }, part: func(string) {}, name: "seq"}
	expect := func(want string) {
		t.Helper()
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
		out.Reset()
	}

	t.Run("a line is printed when it is whole, the last one at the end", func(t *testing.T) {
		l := logFile{name: "stdout", folder: filepath.Dir(name)}
		write("one\ntw")
		l.print(f, false)
		expect("one\n")
		write("one\ntwo\nthree")
		l.print(f, false)
		expect("two\n")
		l.print(f, true)
		expect("three\n")
		l.print(f, true)
		expect("")
	})
	t.Run("of very much the middle is left out", func(t *testing.T) {
		l := logFile{name: "stdout", folder: filepath.Dir(name)}
		write("first\n" + strings.Repeat("0123456\n", 2*mostAtOnce/8) + "last")
		l.print(f, true)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		out.Reset()
		var left int
		if _, err := fmt.Sscanf(lines[0], "… %d bytes left out; see pawl logs seq", &left); err != nil {
			t.Fatalf("%q: %v", lines[0], err)
		}
		if want := len("first\n") + 2*mostAtOnce + len("last"); left+8*(len(lines)-2)+len("last") != want {
			t.Errorf("%d bytes left out, %d lines after that; want %d bytes in all", left, len(lines)-1, want)
		}
		if n := len(lines); lines[1] != "0123456" || lines[n-1] != "last" || n < keptAtOnce/8 {
			t.Errorf("%d lines: %q … %q", n, lines[1], lines[n-1])
		}
	})
	t.Run("the log of the launch before is not printed", func(t *testing.T) {
		write("old\n")
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		l := logFile{name: "stdout", folder: filepath.Dir(name), stale: info.ModTime()}
		l.print(f, false)
		expect("")
		write("new\n")
		if err := os.Chtimes(name, time.Time{}, info.ModTime().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		l.print(f, false)
		expect("new\n")
		write("")
		l.print(f, true)
		expect("")
	})
	t.Run("once the folder is gone, the archive has the rest", func(t *testing.T) {
		l := logFile{name: "stdout", folder: filepath.Dir(name), archived: t.TempDir()}
		write("one\n")
		l.print(f, false)
		expect("one\n")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.archived, "stdout"), []byte("one\ntwo\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		l.print(f, false)
		expect("")
		l.print(f, true)
		expect("two\n")
	})
}
