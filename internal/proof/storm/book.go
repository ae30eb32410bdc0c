package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A book is what people know of their jobs. It is written into clients.ledger as well, for whoever
// looks at what broke.
type book struct {
	s    *storm
	file *os.File

	mu   sync.Mutex
	all  []*promise          // guarded by mu, with what is in them
	byID map[job.ID]*promise // guarded by mu
	met  map[string]bool     // guarded by mu: names of jobs in whose place there was another one
}

// A promise is a job that was accepted, and what was asked of it since. Many wishes end in a call
// whose answer is lost; then both may be.
type promise struct {
	order
	id       job.ID
	at       time.Time     // when it was accepted
	answered time.Duration // the same by a clock that nothing makes wrong
	asked    bool          // to cancel it
	granted  bool          // to cancel it, and it had not ended
	deleting bool          // somebody may have deleted it
	deleted  bool          // and was told so
	paused   bool
}

func newBook(s *storm) (*book, error) {
	f, err := os.Create(filepath.Join(s.dir, "clients.ledger"))
	return &book{s: s, file: f, byID: map[job.ID]*promise{}, met: map[string]bool{}}, err
}

func (b *book) close() { b.file.Close() }

// accept notes that a job was accepted. A repeated call must be answered with the same one.
func (b *book) accept(o order, id job.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.byID[id]; was != nil {
		if was.name != o.name {
			b.s.breaks("twice: %s was answered with job %s, which is %s", o.name, id, was.name)
		}
		return
	}
	p := &promise{order: o, id: id, at: time.Now(), answered: now()}
	b.all, b.byID[id] = append(b.all, p), p
	fmt.Fprintf(b.file, "accepted %s %s %s %d\n", id, o.name, o.state, o.attempts)
}

// meet notes that a job was not made, for there was another one.
func (b *book) meet(o order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met[o.name] = true
	fmt.Fprintf(b.file, "met %s\n", o.name)
}

// others returns the names of jobs in whose place there was another one.
func (b *book) others() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.met))
}

// update changes what is known of a promise, and says so.
func (b *book) update(p *promise, said string, change func(*promise)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(p)
	fmt.Fprintf(b.file, "%s %s\n", said, p.id)
}

// look returns a promise as it stands.
func (b *book) look(p *promise) promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *p
}

// pick returns a random job, one of the newest mostly.
func (b *book) pick(rnd *rand.Rand) *promise {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.all)
	if n == 0 {
		return nil
	}
	if rnd.IntN(3) > 0 {
		return b.all[n-1-rnd.IntN(min(n, 500))]
	}
	return b.all[rnd.IntN(n)]
}

// promised returns what is known of a job, or nil.
func (s *storm) promised(id job.ID) *promise {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	return s.book.byID[id]
}

// since returns a time at which a job was not submitted yet.
func (b *book) since(id job.ID) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.byID[id]; p != nil {
		return p.order.since
	}
	return 0 // nobody was told of it
}

// knows reports whether the submission of jobs was answered.
func (b *book) knows(orders []order) bool {
	name := orders[0].name
	return slices.Contains(b.others(), name) || len(b.where(func(p *promise) bool { return p.name == name })) > 0
}

// where returns the jobs that a condition holds of.
func (b *book) where(holds func(*promise) bool) (found []*promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.all {
		if holds(p) {
			found = append(found, p)
		}
	}
	return found
}

func (s *storm) jobsLedger() string { return filepath.Join(s.dir, "jobs.ledger") }

// deeds are what jobs did, by their own account.
type deeds struct {
	launches map[job.ID]map[int]int // by attempt
	tasks    map[job.ID]map[taskRun]int
	spans    []span
	began    map[job.ID]time.Duration // when jobs ran first; see [checker.turns]
}

// A taskRun is one run of a task.
type taskRun struct {
	attempt int
	epoch   int64
}

// newest returns the newest epoch in which a task ran.
func (d *deeds) newest(id job.ID) (epoch int64) {
	for r := range d.tasks[id] {
		epoch = max(epoch, r.epoch)
	}
	return epoch
}

// attempt reports whether an attempt of a job began.
func (d *deeds) attempt(id job.ID, attempt int) bool {
	for r := range d.tasks[id] {
		if r.attempt == attempt {
			return true
		}
	}
	return d.launches[id][attempt] > 0
}

func (s *storm) deeds() (*deeds, error) {
	b, err := os.ReadFile(s.jobsLedger())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	d := &deeds{launches: map[job.ID]map[int]int{}, tasks: map[job.ID]map[taskRun]int{},
		began: map[job.ID]time.Duration{}}
	for line := range bytes.Lines(b) {
		if err := d.read(strings.Fields(string(line))); err != nil {
			s.breaks("ledger: %q: %v", strings.TrimSpace(string(line)), err)
		}
	}
	return d, nil
}

func (d *deeds) read(w []string) error {
	if len(w) < 3 {
		return errors.New("it is cut short")
	}
	id, err := job.ParseID(w[1])
	if err != nil {
		return err
	}
	attempt, err := strconv.Atoi(w[2])
	if err != nil {
		return err
	}
	switch {
	case w[0] == "launch" && len(w) == 4:
		if d.launches[id] == nil {
			d.launches[id] = map[int]int{}
		}
		d.launches[id][attempt]++
	case w[0] == "task" && len(w) == 4:
		epoch, err := strconv.ParseInt(w[3], 10, 64)
		if err != nil {
			return err
		}
		if d.tasks[id] == nil {
			d.tasks[id] = map[taskRun]int{}
		}
		d.tasks[id][taskRun{attempt, epoch}]++
	case w[0] == "span" && len(w) == 6:
		s, err := readSpan(w, id, attempt)
		if err != nil {
			return err
		}
		d.spans = append(d.spans, s)
	default:
		return errors.New("it is no line of a ledger")
	}
	return nil
}
