package job_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestRepeated(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `[]`: "", `1`: "", `"a"`: "", ``: "", `{`: "", `]`: "", `{"a":`: "", `{"a":1,"a`: "",
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`: "",
		`{"a":"a","b":["a","a"]}`:                   "",
		`{"a":1,"A":1}`:                             "",
		`{"a":1,"a":1}`:                             "a",
		`{"a":{"x":1},"a":1}`:                       "a",
		`{"a":1,"\u0061":1}`:                        "a",
		`{"":1,"":1}`:                               `""`,
		`{"x":[0,[1,{"b":{},"c":[],"b":2}]]}`:       "x[1][1].b",
		`[{"a":1},{"a":[],"a":[]}]`:                 "[1].a",
		`{"a":1} {"a":1}`:                           "",
	} {
		if got := job.Repeated([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzRepeated(f *testing.F) {
	f.Add(`{"x":[0,[1,{"b":{},"c":[],"b":2}]]}`)
	f.Add(`]}`)
	f.Fuzz(func(_ *testing.T, text string) { job.Repeated([]byte(text)) })
}
