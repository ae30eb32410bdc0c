package job

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Resources are what a program needs. A zero value stands for the default. A system without a
// scheduler takes no notice of what is only for a scheduler.
type Resources struct {
	// Machines; 1 by default.
	Nodes int `json:"nodes,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Ranks on all nodes together; as many as nodes by default.
	Tasks int `json:"tasks,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Cores for each task; 1 by default.
	Cores int `json:"cores,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// Memory of each node. By default the program may use all of it.
	Memory Bytes `json:"memory,omitempty" zero:"refused" example:"4GiB"`

	// GPUs of each node; none by default.
	GPUs int `json:"gpus,omitempty" minimum:"0" maximum:"1000000"`

	// How many minutes each attempt may run, with or without a fraction; 10 by default, ten years
	// at most.
	Minutes float64 `json:"minutes,omitempty" zero:"refused" exclusiveMinimum:"0" maximum:"5270400" example:"30"`

	// The account that pays, for a scheduler. By default that of the system.
	Account string `json:"account,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_./:,@+=%&|*()\\[\\]!?^~{}<>;-]*$"`

	// The partition of a scheduler. By default that of the system.
	Partition string `json:"partition,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_./:,@+=%&|*()\\[\\]!?^~{}<>;-]*$"`

	// The quality of service of a scheduler.
	QOS string `json:"qos,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_./:,@+=%&|*()\\[\\]!?^~{}<>;-]*$"`

	// What the nodes of a scheduler must have, in its own words.
	Constraint string `json:"constraint,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_./:,@+=%&|*()\\[\\]!?^~{}<>;-]*$"`

	// The reservation of a scheduler in which the program runs.
	Reservation string `json:"reservation,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9_./:,@+=%&|*()\\[\\]!?^~{}<>;-]*$"`

	// The nodes of a scheduler are for this program alone.
	Exclusive bool `json:"exclusive,omitempty"`

	// More options of a scheduler, each as --NAME=VALUE or --NAME. The options of the system say
	// which of them it takes.
	Options []string `json:"options,omitempty" maxItems:"32" example:"[\"--licenses=matlab:1\"]"`
}

// Bounds and defaults of [Resources].
const (
	DefaultMinutes = 10.0
	MaxMinutes     = 10 * 366 * 24 * 60.0 // ten years
	maxCount       = 1_000_000            // of nodes, tasks, cores, GPUs
	maxOptions     = 32
	maxOption      = 1024 // bytes of one
)

// Limit returns how long the program may run in each attempt.
func (r Resources) Limit() time.Duration {
	return time.Duration(r.Minutes * float64(time.Minute))
}

func (v *validation) resources(r *Resources) {
	v.within("resources.", r)
	if r.Minutes > 0 && r.Minutes < 1e-4 {
		v.add("resources.minutes", strconv.FormatFloat(r.Minutes, 'g', -1, 64), "is out of range",
			"give at least 0.0001")
	}
}

// within checks that some system could have these resources.
func (v *validation) within(at string, r *Resources) {
	count := func(field string, n int) {
		if n < 0 || n > maxCount {
			v.add(at+field, strconv.Itoa(n), "is out of range", fmt.Sprintf("give up to %d", maxCount))
		}
	}
	count("nodes", r.Nodes)
	count("tasks", r.Tasks)
	count("cores", r.Cores)
	count("gpus", r.GPUs)
	if r.Memory < 0 {
		v.add(at+"memory", r.Memory.String(), "is negative", "give a size such as 4GiB")
	}
	if !(r.Minutes >= 0 && r.Minutes <= MaxMinutes) {
		v.add(at+"minutes", strconv.FormatFloat(r.Minutes, 'g', -1, 64), "is out of range",
			fmt.Sprintf("give up to %.0f (ten years)", MaxMinutes))
	}
	v.directive(at+"account", r.Account)
	v.directive(at+"partition", r.Partition)
	v.directive(at+"qos", r.QOS)
	v.directive(at+"constraint", r.Constraint)
	v.directive(at+"reservation", r.Reservation)
	v.options(at+"options", r.Options)
}

// amounts checks resources that bound those of jobs: they name nothing of a scheduler.
func (v *validation) amounts(at string, r *Resources) {
	v.within(at, &Resources{
		Nodes: r.Nodes, Tasks: r.Tasks, Cores: r.Cores, Memory: r.Memory, GPUs: r.GPUs, Minutes: r.Minutes,
	})
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"account", r.Account != ""},
		{"partition", r.Partition != ""},
		{"qos", r.QOS != ""},
		{"constraint", r.Constraint != ""},
		{"reservation", r.Reservation != ""},
		{"exclusive", r.Exclusive},
		{"options", len(r.Options) > 0},
	} {
		if f.set {
			v.add(at+f.field, "", "is no amount, so it bounds nothing", "remove it")
		}
	}
}

// directiveRE matches a value of a directive in a batch script. It has nothing that ends a word or
// a
// line there, or that quotes: no space, no quote, no backslash, no # and no $.
var directiveRE = regexp.MustCompile(`^[A-Za-z0-9_./:,@+=%&|*()\[\]!?^~{}<>;-]*$`)

// Directive reports whether a scheduler takes a text as one value, whatever it is.
func Directive(value string) bool { return directiveRE.MatchString(value) }

func (v *validation) directive(at, value string) {
	v.text(at, value, 128)
	if readable(value) && !Directive(value) {
		v.add(at, value, "has characters that no name of a scheduler has",
			"leave out spaces, quotes, backslashes, #, $ and letters that are not ASCII")
	}
}

// optionRE matches an option of a scheduler.
var optionRE = regexp.MustCompile(`^--[a-z][a-z0-9-]*(=.*)?$`)

// ownOptions are options of sbatch that Pawl gives itself, with the field that says it. Those with
// no field would part the job from its script or its folder, or submit something else.
var ownOptions = map[string]string{
	"account": "account", "constraint": "constraint", "cpus-per-task": "cores", "exclusive": "exclusive",
	"gpus-per-node": "gpus", "mem": "memory", "nodes": "nodes", "ntasks": "tasks", "partition": "partition",
	"qos": "qos", "reservation": "reservation", "time": "minutes",

	"array": "", "chdir": "", "cluster": "", "clusters": "", "error": "", "export": "", "export-file": "",
	"get-user-env": "", "gid": "", "help": "", "input": "", "job-name": "", "no-requeue": "", "output": "",
	"parsable": "", "quiet": "", "requeue": "", "test-only": "", "uid": "", "usage": "", "verbose": "",
	"version": "", "wait": "", "wrap": "",
}

// options checks the options that a job gives to a scheduler.
func (v *validation) options(at string, options []string) {
	v.many(at, len(options), maxOptions)
	var names []string
	for i, o := range options[:min(len(options), maxOptions)] {
		at := fmt.Sprintf("%s[%d]", at, i)
		name, value, _ := strings.Cut(o, "=")
		switch {
		case len(o) > maxOption:
			v.add(at, o, "is too long", fmt.Sprintf("keep it to %d bytes", maxOption))
		case !v.option(at, o, name):
		case !Directive(value):
			v.add(at, o, "has characters that no directive takes",
				"leave out spaces, quotes, backslashes, #, $ and letters that are not ASCII")
		case slices.Contains(names, name):
			v.add(at, o, "is given twice", "give it once")
		}
		names = append(names, name)
	}
}

// option checks that an option of a scheduler, with this name, is not Pawl's own. The commands of
// Slurm take the beginning of a name for the name.
func (v *validation) option(at, given, name string) bool {
	name = strings.TrimPrefix(name, "--")
	field, own := ownOptions[name]
	for long := range ownOptions {
		if own = own || strings.HasPrefix(long, name) && name != "gpus"; own {
			break
		}
	}
	switch {
	case !optionRE.MatchString(given):
		v.add(at, given, "is no option", "give one such as --licenses=matlab:1, in its long form")
	case own && field != "":
		v.add(at, given, "has a field of its own", "give resources."+field)
	case own:
		v.add(at, given, "is for Pawl alone", "remove it")
	default:
		return true
	}
	return false
}
