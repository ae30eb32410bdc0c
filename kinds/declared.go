package kinds

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Declared is a kind as its document says it, ready to be asked. It is never changed. Nil is a
// kind without a document.
type Declared struct {
	Kind
	version int64
	updated time.Time
	args    *Args
}

// Declare returns a kind whose document has a version of a time. If was is that document it is
// returned: a schema is compiled once.
func Declare(k *Kind, version int64, updated time.Time, was *Declared) *Declared {
	if was != nil && was.version == version && was.updated.Equal(updated) {
		return was
	}
	d := &Declared{Kind: *k, version: version, updated: updated}
	d.args, _ = NewArgs(k) // a schema that this build cannot read checks nothing
	return d
}

// Complete adds to a spec, and to its text, what the kind says and the spec does not. refusal is
// why the kind does not take the job; nil: it takes it.
func (d *Declared) Complete(spec *job.Spec, given json.RawMessage) (text json.RawMessage, refusal, err error) {
	if d == nil {
		return given, nil, nil
	}
	if text, err = d.Kind.Complete(spec, given); err != nil {
		return nil, nil, err
	}
	if refusal = d.Refuse(spec); refusal == nil {
		refusal = d.Check(spec)
	}
	return text, refusal, nil
}

// Index returns the arguments of a job by which the kind's index finds it.
func (d *Declared) Index(spec *job.Spec) (index map[string]string, err error) {
	if d == nil {
		return nil, nil
	}
	for _, field := range d.Kind.Index {
		if index == nil {
			index = map[string]string{}
		}
		if index[field], err = spec.ArgsKey(field); err != nil {
			return nil, err
		}
	}
	return index, nil
}

// settled is how long after a change of a document jobs may come that were completed before it.
const settled = 10 * time.Minute

// Indexed returns since when the index of an argument has all jobs of the kind; the zero time:
// there is none.
func (d *Declared) Indexed(field string) time.Time {
	if d == nil || !slices.Contains(d.Kind.Index, field) {
		return time.Time{}
	}
	return d.updated.Add(settled)
}

// Indexed returns a filter whose terms know the indexes that the kind of its jobs has of arguments.
func Indexed(f job.Filter, declared func(kind string) *Declared) job.Filter {
	for i := range f {
		field, ok := f[i].Arg()
		if !ok || f[i].Op != job.Is {
			continue
		}
		f = slices.Clone(f)
		f[i].From = declared(f.Kind()).Indexed(field)
	}
	return f
}

// Check reports what is wrong with the arguments of a job: see [Args.Check].
func (d *Declared) Check(spec *job.Spec) error {
	if d == nil {
		return nil
	}
	return d.args.Check(spec)
}
