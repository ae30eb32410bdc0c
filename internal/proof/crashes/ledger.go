package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A ledger is what the world outside knows; internal/proof/victim/load.go writes it and explains
// its lines.
type ledger struct {
	accepted map[string]*promise // by external id
	promises map[job.ID]*promise
	asked    map[job.ID]bool // to be canceled
	canceled map[job.ID]bool // and acknowledged
	launches map[job.ID]map[int]int
	tasks    map[job.ID][]taskRun
	spans    []*span // in the order in which they began
	bad      []string
}

// A promise is a job as it was accepted.
type promise struct {
	id       job.ID
	external string
	state    job.State // in which it ends if nobody cancels it
	attempts int
	after    job.ID
	need     job.Need
}

type taskRun struct {
	attempt int
	epoch   int64
}

// A span is a time in which a job ran, by its own account: from one line of the ledger to another.
// Whoever died wrote no end.
type span struct {
	job        job.ID
	attempt    int
	epoch      int64 // of a task
	begin, end int   // line; end is 0 where there is none
}

func readLedger(name string) (*ledger, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	l := &ledger{
		accepted: map[string]*promise{}, promises: map[job.ID]*promise{}, asked: map[job.ID]bool{},
		canceled: map[job.ID]bool{},
		launches: map[job.ID]map[int]int{}, tasks: map[job.ID][]taskRun{},
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if err := l.read(n, strings.Fields(line)); err != nil {
			l.bad = append(l.bad, fmt.Sprintf("ledger: %q: %v", strings.TrimSpace(line), err))
		}
	}
	return l, nil
}

// want is the number of words of each kind of line.
var want = map[string]int{"accepted": 7, "cancel": 2, "canceled": 2, "launch": 4, "task": 4, "done": 4}

func (l *ledger) read(line int, w []string) error {
	if len(w) == 0 || want[w[0]] != len(w) {
		return fmt.Errorf("no line of a ledger")
	}
	id, err := job.ParseID(w[1])
	if err != nil {
		return err
	}
	switch w[0] {
	case "accepted":
		p := &promise{id: id, external: w[2], state: job.State(w[3]), need: job.Need(w[6])}
		if p.attempts, err = strconv.Atoi(w[4]); err != nil {
			return err
		}
		if w[5] != "-" {
			if p.after, err = job.ParseID(w[5]); err != nil {
				return err
			}
		}
		if was := l.accepted[p.external]; was != nil && *was != *p {
			return fmt.Errorf("%s was accepted as job %s before", p.external, was.id)
		}
		l.accepted[p.external], l.promises[id] = p, p
	case "cancel":
		l.asked[id] = true
	case "canceled":
		l.canceled[id] = true
	case "launch":
		attempt, err := strconv.Atoi(w[2])
		if err != nil {
			return err
		}
		if l.launches[id] == nil {
			l.launches[id] = map[int]int{}
		}
		l.launches[id][attempt]++
		l.spans = append(l.spans, &span{job: id, attempt: attempt, begin: line})
	case "task", "done":
		attempt, err := strconv.Atoi(w[2])
		if err != nil {
			return err
		}
		epoch, err := strconv.ParseInt(w[3], 10, 64)
		if err != nil {
			return err
		}
		if w[0] == "task" {
			l.tasks[id] = append(l.tasks[id], taskRun{attempt, epoch})
			l.spans = append(l.spans, &span{job: id, attempt: attempt, epoch: epoch, begin: line})
			break
		}
		for _, r := range l.spans {
			if r.job == id && r.attempt == attempt && r.epoch == epoch && r.end == 0 {
				r.end = line
			}
		}
	}
	return nil
}
