package bench

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/bench/benchtest"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestBench(t *testing.T) {
	for _, tt := range []struct {
		args string
		keys []string
		// want are values that do not depend on how fast the machine is.
		want map[string]float64
		// positive are figures that are above 0 on any machine.
		positive []string
		// ascending are figures of which none is below the one before.
		ascending [][]string
	}{
		{
			args: "tasks --jobs 30 --slots 4 --batch 7 --rounds 2 --kept 20 --transactions 20 --schedules 50 --idle 100ms",
			keys: []string{
				"jobs", "slots", "batch", "rounds", "kept", "jobs_per_second", "submit_per_second",
				"sql_jobs_per_second", "sql_submit_per_second",
				"sql_limit_per_second", "ratio_to_sql", "cpu_us_per_job", "sql_cpu_us_per_job",
				"statements_per_job", "rss_mb",
				"jobs_per_second_rounds", "sql_jobs_per_second_rounds", "http", "tx", "ratio_typed", "schedules",
			},
			want: map[string]float64{"jobs": 30, "slots": 4, "batch": 7, "rounds": 2, "kept": 20},
			positive: []string{
				"submit_per_second", "sql_submit_per_second", "ratio_to_sql", "statements_per_job",
				"cpu_us_per_job", "sql_cpu_us_per_job", "rss_mb", "ratio_typed",
			},
			ascending: [][]string{
				{"jobs_per_second", "submit_per_second"},
				{"sql_jobs_per_second", "sql_limit_per_second"},
			},
		},
		{
			args: "latency --rate 20 --seconds 1",
			keys: []string{
				"jobs", "rate_per_second", "seconds", "p50_ms", "p99_ms", "max_ms", "after_submit_p50_ms",
				"after_submit_p99_ms", "after_submit_max_ms",
				"submit_p50_ms", "submit_p99_ms", "submit_max_ms", "rss_mb",
			},
			want:     map[string]float64{"jobs": 20, "rate_per_second": 20, "seconds": 1},
			positive: []string{"p50_ms", "submit_p50_ms", "rss_mb"},
			ascending: [][]string{
				{"after_submit_p50_ms", "p50_ms", "p99_ms", "max_ms"},
				{"after_submit_p50_ms", "after_submit_p99_ms", "after_submit_max_ms", "max_ms"},
				{"submit_p50_ms", "submit_p99_ms", "submit_max_ms"},
			},
		},
		{
			args: "idle --seconds 2 --lease 3s",
			keys: []string{
				"seconds", "lease_seconds", "statements", "statements_per_minute_idle",
				"renewals_per_minute_expected", "rss_mb", "goroutines",
			},
			want:     map[string]float64{"seconds": 2, "lease_seconds": 3, "renewals_per_minute_expected": 60},
			positive: []string{"statements", "goroutines", "rss_mb"},
		},
	} {
		t.Run(tt.args, func(t *testing.T) {
			dir := t.TempDir()
			out := benchtest.RunBench(t, t.Context(), Command(),
				append(strings.Fields(tt.args), "-o", "json", "--dir", dir)...)
			dec := json.NewDecoder(out)
			got := map[string]any{}
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), out)); err != nil ||
				len(bytes.TrimSpace(rest)) > 0 {
				t.Errorf("there is more than one object: %q, %v", rest, err)
			}
			keys := slices.Sorted(slices.Values(append(tt.keys, benchtest.MachineKeys...)))
			if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("keys, want - got +:\n%s", diff)
			}
			number := func(key string) float64 {
				v, ok := got[key].(float64)
				if !ok {
					t.Errorf("%s is %v, not a number", key, got[key])
				}
				return v
			}
			for key, want := range tt.want {
				if v := number(key); v != want {
					t.Errorf("%s is %v, want %v", key, v, want)
				}
			}
			for _, key := range append(tt.positive, "cores", "gomaxprocs") {
				if v := number(key); v <= 0 {
					t.Errorf("%s is %v, want more than 0", key, v)
				}
			}
			for _, list := range tt.ascending {
				for i := range list[1:] {
					if a, b := number(list[i]), number(list[i+1]); a > b {
						t.Errorf("%s is %v, more than %s, which is %v", list[i], a, list[i+1], b)
					}
				}
			}
			benchtest.WantEmpty(t, dir)
		})
	}

	t.Run("for people", func(t *testing.T) {
		out := benchtest.RunBench(t, t.Context(), Command(), "tasks", "--jobs", "10", "--rounds", "1",
			"--transactions", "0", "--schedules", "0", "--dir",
			t.TempDir()).String()
		for _, want := range []string{"pawl:", "bare SQL:", "ratio:", "over HTTP:", "lost 0, twice 0", "10 no-op tasks", "GOMAXPROCS", "file system:"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in:\n%s", want, out)
			}
		}
	})
	t.Run("a profile is written", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "cpu")
		benchtest.RunBench(t, t.Context(), Command(), "tasks", "--jobs", "10", "--rounds", "1",
			"--transactions", "0", "--schedules", "0", "--dir",
			t.TempDir(), "--cpuprofile", name)
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("profile: %v, %v", info, err)
		}
	})
	t.Run("stopped, it leaves nothing behind", func(t *testing.T) {
		for _, args := range []string{"tasks --jobs 10000000", "latency --seconds 600", "idle --seconds 3600"} {
			dir := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := benchtest.TryBench(ctx, Command(), append(strings.Fields(args), "--dir", dir)...)
			if err == nil || !strings.Contains(err.Error(), "stopped") {
				t.Errorf("%s: got %v", args, err)
			}
			benchtest.WantEmpty(t, dir)
		}
	})
	t.Run("it gives up in time", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := benchtest.TryBench(t.Context(), Command(), "tasks", "--jobs", "10000000", "--timeout", "300ms",
			"--dir", dir); !errors.Is(err, errTime) {
			t.Errorf("got %v", err)
		}
		benchtest.WantEmpty(t, dir)
	})
	t.Run("flags that cannot be are refused", func(t *testing.T) {
		for args, want := range map[string]string{
			"tasks --jobs 0":             "--jobs 0 is out of range",
			"tasks --slots -1":           "--slots -1 is out of range",
			"tasks --batch 1000000":      "--batch 1000000 is out of range",
			"tasks --rounds 0":           "--rounds 0 is out of range",
			"tasks --timeout 0s":         "--timeout 0s is out of range",
			"tasks --jobs many":          "invalid argument",
			"tasks -o xml":               `--output "xml" is unknown`,
			"tasks more":                 `"more" is not what it takes: write pawl bench tasks`,
			"latency --rate 0":           "--rate 0 is out of range",
			"latency --seconds 100000":   "--seconds 100000 is out of range",
			"idle --seconds 0":           "--seconds 0 is out of range",
			"idle --lease 10ms":          "--lease 10ms is out of range",
			"idle --dir /does/not/exist": "--dir /does/not/exist is not a folder",
		} {
			_, err := benchtest.TryBench(t.Context(), Command(), strings.Fields(args)...)
			var usage *term.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", args, err, want)
			}
		}
	})
}

// The ratio means something only if both sides do the same.
func TestBareSQLWritesWhatPawlWrites(t *testing.T) {
	b := &tasksBench{jobs: 25, slots: 4, batch: 10}
	m := &Measurement{Log: slog.New(slog.DiscardHandler)}
	ours, theirs := t.TempDir(), t.TempDir()
	if _, err := b.service(t.Context(), m, ours, false, &taskFigures{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sql(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	const noops = `(SELECT seq FROM jobs WHERE kind = 'noop')`
	for _, table := range []struct {
		name, where string
		own         []string // columns that are each row's own: whether they are set is compared, and not what they say
	}{
		{"jobs", "seq IN " + noops, []string{"seq", "id", "name", "created", "since", "ended"}},
		{"specs", "seq IN " + noops, []string{"seq"}},
		{"events", "job IN " + noops, []string{"seq", "job", "at", "actor", "change"}},
	} {
		want := tableOf(t, ours, table.name, table.where, table.own)
		if len(want) == 0 {
			t.Errorf("%s: nothing there", table.name)
		}
		if diff := cmp.Diff(want, tableOf(t, theirs, table.name, table.where, table.own)); diff != "" {
			t.Errorf("%s, Pawl - bare SQL +:\n%s", table.name, diff)
		}
	}
}

// tableOf returns the rows of a table, as JSON in order.
func tableOf(t *testing.T, dir, table, where string, own []string) (rows []string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, sqlite.File))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := func(q string) (values []string) {
		rs, err := db.QueryContext(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		defer rs.Close()
		for rs.Next() {
			var v string
			if err := rs.Scan(&v); err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		if err := rs.Err(); err != nil {
			t.Fatal(err)
		}
		return values
	}
	var fields []string
	for _, c := range query(`SELECT name FROM pragma_table_info('` + table + `')`) {
		if slices.Contains(own, c) {
			fields = append(fields, `'`+c+`', typeof(`+c+`)`)
		} else {
			fields = append(fields, `'`+c+`', `+c)
		}
	}
	return query(`SELECT json_object(` + strings.Join(fields, ", ") + `) AS row FROM ` + table + ` WHERE ` + where +
		` ORDER BY row`)
}

func TestMountOf(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:22 / /tmp rw - tmpfs tmpfs rw
24 22 0:23 / /mnt/a\040disk rw master:1 - xfs /dev/sdb rw
25 22 0:24 / /tmp rw - btrfs /dev/sdc rw
`
	for dir, want := range map[string]string{
		"/var/lib":      "ext4 on /dev/vda",
		"/":             "ext4 on /dev/vda",
		"/tmp":          "btrfs on /dev/sdc",
		"/tmp/x":        "btrfs on /dev/sdc",
		"/tmpx":         "ext4 on /dev/vda",
		"/mnt/a disk/x": "xfs on /dev/sdb",
	} {
		if got := mountOf(dir, mounts); got != want {
			t.Errorf("%s: got %s, want %s", dir, got, want)
		}
	}
}
