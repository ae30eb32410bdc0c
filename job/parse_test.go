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

// A value that does not fit its field is told what to be, for each type that fields have.
func TestParseSaysWhatFits(t *testing.T) {
	for doc, want := range map[string]string{
		`{"int": "x"}`:    `int ("x"): is not a whole number: give a whole number`,
		`{"int64": 1.5}`:  `int64 (1.5): is not a whole number: give a whole number`,
		`{"int64": 1e30}`: `int64 (1e30): is not a whole number: give a whole number`,
		`{"uint8": 256}`:  `uint8 (256): is not a whole number: give a whole number`,
		`{"float": "x"}`:  `float ("x"): is not a number: give a number`,
		`{"ids": ["x"]}`:  `ids[0] ("x"): is not an id such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77: give an id such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77`,
		`{"text": 1}`:     `text (1): is not text: put it in quotes: "1"`,
		`{"yes": "no"}`:   `yes ("no"): is not true or false: give true or false`,
	} {
		var v struct {
			Int   int      `json:"int"`
			Int64 int64    `json:"int64"`
			Uint8 uint8    `json:"uint8"`
			Float float32  `json:"float"`
			IDs   []job.ID `json:"ids"`
			Text  string   `json:"text"`
			Yes   bool     `json:"yes"`
		}
		if err := job.Parse([]byte(doc), &v, "a document", "text: x"); err == nil || err.Error() != want {
			t.Errorf("%s: %v", doc, err)
		}
	}
}
