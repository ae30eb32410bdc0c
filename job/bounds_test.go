package job_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// TestTimesHaveBounds tries every time and duration of a spec at its bounds, which count in UTC.
func TestTimesHaveBounds(t *testing.T) {
	for _, c := range []struct {
		field, spec string
		right       bool
	}{
		{"not_before", `"not_before":"1970-01-01T00:00:00Z"`, true},
		{"not_before", `"not_before":"1970-01-01T01:00:00+01:00"`, true},
		{"not_before", `"not_before":"2200-01-01T00:00:00Z"`, true},
		{"not_before", `"not_before":"2199-12-31T23:59:59-00:01"`, false},
		{"not_before", `"not_before":"1970-01-01T00:00:00+00:01"`, false},
		{"not_before", `"not_before":"9999-12-31T23:59:59-23:59"`, false},
		{"not_before", `"not_before":"0001-01-01T00:00:00+23:59"`, false},
		{"not_before", `"not_before":"0000-01-01T00:00:00Z"`, false},
		{"delay", `"delay":"87840h"`, true},
		{"delay", `"delay":"87841h"`, false},
		{"delay", `"delay":"2562047h47m16s"`, false},
		{"retry.backoff.base", `"retry":{"backoff":{"base":"87841h"}}`, false},
		{"retry.backoff.max", `"retry":{"backoff":{"max":"2562047h"}}`, false},
		{"recovery.max_wait", `"recovery":{"max_wait":"87841h"}`, false},
		{"recovery.stages[0].every", `"recovery":{"stages":[{"every":"25h"}]}`, false},
	} {
		spec, err := job.ParseSpec([]byte(`{"command":["true"],` + c.spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		switch err := spec.Validate(); {
		case c.right && err != nil:
			t.Errorf("%s: %v", c.spec, err)
		case !c.right && (err == nil || !strings.HasPrefix(err.Error(), c.field+" (") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v", c.spec, err)
		}
	}
}

func TestMend(t *testing.T) {
	j := job.Job{
		ID: job.NewID(), Created: time.Now(), Due: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600)),
		Until: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), Notes: json.RawMessage(`{`), Result: json.RawMessage(`{"x":1}`),
	}
	is := j.Mend()
	for _, part := range []string{"due is the year 10000", "until is the year -0005", "notes is no JSON"} {
		if !strings.Contains(is, part) {
			t.Errorf("%s: does not say %s", is, part)
		}
	}
	if _, err := json.Marshal(&j); err != nil || !j.Due.IsZero() || j.Created.IsZero() || j.Result == nil {
		t.Errorf("%+v: %v", j, err)
	}
	if again := j.Mend(); again != "" {
		t.Errorf("what is mended is left out again: %s", again)
	}
	e := job.Event{At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Message: strings.Repeat("m", 1<<20), Data: json.RawMessage("\xff")}
	e.Mend()
	if b, err := json.Marshal(&e); err != nil || len(b) > 5000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestMessagesHaveBounds says of all kinds of texts that programs may bring that every database
// takes what is kept.
func TestMessagesHaveBounds(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 20<<20), strings.Repeat("\xff", 5000), strings.Repeat("\x00", 5000), strings.Repeat("é", 3000),
		strings.Repeat("x", job.MaxMessage-1) + "é", strings.Repeat("x", job.MaxMessage), "a\x00b\xffc",
	} {
		got := job.Text(text)
		if len(got) > job.MaxMessage || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%.20q: %d bytes are left", text, len(got))
		}
		if len(text) > job.MaxMessage && !strings.HasSuffix(got, fmt.Sprintf("… (%d bytes in all)", len(text))) {
			t.Errorf("%.20q: it is not told how long it was: %q", text, got[len(got)-30:])
		}
		if len(text) == job.MaxMessage && got != text {
			t.Errorf("what fits is cut")
		}
	}
	for _, data := range []string{`"` + strings.Repeat("x", job.MaxEvidence) + `"`, `{`, "\"\xff\"", ""} {
		path := job.Plain([]job.Entry{{State: job.Failed, Data: json.RawMessage(data)}})
		if got := path[0].Data; !json.Valid(got) || len(got) > 100 || !strings.Contains(string(got), "left_out") {
			t.Errorf("%.10q: %s", data, got)
		}
	}
	right := []job.Entry{{State: job.Failed, Message: "m", Data: json.RawMessage(`"` + strings.Repeat("x", job.MaxEvidence-2) + `"`)}}
	if path := job.Plain(right); &path[0] != &right[0] {
		t.Error("what is right is copied")
	}
}
