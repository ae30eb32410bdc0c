package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/sqlite"
	"github.com/pawl-jobs/pawl/store"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "handler")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as most builds are: most of it is compiled then
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestKilledAndContinued kills the program after its first result, and runs it again.
func TestKilledAndContinued(t *testing.T) {
	bin := build(t)
	dir, data := t.TempDir(), t.TempDir()
	const files = 200
	for i := range files {
		text := strings.Repeat("word ", i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// Four rounds of slots long, so that it is not done when it is killed.
	first := exec.Command(bin, "-data", data, "-pause", "200ms", dir)
	first.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for _, want := range []string{"counting the words of 200 files", "FINISHED"} {
		if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("line %q, %v, want %s", line, err, want)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait()

	second, err := exec.Command(bin, "-data", data, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, second)
	}
	var words, counted, before int
	printed := strings.Split(strings.TrimSpace(string(second)), "\n")
	if _, err := fmt.Sscanf(printed[len(printed)-1], "%d words in %d files; of these %d had", &words, &counted, &before); err != nil {
		t.Fatalf("%v\n%s", err, second)
	}
	if words != files*(files-1)/2 || counted != files {
		t.Errorf("%d words in %d files, want %d in %d", words, counted, files*(files-1)/2, files)
	}
	if before == 0 || before == files {
		t.Errorf("%d of %d files were counted before the kill: the test shows nothing", before, files)
	}
}

func TestRead(t *testing.T) {
	for text, want := range map[string]int{
		"":                              0,
		" \n\t":                         0,
		"one":                           1,
		" one\ttwo\u00a0three\n":        3,
		strings.Repeat("x", 200_000):    1,
		"a " + strings.Repeat("é", 1e5): 2,
	} {
		name := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := read(name); err != nil || c.Words != want {
			t.Errorf("%.20q…: %d words, %v, want %d", text, c.Words, err, want)
		}
	}
}

// folder makes one with files of one word each.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("word"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNotCounted finds files whose jobs ended otherwise in an earlier run.
func TestNotCounted(t *testing.T) {
	ctx, dir, data := t.Context(), folder(t, "a", "b", "c"), t.TempDir()
	names, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := pawl.Open(ctx, sqlite.At(data))
	if err != nil {
		t.Fatal(err)
	}
	countWords.Handle(svc, func(context.Context, *pawl.Job[file]) (count, error) {
		return count{}, pawl.Fail(errors.New("the ink has run"))
	})
	jobs, err := enqueue(ctx, svc, names[:2])
	if err == nil {
		_, err = svc.Jobs().Cancel(ctx, jobs[1].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(running) }()
	var failed *pawl.Ended
	if _, err := jobs[0].Wait(ctx); !errors.As(err, &failed) {
		t.Errorf("%v, want the end of a job that failed", err)
	}
	stop()
	if err := errors.Join(<-ended, svc.Close()); err != nil {
		t.Fatal(err)
	}

	bin := build(t)
	out, err := exec.Command(bin, "-data", data, dir).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	for _, want := range []string{
		"counting the words of 3 files in ", "FAILED          -  a: the ink has run", "CANCELED        -  b: canceled by pawl",
		"FINISHED        1  c", "1 word in 1 file; of these 0 had been counted", "2 files not counted",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no line %q in:\n%s", want, out)
		}
	}
}

// TestBroken ends the waiting when the service cannot go on.
func TestBroken(t *testing.T) {
	names, err := list(folder(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	svc, err := pawl.Open(t.Context(), func(ctx context.Context, log *slog.Logger) (*pawl.Database, error) {
		db, err := sqlite.At(t.TempDir())(ctx, log)
		if err == nil {
			db.Store = broken{db.Store}
		}
		return db, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	if err := countAll(t.Context(), svc, names, 0); !errors.Is(err, errBroken) {
		t.Errorf("%v, want %v", err, errBroken)
	}
}

// A broken store gives nobody a session.
type broken struct{ store.Store }

var errBroken = errors.New("broken")

func (broken) Begin(context.Context, store.Session) error { return errBroken }

// TestNoFolder leaves nothing behind when there is nothing to count.
func TestNoFolder(t *testing.T) {
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		data := filepath.Join(t.TempDir(), "data")
		if err := run(t.Context(), dir, data, 0); err == nil {
			t.Errorf("%s was counted", dir)
		}
		if _, err := os.Stat(data); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want none", data, err)
		}
	}
}
