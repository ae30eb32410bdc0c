package job_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

var filterNow = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)

func TestFilterWindow(t *testing.T) {
	week := filterNow.Add(-job.FilterWindow)
	for text, want := range map[string]time.Time{
		"":                        {},
		"state=RUNNING owner=ada": {},
		"message~x id=01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77": {},
		"message~x":                         week,
		"message~x created<1h":              week,
		"message~x created>30d":             filterNow.Add(-30 * 24 * time.Hour),
		"message~x created>30d created>=1h": filterNow.Add(-time.Hour),
		"message~x created>0001-01-01":      {},
		"owner=ada created>1h":              filterNow.Add(-time.Hour),
	} {
		f, err := job.ParseFilter(text, filterNow)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := f.Window(filterNow); !got.Equal(want) {
			t.Errorf("%q looks back to %s, want %s", text, got, want)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, text := range []string{
		"", "state=RUNNING,PENDING owner=ada label.project=x created>24h", `name~"a \"b\\*" name!=x`, "ended<=2026-01-31 priority>=3 hidden=true",
		"created>0000-01-01T00:00:00+23:59", "id=01926D3C-7b1e-7c43-9d52-6f0c8a3e1b77", "label.a=,", "owner==x", "since<7d attempt!=1,2",
	} {
		f.Add(text)
	}
	j := &job.Job{Name: "x", Owner: "ada", Labels: map[string]string{"a": "b"}, Created: filterNow}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := job.ParseFilter(text, filterNow)
		if err != nil {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := job.ParseFilter(filter.String(), filterNow)
		if err != nil && len(filter.String()) <= job.MaxFilter {
			t.Errorf("%q is written as %q, which is refused: %v", text, filter, err)
		}
		if diff := cmp.Diff(filter, again); err == nil && diff != "" {
			t.Errorf("%q is written as %q, which is another: %s", text, filter, diff)
		}
		for i := range filter {
			if term := &filter[i]; term.Field == "created" && term.Time().Format(time.RFC3339Nano) != term.Values[0] {
				t.Errorf("%q: the time %s is not kept", text, term.Values[0])
			}
		}
		filter.Match(j)
		filter.Window(filterNow)
	})
}
