package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Spec is what a submitter writes. It never changes once submitted; the job keeps it as it was
// given. Its tags are what its JSON Schema says; [Spec.Validate] checks more.
type Spec struct {
	// What is run: app is a program or a script, and goes without saying where command or script is
	// given; any other kind is a task of a Go program.
	Kind string `json:"kind,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"app"`

	// For people, and to name the job in commands; several jobs may have the same. By default the
	// program's name, or script, and a short id.
	Name string `json:"name,omitempty" maxLength:"128" example:"wordcount"`

	// The submitter's own name for the job, unique in the tenant: the same request again is the
	// same job, another one is refused.
	ExternalID string `json:"external_id,omitempty" maxLength:"128" example:"portal-4711"`

	// The user to whom it belongs; the caller by default.
	Owner string `json:"owner,omitempty" maxLength:"128" example:"ada"`

	// The queue in which it waits.
	Queue string `json:"queue,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" default:"default"`

	// 0 goes first, 9 last; among equals the oldest.
	Priority *int `json:"priority,omitempty" minimum:"0" maximum:"9" default:"5"`

	// It does not start before this time, from 1970 to the beginning of 2200.
	NotBefore time.Time `json:"not_before,omitzero" example:"2026-01-31T08:00:00Z"`

	// It does not start before its submission and this, ten years at most; instead of not_before.
	Delay Duration `json:"delay,omitempty" example:"90s"`

	// Keys of turns that it takes before it runs, beside those of its tenant, user, kind and
	// system. How many jobs may have a turn of a key at once says pawl limits set.
	Limits []string `json:"limits,omitempty" maxItems:"16" example:"[\"license/matlab\"]"`

	// Puts it in order with others: of those with the same key one goes after the other.
	Order *Order `json:"order,omitempty"`

	// While there is another job of the kind that is equal in this, it is answered with that one;
	// or does not run beside it.
	Unique *Unique `json:"unique,omitempty"`

	// For filters: keys of 1 to 63 characters A-Z a-z 0-9 . _ / -, values of up to 255.
	Labels map[string]string `json:"labels,omitempty" maxProperties:"64" example:"{\"project\":\"tides\"}"`

	// Kept with the job: any JSON, up to 64 KiB.
	Notes json.RawMessage `json:"notes,omitempty"`

	// Whether a failed attempt is tried again. By default a program has one attempt; a task has
	// ten, with exponential backoff from 1s to 1h, each wait a random part of it.
	Retry *RetryPolicy `json:"retry,omitempty"` // see [Spec.RetryPolicy]

	// For how long it waits when a condition blocks it that may clear, such as a system that is
	// disabled, and how often that is tested. By default as the condition has it.
	Recovery *Patience `json:"recovery,omitempty"`

	// The arguments of a task: any JSON, up to 1 MiB. A program has arguments.
	Args json.RawMessage `json:"args,omitempty"`

	// The rest is for kind "app". Macros such as ${PAWL_JOB_DIR} may stand in all of it but Script;
	// see [Macros].

	// The program and its arguments, without a shell. It is looked up in PATH, or a path, which
	// counts from the job's folder.
	Command []string `json:"command,omitempty" example:"[\"wc\",\"-w\",\"poem.txt\"]"`

	// Instead of command: a script with a #! line of its own, else for /bin/sh; up to 1 MiB.
	Script string `json:"script,omitempty" example:"wc -w poem.txt"`

	// Appended to command, or given to the script.
	Arguments []string `json:"arguments,omitempty"`

	// Variables of its environment. Names are letters, digits and underscores; those that begin
	// with PAWL_ are reserved.
	Env map[string]string `json:"env,omitempty" example:"{\"LANG\":\"C\"}"`

	// The system on which it runs; local is the machine on which the service runs.
	System string `json:"system,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" default:"local"`

	// Files and folders that are put into the job's folder before it starts.
	Inputs []Input `json:"inputs,omitempty"`

	// What the program needs.
	Resources *Resources `json:"resources,omitempty"`

	// A prefix for the program, such as nice or mpirun with their arguments.
	Launch []string `json:"launch,omitempty" example:"[\"nice\",\"-n\",\"10\"]"`

	// The file in the job's folder that takes its standard output.
	Stdout string `json:"stdout,omitempty" default:"stdout"`

	// The file in the job's folder that takes its standard error; it may be that of stdout.
	Stderr string `json:"stderr,omitempty" default:"stderr"`

	// What comes back, and where to: everything but staged inputs, unless it says otherwise.
	Archive *Archive `json:"archive,omitempty"`
}

// Unique says what makes a job equal to others of its kind, and what becomes of it where there is
// one.
type Unique struct {
	// Jobs with the same key are equal.
	Key string `json:"key,omitempty" maxLength:"255" example:"invoice-4711"`

	// Jobs are equal whose args are, in these fields; a dot leads into a field. With neither key
	// nor args: in all of them.
	Args []string `json:"args,omitempty" maxItems:"16" example:"[\"account\"]"`

	// start: until that one runs for the first time, and done: until it has ended, the submission
	// is answered with it. running: they wait for each other, and never run at once.
	Until UniqueMode `json:"until,omitempty" enum:"start,done,running" default:"done"`
}

// Patience says how long a job waits for conditions that block it. What it leaves out is as the
// condition has it.
type Patience struct {
	// The name of a policy that was made; instead of stages.
	Policy string `json:"policy,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"patient"`

	// When the condition is tested, stage by stage.
	Stages []Stage `json:"stages,omitempty" maxItems:"16"`

	// How long the job waits at most, from the moment it was blocked.
	MaxWait Duration `json:"max_wait,omitempty" example:"12h"`
}

// An Input is a file or folder that is put into the job's folder.
type Input struct {
	// A file or a folder: a path on the machine of the service, or file:///…; or a file of the web:
	// http://… or https://…. In a job file a relative path counts from the folder of the file.
	From string `json:"from" minLength:"1" example:"/data/poem.txt"`

	// Where it is put in the job's folder; the last name of from by default.
	To string `json:"to,omitempty" example:"poem.txt"`

	// For people.
	Name string `json:"name,omitempty"`

	// The SHA-256 sum that the content of a file must have: another content fails the job.
	SHA256 string `json:"sha256,omitempty" pattern:"^[0-9A-Fa-f]{64}$"`

	// Where it is not there, the job runs without it.
	Optional bool `json:"optional,omitempty"`

	// It is on the system already: a symbolic link is made to it instead of a copy.
	InPlace bool `json:"in_place,omitempty"`

	// A variable that is set to its absolute path in the job's folder.
	Env string `json:"env,omitempty" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" example:"POEM"`
}

// Resources are what a program needs. Zero values stand for the defaults.
type Resources struct {
	// Machines; 1 by default.
	Nodes int `json:"nodes,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Ranks, of all nodes together; 1 by default.
	Tasks int `json:"tasks,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Cores for each task; 1 by default.
	Cores int `json:"cores,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Memory of each node; as much as there is by default.
	Memory Bytes `json:"memory,omitempty" zero:"refused" example:"4GiB"`

	// GPUs of each node; none by default.
	GPUs int `json:"gpus,omitempty" minimum:"0" maximum:"1000000"`

	// How many minutes each attempt may run, a fraction too; 10 by default, ten years at most.
	Minutes float64 `json:"minutes,omitempty" zero:"refused" exclusiveMinimum:"0" maximum:"5270400" example:"30"`

	// Who pays, for a scheduler.
	Account string `json:"account,omitempty" maxLength:"128"`

	// The partition of a scheduler.
	Partition string `json:"partition,omitempty" maxLength:"128"`
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

// Archive says what comes back from the job's folder, and where to: everything but staged inputs,
// unless it says otherwise. Patterns are globs (* within a name, ** across folders; without a
// slash: at any depth), or with "re:" in front regular expressions for the whole path. A pattern
// that fits a folder fits all below it.
type Archive struct {
	// The folder for the results: a path on the machine of the service, or file:///…; a folder of
	// the service's archive by default.
	To string `json:"to,omitempty" example:"/data/results"`

	// Patterns of what comes back; everything by default. A pattern is a glob (* within a name, **
	// across folders; without a slash: at any depth), or with re: in front a regular expression for
	// the whole path.
	Include []string `json:"include,omitempty" example:"[\"*.csv\"]"`

	// Patterns of what stays; decided before include.
	Exclude []string `json:"exclude,omitempty" example:"[\"tmp\"]"`

	// Patterns each of which must fit something that the program made, or the job fails.
	Required []string `json:"required,omitempty" example:"[\"result.csv\"]"`

	// After which end of the program results are archived: any, only exit code 0, or none, with
	// which the job's folder stays.
	On ArchiveOn `json:"on,omitempty" enum:"always,success,never" default:"always"`

	// With Pawl's own files of the launch, which hold the environment in clear.
	LaunchFiles bool `json:"launch_files,omitempty"`

	// Replace files that are there; otherwise nothing that is there is touched, and the job fails.
	Overwrite bool `json:"overwrite,omitempty"`
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
	// Attempts in all, the first one included; 1 by default, 10 for a task.
	MaxAttempts int `json:"max_attempts,omitempty" zero:"refused" minimum:"1" maximum:"1000"`

	// How long to wait between two attempts.
	Backoff Backoff `json:"backoff,omitzero"`
}

// Backoff says how long to wait between attempts.
type Backoff struct {
	// How the wait grows: not, by base each time, or to twice as much.
	Kind BackoffKind `json:"kind,omitempty" enum:"constant,linear,exponential" default:"exponential"`

	// The wait before the second attempt; 1s by default.
	Base Duration `json:"base,omitempty" example:"1s"`

	// It is never longer than this; 1h by default, or base if that is longer.
	Max Duration `json:"max,omitempty" example:"1h"`

	// Wait for a random part of it instead of all. Without backoff that is so, with it it is not by
	// default.
	Jitter bool `json:"jitter,omitempty"`
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

// RetryPolicy returns the policy that holds for s, defaults filled in: a program has one attempt
// unless its spec asks for more; a task has ten, with exponential backoff from 1 s to 1 h and full
// jitter.
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

// Bytes is a number of bytes that is written as text, such as "512M" or "4GiB": K, M, G and T stand
// for powers of 1024, as for the schedulers, with or without iB; KB, MB, GB and TB for powers of
// 1000.
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
