package job

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Annotation is what may change of a job at any time. What is nil stays as it is.
type Annotation struct {
	// Labels to set; null removes one.
	Labels map[string]*string `json:"labels,omitempty"`

	// Notes: any JSON. Merged into those that are there as RFC 7396 says, or put in their place.
	Notes json.RawMessage `json:"notes,omitempty"`
}

// Merge returns labels and notes of a job after a, which replaces what it names if replace is set.
// Errors are of kind [Invalid].
func (a *Annotation) Merge(j *Job, replace bool) (labels map[string]string, notes json.RawMessage, err error) {
	labels, notes = j.Labels, j.Notes
	if a.Labels != nil {
		labels = map[string]string{}
		if !replace {
			maps.Copy(labels, j.Labels)
		}
		for k, v := range a.Labels {
			if v == nil {
				delete(labels, k)
			} else {
				labels[k] = *v
			}
		}
	}
	if a.Notes != nil {
		notes = a.Notes
		if !replace {
			if notes, err = mergePatch(j.Notes, a.Notes); err != nil {
				return nil, nil, problem("notes", "", "is not JSON: "+err.Error(), "correct the syntax")
			}
		}
		if string(notes) == "null" {
			notes = nil
		}
	}
	var v validation
	v.labels(labels)
	v.json("notes", notes, MaxNotes)
	return labels, notes, v.err()
}

// mergePatch applies a JSON merge patch (RFC 7396).
func mergePatch(doc, patch json.RawMessage) (json.RawMessage, error) {
	p, err := decode(patch)
	if err != nil {
		return nil, err
	}
	var d any
	if len(doc) > 0 {
		if d, err = decode(doc); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merge(d, p))
}

func merge(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	d, ok := doc.(map[string]any)
	if !ok {
		d = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(d, k)
		} else {
			d[k] = merge(d[k], v)
		}
	}
	return d
}

// A CustomEvent is an event that a user writes, or the running job itself.
type CustomEvent struct {
	// What kind of event it is; not one of the states.
	Name string `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"epoch"`

	// For people.
	Message string `json:"message,omitempty" maxLength:"4096"`

	// For programs: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`
}

// Limits of events that users and jobs write.
const (
	MaxEventMessage = 4096     // bytes
	MaxEventData    = 16 << 10 // bytes
	MaxJobEvents    = 10_000   // of one job
)

// Validate reports what is wrong with n.
func (n *CustomEvent) Validate() error {
	var v validation
	if n.Name == "" {
		v.add("name", "", "is missing", "give a name such as progress")
	}
	v.name("name", n.Name, 64)
	if slices.Contains(States, State(n.Name)) {
		v.add("name", n.Name, "is a state",
			"give another name: whoever follows events takes it for a change of the job")
	}
	switch {
	case len(n.Message) > MaxEventMessage:
		v.add("message", "", "is too long", "keep it to 4096 bytes")
	case !utf8.ValidString(n.Message) || strings.Contains(n.Message, "\x00"):
		v.add("message", n.Message, "is not text", "give text in UTF-8")
	}
	v.json("data", n.Data, MaxEventData)
	return v.err()
}
