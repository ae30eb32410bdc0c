package testenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/overlay"
)

// BuildNext builds a program of the module at root, such as cmd/pawl, as it may be in a next
// version: from the source of this one, with one more migration of each database. It calls itself
// "next". Processes of the two work side by side, as they do while those of one release are
// replaced by those of another. The files and the flags are what else go build is given.
func BuildNext(ctx context.Context, root, program, binary string, files overlay.Files, flags ...string) error {
	if err := Sources(ctx); err != nil {
		return err
	}
	next := overlay.Files{}
	maps.Copy(next, files)
	if err := addNext(next, root); err != nil {
		return fmt.Errorf("add a migration: %w", err)
	}
	if err := next.Write(binary + ".json"); err != nil {
		return err
	}
	args := append([]string{
		"build", "-overlay", binary + ".json", "-ldflags", "-X main.version=next", "-o",
		binary,
	}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, "./"+program)...)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build a next version: %w: %s", err, out)
	}
	return nil
}

// addNext adds the migrations of a next version to an overlay.
func addNext(files overlay.Files, root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	for _, database := range []string{"postgres", "sqlite"} {
		folder := filepath.Join(root, "store", database)
		there, err := filepath.Glob(filepath.Join(folder, "migrations", "*.sql"))
		if err != nil {
			return err
		}
		if len(there) == 0 {
			return fmt.Errorf("there are none in %s", folder)
		}
		number, _, _ := strings.Cut(filepath.Base(slices.Max(there)), "_")
		newest, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%05d_next.sql", newest+1)
		files[filepath.Join(folder, "migrations", name)] = filepath.Join(folder, "testdata", "next.sql")
	}
	return nil
}
