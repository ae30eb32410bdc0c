// Package benchtest runs benchmarks in tests.
package benchtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// MachineKeys are what each benchmark says of the machine, in JSON.
var MachineKeys = []string{
	"cpu", "cores", "gomaxprocs", "kernel", "file_system", "load_average_1m", "go_version",
	"pawl_version",
}

// RunBench runs a benchmark of a command and returns what it printed.
//
//nolint:revive // t comes first
func RunBench(t *testing.T, ctx context.Context, cmd *cobra.Command, args ...string) *bytes.Buffer {
	t.Helper()
	out, err := TryBench(ctx, cmd, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryBench runs a benchmark of a command, which may fail.
func TryBench(ctx context.Context, cmd *cobra.Command, args ...string) (*bytes.Buffer, error) {
	root := &cobra.Command{Use: "pawl", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(cmd)
	term.FlagErrors(root)
	term.CheckArgs(cmd)
	var out bytes.Buffer
	root.SetArgs(append([]string{cmd.Name()}, args...))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	return &out, root.ExecuteContext(ctx)
}

// Measured runs a benchmark that prints one object, which is to have these keys and no others.
func Measured(t *testing.T, cmd *cobra.Command, keys []string, args ...string) map[string]any {
	t.Helper()
	got := map[string]any{}
	if err := json.Unmarshal(RunBench(t, t.Context(), cmd, args...).Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("keys, want - got +:\n%s", diff)
	}
	return got
}

// WantEmpty says that nothing is to be left in a folder.
func WantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
