package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// build builds the binaries of this version and of the one before. In both [time.Now] is wrong by as many seconds as
// STORM_AWRY says, which no part of the service can tell from a clock that was set wrong.
func (s *storm) build(ctx context.Context) error {
	overlay, err := s.awry(ctx)
	if err != nil {
		return err
	}
	args := []string{"build", "-overlay", overlay, "-tags", "storm"}
	if s.race {
		args = append(args, "-race", "-gcflags=modernc.org/...=-race=false")
	}
	s.bin = filepath.Join(s.dir, "bin", "pawl")
	return command(ctx, "", "go", append(args, "-o", s.bin, "github.com/pawl-jobs/pawl/cmd/pawl")...)
}

// awry writes what the go command is to take in place of the file in which Now stands.
func (s *storm) awry(ctx context.Context) (overlay string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	name := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	const begins = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), begins) != 1 {
		return "", fmt.Errorf("package time of %s is not the one that is known: its Now does not begin as expected", runtime.Version())
	}
	dir := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "time.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), begins, begins+"\tsec += awry\n", 1)), 0o600); err != nil {
		return "", err
	}
	added := filepath.Join(dir, "awry.go")
	if err := os.WriteFile(added, []byte(awrySource), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {name: changed, filepath.Join(filepath.Dir(name), "awry.go"): added}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

const awrySource = `package time

import "syscall"

var awry = awrySeconds()

func awrySeconds() (n int64) {
	text, _ := syscall.Getenv("STORM_AWRY")
	for i := 0; i < len(text); i++ {
		if text[i] != '-' {
			n = 10*n + int64(text[i]-'0')
		}
	}
	if text != "" && text[0] == '-' {
		n = -n
	}
	return n
}
`

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return nil
}
