package checks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func TestLaunches(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	event := func(s int, state job.State, message string) store.Event {
		return store.Event{Event: job.Event{At: at(s), State: state, Message: message}}
	}
	progress := event(21, job.SubmittingJob, "half of it")
	progress.Sub = 1
	var got []time.Time
	for _, s := range checks.Launches([]store.Event{
		event(10, job.SubmittingJob, job.Launching), event(11, job.SubmittingJob, "not launched: its moment had passed"),
		event(20, job.SubmittingJob, job.Launching), progress, event(22, job.Running, ""),
		event(30, job.SubmittingJob, job.Launching), event(31, job.SubmittingJob, "the process that ran it died"), event(32, job.Running, ""),
		event(40, job.Running, "it goes on"),
		event(50, job.SubmittingJob, job.Launching),
	}) {
		got = append(got, s.From)
	}
	if want := []time.Time{at(20)}; !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("launches at %v, want %v", got, want)
	}
}

func TestStarts(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	event := func(s int, cause job.Cause, state job.State, custody job.Custody) store.Event {
		return store.Event{Event: job.Event{At: at(s), Cause: cause, State: state, Custody: custody}}
	}
	claimed := func(s int) store.Event { return event(s, job.CauseClaim, job.ProcessingInputs, job.Worker) }
	progress := event(31, job.CauseWork, job.ProcessingInputs, job.Worker)
	progress.Sub = 1
	got := checks.Starts([]store.Event{
		event(9, job.CauseSubmit, job.ProcessingInputs, job.Ready),
		claimed(10), event(11, job.CauseWork, job.ProcessingInputs, job.Gate), event(19, job.CauseDue, job.ProcessingInputs, job.Ready),
		claimed(20), event(21, job.CauseExpired, job.ProcessingInputs, job.Ready),
		claimed(30), progress, event(32, job.CauseWork, job.StagingInputs, job.Worker), event(33, job.CauseWork, job.StagingJob, job.Worker),
		claimed(40),
	})
	if want := []checks.Span{{From: at(30), To: at(32)}}; !slices.Equal(got, want) {
		t.Errorf("starts %v, want %v", got, want)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	rate := job.Limit{Most: 2, Per: job.Duration(10 * time.Second)}
	for _, tt := range []struct {
		what   string
		spans  [][2]int
		want   int // the end of the first that is too many; 0: none is
		within time.Duration
	}{
		{"none", nil, 0, 0},
		{"as many as may be", [][2]int{{1, 1}, {1, 1}}, 0, 0},
		{"one too many", [][2]int{{1, 1}, {5, 5}, {10, 10}}, 10, 9 * time.Second},
		{"just not too many", [][2]int{{1, 1}, {5, 5}, {11, 11}, {15, 15}}, 0, 0},
		{"in any order", [][2]int{{30, 30}, {1, 1}, {25, 25}, {24, 24}}, 30, 6 * time.Second},
		{"some time within a span", [][2]int{{1, 3}, {4, 6}, {5, 9}}, 9, 8 * time.Second},
		{"one that may have been earlier", [][2]int{{1, 13}, {14, 14}, {15, 15}}, 0, 0},
		{"one that may have been later", [][2]int{{1, 1}, {5, 5}, {9, 11}}, 0, 0},
		{"beside one that may have been at any time", [][2]int{{21, 21}, {2, 24}, {22, 22}, {28, 28}}, 28, 7 * time.Second},
	} {
		var spans []checks.Span
		for _, s := range tt.spans {
			spans = append(spans, checks.Span{From: time.Unix(int64(s[0]), 0), To: time.Unix(int64(s[1]), 0)})
		}
		got := 0
		first, within := checks.TooMany(&rate, spans)
		if first != nil {
			got = int(first.To.Unix())
		}
		if got != tt.want || within != tt.within {
			t.Errorf("%s: the one that ends at %d within %v, want that at %d within %v", tt.what, got, within, tt.want, tt.within)
		}
	}
}
