package printed

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// Bounds of a line that says something.
const (
	mostLine = 4 << 10 // bytes
	mostWhat = 100     // bytes of what is counted
)

// prefix begins a line that says something.
var prefix = []byte("::pawl ")

// A Line is what a line of output says. An event that is named as a checkpoint is one, too, and one
// that is named progress is no event.
type Line struct {
	Progress   *job.Progress
	Event      *job.CustomEvent // without a key
	Checkpoint *string
}

// CheckpointEvent is the name of an event whose message is a checkpoint, if a program writes it.
const CheckpointEvent = "checkpoint"

// Parse reads a line of output. The zero value says that it is output like any other.
func Parse(text string) (l Line) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(text, "\r"), string(prefix))
	if !ok || len(text) > mostLine {
		return l
	}
	verb, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch verb {
	case "progress":
		l.Progress = progress(rest)
	case "event":
		l.Event = event(rest)
		switch {
		case l.Event != nil && l.Event.Name == CheckpointEvent:
			l.Checkpoint = &l.Event.Message
		case l.Event != nil && l.Event.Name == ProgressEvent:
			l.Progress, l.Event = progress(l.Event.Message), nil
		}
	case "checkpoint":
		if utf8.ValidString(rest) && !strings.Contains(rest, "\x00") {
			l.Checkpoint = &rest
		}
	}
	return l
}

// progress reads how far a program is. A number without a total is a percentage.
func progress(text string) *job.Progress {
	count, what, _ := strings.Cut(text, " ")
	done, total, of := strings.Cut(count, "/")
	if !of {
		done, total = strings.TrimSuffix(count, "%"), "100"
	}
	d, err := strconv.ParseFloat(done, 64)
	t, wrong := strconv.ParseInt(total, 10, 64)
	if err != nil || wrong != nil || !(d >= 0 && d < math.MaxInt64) || t < 0 || !of && d > 100 {
		return nil
	}
	if what = job.Shorten(job.Text(strings.TrimSpace(what)), mostWhat); what == "" {
		what = "running"
	}
	return &job.Progress{What: what, Done: int64(d), Total: t}
}

// event reads an event: its name, and a text for people or a JSON object for programs.
func event(text string) *job.CustomEvent {
	name, rest, _ := strings.Cut(text, " ")
	e := &job.CustomEvent{Name: name}
	if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "{") && json.Valid([]byte(rest)) {
		e.Data = json.RawMessage(rest)
	} else {
		e.Message = job.Text(rest)
	}
	if e.Validate() != nil {
		return nil
	}
	return e
}
