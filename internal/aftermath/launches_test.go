package aftermath_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/aftermath"
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
	for _, e := range aftermath.Launches([]store.Event{
		event(10, job.SubmittingJob, job.Launching), event(11, job.SubmittingJob, "not launched: its moment had passed"),
		event(20, job.SubmittingJob, job.Launching), progress, event(22, job.Running, ""),
		event(30, job.SubmittingJob, job.Launching), event(31, job.SubmittingJob, "the process that ran it died"), event(32, job.Running, ""),
		event(40, job.Running, "it goes on"),
		event(50, job.SubmittingJob, job.Launching),
	}) {
		got = append(got, e.At)
	}
	if want := []time.Time{at(20)}; !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("launches at %v, want %v", got, want)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	rate := job.Limit{Most: 2, Per: job.Duration(10 * time.Second)}
	for _, tt := range []struct {
		what  string
		at    []int
		want  int // the index of the first that is too many; -1: none is
		after time.Duration
	}{
		{"none", nil, -1, 0},
		{"as many as may be", []int{1, 1}, -1, 0},
		{"one too many", []int{1, 5, 10}, 2, 9 * time.Second},
		{"just not too many", []int{1, 5, 11, 15}, -1, 0},
		{"in any order", []int{30, 1, 25, 24}, 0, 6 * time.Second},
	} {
		var events []job.Event
		for i, s := range tt.at {
			events = append(events, job.Event{N: int64(i), At: time.Unix(int64(s), 0)})
		}
		got := -1
		e, after := aftermath.TooMany(&rate, events)
		if e != nil {
			got = int(e.N)
		}
		if got != tt.want || after != tt.after {
			t.Errorf("%s: event %d after %v, want %d after %v", tt.what, got, after, tt.want, tt.after)
		}
	}
}
