package job_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestEnds(t *testing.T) {
	for _, s := range job.States {
		if slices.Contains(job.Ends, s) != s.Terminal() {
			t.Errorf("%s: among the ends %t, terminal %t", s, !s.Terminal(), s.Terminal())
		}
	}
}

func TestParseRetention(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		r, err := job.ParseRetention([]byte(`{"name":"default","keep":{"FINISHED":"1h","CANCELED":"87600h"}}`))
		want := job.Retention{Name: "default", Keep: map[job.State]job.Duration{
			job.Finished: job.Duration(time.Hour), job.Canceled: job.Duration(87600 * time.Hour),
		}}
		if diff := cmp.Diff(want, r); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
	const bounds = "give from 1h to 87600h, or leave it out to keep them for ever"
	for doc, want := range map[string][]job.Problem{
		`{}`:                           {{"name", "", "is missing", "give a name"}},
		`{"name":"acme"}`:              {{"name", "acme", "is unknown, for there is only one retention", "give default"}},
		`{"name":"default","kept":{}}`: {{"kept", "", "is not a field of a retention", "did you mean keep?"}},
		`{"name":"default","keep":{"RUNNING":"2h","finished":"2h"}}`: {
			{"keep.RUNNING", "", "is not a state in which jobs end", "give one of FINISHED, FAILED, CANCELED"},
			{"keep.finished", "", "is not a state in which jobs end", "give one of FINISHED, FAILED, CANCELED"},
		},
		`{"name":"default","keep":{"FAILED":"59m59s","FINISHED":"0","CANCELED":"87600h1s"}}`: {
			{"keep.CANCELED", "87600h0m1s", "is out of range", bounds},
			{"keep.FAILED", "59m59s", "is out of range", bounds},
			{"keep.FINISHED", "0s", "is out of range", bounds},
		},
		`{"name":"default","keep":{"FAILED":null}}`: {{"keep.FAILED", "0s", "is out of range", bounds}},
		`{"name":"default","keep":{"FAILED":"30 days"}}`: {
			{"keep.FAILED", `"30 days"`, "is not a duration such as 90s, 1h30m or 1d", "give a duration such as 90s, 1h30m or 1d"},
		},
	} {
		_, err := job.ParseRetention([]byte(doc))
		var wrong *job.SpecError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if diff := cmp.Diff(want, wrong.Problems); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
}
