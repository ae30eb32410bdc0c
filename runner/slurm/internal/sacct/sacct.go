// Package sacct reads what sacct(1), Slurm's accounting, says of jobs that are over, and keeps it.
// It runs nothing.
package sacct

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// A Record is what accounting says of a job that is over, or of a task of a job array.
type Record struct {
	squeue.Row
	Usage host.Usage // MaxRSS is that of the task that had the most memory
}

// fields are the columns of sacct that are asked for. The name comes last, as it may hold anything.
var fields = []string{
	"JobID", "State", "ExitCode", "Submit", "Start", "End", "UserCPU", "SystemCPU", "MaxRSS", "Partition", "NodeList",
	"JobName",
}

// clocks is by how much the clocks of Slurm and of the caller may differ.
const clocks = time.Hour

// Command asks for jobs of the account by name. Those that were submitted longer ago than that may
// be missing.
func Command(names []string, ago time.Duration) string {
	return fmt.Sprintf(`env LC_ALL=C SLURM_TIME_FORMAT=%%s sacct -P --noconvert -u "$(id -u)" -S now-%dminutes -o %s --name=%s`,
		int((max(0, ago)+clocks)/time.Minute), strings.Join(fields, ","), strings.Join(names, ","))
}

// maxTasks is how many tasks of a job array one line may stand for.
const maxTasks = 1000

// An Answer has the records of jobs that are over, by name: that of the job, and _<task> for a task
// of an array.
type Answer map[string]Record

// Parse reads what sacct has printed. An answer without its heading is none. It passes over what is
// no line of a job, and jobs that are not over: accounting may not have heard of their end. Of
// several jobs of one name the newest counts.
func Parse(out string) (a Answer, ok bool) {
	heading, rest, _ := strings.Cut(out, "\n")
	if heading != strings.Join(fields, "|") {
		return nil, false
	}
	a = Answer{}
	most := map[string]int64{} // the memory of the steps of a job, by its id
	for line := range strings.Lines(rest) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", len(fields))
		if len(f) != len(fields) {
			continue
		}
		if id, _, isStep := strings.Cut(f[0], "."); isStep {
			most[id] = max(most[id], size(f[8]))
			continue
		}
		array, task, isTask := strings.Cut(f[0], "_")
		name := f[11]
		if _, err := strconv.ParseUint(array, 10, 64); err != nil || name == "" || f[1] == "" {
			continue
		}
		state, by, _ := strings.Cut(f[1], " ") // as in CANCELLED by 1000
		r := Record{
			Row: squeue.Row{
				ID: f[0], State: state, Reason: by, Exit: exit(f[2]), Submitted: moment(f[3]), Start: moment(f[4]),
				End: moment(f[5]), Partition: f[9], Nodes: f[10][:min(len(f[10]), squeue.MaxNodes+1)],
			},
			Usage: host.Usage{User: processorTime(f[6]), System: processorTime(f[7])},
		}
		if r.Phase() != squeue.Over {
			continue
		}
		if !isTask {
			a.add(name, r)
			continue
		}
		for _, task := range tasks(task) {
			r.ID = array + "_" + task
			a.add(name+"_"+task, r)
		}
	}
	for name, r := range a {
		r.Usage.MaxRSS = max(most[r.ID], r.Usage.MaxRSS)
		a[name] = r
	}
	return a, true
}

func (a Answer) add(name string, r Record) {
	if had, there := a[name]; !there || !had.Submitted.After(r.Submitted) {
		a[name] = r
	}
}

// tasks reads the tasks that a line is about: 3, or [1,3-5%2].
func tasks(s string) (all []string) {
	list, isList := strings.CutPrefix(s, "[")
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 32)
		last, err2 := strconv.ParseUint(to, 10, 32)
		if err1 != nil || err2 != nil || !isList && isRange {
			continue
		}
		for n := first; n <= last && len(all) < maxTasks; n++ {
			all = append(all, strconv.FormatUint(n, 10))
		}
	}
	return all
}

// exit reads <exit code>:<signal>, and returns it as wait(2) tells it.
func exit(s string) int {
	code, signal, _ := strings.Cut(s, ":")
	c, _ := strconv.ParseUint(code, 10, 8)
	n, _ := strconv.ParseUint(signal, 10, 7)
	return int(c<<8 | n)
}

func moment(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// size reads a number of bytes, such as 75452416 or 73684K; 0: it is not known.
func size(s string) int64 {
	unit := int64(1)
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGTP", s[n-1]); i >= 0 {
			s, unit = s[:n-1], 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if n *= float64(unit); err != nil || !(n >= 0 && n < 1<<62) {
		return 0
	}
	return int64(n)
}

// processorTime reads [<days>-[<hours>:]]<minutes>:<seconds>; 0: it is not known.
func processorTime(s string) time.Duration {
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 16)
	total := time.Duration(n) * 24 * time.Hour
	parts := strings.Split(rest, ":")
	unit := time.Second
	for i := len(parts) - 1; i >= 0 && err == nil; i-- {
		var v float64
		if v, err = strconv.ParseFloat(parts[i], 64); !(v >= 0 && v < 1e6) {
			return 0
		}
		total += time.Duration(v * float64(unit))
		unit *= 60
	}
	if err != nil || len(parts) > 3 {
		return 0
	}
	return total
}

// String says it for people.
func (r Record) String() string {
	s := r.Row.String()
	if !r.Start.IsZero() && !r.End.Before(r.Start) {
		s += ", after " + r.End.Sub(r.Start).String()
	}
	if n := r.Usage.MaxRSS; n > 0 {
		s += fmt.Sprintf(", with %d MiB of memory at most", (n+1<<20-1)>>20)
	}
	return s
}
