// Package kinds has the documents of kinds of task: what a kind says of all its jobs, once, for who
// submits them in whatever way.
//
// A job says more or less for itself. [Declared.Complete] adds what it does not say; a field that
// it has stands whole. [Args] checks its arguments.
package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Document is the kind of document that a [Kind] is.
const Document = job.KindTask

// A Kind says what holds for the jobs of a kind of task, unless they say it themselves.
type Kind struct {
	// The name of the kind.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"thumbnail"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// It takes no new jobs. The jobs that it has go on.
	Disabled bool `json:"disabled,omitempty"`

	// The queue of a job that names none.
	Queue string `json:"queue,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"night"`

	// Which jobs are equal, and what happens to a job while there is an equal one.
	Unique *job.Unique `json:"unique,omitempty"`

	// Puts the jobs in order.
	Order *job.Order `json:"order,omitempty"`

	// Keys of limits. Each job takes a turn of each before it runs. A field in braces stands for its
	// value in args: account/{account}.
	Limits []string `json:"limits,omitempty" maxItems:"16" example:"[\"account/{account}\"]"`

	// Whether a failed attempt is tried again.
	Retry *job.RetryPolicy `json:"retry,omitempty"`

	// How long one run may take; as long as it likes by default. After that the attempt fails with
	// TIME_LIMIT.
	Timeout job.Duration `json:"timeout,omitempty" example:"10m"`

	// How long a run may give no sign of life: no progress, no checkpoint, no heartbeat. As long as it
	// likes by default. After that the attempt fails with TASK_STALLED.
	Stall job.Duration `json:"stall,omitempty" example:"1m"`

	// The JSON Schema (2020-12) of the arguments. A job whose arguments do not meet it is refused.
	Schema json.RawMessage `json:"schema,omitempty" example:"{\"type\":\"object\",\"required\":[\"image\"]}"`

	// The version of the arguments that schema is about; 1 by default. Arguments of other versions are
	// not checked.
	ArgsVersion int `json:"args_version,omitempty" zero:"refused" minimum:"1" maximum:"1000000" example:"2"`

	// How many jobs of the kind run at once, in all processes together. It sets the limit kind/NAME.
	// By default there is no such limit.
	Slots int `json:"slots,omitempty" zero:"refused" minimum:"1" maximum:"1000000" example:"4"`

	// How long jobs of the kind are kept after their end, from 1h to 87600h (ten years), by the state
	// in which they end: FINISHED, FAILED or CANCELED. For a state that is left out the retention of
	// the tenant holds.
	Keep map[job.State]job.Duration `json:"keep,omitempty"`

	// Arguments that have an index, for pawl list --args: image, or user.id for a field in a field.
	Index []string `json:"index,omitempty" maxItems:"4" example:"[\"image\"]"`

	// The revision of the declaration, for programs: one with a lower revision does not replace it.
	Revision int `json:"revision,omitempty" minimum:"0" maximum:"1000000000"`
}

// Bounds of a [Kind].
const (
	maxDocument = 64 << 10 // bytes
	maxSlots    = 1_000_000
	maxRevision = 1_000_000_000
	maxIndex    = 4
)

// Parse reads the document of a kind. Its error, a [job.SpecError], names everything that is wrong.
func Parse(doc []byte) (Kind, error) {
	var k Kind
	if len(doc) > maxDocument {
		return k, &job.SpecError{Problems: []job.Problem{{
			Path: "(kind)", Value: strconv.Itoa(len(doc)) + " bytes", What: "is too large",
			Remedy: "keep it to " + strconv.Itoa(maxDocument) + " bytes",
		}}}
	}
	if err := job.Parse(doc, &k, "a kind", "name: thumbnail"); err != nil {
		return k, err
	}
	if err := readable(doc); err != nil {
		return k, err
	}
	if string(k.Schema) == "null" {
		k.Schema = nil // nothing, as elsewhere
	}
	return k, k.check()
}

// escapes are those of a document in JSON, of two characters or a pair of surrogates. Those in the
// group stand for no character that PostgreSQL has in a text.
var escapes = regexp.MustCompile(`\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u0000|\\u[dD][89a-fA-F]..)|\\.`)

// readable refuses a document that the function enqueue of PostgreSQL could not read.
func readable(doc []byte) error {
	for _, found := range escapes.FindAllSubmatch(doc, -1) {
		if found[1] != nil {
			return &job.SpecError{Problems: []job.Problem{{
				Path: "(kind)", Value: string(found[1]), What: "stands for no character of a text",
				Remedy: "leave it out",
			}}}
		}
	}
	return nil
}

// check reports everything that is wrong with k.
func (k *Kind) check() error {
	var wrong job.SpecError
	add := func(path, value, what, remedy string) {
		wrong.Add(job.Problem{Path: path, Value: job.Shorten(value, 64), What: what, Remedy: remedy})
	}
	like := k.like()
	switch k.Name {
	case "":
		add("name", "", "is missing", "give the name of a kind of task")
		like.Kind = Document
	case job.KindApp:
		add("name", k.Name, "is the kind of programs, which has no such document", "give the name of a kind of task")
		like.Kind = Document
	}
	var more *job.SpecError
	if errors.As(like.Validate(), &more) {
		for _, p := range more.Problems {
			if p.Path == "kind" {
				p.Path = "name"
			}
			wrong.Add(p)
		}
	}
	if n := len(k.Description); n > 2048 {
		add("description", fmt.Sprintf("%d bytes", n), "is too long", "keep it to 2048 bytes")
	}
	for _, f := range []struct {
		path string
		d    job.Duration
	}{{"timeout", k.Timeout}, {"stall", k.Stall}} {
		if f.d < 0 || time.Duration(f.d) > job.MaxDelay {
			add(f.path, f.d.String(), "is out of range", "give a duration such as 10m, or leave it out for none")
		}
	}
	for _, f := range []struct {
		path    string
		n, most int
	}{
		{"args_version", k.ArgsVersion, job.MaxVersion},
		{"slots", k.Slots, maxSlots},
		{"revision", k.Revision, maxRevision},
	} {
		if f.n < 0 || f.n > f.most {
			add(f.path, strconv.Itoa(f.n), "is out of range", "give up to "+strconv.Itoa(f.most))
		}
	}
	if errors.As(job.CheckKeep(k.Keep), &more) {
		wrong.Problems = append(wrong.Problems, more.Problems...)
	}
	if n := len(k.Index); n > maxIndex {
		add("index", fmt.Sprintf("%d fields", n), "are too many", fmt.Sprintf("keep to %d", maxIndex))
	}
	for i, field := range k.Index {
		if path := fmt.Sprintf("index[%d]", i); slices.Contains(k.Index[:i], field) {
			add(path, field, "is there twice", "name it once")
		} else if errors.As(job.CheckArg(path, field), &more) {
			wrong.Problems = append(wrong.Problems, more.Problems...)
		}
	}
	if k.Schema != nil {
		if _, err := NewArgs(k); err != nil {
			add("schema", "", "is no JSON Schema: "+err.Error(), "correct it; it cannot refer to other files")
		}
	}
	if len(wrong.Problems) > 0 {
		return &wrong
	}
	return nil
}

// like returns the spec of a job that has what k says.
func (k *Kind) like() job.Spec {
	return job.Spec{Kind: k.Name, Queue: k.Queue, Unique: k.Unique, Order: k.Order, Limits: k.Limits, Retry: k.Retry}
}

// Limit returns the limit that k asks for; nil: none.
func (k *Kind) Limit() []job.Limit {
	if k.Slots == 0 {
		return nil
	}
	return []job.Limit{{Key: "kind/" + k.Name, Most: k.Slots}}
}

// Complete adds to a spec what k says and the spec does not. given is the spec as its author wrote
// it, which gets the same.
func (k *Kind) Complete(spec *job.Spec, given json.RawMessage) (json.RawMessage, error) {
	added := map[string]any{}
	if spec.Queue == "" && k.Queue != "" {
		spec.Queue, added["queue"] = k.Queue, k.Queue
	}
	if spec.Unique == nil && k.Unique != nil {
		spec.Unique, added["unique"] = k.Unique, k.Unique
	}
	if spec.Order == nil && k.Order != nil {
		spec.Order, added["order"] = k.Order, k.Order
	}
	if spec.Limits == nil && k.Limits != nil {
		spec.Limits, added["limits"] = k.Limits, k.Limits
	}
	if spec.Retry == nil && k.Retry != nil {
		spec.Retry, added["retry"] = k.Retry, k.Retry
	}
	if len(added) == 0 {
		return given, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(given, &fields); err != nil {
		return nil, job.Errorf(job.Invalid, "spec: %w", err)
	}
	for name, value := range added {
		text, err := job.Encode(value)
		if err != nil {
			return nil, err
		}
		fields[name] = text
	}
	return job.Encode(fields)
}

// Refuse returns why k takes no job with this spec, which [Kind.Complete] has completed; nil: it
// takes it.
func (k *Kind) Refuse(spec *job.Spec) error {
	if k.Disabled {
		return job.Errorf(job.Conflict, "%w", &job.SpecError{Problems: []job.Problem{{
			Path: "kind", Value: k.Name, What: "is disabled", Remedy: "it takes no new jobs until it is enabled",
		}}})
	}
	if spec.Order == nil {
		return nil
	}
	if _, err := spec.Rank(); err != nil {
		return &job.SpecError{Problems: []job.Problem{{
			Path: spec.Order.By, What: err.Error(),
			Remedy: "give a number or a text: the jobs of kind " + k.Name + " go by it",
		}}}
	}
	return nil
}
