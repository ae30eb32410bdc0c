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

// TestKilledAndContinued kills the program after its first result, and runs it again.
func TestKilledAndContinued(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "handler")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "FINISHED") {
		t.Fatalf("first line %q, %v", line, err)
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
	lines := strings.Split(strings.TrimSpace(string(second)), "\n")
	if _, err := fmt.Sscanf(lines[len(lines)-1], "%d words in %d files; %d of", &words, &counted, &before); err != nil {
		t.Fatalf("%v\n%s", err, second)
	}
	if words != files*(files-1)/2 || counted != files {
		t.Errorf("%d words in %d files, want %d in %d", words, counted, files*(files-1)/2, files)
	}
	if before == 0 || before == files {
		t.Errorf("%d of %d files were counted before the kill: the test shows nothing", before, files)
	}
}
