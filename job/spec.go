package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Spec is a job as its submitter writes it. It never changes after the submission: the job keeps
// it as it was given. The tags of its fields go into the JSON Schema. [Spec.Validate] checks more.
type Spec struct {
	// What is run. app is a program or a script; it may be left out where command or script is
	// given. Any other kind is a task of a Go program.
	Kind string `json:"kind,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"app"`

	// A name for people and for commands. Several jobs may have the same. By default it is the name
	// of the program, or script, and a short id.
	Name string `json:"name,omitempty" maxLength:"128" example:"wordcount"`

	// The submitter's own name for the job, unique in the tenant. The same request with the same
	// name is the same job. Another request with it is refused.
	ExternalID string `json:"external_id,omitempty" maxLength:"128" example:"portal-4711"`

	// The user to whom the job belongs; the caller by default.
	Owner string `json:"owner,omitempty" maxLength:"128" example:"ada"`

	// The queue in which the job waits.
	Queue string `json:"queue,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" default:"default"`

	// 0 goes first, 9 last. Among equals the oldest job goes first.
	Priority *int `json:"priority,omitempty" minimum:"0" maximum:"9" default:"5"`

	// The job does not start before this time, from 1970 to the beginning of 2200.
	NotBefore time.Time `json:"not_before,omitzero" example:"2026-01-31T08:00:00Z"`

	// The job does not start before this much time has passed since its submission, ten years at
	// most. It stands in place of not_before.
	Delay Duration `json:"delay,omitempty" example:"90s"`

	// Keys of limits. The job takes a turn of each before it runs, beside those of its tenant,
	// user, kind and system. pawl limits set says how many jobs may have a turn of a key at once. In
	// the key of a task a field in braces stands for its value in args: account/{account}. That is a
	// text, a whole number, true or false, and is written as a part of a key: what is no letter, no
	// digit and none of . _ : @ - as %20.
	Limits []string `json:"limits,omitempty" maxItems:"16" example:"[\"license/matlab\"]"`

	// Puts the job in order with others: jobs with the same key go one after the other.
	Order *Order `json:"order,omitempty"`

	// Says which jobs of its kind are equal to it. While there is an equal job, a submission is
	// answered with that job, or the two do not run at once.
	Unique *Unique `json:"unique,omitempty"`

	// For filters. Keys have 1 to 63 characters A-Z a-z 0-9 . _ / -, values up to 255 characters.
	Labels map[string]string `json:"labels,omitempty" maxProperties:"64" example:"{\"project\":\"tides\"}"`

	// Kept with the job: any JSON, up to 64 KiB.
	Notes json.RawMessage `json:"notes,omitempty"`

	// Whether a failed attempt is tried again. By default a program has one attempt. A task has
	// ten, with exponential backoff from 1s to 1h, and each wait is a random part of that.
	Retry *RetryPolicy `json:"retry,omitempty"`

	// What happens when a condition blocks the job that may clear, such as a system that is
	// disabled: how often the condition is tested, and how long the job waits. By default the
	// condition decides.
	Recovery *Patience `json:"recovery,omitempty"`

	// The arguments of a task: any JSON, up to 1 MiB. A program has arguments instead.
	Args json.RawMessage `json:"args,omitempty"`

	// The version of the arguments of a task, where its program has several. A job with a newer
	// version than a process knows waits for a process that knows it.
	ArgsVersion int `json:"args_version,omitempty" zero:"refused" minimum:"1" maximum:"1000000" example:"2"`

	// The rest is for kind "app". Macros such as ${PAWL_JOB_DIR} may stand in all of it but Script;
	// see [Macros].

	// The program and its arguments. There is no shell. A name is looked up in PATH; a relative
	// path counts from the job's folder.
	Command []string `json:"command,omitempty" example:"[\"wc\",\"-w\",\"poem.txt\"]"`

	// A script in place of command, up to 1 MiB. It runs with its own #! line, or else with
	// /bin/sh.
	Script string `json:"script,omitempty" example:"wc -w poem.txt"`

	// Arguments after those of command, or for the script.
	Arguments []string `json:"arguments,omitempty"`

	// Variables of the program's environment. Names have letters, digits and underscores. Names
	// that begin with PAWL_ are reserved.
	Env map[string]string `json:"env,omitempty" example:"{\"LANG\":\"C\"}"`

	// The system on which the program runs. local is the machine on which the service runs.
	System string `json:"system,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" default:"local"`

	// Files and folders that are put into the job's folder before the program starts.
	Inputs []Input `json:"inputs,omitempty"`

	// What the program needs.
	Resources *Resources `json:"resources,omitempty"`

	// A prefix for the program, such as nice or mpirun with their arguments.
	Launch []string `json:"launch,omitempty" example:"[\"nice\",\"-n\",\"10\"]"`

	// Whether a scheduler that runs the job again by itself, after a node failed or for a job of
	// higher priority, also runs the program again. accept: it does, in the same attempt. fail: it
	// does not, and the attempt has failed. It makes no difference on systems without a scheduler.
	Rerun Rerun `json:"rerun,omitempty" enum:"accept,fail" default:"accept"`

	// The file in the job's folder that takes the standard output.
	Stdout string `json:"stdout,omitempty" default:"stdout"`

	// The file in the job's folder that takes the standard error. It may be the file of stdout.
	Stderr string `json:"stderr,omitempty" default:"stderr"`

	// Which files come back, and where they go. By default everything comes back but staged inputs.
	Archive *Archive `json:"archive,omitempty"`
}

// Unique says which jobs are equal, and what happens to a job while there is an equal one.
type Unique struct {
	// Jobs with the same key are equal.
	Key string `json:"key,omitempty" maxLength:"255" example:"invoice-4711"`

	// Jobs are equal if these fields of args are. A dot leads into a field. Without key and args,
	// jobs are equal if all their args are.
	Args []string `json:"args,omitempty" maxItems:"16" example:"[\"account\"]"`

	// What happens while there is an equal job. start: the submission is answered with it until it
	// runs for the first time. done: the submission is answered with it until it has ended.
	// running: both jobs are accepted, and never run at once.
	Until UniqueMode `json:"until,omitempty" enum:"start,done,running" default:"done"`

	// With until: start, equal jobs never run at once either. So one may be in the queue while an
	// equal one runs.
	Alone bool `json:"alone,omitempty"`
}

// Patience says how long a job waits for a condition that blocks it. The condition decides about
// what is left out.
type Patience struct {
	// The name of a recovery policy, in place of stages.
	Policy string `json:"policy,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"patient"`

	// When the condition is tested, stage by stage.
	Stages []Stage `json:"stages,omitempty" maxItems:"16"`

	// How long the job waits at most, from when it was blocked.
	MaxWait Duration `json:"max_wait,omitempty" example:"12h"`
}

// An Input is a file or folder that is put into the job's folder.
type Input struct {
	// A path of a file or folder on the machine of the service, or file:///…; or system://NAME/path,
	// on a system whose files allow it; or the URL of a file: http://… or https://…. In a job file a
	// relative path counts from the folder of the job file.
	From string `json:"from" minLength:"1" example:"/data/poem.txt"`

	// Its path in the job's folder. By default the last name of from.
	To string `json:"to,omitempty" example:"poem.txt"`

	// For people.
	Name string `json:"name,omitempty"`

	// The SHA-256 sum of the file. If the content has another sum, the job fails.
	SHA256 string `json:"sha256,omitempty" pattern:"^[0-9A-Fa-f]{64}$"`

	// If it is not there, the job runs without it.
	Optional bool `json:"optional,omitempty"`

	// It is on the system already: the job's folder gets a symbolic link to it, and no copy.
	InPlace bool `json:"in_place,omitempty"`

	// A variable that the program finds set to the input's absolute path in the job's folder.
	Env string `json:"env,omitempty" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" example:"POEM"`
}

// Archive says which files come back from the job's folder, and where they go. By default
// everything comes back but staged inputs.
//
// A pattern is a glob: * stands for text within a name, ** also for folders, and a pattern without
// a slash fits at any depth. With "re:" in front it is a regular expression for the whole path. A
// pattern that fits a folder fits everything in it.
type Archive struct {
	// The folder for the results: a path on the machine of the service, or file:///…; or
	// system://NAME/path, on a system whose files allow it. By default a folder in the archive of
	// the service.
	To string `json:"to,omitempty" example:"/data/results"`

	// Patterns of the files that come back; everything by default. A pattern is a glob: * stands
	// for text within a name, ** also for folders, and a pattern without a slash fits at any depth.
	// With re: in front it is a regular expression for the whole path.
	Include []string `json:"include,omitempty" example:"[\"*.csv\"]"`

	// Patterns of the files that stay. They are decided before include.
	Exclude []string `json:"exclude,omitempty" example:"[\"tmp\"]"`

	// Patterns of files that the program must make. If one of them fits no file, the job fails.
	Required []string `json:"required,omitempty" example:"[\"result.csv\"]"`

	// After which end of the program the results are archived. always: after any. success: after
	// exit code 0. never: after none, and the job's folder stays.
	On ArchiveOn `json:"on,omitempty" enum:"always,success,never" default:"always"`

	// Also archive the files that Pawl made for the launch. They hold the environment as plain
	// text.
	LaunchFiles bool `json:"launch_files,omitempty"`

	// Replace files that are there. Otherwise such files stay untouched, and the job fails.
	Overwrite bool `json:"overwrite,omitempty"`
}

// An ArchiveOn says after which end of the program the results are archived.
type ArchiveOn string

// The values of ArchiveOn.
const (
	ArchiveAlways  ArchiveOn = "always"  // any end
	ArchiveSuccess ArchiveOn = "success" // exit code 0
	ArchiveNever   ArchiveOn = "never"   // no end: the job's folder stays
)

// A Rerun says what becomes of a job that a scheduler runs again by itself.
type Rerun string

// The values of Rerun.
const (
	RerunAccept Rerun = "accept" // the program runs again
	RerunFail   Rerun = "fail"   // it does not: the attempt has failed
)

// A RetryPolicy says how often a job is tried again when it fails.
type RetryPolicy struct {
	// Attempts in all, the first one included. By default 1 for a program, and 10 for a task.
	MaxAttempts int `json:"max_attempts,omitempty" zero:"refused" minimum:"1" maximum:"1000"`

	// How long to wait between two attempts.
	Backoff Backoff `json:"backoff,omitzero"`
}

// A Backoff says how long to wait between attempts.
type Backoff struct {
	// How the wait grows. constant: it does not. linear: by base each time. exponential: it
	// doubles.
	Kind BackoffKind `json:"kind,omitempty" enum:"constant,linear,exponential" default:"exponential"`

	// The wait before the second attempt; 1s by default.
	Base Duration `json:"base,omitempty" example:"1s"`

	// The longest wait; 1h by default, or base if that is longer.
	Max Duration `json:"max,omitempty" example:"1h"`

	// Wait a random part of the time. By default it is true if backoff is left out, and false if it
	// is given.
	Jitter bool `json:"jitter,omitempty"`
}

// A BackoffKind says how the wait grows from attempt to attempt.
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

// SystemLocal is the name of the system that is the service's own machine.
const SystemLocal = "local"

// RetryPolicy returns the policy of s with its defaults filled in. A program has one attempt unless
// its spec asks for more. A task has ten, with exponential backoff from 1 s to 1 h and full jitter.
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

// Defaults fills in the fields that s leaves out. The default name ends with the short form of id.
// owner is the owner of a job whose spec names none.
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
	r.Nodes, r.Cores = max(r.Nodes, 1), max(r.Cores, 1)
	if r.Tasks == 0 {
		r.Tasks = r.Nodes
	}
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

// kind returns the kind of s. A spec with a command or a script need not name it.
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

// Bytes is a number of bytes. It is written as text, such as "512M" or "4GiB". K, M, G and T stand
// for powers of 1024, with or without iB, as schedulers have it. KB, MB, GB and TB stand for powers
// of 1000.
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
