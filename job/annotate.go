package job

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Annotation changes labels and notes of a job. It is allowed in every state, also after the
// end. A nil field changes nothing.
type Annotation struct {
	// The labels to set. A label that is null is removed.
	Labels map[string]*string `json:"labels,omitempty"`

	// The notes: any JSON. They are merged into those that are there (RFC 7396), or replace them.
	Notes json.RawMessage `json:"notes,omitempty"`
}

// Merge returns the labels and notes that j has after a. With replace, those of a take the place of
// those that j has; otherwise they are merged. Errors are of kind [Invalid].
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

// A CustomEvent is an event that a user or the running job itself writes into the history.
type CustomEvent struct {
	// What kind of event it is, such as epoch. The name of a state is refused.
	Name string `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"epoch"`

	// For people.
	Message string `json:"message,omitempty" maxLength:"4096"`

	// For programs: any JSON, up to 16 KiB.
	Data json.RawMessage `json:"data,omitempty"`
	// A name for this call, such as a UUID: an event of the same job and key is written once.
	Key string `json:"key,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$"`
}

// Bounds of the events that users and jobs write.
const (
	MaxEventMessage = 4096     // bytes
	MaxEventData    = 16 << 10 // bytes
	MaxJobEvents    = 10_000   // events of one job
)

// Validate reports everything that is wrong with n. Its error is a [SpecError].
func (n *CustomEvent) Validate() error {
	var v validation
	if n.Name == "" {
		v.add("name", "", "is missing", "give a name such as progress")
	}
	v.name("name", n.Name, 64)
	v.name("key", n.Key, 64)
	if slices.Contains(States, State(n.Name)) {
		v.add("name", n.Name, "is a state",
			"give another name: a reader of events would take it for a change of state")
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
