package sacct

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

var heading = strings.Join(fields, "|") + "\n"

// What sacct prints is read: jobs that are over, with the memory of their steps.
func TestParse(t *testing.T) {
	got, ok := Parse(heading + `1|FAILED|3:0|1795877341|1795877342|1795877345|00:00.093|1-02:03:04||debug|vm|OLD
1.batch|FAILED|3:0|1795877342|1795877342|1795877345|00:00.093|00:00.069|73684K||vm|batch
1.0|FAILED|3:0|1795877342|1795877342|1795877345|00:00.093|00:00.069|75452416||vm|a|b
sacct: error: something else
2|RUNNING|0:0|1795877342|1795877342|Unknown|00:00:00|00:00.001||debug|vm|RUNS
5|CANCELLED by 1000|0:15|1795877342|1795877342|1795877344|00:00:00|00:00.001||debug|vm|ENDED
9_[1,3-4%2]|CANCELLED by 0|0:0|1795877342|None|1795877344|00:00:00|00:00:00||debug|None assigned|ARRAY
9_0|TIMEOUT|0:0|1795877342|1795877342|1795877344|00:00:00|00:00:00||debug|vm|ARRAY
9_0.batch|TIMEOUT|0:0|1795877342|1795877342|1795877344|00:00:00|00:00:00|1.5M||vm|batch
7|COMPLETED|0:0|1795877300|1795877342|1795877344|00:00:00|00:00:00||debug|vm|OLD
`)
	var said []string
	for _, name := range []string{"OLD", "RUNS", "ENDED", "ARRAY_0", "ARRAY_1", "ARRAY_2", "ARRAY_3", "ARRAY_4"} {
		if r, there := got[name]; there {
			said = append(said, name+": "+r.String())
		}
	}
	want := []string{
		"OLD: Slurm job 1 is FAILED, exit code 3, after 3s, with 72 MiB of memory at most",
		"ENDED: Slurm job 5 is CANCELLED (by 1000), signal 15, after 2s",
		"ARRAY_0: Slurm job 9_0 is TIMEOUT, after 2s, with 2 MiB of memory at most",
		"ARRAY_1: Slurm job 9_1 is CANCELLED (by 0)",
		"ARRAY_3: Slurm job 9_3 is CANCELLED (by 0)",
		"ARRAY_4: Slurm job 9_4 is CANCELLED (by 0)",
	}
	if diff := cmp.Diff(want, said); diff != "" || !ok {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	use := host.Usage{User: 93 * time.Millisecond, System: 26*time.Hour + 3*time.Minute + 4*time.Second, MaxRSS: 75452416}
	if diff := cmp.Diff(use, got["OLD"].Usage); diff != "" {
		t.Error(diff)
	}
	if c := got["ARRAY_0"].Cause(); c != job.SchedulerTimeout {
		t.Error(c)
	}
}

// What sacct did not print whole is no answer.
func TestNoAnswer(t *testing.T) {
	for _, out := range []string{"", "sacct: error: slurm_persist_conn_open_without_init\n", heading[:40], "JobID|State\n"} {
		if _, ok := Parse(out); ok {
			t.Errorf("%q is taken for an answer", out)
		}
	}
	if a, ok := Parse(heading); !ok || len(a) > 0 {
		t.Error("accounts that have nothing are no answer")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("12_3|TIMEOUT|0:9|1795877342|1795877342|1795877344|00:00:00|1-00:00:00||debug|vm|TOKEN\n12_3.0|||||||||1G|||")
	f.Add("9_[1,3-4%2]|CANCELLED by 0|0:0||None|||||||T")
	f.Add("1\n\n  \x00|")
	f.Fuzz(func(t *testing.T, out string) {
		a, ok := Parse(heading + out)
		if !ok {
			t.Error("an answer is not read")
		}
		for name, r := range a {
			if name == "" || r.ID == "" || r.Phase() != squeue.Over || r.Usage.MaxRSS < 0 || r.Usage.User < 0 || r.Usage.System < 0 {
				t.Errorf("%q: %+v", name, r)
			}
			_ = r.String()
		}
	})
}

// An answer that does not name a job, or is none, leaves it open. It is asked rarely, about all
// that is open.
func TestBook(t *testing.T) {
	var asked []string
	var answer Answer
	var err error
	b := Book{
		Ask: func(_ context.Context, names []string, _ time.Time) (Answer, error) {
			asked = append(asked, strings.Join(names, ","))
			return answer, err
		},
		Delay: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	find := func(name string, found, open bool) {
		t.Helper()
		if _, f, o := b.Find(name, time.Now(), 0); f != found || o != open {
			t.Errorf("%s is found %t, open %t", name, f, o)
		}
	}
	refresh := func() { b.Refresh(t.Context()) }
	find("T", false, true)
	find("A_1", false, true)
	find("A_2", false, true)
	err = errors.New("no answer")
	refresh()
	find("T", false, true)
	err = nil
	refresh()
	find("T", false, true)
	answer = Answer{"A_1": {Row: squeue.Row{ID: "1_1"}}}
	refresh()
	find("T", false, true)
	find("A_1", true, false)
	find("A_2", false, true)
	b.Interval = time.Hour
	refresh()
	if diff := cmp.Diff([]string{"A,T", "A,T", "A,T"}, asked); diff != "" {
		t.Error(diff)
	}
	b.Interval, b.Delay = 0, 0
	refresh()
	find("T", false, false)
	find("A_1", true, false)
	_, _, _ = b.Find("NEW", time.Now(), time.Nanosecond)
	if _, _, open := b.Find("NEW", time.Now(), time.Nanosecond); open {
		t.Error("it is open for longer than somebody waits")
	}
	err = ErrNone
	find("LAST", false, true)
	refresh()
	find("LAST", false, false)
}
