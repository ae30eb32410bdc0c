package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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

// TestLogsThatArePipes has programs whose logs have become pipes, which nobody writes.
func TestLogsThatArePipes(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: pipes\ncommand: [sh, -c, 'echo hello; rm stdout stderr; mkfifo stdout stderr; exec sleep 1']\n")
	out, err := p.command("run", "job.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "FINISHED") {
		t.Errorf("pawl run: %v\n%s", err, out)
	}
	p.write("job.yaml", fmt.Sprintf("name: held\ncommand: [sh, -c, 'rm stdout; mkfifo stdout; echo gone >&2; while [ -e %s ]; do sleep 0.1; done']\n", p.hold))
	start := func() *exec.Cmd {
		run := p.command("run", "job.yaml")
		pipe, err := run.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(pipe)
		for lines.Scan() && !strings.Contains(lines.Text(), "| gone") {
		}
		return run
	}
	run := start()
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	run.Wait() // its code is looked at
	if code := run.ProcessState.ExitCode(); code != exitLeft {
		t.Errorf("a run that is told to end exits with %d", code)
	}
	run = start()
	logs := p.command("logs", "-f", "held")
	if err := logs.Start(); err != nil {
		t.Fatal(err)
	}
	p.letGo()
	if err := logs.Wait(); err != nil {
		t.Errorf("pawl logs -f: %v", err)
	}
	run.Wait() // it has shown what it had to
}
