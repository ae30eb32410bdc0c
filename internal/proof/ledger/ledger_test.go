package ledger_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
)

func TestRead(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	a, b := job.NewID(), job.NewID()
	note := func(format string, args ...any) {
		t.Helper()
		if err := ledger.Note(name, format, args...); err != nil {
			t.Fatal(err)
		}
	}
	note("accepted %s a FINISHED 1 - -", a)
	note("accepted %s b CANCELED 2 %s finished", b, a)
	note("accepted %s b CANCELED 2 %s finished", b, a) // said again, and the same
	note("launch %s 1 4711", a)
	note("task %s 2 7", b)
	note("cancel %s", b)
	note("done %s 1 0", a)
	note("span %s 1 0 1.5 2.5", a)
	note("canceled %s", b)
	sound := 9
	for _, bad := range []string{
		"", "song %s", "task %s 1", "task %s 1 x", "launch %s x 1", "span %s 1 1 x 2",
		"accepted %s a FAILED 1 - -",
	} {
		if bad != "" {
			note(bad, b)
		} else {
			note("")
		}
	}
	got, err := ledger.Read(name)
	if err != nil || len(got.Bad) != 7 {
		t.Fatalf("%v; of the lines behind the first %d these mean nothing: %q", err, sound, got.Bad)
	}
	got.Bad = nil
	pa := &ledger.Promise{ID: a, External: "a", State: job.Finished, Attempts: 1, Need: "-"}
	pb := &ledger.Promise{ID: b, External: "b", State: job.Canceled, Attempts: 2, After: a, Need: job.NeedFinished}
	want := &ledger.Ledger{
		Accepted: map[string]*ledger.Promise{"a": pa, "b": pb}, Promises: map[job.ID]*ledger.Promise{a: pa, b: pb},
		Asked: map[job.ID]bool{b: true}, Canceled: map[job.ID]bool{b: true},
		Launches: map[job.ID]map[int]int{a: {1: 1}},
		Tasks:    map[job.ID]map[ledger.TaskRun]int{b: {{Attempt: 2, Epoch: 7}: 1}},
		Runs:     []*ledger.Run{{Job: a, Attempt: 1, Begin: 4, End: 7}, {Job: b, Attempt: 2, Epoch: 7, Begin: 5}},
		Spans: []ledger.Span{{
			Job: a, Attempt: 1, Begin: 1500*time.Millisecond + ledger.Centisecond,
			End: 2500 * time.Millisecond,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Newest(b) != 7 || !got.Began(a, 1) || !got.Began(b, 2) || got.Began(b, 1) {
		t.Errorf("newest epoch %d, began %t %t %t", got.Newest(b), got.Began(a, 1), got.Began(b, 2), got.Began(b, 1))
	}
}
