package squeue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func line(words ...string) string {
	text := ""
	for i, f := range fields {
		text += fmt.Sprintf("%-*.*s", f.width, f.width, words[i])
	}
	return text + "\n"
}

var heading = line("JOBID", "NAME", "STATE", "REASON", "EXIT_CODE", "SUBMIT_TIME", "START_TIME", "END_TIME", "PARTITION")

// What squeue prints is read by its columns.
func TestParse(t *testing.T) {
	got, ok := Parse(heading + line("12_3", "ARRAY", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug") +
		"slurm_load_jobs error\n" +
		line("7", "OLD", "FAILED", "NonZeroExitCode", "768", "1795844900", "1795844901", "1795844902", "debug") +
		line("8", "OLD", "RUNNING", "None", "0", "1795844910", "1795844911", "N/A", "debug") +
		line("9", "BAD", "FAILED", "NonZeroExitCode", "768", "1795844900", "1795844901", "1795844902", "debug") +
		line("JOBID", "NAME", "STATE", "REASON", "EXIT_CODE", "SUBMIT_TIME", "START_TIME", "END_TIME", "PARTITION"))
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	want := Answer{map[string]Row{
		"ARRAY_3": {ID: "12_3", State: "PENDING", Reason: "Resources", Submitted: at(1795844903), Partition: "debug"},
		"OLD": {
			ID: "8", State: "RUNNING", Reason: "None", Submitted: at(1795844910), Start: at(1795844911), Partition: "debug",
		},
		"BAD": {
			ID: "9", State: "FAILED", Reason: "NonZeroExitCode", Exit: 768, Submitted: at(1795844900), Start: at(1795844901),
			End: at(1795844902), Partition: "debug",
		},
	}, map[string]bool{"ARRAY": true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Answer{})); diff != "" || !ok {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	if s := got.rows["BAD"].String(); s != "Slurm job 9 is FAILED (NonZeroExitCode), exit code 3" {
		t.Error(s)
	}
}

// An answer that was cut before its heading, or that squeue did not give, is none.
func TestNoAnswer(t *testing.T) {
	for _, out := range []string{"", "slurm_load_jobs error: Unable to contact slurm controller\n", heading[:50], "JOBID\n"} {
		if _, ok := Parse(out); ok {
			t.Errorf("%q is taken for an answer", out)
		}
	}
	if _, ok := Parse(heading); !ok {
		t.Error("an account without jobs is no answer")
	}
}

// Slurm keeps no record of a task that is canceled while it waits, and one of all that are canceled
// together.
func TestTasksThatAreGone(t *testing.T) {
	a, _ := Parse(heading + line("12_3", "ARRAY", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug") +
		line("13", "WHOLE", "CANCELLED", "None", "0", "1795844903", "N/A", "N/A", "debug"))
	for name, want := range map[string]struct {
		removed bool
		cause   job.Code
	}{
		"ARRAY_3": {false, ""}, "ARRAY_4": {true, ""}, "WHOLE_1": {false, job.SchedulerCanceled}, "NONE_1": {false, ""},
		"NONE": {false, ""},
	} {
		if w, _ := a.Find(name); a.Removed(name) != want.removed || w.Cause() != want.cause {
			t.Errorf("%s: removed %t, cause %q", name, a.Removed(name), w.Cause())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(line("12_3", "TOKEN", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug"))
	f.Add("1\n\n  \x00")
	f.Fuzz(func(t *testing.T, out string) {
		a, ok := Parse(heading + out)
		if !ok {
			t.Error("an answer is not read")
		}
		for name, w := range a.rows {
			if name == "" || w.State == "" || strings.TrimSpace(w.ID) == "" {
				t.Errorf("%q: %+v", name, w)
			}
			_, _, _ = w.Waiting(), w.Phase(), w.String()
		}
	})
}
