package api

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
)

// commentsText is what the comments on fields say, by the schema of their type: go test ./api -run
// TestWords -update.
//
//go:embed words.json
var commentsText []byte

var comments = sync.OnceValue(func() (words map[string]map[string]string) {
	if err := json.Unmarshal(commentsText, &words); err != nil {
		panic("api/words.json: " + err.Error())
	}
	return words
})

// saidOf returns the comment on a field of a type, or of a type that is embedded in it.
func saidOf(t reflect.Type, field string) string {
	if says := comments()[schemaName(t)][field]; says != "" || t.Kind() != reflect.Struct {
		return says
	}
	for f := range t.Fields() {
		if f.Anonymous {
			if says := saidOf(f.Type, field); says != "" {
				return says
			}
		}
	}
	return ""
}

// schemaName is the name of a type with a capital letter, as its schema has it.
func schemaName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
}

// worker describes the fields of a process.
var worker = map[string]string{
	"id":     "The id of its session: one that lost its lease goes on under another.",
	"worker": "The name of a worker in any language, which claims by calls; missing: it is a process of Pawl.",
	"state": "live; draining or stopping, which claim nothing more; ended, in good order; or gone: it was not " +
		"heard of for longer than its lease.",
	"since": "When it was last heard of or ended; for one that lives, when it began.",
	"host":  "The name of its host.", "pid": "Its process id there.",
	"version": "The version of its build.", "roles": "Its roles: api, worker, recovery, watcher.",
	"machine": "The id of its machine.",
	"queues":  "The queues whose jobs it claims.", "kinds": "The kinds of job that it claims; missing: none.",
	"tenants": "The only tenants whose jobs it claims; missing: all.",
	"slots":   "How many jobs it runs at once, by lane.", "reads": "Which arguments it reads, by kind, as far as it tells.",
	"address": "The URL at which other processes reach its API; missing: nowhere.",
	"silent": "The watches of its systems that do not answer, by their names, with since when and why; missing: " +
		"there are none.",
	"held":   "How many jobs it holds.",
	"oldest": "The job that it has held for longest.", "started": "When its session began.",
	"renewed": "When it was last heard of.", "until": "The end of its lease.",
}

// reportJobs describes the field of a report.
var reportJobs = map[string]string{"jobs": "The tasks, each once."}

// resource describes the fields of a document of any kind.
var resource = map[string]string{
	"doc": "The document.", "version": "Raised by each change. It is also the ETag; 0: there is no document.",
	"updated": "When it was last changed.",
	"next":    "When a schedule is due next; missing: never.",
	"trouble": "Why the jobs of a schedule could not be submitted the last time; missing: they could.",
}

// says describes the fields of types whose own tags do not. A test sees to it that every field of
// every schema has a description, and that nothing here is of no field.
var says = map[string]map[string]string{
	"View": {
		"id": "Its id.", "tenant": "Its tenant.", "owner": "Its user.",
		"kind": "What is run: app is a program, any other kind a task.",
		"name": "For people; several jobs may have the same.",
		"app":  "The registered app that it runs.", "state": "How far it has come.",
		"custody": "Who is responsible for it now.",
		"epoch":   "Raised by each change of custody: a write under an older epoch is refused.",
		"n":       "The number of its newest event.",
		"session": "The process that works on it; missing: none does.",
		"claim":   "The call that claimed it; missing: nobody holds it.",
		"resume":  "Where work goes on after BLOCKED or PAUSED.",
		"group":   "For a blocked job: the group of jobs that wait for the same condition.",
		"until": "For a blocked job: when it fails if the condition has not cleared; missing: never, as while " +
			"something of it may still run.", "wish": "What it is asked to do and has not done yet.",
		"wished_by": "Who made the newest wish.", "queue": "The queue in which it waits, or waited.",
		"machine": "Only processes of this machine run it; missing: any may.",
		"watch": "Of a program: the watch that looks after it while it runs, which is the id of a machine, or " +
			"SYSTEM/USER.",
		"lane":     "The part of a worker's slots in which it is served.",
		"priority": "0 goes first, 9 last.", "attempt": "The number of its attempt, from 1.",
		"max_attempts": "Attempts in all.",
		"recoveries":   "Runs after a crash, in all attempts.", "suspect": "Crashes of processes that held the " +
			"job, since one outlived a step of it. After 2 it runs alone, and after 5 it ends.",
		"launch":  "The number of the newest launch, counted over all attempts; 0: there was none.",
		"live":    "It is about to be launched, or runs, or its end is not known yet.",
		"created": "When it was submitted.",
		"since": "When its custody began; for a job that waits in a line: since when it has waited " +
			"for its turns.", "due": "When its gate opens.", "ended": "When it ended.",
		"code": "Why it ended, or what blocks it.",
		"message": "The same in words, with what to do next; while a scheduler has its program: where " +
			"that waits or runs. 4 KiB at most, 512 bytes in lists.",
		"parent": "Its parent job.", "needs": "How many jobs must end first.",
		"limits":      "The keys whose turns it takes.",
		"order":       "The key of its order: order/ and the key in its spec.",
		"line":        "The key for whose turn it waits.",
		"external_id": "The submitter's own name for it.", "labels": "For filters.",
		"notes":  "Free notes on it: any JSON.",
		"hidden": "Lists leave it out.", "trace": "The trace in which it was submitted, as a W3C traceparent.",
		"request":  "Its spec as it was given. Lists leave it out.",
		"resolved": "Its spec with everything filled in, once that is known. Lists leave it out.",
		"work":     "What the kind keeps to go on after a crash. Lists leave it out.",
		"result":   "What a task returned, or how a program ended. Lists leave it out.",
		"why":      "One sentence: why it is in this state.",
		"progress": "How far the present step has come, if that is known.",
		"folder":   "Its folder on the machine, while it exists. Lists leave it out.",
		"results":  "The folder of its archive, once it exists. Lists leave it out.",
		"started": "When its newest run began; missing: it has not run. In lists it is " +
			"there while it is RUNNING.",
		"ran":           "How long that run has been RUNNING, or was. In lists it is there while it is RUNNING.",
		"fault":         "What is left out of it because it cannot be shown; missing: nothing.",
		"unserved":      "It is ready, and no live process claims such jobs.",
		"machine_gone":  "Set while no process lives on its machine.",
		"system_silent": "Set while its program runs on a system that does not answer.",
	},
	"ReportBodyFinishReport":     reportJobs,
	"ReportBodyFailReport":       reportJobs,
	"ReportBodyCheckpointReport": reportJobs,
	"ReportBodyProgressReport":   reportJobs,
	"ReportBodyLogReport":        reportJobs,
	"ReportBodySnoozeReport":     reportJobs,
	"ReportBodyBlockReport":      reportJobs,
	"ReportBodyCancelReport":     reportJobs,
	"ReportBodyReleaseReport":    reportJobs,
	"Silent": {
		"system":  "The name of the system.",
		"since":   "Since when it does not answer.",
		"message": "What was tried last, and what came of it.",
	},
	"Silence": {
		"since": "Since when it does not answer.", "message": "What was tried last, and what came of it.",
	},
	"Reads": {"version": "Up to which version.", "build": "Its build, as far as it says how arguments are read."},
	"Gone": {
		"machine": "The id of the machine.",
		"since":   "When its last process was heard of; missing: no process is known.",
	},
	"Worker": worker,
	"WorkerView": with(worker, "jobs", "The jobs of the caller's tenant in its hands, 100 at most, as in lists; "+
		"the one that it has held for longest is first."),
	"LimitUse": {
		"key": "The key of the turns.", "set": "The limit that holds: its own, or that of its family; missing: " +
			"any number of jobs may have a turn.",
		"in_use": "How many jobs have a turn.", "waiting": "How many wait for one.",
		"ahead": "How many programs have a place to be made ready ahead of their turn; " +
			"waiting does not count those that are still being made ready.",
		"shut":       "A group of blocked jobs closes its line.",
		"places":     "For a closed line: how many jobs may have a turn meanwhile.",
		"free_in_ms": "For a rate: in how many milliseconds the next moment is free.",
		"keys_in_use": "For a family: how many of its keys have turns in use or jobs that wait. The numbers " +
			"of jobs are then the sums over these keys; in a list each key has its own.",
		"keys":   "For a family: some of these keys.",
		"owners": "The share of each owner. Lists leave it out.",
		"jobs":   "Some of the jobs that have a turn, 20 at most. Lists leave it out.",
	},
	"BlockedGroup": {
		"key":     "Its id: the same for the same condition, tester, parameters and machine.",
		"code":    "The condition.",
		"message": "What happened to the first of its jobs.", "jobs": "How many jobs are blocked.",
		"behind": "How many wait in the line that it closes.", "line": "The key of that line; missing: it closes none.",
		"since":  "When the first of its jobs was blocked.",
		"tester": "What finds out whether the condition has cleared.",
		"params": "The parameters of the tester.", "machine": "The only machine that can test it; missing: any.",
		"tests":  "How many tests were made since it was blocked, or was clear last.",
		"tested": "When the newest of them began.", "result": "What it found.",
		"next_test": "When it is tested next; missing: it is clear.",
		"clear":     "The condition has cleared: its jobs go on, one after the other.",
		"policy":    "When it is tested. The field until of each job says how long the job waits.",
		"why":       "One sentence: what becomes of it.",
	},
	"Policy": {
		"stages": "When a condition is tested, stage by stage.", "max_wait": "The longest that a job waits, from " +
			"the moment it was blocked; missing: for as long as the stages last.",
	},
	"LimitShare": {
		"owner": "The user.", "weight": "The user's share beside others.",
		"in_use":  "How many of the user's jobs have a turn.",
		"waiting": "How many of them wait for one.",
	},
	"Slots":     {"used": "How many are in use, as it last reported.", "all": "How many there are."},
	"OldestJob": {"id": "Its id; missing: it is another tenant's.", "since": "Since when the process has held it."},
	"Views": {
		"jobs": "The jobs of this page.", "next": "The cursor of the next page; missing: this is the last.",
		"since": "Only jobs submitted since then were looked at; missing: all.",
	},
	"Progress": {
		"what": "What is done, such as staging inputs.", "done": "Bytes done; while it runs, what the job counts.",
		"total": "The same in all; missing: not known.",
	},
	"Event": {
		"job": "The job.", "n": "Its number among the changes of the job, from 1 without gaps; 0: progress, which " +
			"is no part of the history.",
		"sub":   "For an event that a user or the job wrote: its number after the change n, from 1.",
		"name":  "For an event that a user or the job wrote: its name.",
		"epoch": "The job's epoch before the change.",
		"state": "The job's state from then on.", "custody": "Who was responsible for the job from then on.",
		"at":    "When it happened.",
		"cause": "The cause of the change.", "actor": "Who made it: a user, a process or a duty.",
		"code":    "The reason, if it has a code.",
		"message": "What happened, in words.", "data": "Evidence, for people and programs: any JSON.",
	},
	"File": {
		"size": "Bytes.", "modified": "When it was last written.",
	},
	"FileAnswer": {
		"jobs": "The jobs, in the order of the file.", "existed": "They were there before this call.",
		"older": "Other runs of the file that have not ended, newest first.",
	},
	"OlderRun": {"sum": "Identifies the bytes that the file had then.", "jobs": "Its jobs that have not ended."},
	"BulkAnswer": {
		"matched": "Jobs that the filter chose.",
		"done":    "Jobs among them for which the action was done, or that have the wish now.",
		"refused": "Jobs among them that refused.", "refusals": "Why they refused, for the first 100.",
		"since": "Only jobs submitted since then were looked at; missing: all.",
	},
	"Refusal": {"job": "The job.", "code": "What can be done about it.", "error": "Why it refused."},
	"Fault": {
		"path":  "Where it is, such as inputs[2].from; of many jobs jobs[1].priority.",
		"value": "What is there, shortened.",
		"what":  "What is wrong with it.", "remedy": "What to do.",
	},
	"ResourceQueue":          resource,
	"ResourceSystem":         resource,
	"ResourceRecoveryPolicy": resource,
	"ResourceRetention":      resource,
	"ResourceSchedule":       resource,
	"ResourceKind":           resource,
}

// describe completes the named schemas with what tags cannot say.
func describe(schemas map[string]*huma.Schema) {
	for name, s := range schemas {
		for field, p := range s.Properties {
			if p.Description == "" {
				p.Description = cmp.Or(says[name][field], comments()[name][field])
			}
			if p.Type == huma.TypeArray {
				p.Nullable = false // an empty list is one
			}
		}
	}
	if s := schemas["Spec"]; s != nil {
		describeSpec(s)
	}
	if s := schemas["System"]; s != nil {
		keys(s, "env", variable)
	}
	if s := schemas["Retention"]; s != nil {
		keys(s, "keep", wordSchema("", job.Ends))
	}
}

// describeSpec says which fields of a spec belong together.
func describeSpec(s *huma.Schema) {
	s.Description = "What a submitter writes. A program has command or script, a task its kind."
	need := func(fields ...string) *huma.Schema { return &huma.Schema{Required: fields} }
	task := need("kind")
	task.Properties = map[string]*huma.Schema{"kind": {Not: &huma.Schema{Enum: []any{job.KindApp}}}}
	s.AnyOf = []*huma.Schema{need("command"), need("script"), task}
	keys(s, "labels", huma.Schema{Pattern: "^[A-Za-z0-9._/-]{1,63}$"})
	keys(s, "env", variable)
	length := 255
	s.Properties["labels"].AdditionalProperties = &huma.Schema{Type: huma.TypeString, MaxLength: &length}
}

// variable is the name of a variable.
var variable = huma.Schema{Pattern: "^[A-Za-z_][A-Za-z0-9_]*$"}

// keys says what the keys of a map are in a field of s.
func keys(s *huma.Schema, field string, are huma.Schema) {
	p := *s.Properties[field]
	p.Extensions = maps.Clone(p.Extensions)
	if p.Extensions == nil {
		p.Extensions = map[string]any{}
	}
	p.Extensions["propertyNames"] = &are
	s.Properties[field] = &p
}

// with returns the descriptions of a type that has one more field than another.
func with(fields map[string]string, name, about string) map[string]string {
	all := maps.Clone(fields)
	all[name] = about
	return all
}
