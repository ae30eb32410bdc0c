package slurm

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/bench/benchtest"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// needs ends a test where there is no Slurm, or where nobody may start one.
func needs(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts Slurm")
	}
	testenv.Program(t, "sbatch")
	testenv.Program(t, "/usr/sbin/slurmctld")
	if os.Geteuid() != 0 {
		t.Skip("only root can be a node of Slurm")
	}
}

func TestBenchSlurm(t *testing.T) {
	needs(t)
	keys := map[string][]string{
		"accept":  {"jobs", "arrays", "jobs_per_second", "sbatch_loop_per_second", "ratio"},
		"drain":   {"jobs", "makespan_seconds", "plain_makespan_seconds", "ratio"},
		"end":     {"notice_p50_ms", "notice_p99_ms", "file_system"},
		"queries": {"waiting", "minutes", "squeue", "scontrol", "sacct", "per_minute"},
	}
	if testenv.Long() { // it waits for two answers of squeue
		keys["pending"] = []string{"jobs", "peak_rss_mb"}
	}
	dir := t.TempDir()
	args := "slurm --jobs 6 --loop 3 --rounds 1 --drain 4 --ends 2 --waiting 3 --watch 300ms --pending 5 -o json --only " +
		strings.Join(slices.Collect(maps.Keys(keys)), ",") + " --dir " + dir
	out := benchtest.RunBench(t, t.Context(), bench.Command(Command), strings.Fields(args)...)
	got := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(benchtest.MachineKeys, slices.Collect(maps.Keys(keys)), []string{"started_twice", "lost"})
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("keys, want - got +:\n%s", diff)
	}
	for name, list := range keys {
		of, _ := got[name].(map[string]any)
		slices.Sort(list)
		if diff := cmp.Diff(list, slices.Sorted(maps.Keys(of))); diff != "" {
			t.Errorf("keys of %s, want - got +:\n%s", name, diff)
		}
	}
	if got["started_twice"] != 0.0 || got["lost"] != 0.0 {
		t.Errorf("%v started twice, %v lost", got["started_twice"], got["lost"])
	}
	benchtest.WantEmpty(t, dir)
	if left := bed.ProgramsIn(dir); left != nil {
		t.Errorf("processes are left: %v", left)
	}
}

func TestWrongUse(t *testing.T) {
	for args, want := range map[string]string{
		"--only all":              "--only all is unknown: give some of accept,drain,end,queries,pending",
		"--jobs 0":                "--jobs",
		"--watch 2h":              "--watch 2h0m0s is out of range",
		"--db postgres://x@y/z":   "leave it out",
		"--only accept --loop -1": "--loop",
	} {
		_, err := benchtest.TryBench(t.Context(), bench.Command(Command), strings.Fields("slurm "+args)...)
		var usage *term.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
