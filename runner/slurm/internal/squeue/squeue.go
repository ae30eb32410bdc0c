// Package squeue reads what squeue(1) says of the jobs of an account, and sees to it that it is
// asked rarely.
package squeue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Row is what squeue says of a job, or of a task of a job array.
type Row struct {
	ID        string // of the job, or <array>_<task>; another job may have it later
	State     string // in capitals, as in squeue(1)
	Reason    string // why it is in that state, in one word
	Exit      int    // as wait(2) tells it
	Submitted time.Time
	Start     time.Time // when it began, or is expected to begin; zero: not known
	End       time.Time
	Partition string
	Nodes     string // where it runs, as Slurm lists them; it may be cut
}

// MaxNodes is how much is told of a list of nodes, in bytes.
const MaxNodes = 100

// fields are the columns of squeue that are asked for, with their widths.
var fields = []struct {
	name  string
	width int
}{
	{"JobArrayID", 40},
	{"Name", 64},
	{"State", 20},
	{"Reason", 64},
	{"exit_code", 12},
	{"SubmitTime", 16},
	{"StartTime", 16},
	{"EndTime", 16},
	{"Partition", 64},
	{"NodeList", MaxNodes + 1},
}

// Command asks for all jobs of the account.
func Command() string {
	format := make([]string, len(fields))
	for i, f := range fields {
		format[i] = f.name + ":" + strconv.Itoa(f.width)
	}
	return `env LC_ALL=C SLURM_TIME_FORMAT=%s squeue -t all -r -u "$(id -u)" -O ` + strings.Join(format, ",")
}

// An Answer has the jobs of an account. It is read by many.
type Answer struct {
	// rows are by name: that of the job, and _<task> for a task of an array.
	rows map[string]Row
	// arrays are the names of the job arrays that have a task here.
	arrays map[string]bool
}

// Parse reads what squeue has printed. An answer without its heading is none. It passes over what
// is no line of a job. Of several jobs of one name the newest counts.
func Parse(out string) (a Answer, ok bool) {
	heading, rest, _ := strings.Cut(out[max(0, strings.Index("\n"+out, "\nJOBID")):], "\n")
	if !strings.HasPrefix(heading, "JOBID") || len(strings.Fields(heading)) != len(fields) {
		return a, false
	}
	a = Answer{map[string]Row{}, map[string]bool{}}
	words := map[string]string{} // each once: there may be very many rows
	word := func(s string) string {
		if _, ok := words[s]; !ok {
			words[s] = strings.Clone(s)
		}
		return words[s]
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, "\n")
		var f [10]string
		for i, c := range fields {
			n := min(c.width, len(line))
			f[i], line = strings.TrimSpace(line[:n]), line[n:]
		}
		id, task, isTask := strings.Cut(f[0], "_")
		if _, err := strconv.ParseUint(id, 10, 64); err != nil || f[1] == "" || f[2] == "" {
			continue
		}
		exit, _ := strconv.Atoi(f[4])
		w := Row{
			ID: strings.Clone(f[0]), State: word(f[2]), Reason: word(f[3]), Exit: exit, Submitted: moment(f[5]),
			Start: moment(f[6]), End: moment(f[7]), Partition: word(f[8]), Nodes: word(f[9]),
		}
		name := strings.Clone(f[1])
		if isTask {
			a.arrays[word(name)] = true
			name += "_" + task
		}
		if had, there := a.rows[name]; !there || !had.Submitted.After(w.Submitted) {
			a.rows[name] = w
		}
	}
	return a, true
}

func moment(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// Find returns the row of a name: that of a job, and _<task> for a task of an array. What waits of
// an array and is canceled together has one row, which stands for each of its tasks.
func (a Answer) Find(name string) (Row, bool) {
	w, there := a.rows[name]
	if array, _, isTask := strings.Cut(name, "_"); isTask && !there {
		w, there = a.rows[array]
		there = there && w.Phase() == Over
	}
	return w, there
}

// Removed reports whether a task is missing from an array that is there. That becomes of a task
// that is canceled while it waits, as Slurm keeps no record of it.
func (a Answer) Removed(name string) bool {
	array, _, isTask := strings.Cut(name, "_")
	_, there := a.rows[name]
	return isTask && !there && a.arrays[array]
}

// A Phase is a part of the life of a job.
type Phase string

// The phases.
const (
	Waits Phase = "waits"
	Runs  Phase = "runs" // or it is being ended
	Over  Phase = "over"
)

// Phase returns that of a job. What is not known counts as running.
func (w Row) Phase() Phase {
	switch w.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD":
		return Waits
	}
	if w.Cause() != "" || w.State == "COMPLETED" || w.State == "FAILED" {
		return Over
	}
	return Runs
}

// Suspended reports whether Slurm has stopped the processes of a job.
func (w Row) Suspended() bool { return w.State == "SUSPENDED" || w.State == "STOPPED" }

// Stopped reports whether a user has stopped them, by a signal. Slurm lets the job have others.
func (w Row) Stopped() bool { return w.State == "STOPPED" }

// Halted reports whether a job stands still: it is held in the queue, or its processes are stopped.
func (w Row) Halted() bool { return w.Phase() == Waits && w.held() || w.Suspended() }

// Cause returns why Slurm itself has ended a job; "": it has not.
func (w Row) Cause() job.Code { return causes[w.State] }

var causes = map[string]job.Code{
	"TIMEOUT":       job.SchedulerTimeout,
	"OUT_OF_MEMORY": job.SchedulerOutOfMemory,
	"CANCELLED":     job.SchedulerCanceled,
	"NODE_FAIL":     job.SchedulerNodeFail,
	"BOOT_FAIL":     job.SchedulerNodeFail,
	"LAUNCH_FAILED": job.SchedulerNodeFail,
	"PREEMPTED":     job.SchedulerPreempted,
	"DEADLINE":      job.SchedulerDeadline,
	"REVOKED":       job.SchedulerCanceled,
}

// Vague reports whether Slurm does not say why a job waits: it has not looked at it yet.
func (w Row) Vague() bool { return w.Reason == "" || w.Reason == "None" }

// Never reports whether Slurm has accepted a job that can never begin: it asks for what its
// partition gives to no job, or for more than a QOS or an account gives to one. Of several
// partitions another one may take it: the reason is that of the one at which Slurm looked last.
func (w Row) Never() bool {
	switch {
	case w.several():
		return false
	case w.Reason == "PartitionTimeLimit", w.Reason == "PartitionNodeLimit", w.Reason == "MaxMemPerLimit":
		return true
	}
	return (w.ofQOS() || w.ofAccount()) && strings.Contains(w.Reason, "PerJob")
}

// Expected returns when a job that waits is expected to begin; zero: it is not known. Slurm tells a
// time also of a job that is held.
func (w Row) Expected() time.Time {
	if w.held() {
		return time.Time{}
	}
	return w.Start
}

// held reports whether a job waits until somebody lets it go on, such as "job requeued in held
// state".
func (w Row) held() bool { return strings.Contains(strings.ToLower(w.Reason), "held") }

// several reports whether any of several partitions may run the job.
func (w Row) several() bool { return strings.Contains(w.Partition, ",") }

func (w Row) ofQOS() bool     { return strings.HasPrefix(w.Reason, "QOS") }
func (w Row) ofAccount() bool { return strings.HasPrefix(w.Reason, "Assoc") }

// String says it for people.
func (w Row) String() string {
	s := "Slurm job " + w.ID + " is " + w.State
	if !w.Vague() {
		s += " (" + w.Reason + ")"
	}
	switch {
	case w.State == "OUT_OF_MEMORY", w.State == "DEADLINE": // it tells no end of a program
	case w.Exit&0x7f != 0:
		s += fmt.Sprintf(", signal %d", w.Exit&0x7f)
	case w.Exit > 0xff:
		s += fmt.Sprintf(", exit code %d", w.Exit>>8)
	}
	return s
}

// Running says where a job runs.
func (w Row) Running() string {
	s := "Slurm job " + w.ID
	if w.Suspended() {
		s += " is suspended" // in the middle: no reason begins with another one
	}
	if w.Partition != "" {
		s += " in partition " + w.Partition
	}
	switch {
	case len(w.Nodes) > MaxNodes:
		s += " on " + w.Nodes[:MaxNodes] + "…"
	case w.Nodes != "":
		s += " on " + w.Nodes
	}
	return s
}

// Waiting says why a job waits.
func (w Row) Waiting() string {
	s := "Slurm job " + w.ID + " in partition " + w.Partition + " waits"
	word, more, _ := strings.Cut(w.Reason, ", ") // such as ReqNodeNotAvail, UnavailableNodes:node[01-04]
	why := reasons[word]
	if why != "" && more != "" && !strings.Contains(word, " ") {
		why += " (" + more + ")"
	}
	switch {
	case why == "" && w.held():
		s += " because it is held (" + w.Reason + "): scontrol release lets it go on"
	case w.several() && strings.Contains(why, "cannot run"):
		s += ": one of them does not take it (" + w.Reason + ")"
	case why != "":
		s += " " + why
	case w.Never() && w.ofQOS():
		s += " and cannot run: it asks for more than its QOS gives to one job (" + w.Reason + ")"
	case w.Never():
		s += " and cannot run: it asks for more than its account gives to one job (" + w.Reason + ")"
	case w.ofQOS():
		s += " because of a limit of its QOS (" + w.Reason + ")"
	case w.ofAccount():
		s += " because of a limit of its account (" + w.Reason + ")"
	case !w.Vague():
		s += " (" + w.Reason + ")"
	}
	return s
}

// reasons are the most frequent reasons of squeue(1) in words.
var reasons = map[string]string{
	"Resources":                       "for free resources",
	"Priority":                        "behind jobs of higher priority",
	"BeginTime":                       "for the time at which it may begin",
	"Dependency":                      "for another job",
	"JobHeldUser":                     "because it is held: scontrol release lets it go on",
	"JobHeldAdmin":                    "because an administrator holds it",
	"Licenses":                        "for a license",
	"Reservation":                     "for its reservation",
	"ReqNodeNotAvail":                 "for nodes that are not available",
	"Nodes required for job are DOWN": "for nodes that are down, drained or reserved for jobs of a higher partition",

	"PartitionDown":          "because the partition is down",
	"PartitionInactive":      "because the partition is inactive",
	"PartitionTimeLimit":     "and cannot run: resources.minutes is more than the partition gives",
	"PartitionNodeLimit":     "and cannot run: resources.nodes is more than the partition gives, or fewer",
	"MaxMemPerLimit":         "and cannot run: resources.memory is more than the partition gives",
	"PartitionConfig":        "and cannot run as the partition is: it asks for more than there is",
	"QOSMaxJobsPerUserLimit": "until fewer jobs of this user run",
	"AssocMaxJobsLimit":      "until fewer jobs of this account run",
	"NodeDown":               "for a node that is down",
	"JobArrayTaskLimit":      "until fewer tasks of its array run",
	"Cleaning":               "until Slurm has tidied up after an earlier run of it",
	"BadConstraints":         "and cannot run: no node has what it asks for",
}
