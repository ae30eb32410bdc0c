package remote

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
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// needs ends a test where there is no sshd or no sftp.
func needs(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts sshd")
	}
	testenv.Program(t, "/usr/sbin/sshd")
	testenv.Program(t, "sftp")
}

// small are numbers that take no time.
const small = "ssh --jobs 6 --rounds 1 --slow 3 --rtt 4ms --ends 3 --naive 4 --poll 50ms --megabytes 3 --programs 15 " +
	"--watch 300ms --fake 40 "

func TestBenchSSH(t *testing.T) {
	testenv.Aside(t)
	keys := map[string][]string{
		"launch": {
			"jobs_per_second", "local_jobs_per_second", "ratio_to_local", "launches_per_second",
			"bare_launches_per_second", "ratio_to_bare", "forks_per_launch", "round_trips_per_job", "connections",
			"naive_jobs_per_second", "failed", "launched_twice",
		},
		"latency": {"rtt_ms", "jobs_per_second"},
		"end":     {"notice_p50_ms", "notice_p99_ms", "naive_p50_ms"},
		"sleep": {
			"programs", "peak_rss_mb", "goroutines", "descriptors", "channels", "commands_per_minute",
			"commands_per_minute_at_10",
		},
		"fake": {"programs", "peak_rss_mb"},
		"copy": {
			"bytes", "put_mb_per_second", "get_mb_per_second", "sftp_put_mb_per_second", "sftp_get_mb_per_second",
			"ratio_put", "ratio_get", "peak_rss_mb",
		},
	}
	t.Run("all parts", func(t *testing.T) {
		needs(t)
		dir := t.TempDir()
		out := benchtest.RunBench(t, t.Context(), bench.Command(Command), strings.Fields(small+"-o json --dir "+dir)...)
		got := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(benchtest.MachineKeys), parts...)))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("keys, want - got +:\n%s", diff)
		}
		value := func(part, key string) float64 {
			of, _ := got[part].(map[string]any)
			v, ok := of[key].(float64)
			if !ok {
				t.Errorf("%s.%s is %v", part, key, of[key])
			}
			return v
		}
		for name, want := range keys {
			of, _ := got[name].(map[string]any)
			if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(of))); diff != "" {
				t.Errorf("keys of %s, want - got +:\n%s", name, diff)
			}
		}
		for _, test := range []struct {
			part, key string
			want      float64
		}{
			{"launch", "failed", 0},
			{"launch", "launched_twice", 0},
			{"launch", "connections", 1},
			{"latency", "rtt_ms", 4},
			{"sleep", "programs", 15},
			{"fake", "programs", 40},
			{"copy", "bytes", 3e6},
		} {
			if v := value(test.part, test.key); v != test.want {
				t.Errorf("%s.%s is %v, want %v", test.part, test.key, v, test.want)
			}
		}
		for name, list := range map[string][]string{
			"launch": {
				"jobs_per_second", "local_jobs_per_second", "ratio_to_local", "launches_per_second",
				"bare_launches_per_second", "ratio_to_bare", "round_trips_per_job", "naive_jobs_per_second",
			},
			"latency": {"jobs_per_second"},
			"end":     {"notice_p50_ms", "notice_p99_ms", "naive_p50_ms"},
			"sleep":   {"peak_rss_mb", "channels"},
			"fake":    {"peak_rss_mb"},
			"copy":    {"put_mb_per_second", "sftp_put_mb_per_second", "ratio_put", "ratio_get", "peak_rss_mb"},
		} {
			for _, key := range list {
				if v := value(name, key); v <= 0 {
					t.Errorf("%s.%s is %v, want more than 0", name, key, v)
				}
			}
		}
		benchtest.WantEmpty(t, dir)
		if left := bed.ProgramsIn(dir); left != nil {
			t.Errorf("processes are left: %v", left)
		}
	})
	t.Run("one part, for people", func(t *testing.T) {
		needs(t)
		dir := t.TempDir()
		out := benchtest.RunBench(t, t.Context(), bench.Command(Command),
			strings.Fields(small+"--only end --dir "+dir)...).String()
		if !strings.Contains(out, "end to ARCHIVING:") || strings.Contains(out, "whole way:") ||
			!strings.Contains(out, "file system:") {
			t.Errorf("got:\n%s", out)
		}
		benchtest.WantEmpty(t, dir)
	})
	t.Run("stopped, it leaves nothing behind", func(t *testing.T) {
		needs(t)
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := benchtest.TryBench(ctx, bench.Command(Command), "ssh", "--only", "sleep", "--programs", "1000", "--dir",
			dir)
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
			"--jobs 0":             "--jobs 0 is out of range",
			"--rounds 0":           "--rounds 0 is out of range",
			"--poll 0s":            "--poll 0s is out of range",
			"--watch 2h":           "--watch 2h0m0s is out of range",
			"--only launch,nought": "--only nought is unknown",
			"--programs 1000000":   "1000000 programs cannot sleep here at once",
		} {
			dir := t.TempDir()
			_, err := benchtest.TryBench(t.Context(), bench.Command(Command),
				append(strings.Fields("ssh "+args), "--dir", dir)...)
			var usage *term.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", args, err, want)
			}
			benchtest.WantEmpty(t, dir)
		}
	})
}

func TestTurnsChange(t *testing.T) {
	if a, b := inTurns(0, 1, 2), inTurns(1, 1, 2); !slices.Equal(a, []int{1, 2}) || !slices.Equal(b, []int{2, 1}) {
		t.Errorf("%v, then %v", a, b)
	}
}
