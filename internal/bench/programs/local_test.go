package programs

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/bench/benchtest"
	"github.com/pawl-jobs/pawl/internal/cli/term"
)

func TestBenchLocal(t *testing.T) {
	keys := map[string][]string{
		"run": {"runs", "seconds", "target_seconds", "seconds_runs", "sh_seconds"},
		"launch": {
			"jobs", "slots", "jobs_per_second", "target_jobs_per_second", "bare_jobs_per_second", "ratio_to_bare",
			"cpu_us_per_job",
			"programs_cpu_us_per_job", "bare_cpu_us_per_job", "statements_per_job",
		},
		"end": {"programs", "p50_ms", "p99_ms", "max_ms", "target_p99_ms", "bare_p50_ms", "bare_p99_ms", "bare_max_ms"},
		"sleep": {
			"sleepers", "peak_rss_mb", "target_peak_rss_mb", "rss_mb", "rss_anon_mb", "rss_kb_per_sleeper",
			"descriptors", "goroutines",
			"idle_cpu_percent", "launch_seconds", "notice_p50_ms", "notice_max_ms", "target_notice_ms",
			"cancel_seconds", "processes_left",
			"bare_sleepers", "bare_rss_kb_per_sleeper", "bare_descriptors_per_sleeper", "bare_goroutines_per_sleeper",
		},
	}
	t.Run("all parts", func(t *testing.T) {
		dir := t.TempDir()
		out := benchtest.RunBench(t, t.Context(), bench.Command(LocalCommand, PaperCommand),
			strings.Fields("local --runs 1 --jobs 6 --ends 3 --sleepers 25 -o json --dir "+dir)...)
		got := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(benchtest.MachineKeys), localParts...)))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("keys, want - got +:\n%s", diff)
		}
		part := map[string]map[string]any{}
		for name, want := range keys {
			part[name], _ = got[name].(map[string]any)
			if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(part[name]))); diff != "" {
				t.Errorf("keys of %s, want - got +:\n%s", name, diff)
			}
		}
		for _, test := range []struct {
			part, key string
			want      float64
		}{
			{"run", "runs", 1},
			{"run", "target_seconds", 1},
			{"launch", "jobs", 6},
			{"launch", "target_jobs_per_second", 150},
			{"end", "programs", 3},
			{"end", "target_p99_ms", 10},
			{"sleep", "sleepers", 25},
			{"sleep", "target_peak_rss_mb", 200},
			{"sleep", "bare_sleepers", 25},
			{"sleep", "bare_descriptors_per_sleeper", 1},
			{"sleep", "processes_left", 0},
		} {
			if v := part[test.part][test.key]; v != test.want {
				t.Errorf("%s.%s is %v, want %v", test.part, test.key, v, test.want)
			}
		}
		for name, list := range map[string][]string{
			"run": {"seconds", "sh_seconds"},
			"launch": {
				"slots", "jobs_per_second", "bare_jobs_per_second", "ratio_to_bare", "cpu_us_per_job",
				"programs_cpu_us_per_job", "bare_cpu_us_per_job", "statements_per_job",
			},
			"end":   {"p50_ms", "bare_p50_ms"},
			"sleep": {"peak_rss_mb", "rss_mb", "rss_anon_mb", "notice_p50_ms", "launch_seconds", "cancel_seconds"},
		} {
			for _, key := range list {
				if v, ok := part[name][key].(float64); !ok || v <= 0 {
					t.Errorf("%s.%s is %v, want more than 0", name, key, part[name][key])
				}
			}
		}
		benchtest.WantEmpty(t, dir)
	})
	t.Run("one part, for people", func(t *testing.T) {
		dir := t.TempDir()
		out := benchtest.RunBench(t, t.Context(), bench.Command(LocalCommand, PaperCommand), "local", "--only",
			"run", "--runs", "1", "--dir", dir).String()
		if !strings.Contains(out, "pawl run:") || strings.Contains(out, "launches:") ||
			!strings.Contains(out, "file system:") {
			t.Errorf("got:\n%s", out)
		}
		benchtest.WantEmpty(t, dir)
	})
	t.Run("stopped, it leaves nothing behind", func(t *testing.T) {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := benchtest.TryBench(ctx, bench.Command(LocalCommand, PaperCommand), "local", "--only", "sleep",
			"--sleepers", "2000", "--dir", dir)
		if err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("got %v", err)
		}
		benchtest.WantEmpty(t, dir)
		if left := bed.ProgramsIn(dir); left != nil {
			t.Errorf("processes are left: %v", left)
		}
	})
	t.Run("flags that cannot be are refused", func(t *testing.T) {
		for args, want := range map[string]string{
			"--runs 0":           "--runs 0 is out of range",
			"--jobs 0":           "--jobs 0 is out of range",
			"--ends -1":          "--ends -1 is out of range",
			"--sleepers 0":       "--sleepers 0 is out of range",
			"--timeout 0s":       "--timeout 0s is out of range",
			"--only run,nothing": "--only nothing is unknown",
			"--sleepers 1000000": "1000000 programs cannot sleep here at once",
		} {
			dir := t.TempDir()
			_, err := benchtest.TryBench(t.Context(), bench.Command(LocalCommand, PaperCommand),
				append(strings.Fields("local "+args), "--dir", dir)...)
			var usage *term.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", args, err, want)
			}
			benchtest.WantEmpty(t, dir)
		}
	})
}
