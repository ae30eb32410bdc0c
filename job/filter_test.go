package job_test

import (
	"fmt"
	"strings"
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
		"group=aa16870f57a84994b32a0a30":    {},
		"group!=aa16870f57a84994b32a0a30":   week,
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

// A group is named by its key, and what is no key is told so instead of choosing nothing.
func TestFilterOfGroups(t *testing.T) {
	key := (&job.Block{Code: job.FilesystemFull, Tester: "space"}).Group("acme")
	blocked, free := &job.Job{Group: key}, &job.Job{}
	for text, want := range map[string][2]bool{
		"group=" + key:                                 {true, false},
		"group=" + strings.ToUpper(key):                {true, false},
		"group=" + strings.Repeat("0", 24):             {false, false},
		"group=" + strings.Repeat("0", 24) + "," + key: {true, false},
		"group!=" + key:                                {false, true},
	} {
		f, err := job.ParseFilter(text, filterNow)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := [2]bool{f.Match(blocked), f.Match(free)}; got != want {
			t.Errorf("%s chooses %v, want %v", text, got, want)
		}
	}
	for _, bad := range []string{"", "x", key[1:], key + "0", "g" + key[1:], `"` + key + ` "`, "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77", "*"} {
		_, err := job.ParseFilter("group="+bad, filterNow)
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "give the key of a group, 24 hexadecimal digits, as pawl recovery list prints them") {
			t.Errorf("group=%s: %v", bad, err)
		}
	}
	for _, op := range []string{"~", "<", ">="} {
		_, err := job.ParseFilter("group"+op+key, filterNow)
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "use one of =, !=") {
			t.Errorf("group%s: %v", op, err)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, text := range []string{
		"", "state=RUNNING,PENDING owner=ada label.project=x created>24h", `name~"a \"b\\*" name!=x`, "ended<=2026-01-31 priority>=3 hidden=true",
		"created>0000-01-01T00:00:00+23:59", "id=01926D3C-7b1e-7c43-9d52-6f0c8a3e1b77", "label.a=,", "owner==x", "group=AA16870f57a84994b32a0a30", "since<7d attempt!=1,2",
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

// A term without its operator is a defect of the caller: the field does not take its value for one.
func TestTermWithoutOperator(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "mail") {
			t.Errorf("%s", p)
		}
	}()
	job.Where("kind", "mail")
}
