package job_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func TestRates(t *testing.T) {
	per := job.Duration(2 * time.Second)
	for _, test := range []struct {
		limit job.Limit
		wrong string // field and what is wrong; empty: nothing
	}{
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: per}, ""},
		{job.Limit{Key: "starts/system/*", Most: 1, Per: per}, ""},
		{job.Limit{Key: "dials/lab.example.org", Most: 8, Per: per}, ""},
		{job.Limit{Key: "releases/*", Most: 10, Per: job.Duration(job.MaxPer)}, ""},
		{job.Limit{Key: "launches", Most: 8, Per: per}, "key: names no system"},
		{job.Limit{Key: "launches/*", Most: 8, Per: per}, "key: names no system"},
		{job.Limit{Key: "launches/lab", Most: 8, Per: per}, "key: is not the rate of a system"},
		{job.Limit{Key: "launches/system/lab/user/ada", Most: 8, Per: per}, "key: is not the rate of a system"},
		{job.Limit{Key: "starts/system/lab/*", Most: 8, Per: per}, "key: is not the rate of a system"},
		{job.Limit{Key: "launches/system/lab", Most: 8}, "per: is missing"},
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: job.Duration(time.Microsecond)}, "per: is out of range"},
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: job.Duration(25 * time.Hour)}, "per: is out of range"},
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: job.Duration(time.Second + 1)}, "per: is out of range"},
		{job.Limit{Key: "launches/system/lab", Per: per}, "most: is too few"},
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: per, Ahead: 1}, "ahead: has no meaning here"},
		{job.Limit{Key: "launches/system/lab", Most: 8, Per: per, Weights: map[string]int{"ada": 1}}, "weights: have no meaning here"},
		{job.Limit{Key: "system/lab", Most: 8, Per: per}, "per: has no meaning here"},
	} {
		got := ""
		var wrong *job.SpecError
		if err := test.limit.Validate(); errors.As(err, &wrong) {
			got = wrong.Problems[0].Path + ": " + wrong.Problems[0].What
		}
		if got != test.wrong {
			t.Errorf("%+v: %q, want %q", test.limit, got, test.wrong)
		}
	}
	for _, l := range job.Tapis("lab") {
		if err := l.Validate(); err != nil || !job.Rated(l.Key) || !strings.HasSuffix(l.Key, "/system/lab") {
			t.Errorf("%+v: %v", l, err)
		}
	}
	s := job.Spec{Command: []string{"true"}, Limits: []string{"launches/system/lab"}}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "begins with launches") {
		t.Errorf("a spec that names a rate: %v", err)
	}
	for most, want := range map[int]time.Duration{1: 2100 * time.Millisecond, 8: 262500 * time.Microsecond, 9: 233334 * time.Microsecond, job.MaxTurns: 3 * time.Microsecond} {
		l := job.Limit{Most: most, Per: per}
		if got := l.Every(); got != want {
			t.Errorf("%d within 2s: %v apart, want %v", most, got, want)
		}
	}
}

func TestMomentOfJob(t *testing.T) {
	m := job.Moment{Key: "launches/system/lab", At: time.Unix(1e9, 1000).UTC(), Rate: job.NewID(), Of: 3}
	for _, work := range []string{"", `{}`, `{"handle":{"pid":7}}`, `{"moment":{"key":"old"},"x":1}`} {
		j := job.Job{Work: json.RawMessage(work)}
		j.Work = j.Keeping(m)
		if got := j.Moment(); got != m {
			t.Errorf("%s: %+v, want %+v", work, got, m)
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(j.Work, &all); err != nil || strings.Contains(work, "handle") && string(all["handle"]) != `{"pid":7}` {
			t.Errorf("%s became %s", work, j.Work)
		}
	}
	odd := job.Job{Work: json.RawMessage(`"notes"`)}
	if odd.Work = odd.Keeping(m); string(odd.Work) != `"notes"` || odd.Moment() != (job.Moment{}) {
		t.Errorf("notes became %s", odd.Work)
	}
}
