package job_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// unseen are texts with something in them that does not show itself.
var unseen = []string{
	"a\x1b[2Jb", "a\x00b", "a\tb", "a\nb", "a\rb", "a\x7fb", "a\u0080b", "a\u009b31mb", "a\u009fb", "a\x9bb", "a\xffb",
	"a\u202ab", "a\u202bb", "a\u202cb", "a\u202db", "a\u202eb", "a\u2066b", "a\u2067b", "a\u2068b", "a\u2069b", "a\u200eb", "a\u200fb",
	"a\u061cb", "a\u200bb", "a\u200cb", "a\u200db", "a\u2060b", "a\ufeffb", "a\u00adb", "a\u2028b", "a\u2029b", "a\u2064b", "a\u206ab",
	"a\u180eb", "a\u3164b", "a\u115fb", "a\uffa0b", "a\u034fb", "a\ufff9b", "a\U000e0041b", "👩\u200d🔬",
}

// seen are texts that are names.
var seen = []string{"a b", "Grüße", "日本語", "مرحبا", "é", "❤\ufe0f", "a\u00a0b", "100 %", "\ufffd"}

func TestNamesShowThemselves(t *testing.T) {
	fields := map[string]func(s *job.Spec, text string){
		"name":         func(s *job.Spec, text string) { s.Name = text },
		"owner":        func(s *job.Spec, text string) { s.Owner = text },
		"external_id":  func(s *job.Spec, text string) { s.ExternalID = text },
		"labels.x":     func(s *job.Spec, text string) { s.Labels = map[string]string{"x": text} },
		"order.key":    func(s *job.Spec, text string) { s.Order = &job.Order{Key: text} },
		"stdout":       func(s *job.Spec, text string) { s.Stdout = text },
		"stderr":       func(s *job.Spec, text string) { s.Stderr = text },
		"inputs[0].to": func(s *job.Spec, text string) { s.Inputs = []job.Input{{From: "/x", To: text}} },
	}
	for field, set := range fields {
		check := func(text string) []job.Problem {
			s := job.Spec{Command: []string{"true"}}
			set(&s, text)
			e, _ := errors.AsType[*job.SpecError](s.Validate())
			if e == nil {
				return nil
			}
			return e.Problems
		}
		for _, text := range unseen {
			want := job.Problem{Path: field, Value: fmt.Sprintf("%q", text), What: "has control or invisible characters", Remedy: "use printable characters"}
			if got := check(text); len(got) != 1 || got[0] != want {
				t.Errorf("%s %q: %q, want %q", field, text, got, want)
			}
		}
		for _, text := range seen {
			if got := check(text); got != nil {
				t.Errorf("%s %q: %q", field, text, got)
			}
		}
	}
	for _, text := range unseen {
		for _, name := range []string{"queue", "system", "kind"} {
			s := job.Spec{}
			switch name {
			case "queue":
				s.Command, s.Queue = []string{"true"}, text
			case "system":
				s.Command, s.System = []string{"true"}, text
			default:
				s.Kind = text
			}
			if s.Validate() == nil {
				t.Errorf("%s %q is taken", name, text)
			}
		}
		if err := (&job.Limit{Key: "license/" + text, Most: 1}).Validate(); err == nil {
			t.Errorf("limit %q is taken", text)
		}
		s := job.Spec{Command: []string{"true"}, Labels: map[string]string{text: "x"}}
		if s.Validate() == nil {
			t.Errorf("label %q is taken", text)
		}
	}
}
