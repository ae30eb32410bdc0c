package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/race"
)

// chooser is the pawl that tests find. log_path, see detector, has the name of the test.
const chooser = `#!/bin/sh
case $1,$GORACE in
serve,* | worker,* | run,*/TestTerminal*) exec '$RACED' "$@" ;;
esac
exec '$PLAIN' "$@"
`

// besides puts a pawl into the PATH before the one that is this test binary. Under the race
// detector a process takes a quarter of a second to begin, and a pawl run as much again: those
// that stay have it, and each pawl run that a terminal shows. What comes and goes, such as pawl
// show, is of a plain build. Its code runs in the process of the tests, too. Without the detector
// the test binary begins as fast as any, and nothing is put there; nor by what TestReaper starts,
// which has it from the tests, and a home of its own, where nothing is compiled yet.
func besides() (undo func(), err error) {
	if !race.Enabled || os.Getenv(becomesReaper) != "" {
		return func() {}, nil
	}
	raced, err := exec.LookPath("pawl")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pawl-plain-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	plain := filepath.Join(dir, "plain", "pawl")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", plain, "../../cmd/pawl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	choose := strings.NewReplacer("$RACED", raced, "$PLAIN", plain).Replace(chooser)
	if err := os.WriteFile(filepath.Join(dir, "pawl"), []byte(choose), 0o700); err != nil {
		return nil, err
	}
	if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(dir) }, nil
}
