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

var heading = line("JOBID", "NAME", "STATE", "REASON", "EXIT_CODE", "SUBMIT_TIME", "START_TIME", "END_TIME", "PARTITION", "NODELIST")

// What squeue prints is read by its columns.
func TestParse(t *testing.T) {
	got, ok := Parse(heading + line("12_3", "ARRAY", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug", "") +
		"slurm_load_jobs error\n" +
		line("7", "OLD", "FAILED", "NonZeroExitCode", "768", "1795844900", "1795844901", "1795844902", "debug", "n1") +
		line("8", "OLD", "RUNNING", "None", "0", "1795844910", "1795844911", "N/A", "debug", "n[1-2,4]") +
		line("9", "BAD", "FAILED", "NonZeroExitCode", "768", "1795844900", "1795844901", "1795844902", "debug", "n1") +
		line("JOBID", "NAME", "STATE", "REASON", "EXIT_CODE", "SUBMIT_TIME", "START_TIME", "END_TIME", "PARTITION", "NODELIST"))
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	want := Answer{map[string]Row{
		"ARRAY_3": {ID: "12_3", State: "PENDING", Reason: "Resources", Submitted: at(1795844903), Partition: "debug"},
		"OLD": {
			ID: "8", State: "RUNNING", Reason: "None", Submitted: at(1795844910), Start: at(1795844911), Partition: "debug",
			Nodes: "n[1-2,4]",
		},
		"BAD": {
			ID: "9", State: "FAILED", Reason: "NonZeroExitCode", Exit: 768, Submitted: at(1795844900), Start: at(1795844901),
			End: at(1795844902), Partition: "debug", Nodes: "n1",
		},
	}, map[string]bool{"ARRAY": true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Answer{})); diff != "" || !ok {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	if s := got.rows["BAD"].String(); s != "Slurm job 9 is FAILED (NonZeroExitCode), exit code 3" {
		t.Error(s)
	}
}

// What Slurm says of a job is told in words, with its own where there are none.
func TestWords(t *testing.T) {
	many := strings.Repeat("n[1-2],", 50)
	a, _ := Parse(heading + line("1", "MANY", "RUNNING", "None", "0", "1", "1", "N/A", "debug", many))
	waits := func(reason string) string { return Row{ID: "7", Partition: "long", Reason: reason}.Waiting() }
	for got, want := range map[string]string{
		a.rows["MANY"].Running(): "Slurm job 1 in partition debug on " + many[:MaxNodes] + "…",
		Row{ID: "12_3", Partition: "debug", Nodes: "n[1-2,4]"}.Running(): "Slurm job 12_3 in partition debug on n[1-2,4]",
		Row{ID: "7"}.Running(): "Slurm job 7",
		waits("None"):          "Slurm job 7 in partition long waits",
		waits("Resources"):     "Slurm job 7 in partition long waits for free resources",
		waits("QOSGrpCpuLimit"): "Slurm job 7 in partition long waits because of " +
			"a limit of its QOS (QOSGrpCpuLimit)",
		waits("AssocGrpGRES"): "Slurm job 7 in partition long waits because of " +
			"a limit of its account (AssocGrpGRES)",
		waits("Prolog"): "Slurm job 7 in partition long waits (Prolog)",
		waits("QOSMaxWallDurationPerJobLimit"): "Slurm job 7 in partition long " +
			"waits and cannot run: it asks for more than its QOS gives to one job (QOSMaxWallDurationPerJobLimit)",
		waits("job requeued in held state"): "Slurm job 7 in partition long " +
			"waits because it is held (job requeued in held state): scontrol release lets it go on",
		waits("ReqNodeNotAvail, UnavailableNodes:n[1-2]"): "Slurm job 7 in partition " +
			"long waits for nodes that are not available (UnavailableNodes:n[1-2])",
		waits("Nodes required for job are DOWN, DRAINED or reserved for jobs in"): "" +
			"Slurm job 7 in partition long waits for nodes that are down, drained or reserved for jobs of a higher partition",
		waits("MaxBurst"): "Slurm job 7 in partition long waits (MaxBurst)",
		Row{ID: "7", Partition: "a,b", Reason: "PartitionTimeLimit"}.Waiting(): "Slurm job 7 in partition a,b waits: " +
			"one of them does not take it (PartitionTimeLimit)",
		Row{ID: "7", Partition: "long", State: "SUSPENDED", Nodes: "n1"}.Running(): "Slurm job 7 is suspended in partition " +
			"long on n1",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// Of a job that is held nobody knows when it begins.
func TestExpected(t *testing.T) {
	at := time.Unix(1795844903, 0)
	for reason, want := range map[string]time.Time{
		"Resources": at, "BeginTime": at, "JobHeldUser": {}, "JobHeldAdmin": {}, "job requeued in held state": {},
		"launch failed requeued held": {},
	} {
		if got := (Row{Reason: reason, Start: at}).Expected(); !got.Equal(want) {
			t.Errorf("%s: %v", reason, got)
		}
	}
}

// What can never begin is told from what waits for others, or for an administrator.
func TestNever(t *testing.T) {
	for _, never := range []Row{
		{Partition: "a", Reason: "PartitionTimeLimit"},
		{Partition: "a", Reason: "PartitionNodeLimit"},
		{Partition: "a", Reason: "MaxMemPerLimit"},
		{Partition: "a", Reason: "QOSMaxWallDurationPerJobLimit"},
		{Partition: "a", Reason: "QOSMaxMemoryPerJob"},
		{Partition: "a", Reason: "AssocMaxCpuMinutesPerJobLimit"},
		{Partition: "a", Reason: "AssocMaxGRESPerJob"},
	} {
		if !never.Never() {
			t.Errorf("%s is said to begin", never.Reason)
		}
	}
	for _, waits := range []Row{
		{Partition: "a"},
		{Partition: "a", Reason: "Resources"},
		{Partition: "a", Reason: "PartitionDown"},
		{Partition: "a", Reason: "PartitionConfig"},
		{Partition: "a", Reason: "BadConstraints"},
		{Partition: "a", Reason: "QOSMaxJobsPerUserLimit"},
		{Partition: "a", Reason: "AssocGrpCpuLimit"},
		{Partition: "a", Reason: "QOSMaxCpuPerUserLimit"},
		{Partition: "a", Reason: "AssocMaxJobsLimit"},
		{Partition: "a", Reason: "JobHeldUser"},
		{Partition: "a,b", Reason: "PartitionTimeLimit"},
		{Partition: "b,a", Reason: "QOSMaxWallDurationPerJobLimit"},
	} {
		if waits.Never() {
			t.Errorf("%q in partition %s is said never to begin", waits.Reason, waits.Partition)
		}
	}
}

// An answer that was cut before its heading, or that squeue did not give, is none.
func TestNoAnswer(t *testing.T) {
	for _, out := range []string{"", "slurm_load_jobs error: Unable to contact slurm controller\n", heading[:50], "JOBID\n"} {
		if _, ok := Parse(out); ok {
			t.Errorf("%q is taken for an answer", out)
		}
	}
	for _, out := range []string{heading, "Welcome!\nNo JOBID here\n" + heading} {
		if _, ok := Parse(out); !ok {
			t.Errorf("an account without jobs is no answer: %q", out)
		}
	}
}

// Slurm keeps no record of a task that is canceled while it waits, and one of all that are canceled
// together.
func TestTasksThatAreGone(t *testing.T) {
	a, _ := Parse(heading + line("12_3", "ARRAY", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug", "") +
		line("13", "WHOLE", "CANCELLED", "None", "0", "1795844903", "N/A", "N/A", "debug", ""))
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
	f.Add(line("12_3", "TOKEN", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug", ""))
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
			_, _, _, _ = w.Waiting(), w.Running(), w.Phase(), w.String()
		}
	})
}
