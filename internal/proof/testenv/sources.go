package testenv

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Sources looks at the source files of the module that this process stands in. Whoever builds a
// program of it for a test calls it: go test takes a result from its cache while nothing changes
// that the test has looked at, and what the go command reads for the test is not among that.
func Sources(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	return filepath.WalkDir(strings.TrimSpace(string(out)), func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case filepath.Ext(name) == ".go", filepath.Ext(name) == ".sql":
			_, err = os.Stat(name)
		}
		return err
	})
}
