package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Spec is what a submitter writes. It never changes once submitted; the job keeps it as it was given.
type Spec struct {
	Kind       string            `json:"kind,omitempty"`        // what is run; "app" if Command is given
	Name       string            `json:"name,omitempty"`        // for people, 1 to 128 characters; need not be unique
	ExternalID string            `json:"external_id,omitempty"` // the client's own name, up to 128 characters, unique in the tenant
	Owner      string            `json:"owner,omitempty"`       // the caller by default
	Queue      string            `json:"queue,omitempty"`       // "default" by default
	Priority   *int              `json:"priority,omitempty"`    // 0 (first) to 9; 5 by default
	NotBefore  time.Time         `json:"not_before,omitzero"`   // gate: not before this time
	Delay      Duration          `json:"delay,omitempty"`       // gate: not before submit plus this
	Labels     map[string]string `json:"labels,omitempty"`      // for filters, up to 64
	Notes      json.RawMessage   `json:"notes,omitempty"`       // any JSON up to 64 KiB
	Retry      *RetryPolicy      `json:"retry,omitempty"`       // see [Spec.RetryPolicy] for the defaults

	Args json.RawMessage `json:"args,omitempty"` // a task's arguments: any JSON up to 1 MiB

	Command   []string          `json:"command,omitempty"`   // a program and its arguments; no shell
	Arguments []string          `json:"arguments,omitempty"` // appended to Command
	Env       map[string]string `json:"env,omitempty"`       // environment; names [A-Za-z_][A-Za-z0-9_]*, not PAWL_*
	System    string            `json:"system,omitempty"`    // where; "local" by default
	Inputs    []Input           `json:"inputs,omitempty"`    // copied into the job's folder before the program starts
	Stdout    string            `json:"stdout,omitempty"`    // file name in the job's folder; "stdout" by default
	Stderr    string            `json:"stderr,omitempty"`    // file name in the job's folder; "stderr" by default
	Archive   *Archive          `json:"archive,omitempty"`   // where results go
}

// An Input is a file or folder that is copied into the job's folder.
type Input struct {
	From string `json:"from"`           // files URL or path; a relative one is relative to the folder of the spec file
	To   string `json:"to,omitempty"`   // path in the job's folder; the base name of From by default
	Name string `json:"name,omitempty"` // for messages
}

// Archive says what comes back from the job's folder, and where to: everything but staged inputs.
type Archive struct {
	To string `json:"to,omitempty"` // folder; a folder of the service's archive by default
}

// RetryPolicy says how often a job that failed is tried again.
type RetryPolicy struct {
	MaxAttempts int     `json:"max_attempts,omitempty"` // 1 to 1000, the first one included
	Backoff     Backoff `json:"backoff,omitzero"`
}

// Backoff says how long to wait between attempts.
type Backoff struct {
	Kind   BackoffKind `json:"kind,omitempty"`   // "exponential" by default
	Base   Duration    `json:"base,omitempty"`   // before the second attempt; 1s by default
	Max    Duration    `json:"max,omitempty"`    // never longer than this; 1h by default, or Base if that is longer
	Jitter bool        `json:"jitter,omitempty"` // a random part of it instead of all (full jitter)
}

// A BackoffKind is a way to wait longer.
type BackoffKind string

// The kinds of backoff.
const (
	BackoffConstant    BackoffKind = "constant"
	BackoffLinear      BackoffKind = "linear"
	BackoffExponential BackoffKind = "exponential"
)

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// DefaultPriority is the priority of a job that names none.
const DefaultPriority = 5

// SystemLocal is the machine that Pawl runs on.
const SystemLocal = "local"

// RetryPolicy returns the policy that holds for s, defaults filled in: a program has one attempt unless its spec
// asks for more; a task has ten, with exponential backoff from 1 s to 1 h and full jitter.
func (s *Spec) RetryPolicy() RetryPolicy {
	p := RetryPolicy{MaxAttempts: 10, Backoff: Backoff{Kind: BackoffExponential, Jitter: true}}
	if s.kind() == KindApp {
		p.MaxAttempts = 1
	}
	if s.Retry != nil {
		if s.Retry.MaxAttempts > 0 {
			p.MaxAttempts = s.Retry.MaxAttempts
		}
		if s.Retry.Backoff != (Backoff{}) {
			p.Backoff = s.Retry.Backoff
		}
	}
	b := &p.Backoff
	if b.Kind == "" {
		b.Kind = BackoffExponential
	}
	if b.Base == 0 {
		b.Base = Duration(time.Second)
	}
	if b.Max == 0 {
		b.Max = max(b.Base, Duration(time.Hour))
	}
	return p
}

// Defaults fills in what s leaves out. id gives the default name its short id, owner is the caller.
func (s *Spec) Defaults(id ID, owner string) {
	s.Kind = s.kind()
	if s.Name == "" {
		s.Name = s.defaultName() + "-" + id.Short()
	}
	if s.Owner == "" {
		s.Owner = owner
	}
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	if s.Priority == nil {
		p := DefaultPriority
		s.Priority = &p
	}
	if s.Kind != KindApp {
		return
	}
	if s.System == "" {
		s.System = SystemLocal
	}
	if s.Stdout == "" {
		s.Stdout = "stdout"
	}
	if s.Stderr == "" {
		s.Stderr = "stderr"
	}
	s.Inputs = slices.Clone(s.Inputs) // a copy of s may share them
	for i, in := range s.Inputs {
		if in.To == "" {
			s.Inputs[i].To = baseName(in.From)
		}
	}
}

// kind returns the kind of s, which may go without saying.
func (s *Spec) kind() string {
	if s.Kind == "" && len(s.Command) > 0 {
		return KindApp
	}
	return s.Kind
}

func (s *Spec) defaultName() string {
	if s.Kind != KindApp || len(s.Command) == 0 {
		return s.Kind
	}
	name := baseName(s.Command[0])
	if len(name) > 64 || !validName(name) {
		return KindApp
	}
	return name
}

// Duration is a [time.Duration] that is written as text, such as "90s" or "1h30m".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}
