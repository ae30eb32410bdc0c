package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Before is the commit of the version before this one, which works beside it while processes are replaced. CONTRIBUTING.md
// says when it is moved.
const Before = "ce822772dc97cae67d6490627a2f8b8f327cf12f"

// ErrNoHistory says that a source is without its history, such as an archive or a shallow clone.
var ErrNoHistory = errors.New("the version before is taken from git, and its history is not there")

// BuildBefore puts the source of the version before that of the module at root into a folder, and builds pawl there. It
// returns the name of the binary, or [ErrNoHistory].
func BuildBefore(ctx context.Context, root, dir string) (binary string, err error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoHistory, err)
	}
	archive, err := exec.CommandContext(ctx, "git", "-C", root, "archive", Before).Output()
	if err != nil {
		shallow, _ := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--is-shallow-repository").Output()
		if strings.TrimSpace(string(shallow)) == "true" {
			return "", fmt.Errorf("%w: %w", ErrNoHistory, err)
		}
		return "", fmt.Errorf("git archive %s: %w", Before, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack the version before: %w: %s", err, out)
	}
	binary = filepath.Join(dir, "bin", "pawl")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version=before", "-o", binary, "./cmd/pawl")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the version before: %w: %s", err, out)
	}
	return binary, nil
}
