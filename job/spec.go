package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Spec is what a submitter writes. It never changes once submitted; the job keeps it as it was given.
type Spec struct {
	Kind       string            `json:"kind,omitempty"`        // what is run; "app" if Command or Script is given
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

	// The rest is for kind "app". Macros such as ${PAWL_JOB_DIR} may stand in all of it but Script; see [Macros].

	Command   []string          `json:"command,omitempty"`   // a program and its arguments; no shell
	Script    string            `json:"script,omitempty"`    // instead of Command: a script with its own #! line, else for /bin/sh
	Arguments []string          `json:"arguments,omitempty"` // appended to Command, or given to Script
	Env       map[string]string `json:"env,omitempty"`       // environment; names [A-Za-z_][A-Za-z0-9_]*, not PAWL_*
	System    string            `json:"system,omitempty"`    // where; "local" by default
	Inputs    []Input           `json:"inputs,omitempty"`    // put into the job's folder before the program starts
	Resources *Resources        `json:"resources,omitempty"` // what the program needs
	Launch    []string          `json:"launch,omitempty"`    // prefix for the program, such as [nice] or [mpirun, -n, "${PAWL_TASKS}"]
	Stdout    string            `json:"stdout,omitempty"`    // file name in the job's folder; "stdout" by default
	Stderr    string            `json:"stderr,omitempty"`    // file name in the job's folder; "stderr" by default
	Archive   *Archive          `json:"archive,omitempty"`   // what comes back, and where to
}

// An Input is a file or folder that is put into the job's folder.
type Input struct {
	From     string `json:"from"`               // files URL or path; a relative one is relative to the folder of the spec file
	To       string `json:"to,omitempty"`       // path in the job's folder; the base name of From by default
	Name     string `json:"name,omitempty"`     // for messages
	SHA256   string `json:"sha256,omitempty"`   // of the file's content, in hex: another content fails the job
	Optional bool   `json:"optional,omitempty"` // the job runs without it if it is not there
	InPlace  bool   `json:"in_place,omitempty"` // it is on the system already: linked, not copied
	Env      string `json:"env,omitempty"`      // a variable that is set to its path
}

// Resources are what a program needs. Zero values stand for the defaults.
type Resources struct {
	Nodes     int     `json:"nodes,omitempty" zero:"refused"`   // 1 by default
	Tasks     int     `json:"tasks,omitempty" zero:"refused"`   // ranks, of all nodes together; 1 by default
	Cores     int     `json:"cores,omitempty" zero:"refused"`   // for each task; 1 by default
	Memory    Bytes   `json:"memory,omitempty" zero:"refused"`  // of each node; as much as there is by default
	GPUs      int     `json:"gpus,omitempty"`                   // of each node; none by default
	Minutes   float64 `json:"minutes,omitempty" zero:"refused"` // how long it may run, a fraction too; 10 by default
	Account   string  `json:"account,omitempty"`                // who pays, for a scheduler
	Partition string  `json:"partition,omitempty"`              // of a scheduler
}

// Limits and defaults of [Resources].
const (
	DefaultMinutes = 10.0
	MaxMinutes     = 10 * 366 * 24 * 60.0 // ten years
	maxCount       = 1_000_000            // of nodes, tasks, cores, GPUs
)

// Limit returns how long the program may run.
func (r Resources) Limit() time.Duration {
	return time.Duration(r.Minutes * float64(time.Minute))
}

// Archive says what comes back from the job's folder, and where to: everything but staged inputs, unless it says
// otherwise. Patterns are globs (* within a name, ** across folders; without a slash: at any depth), or with "re:" in
// front regular expressions for the whole path. A pattern that fits a folder fits all below it.
type Archive struct {
	To          string    `json:"to,omitempty"`           // folder; a folder of the service's archive by default
	Include     []string  `json:"include,omitempty"`      // what comes back; everything by default
	Exclude     []string  `json:"exclude,omitempty"`      // what stays; decided before Include
	Required    []string  `json:"required,omitempty"`     // patterns that must fit something, or the job fails
	On          ArchiveOn `json:"on,omitempty"`           // "always" by default
	LaunchFiles bool      `json:"launch_files,omitempty"` // with Pawl's own files of the launch, the environment in clear
	Overwrite   bool      `json:"overwrite,omitempty"`    // replace files that are there already
}

// ArchiveOn says after which end of the program results are archived.
type ArchiveOn string

// The ends.
const (
	ArchiveAlways  ArchiveOn = "always"
	ArchiveSuccess ArchiveOn = "success" // exit code 0
	ArchiveNever   ArchiveOn = "never"
)

// RetryPolicy says how often a job that failed is tried again.
type RetryPolicy struct {
	MaxAttempts int     `json:"max_attempts,omitempty" zero:"refused"` // 1 to 1000, the first one included
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
		s.Inputs[i].SHA256 = strings.ToLower(in.SHA256)
	}
	var r Resources
	if s.Resources != nil {
		r = *s.Resources
	}
	r.Nodes, r.Tasks, r.Cores = max(r.Nodes, 1), max(r.Tasks, 1), max(r.Cores, 1)
	if r.Minutes == 0 {
		r.Minutes = DefaultMinutes
	}
	s.Resources = &r
	var a Archive
	if s.Archive != nil {
		a = *s.Archive
	}
	if a.On == "" {
		a.On = ArchiveAlways
	}
	s.Archive = &a
}

// kind returns the kind of s, which may go without saying.
func (s *Spec) kind() string {
	if s.Kind == "" && (len(s.Command) > 0 || s.Script != "") {
		return KindApp
	}
	return s.Kind
}

func (s *Spec) defaultName() string {
	switch {
	case s.Kind == KindApp && s.Script != "":
		return "script"
	case s.Kind != KindApp || len(s.Command) == 0:
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

// Bytes is a number of bytes that is written as text, such as "512M" or "4GiB": K, M, G and T stand for powers of 1024,
// as for the schedulers, with or without iB; KB, MB, GB and TB for powers of 1000.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"K", 1 << 10},
	{"M", 1 << 20},
	{"G", 1 << 30},
	{"T", 1 << 40},
	{"B", 1},
	{"", 1},
}

func (b Bytes) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if u := byteUnits[u]; b > 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText implements [encoding.TextMarshaler].
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0 && n*float64(u.size) <= 1<<62) {
			break
		}
		*b = Bytes(n * float64(u.size))
		return nil
	}
	return fmt.Errorf("%q is not a size such as 512M or 4GiB", text)
}
