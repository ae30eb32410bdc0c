package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// MinTime and MaxTime bound every time that a user gives, in UTC. Even with durations added, such a
// time can be written as RFC 3339.
var (
	MinTime = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// MaxDelay bounds every duration that a user gives: ten years.
const MaxDelay = MaxWaited

// MaxCheckpoint bounds what a handler keeps for its next run: 1 MiB of JSON.
const MaxCheckpoint = 1 << 20

// instant checks a time. The zero time stands for none.
func (v *validation) instant(path string, at time.Time) {
	if !at.IsZero() && (at.Before(MinTime) || at.After(MaxTime)) {
		v.add(path, at.Format(time.RFC3339), "is out of range",
			fmt.Sprintf("give a time from %s to %s", MinTime.Format(time.DateOnly), MaxTime.Format(time.DateOnly)))
	}
}

// duration checks a duration that is not negative.
func (v *validation) duration(path string, d Duration) {
	if time.Duration(d) > MaxDelay {
		v.add(path, d.String(), "is out of range", fmt.Sprintf("give up to %v (ten years)", MaxDelay))
	}
}

// Mend removes from j the fields that cannot be written as JSON, and returns a sentence that names
// them; empty: there are none. So rows that were damaged, or written by another version, can be
// shown beside the others.
func (j *Job) Mend() string {
	var wrong []string
	for _, f := range []struct {
		name string
		at   *time.Time
	}{{"created", &j.Created}, {"since", &j.Since}, {"due", &j.Due}, {"until", &j.Until}, {"ended", &j.Ended}} {
		wrong = mendTime(wrong, f.name, f.at)
	}
	for _, f := range []struct {
		name string
		text *json.RawMessage
	}{
		{"notes", &j.Notes},
		{"request", &j.Request},
		{"resolved", &j.Resolved},
		{"work", &j.Work},
		{"result", &j.Result},
	} {
		wrong = mendJSON(wrong, f.name, f.text)
	}
	return fault(wrong)
}

// Mend removes from e what cannot be written as JSON, and says so in the message of e.
func (e *Event) Mend() {
	wrong := mendJSON(mendTime(nil, "at", &e.At), "data", &e.Data)
	e.Message = Text(e.Message)
	if is := fault(wrong); is != "" {
		e.Message = strings.TrimPrefix(e.Message+"; "+is, "; ")
	}
}

func mendTime(wrong []string, name string, at *time.Time) []string {
	if year := at.UTC().Year(); year >= 0 && year <= 9999 {
		return wrong
	}
	wrong = append(wrong, name+" is the year "+at.UTC().Format("2006"))
	*at = time.Time{}
	return wrong
}

func mendJSON(wrong []string, name string, text *json.RawMessage) []string {
	if *text == nil || json.Valid(*text) {
		return wrong
	}
	*text = nil
	return append(wrong, name+" is no JSON")
}

func fault(wrong []string) string {
	if wrong == nil {
		return ""
	}
	return "left out, as it cannot be shown: " + strings.Join(wrong, ", ")
}
