package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	p, err := job.ParsePolicy([]byte(`{"name": "FILESYSTEM_FULL", "stages": [{"every": "10s", "times": 6}, {"every": "1m"}], "max_wait": "12h"}`))
	want := job.Policy{Stages: []job.Stage{{Every: job.Duration(10 * time.Second), Times: 6}, {Every: job.Duration(time.Minute)}}, MaxWait: job.Duration(12 * time.Hour)}
	if diff := cmp.Diff(want, p.Policy()); diff != "" || err != nil || p.Name != "FILESYSTEM_FULL" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for doc, want := range map[string]string{
		`{"name": "p"}`:                                                 "stages: are missing: say when",
		`{"stages": [{"every": "1s"}]}`:                                 "name: is missing",
		`{"name": "p", "stages": [{"every": "1ms"}]}`:                   "stages[0].every (1ms): is out of range",
		`{"name": "p", "stages": [{"every": "1s"}], "max_wait": "-1s"}`: "max_wait",
		`{"name": "p", "stages": [{"every": "1s", "time": 3}]}`:         "times",
		`{"name": "p", "stages": [{"every": "1s"}, {"every": "1m"}]}`:   "other stages follow",
		`{"name": "p", "stages": [{"every": "1s", "times": 1000001}]}`:  "stages[0].times",
		`{"name": "p", "stages": [{"times": 1}]}`:                       "stages[0].every",
	} {
		if _, err := job.ParsePolicy([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) []job.Stage { return []job.Stage{{Every: job.Duration(d)}} }
	wait := job.Duration(time.Hour)
	named := func(name string) *job.Policy {
		return map[string]*job.Policy{"FILESYSTEM_FULL": {Stages: every(2 * time.Second)}, "patient": {MaxWait: 9 * wait}, "mail.TASK_BLOCKED": {Stages: every(3 * time.Second)}, "TASK_BLOCKED": {Stages: every(4 * time.Second), MaxWait: wait}, "quick": {Stages: every(time.Second), MaxWait: wait}}[name]
	}
	full, other := &job.Block{Code: job.FilesystemFull}, &job.Block{Code: job.FilesUnavailable, Policy: job.Policy{Stages: every(time.Minute), MaxWait: wait}}
	for _, tt := range []struct {
		name string
		r    *job.Patience
		b    *job.Block
		want job.Policy
	}{
		{"that of the block", nil, other, other.Policy},
		{"that of the condition", nil, full, job.Policy{Stages: every(2 * time.Second)}},
		{"that of the condition for jobs of its kind", nil, &job.Block{Code: job.TaskBlocked}, job.Policy{Stages: every(3 * time.Second)}},
		{"a named one", &job.Patience{Policy: "quick"}, full, job.Policy{Stages: every(time.Second), MaxWait: wait}},
		{"a named one that says how long alone", &job.Patience{Policy: "patient"}, full, job.Policy{Stages: every(2 * time.Second), MaxWait: 9 * wait}},
		{"its own", &job.Patience{Stages: every(time.Hour)}, other, job.Policy{Stages: every(time.Hour)}},
		{"its own wait, with that of the block", &job.Patience{MaxWait: 2 * wait}, other, job.Policy{Stages: every(time.Minute), MaxWait: 2 * wait}},
		{"its own wait, with a named one", &job.Patience{Policy: "quick", MaxWait: 2 * wait}, other, job.Policy{Stages: every(time.Second), MaxWait: 2 * wait}},
		{"a name that is not there", &job.Patience{Policy: "gone"}, other, other.Policy},
	} {
		if diff := cmp.Diff(tt.want, tt.r.Choose(tt.b, "mail", named)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestDenser(t *testing.T) {
	t.Parallel()
	policies := rapid.Custom(func(t *rapid.T) (p job.Policy) {
		for range rapid.IntRange(0, job.MaxStages).Draw(t, "stages") {
			p.Stages = append(p.Stages, job.Stage{
				Every: job.Duration(time.Duration(rapid.IntRange(1, 5).Draw(t, "every")) * time.Minute), Times: rapid.IntRange(1, 4).Draw(t, "times"),
			})
		}
		if n := len(p.Stages); n > 0 && rapid.Bool().Draw(t, "for ever") {
			p.Stages[n-1].Times = 0
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := policies.Draw(t, "one"), policies.Draw(t, "other")
		a.MaxWait = job.Duration(time.Hour)
		d := a.Denser(b)
		if err := d.Validate(); err != nil || d.MaxWait != a.MaxWait {
			t.Fatalf("%+v: %v", d, err)
		}
		for n := range 4*job.MaxStages + 2 {
			want := min(a.Every(n), b.Every(n))
			if got := d.Every(n); got > want || got < want && len(d.Stages) < job.MaxStages {
				t.Fatalf("test %d comes after %v, want %v, by %+v", n, got, want, d.Stages)
			}
		}
	})
}
