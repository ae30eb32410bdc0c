package slurm

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A row is what squeue says of a job.
type row struct {
	id        string // of the job, or <array>_<task>
	name      string // our token
	state     string // in capitals, as in squeue(1)
	reason    string // why it is in that state, in one word
	exit      int    // as wait(2) tells it
	submitted time.Time
	start     time.Time // when it began, or is expected to begin; zero: not known
	end       time.Time
	partition string
}

// A snapshot is an answer of squeue about all jobs of the account.
type snapshot struct {
	at   time.Time // when it was asked for
	rows map[string]row
	// missed counts the snapshots in a row, with this one, that did not have a token.
	missed map[string]int
}

// queue asks squeue for all who want to know, as rarely as they allow.
type queue struct {
	ask func(ctx context.Context) (map[string]row, error)

	mu     sync.Mutex
	last   *snapshot // guarded by mu: the newest good answer; nil: there is none
	err    error     // guarded by mu: of the newest answer
	tried  time.Time // guarded by mu: when that was asked for
	asking chan struct{}
}

// look returns a snapshot that was asked for at most age ago; 0: since the call. An error is not
// tried again within age.
func (q *queue) look(ctx context.Context, age time.Duration) (*snapshot, error) {
	called := time.Now()
	for {
		q.mu.Lock()
		if since := called.Sub(q.tried); !q.tried.IsZero() && (since < 0 || since < age) && q.asking == nil {
			s, err := q.last, q.err
			q.mu.Unlock()
			return s, err
		}
		asking := q.asking
		if asking == nil {
			asking = make(chan struct{})
			q.asking = asking
			go q.refresh(context.WithoutCancel(ctx), asking)
		}
		q.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refresh asks once.
func (q *queue) refresh(ctx context.Context, asking chan struct{}) {
	at := time.Now()
	rows, err := q.ask(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err, q.tried, q.asking = err, at, nil
	if err == nil {
		q.last = &snapshot{at, rows, q.counted(rows)}
	}
	close(asking)
}

// counted counts on the tokens that were asked about and are missing. mu is held.
func (q *queue) counted(rows map[string]row) map[string]int {
	missed := map[string]int{}
	if q.last != nil {
		for token, n := range q.last.missed {
			if _, there := rows[token]; !there {
				missed[token] = n + 1
			}
		}
	}
	return missed
}

// missing reports whether a launch is missing in this answer and in one that was asked for before.
func (q *queue) missing(s *snapshot, l *launch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.at.After(l.armed()) {
		return false
	}
	if s.missed[l.Token] == 0 {
		s.missed[l.Token] = 1
	}
	return s.missed[l.Token] > 1
}

// fields are the columns of squeue that are asked for, with their widths.
var fields = []struct {
	name  string
	width int
}{
	{"JobArrayID", 60},
	{"Name", 64},
	{"State", 20},
	{"Reason", 64},
	{"exit_code", 12},
	{"SubmitTime", 24},
	{"StartTime", 24},
	{"EndTime", 24},
	{"Partition", 64},
}

// squeue asks for all jobs of the account. An answer without its heading is none.
func (r *Runner) squeue(ctx context.Context) (map[string]row, error) {
	format := make([]string, len(fields))
	for i, f := range fields {
		format[i] = f.name + ":" + strconv.Itoa(f.width)
	}
	out, said, code, err := r.command(ctx, "LC_ALL=C SLURM_TIME_FORMAT=%s",
		`squeue -t all -r -u "$(id -u)" -O `+strings.Join(format, ","))
	if err != nil {
		return nil, err
	}
	heading, rest, _ := strings.Cut(out, "\n")
	if code != 0 || !strings.HasPrefix(heading, "JOBID") || len(strings.Fields(heading)) != len(fields) {
		return nil, unanswered("squeue", code, said)
	}
	return parseQueue(rest), nil
}

// parseQueue reads the lines of squeue. It passes over what is no line of a job. Of several jobs of
// one name the newest counts.
func parseQueue(out string) map[string]row {
	rows := map[string]row{}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		var f []string
		for _, c := range fields {
			n := min(c.width, len(line))
			f, line = append(f, strings.TrimSpace(line[:n])), line[n:]
		}
		id, _, _ := strings.Cut(f[0], "_")
		if _, err := strconv.ParseUint(id, 10, 64); err != nil || f[1] == "" || f[2] == "" {
			continue
		}
		exit, _ := strconv.Atoi(f[4])
		w := row{
			id: f[0], name: f[1], state: f[2], reason: f[3], exit: exit, submitted: moment(f[5]), start: moment(f[6]),
			end: moment(f[7]), partition: f[8],
		}
		if had, there := rows[w.name]; !there || !had.submitted.After(w.submitted) {
			rows[w.name] = w
		}
	}
	return rows
}

func moment(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// phase says in which part of its life a job is.
type phase string

const (
	waits phase = "waits"
	runs  phase = "runs" // or it is being ended
	over  phase = "over"
)

// phase returns that of a job. What is not known counts as running.
func (w row) phase() phase {
	switch w.state {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD":
		return waits
	}
	if _, ended := causes[w.state]; ended || w.state == "COMPLETED" || w.state == "FAILED" {
		return over
	}
	return runs
}

// causes are the states in which Slurm itself has ended a job, and what they mean.
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

// String says it for people.
func (w row) String() string {
	s := "Slurm job " + w.id + " is " + w.state
	if w.reason != "" && w.reason != "None" {
		s += " (" + w.reason + ")"
	}
	return s
}

// waiting says why a job waits.
func (w row) waiting() string {
	s := "Slurm job " + w.id + " in partition " + w.partition + " waits"
	if why, ok := reasons[w.reason]; ok {
		s += " " + why
	} else if w.reason != "" && w.reason != "None" {
		s += " (" + w.reason + ")"
	}
	return s
}

// reasons are the most frequent reasons of squeue(1) in words.
var reasons = map[string]string{
	"Resources":              "for free resources",
	"Priority":               "behind jobs of higher priority",
	"BeginTime":              "for the time at which it may begin",
	"Dependency":             "for another job",
	"JobHeldUser":            "because it is held: scontrol release lets it go on",
	"JobHeldAdmin":           "because an administrator holds it",
	"Licenses":               "for a license",
	"Reservation":            "for its reservation",
	"ReqNodeNotAvail":        "for nodes that are not available",
	"PartitionDown":          "because the partition is down",
	"PartitionInactive":      "because the partition is inactive",
	"PartitionTimeLimit":     "and cannot run: it asks for more time than the partition gives",
	"PartitionNodeLimit":     "and cannot run: it asks for more nodes than the partition gives",
	"PartitionConfig":        "and cannot run as the partition is: it asks for more than there is",
	"QOSMaxJobsPerUserLimit": "until fewer jobs of this user run",
	"AssocMaxJobsLimit":      "until fewer jobs of this account run",
	"NodeDown":               "for a node that is down",
	"BadConstraints":         "and cannot run: no node has what it asks for",
}
