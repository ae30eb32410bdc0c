// Package ledger has what jobs did by their own account, in a file that the service does not know.
// Jobs and those who submit them append whole lines:
//
//	accepted <job> <external id> <state> <attempts> <prerequisite or -> <need or ->
//	cancel <job>                     about to ask for it
//	canceled <job>                   it was granted
//	launch <job> <attempt> <pid>     by a program, when it begins
//	task <job> <attempt> <epoch>     by a task, when it begins
//	done <job> <attempt> <epoch>     by both, when they end by themselves
//	span <job> <attempt> <epoch> <begin> <end>   likewise, with seconds since the machine started
//
// The state and the attempts are how the job ends if nobody cancels it and its prerequisite is met.
// A program does not know its epoch: 0 stands for it.
package ledger

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/job"
)

// A Ledger is what its lines say.
type Ledger struct {
	Accepted map[string]*Promise // by external id
	Promises map[job.ID]*Promise
	Asked    map[job.ID]bool // to be canceled
	Canceled map[job.ID]bool // and acknowledged
	Launches map[job.ID]map[int]int
	Tasks    map[job.ID]map[TaskRun]int
	Runs     []*Run // in the order in which they began
	Spans    []Span
	Bad      []string // lines that mean nothing, and why
}

// A Promise is a job as it was accepted.
type Promise struct {
	ID       job.ID
	External string
	State    job.State // in which it ends if nobody cancels it
	Attempts int
	After    job.ID
	Need     job.Need
}

// A TaskRun is one run of a task.
type TaskRun struct {
	Attempt int
	Epoch   int64
}

// A Run lies between two lines of the ledger.
type Run struct {
	Job        job.ID
	Attempt    int
	Epoch      int64 // of a task
	Begin, End int   // numbers of lines; End is 0 where there is none, since the job died
}

// A Span is a run with its times.
type Span struct {
	Job        job.ID
	Attempt    int
	Epoch      int64 // of a task
	Begin, End time.Duration
}

// Centisecond is how exactly programs know the time: they may have begun, and ended, so much later
// than they say.
const Centisecond = 10 * time.Millisecond

// Earliest is when the job may have begun to run; Begin is when it had.
func (s Span) Earliest() time.Duration {
	if s.Epoch == 0 {
		return s.Begin - Centisecond
	}
	return s.Begin
}

// Now is the time since this machine was started. No fault changes it, and programs know it too.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux has that clock
	}
	return time.Duration(t.Nano())
}

// Note appends a line to the ledger in a file.
func Note(name, format string, args ...any) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return err
}

// Read reads the ledger in a file.
func Read(name string) (*Ledger, error) {
	l := &Ledger{
		Accepted: map[string]*Promise{}, Promises: map[job.ID]*Promise{},
		Asked: map[job.ID]bool{}, Canceled: map[job.ID]bool{},
		Launches: map[job.ID]map[int]int{}, Tasks: map[job.ID]map[TaskRun]int{},
	}
	text, err := os.ReadFile(name)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if err := l.read(n, strings.Fields(line)); err != nil {
			l.Bad = append(l.Bad, fmt.Sprintf("%q: %v", strings.TrimSpace(line), err))
		}
	}
	return l, err
}

// words is how many each kind of line has.
var words = map[string]int{"accepted": 7, "cancel": 2, "canceled": 2, "launch": 4, "task": 4, "done": 4, "span": 6}

func (l *Ledger) read(line int, w []string) error {
	if len(w) == 0 || words[w[0]] != len(w) {
		return errors.New("it is no line of a ledger")
	}
	id, err := job.ParseID(w[1])
	if err != nil {
		return err
	}
	switch w[0] {
	case "accepted":
		return l.accepted(id, w)
	case "cancel":
		l.Asked[id] = true
	case "canceled":
		l.Canceled[id] = true
	default:
		return l.ran(line, id, w)
	}
	return nil
}

func (l *Ledger) accepted(id job.ID, w []string) (err error) {
	p := &Promise{ID: id, External: w[2], State: job.State(w[3]), Need: job.Need(w[6])}
	if p.Attempts, err = strconv.Atoi(w[4]); err != nil {
		return err
	}
	if w[5] != "-" {
		if p.After, err = job.ParseID(w[5]); err != nil {
			return err
		}
	}
	if was := l.Accepted[p.External]; was != nil && *was != *p {
		return fmt.Errorf("%s was accepted as job %s before", p.External, was.ID)
	}
	l.Accepted[p.External], l.Promises[id] = p, p
	return nil
}

// ran reads a line of a job that ran.
func (l *Ledger) ran(line int, id job.ID, w []string) error {
	attempt, err := strconv.Atoi(w[2])
	if err != nil {
		return err
	}
	if w[0] == "launch" {
		if l.Launches[id] == nil {
			l.Launches[id] = map[int]int{}
		}
		l.Launches[id][attempt]++
		l.Runs = append(l.Runs, &Run{Job: id, Attempt: attempt, Begin: line})
		return nil
	}
	epoch, err := strconv.ParseInt(w[3], 10, 64)
	if err != nil {
		return err
	}
	switch w[0] {
	case "task":
		if l.Tasks[id] == nil {
			l.Tasks[id] = map[TaskRun]int{}
		}
		l.Tasks[id][TaskRun{attempt, epoch}]++
		l.Runs = append(l.Runs, &Run{Job: id, Attempt: attempt, Epoch: epoch, Begin: line})
	case "done":
		for _, r := range l.Runs {
			if r.Job == id && r.Attempt == attempt && r.Epoch == epoch && r.End == 0 {
				r.End = line
			}
		}
	case "span":
		begin, err := time.ParseDuration(w[4] + "s")
		end, err2 := time.ParseDuration(w[5] + "s")
		if epoch == 0 {
			begin += Centisecond
		}
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		l.Spans = append(l.Spans, Span{id, attempt, epoch, begin, end})
	}
	return nil
}

// Newest returns the newest epoch in which a task ran.
func (l *Ledger) Newest(id job.ID) (epoch int64) {
	for r := range l.Tasks[id] {
		epoch = max(epoch, r.Epoch)
	}
	return epoch
}

// Began reports whether an attempt of a job began.
func (l *Ledger) Began(id job.ID, attempt int) bool {
	for r := range l.Tasks[id] {
		if r.Attempt == attempt {
			return true
		}
	}
	return l.Launches[id][attempt] > 0
}
