package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
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
	p := &promise{order: o, id: id, at: time.Now(), answered: ledger.Now()}
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

// deeds reads what jobs did, by their own account. Before the first does something there is no
// file.
func (s *storm) deeds() (*ledger.Ledger, error) {
	l, err := ledger.Read(s.jobsLedger())
	for _, b := range l.Bad {
		s.breaks("ledger: %s", b)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return l, err
}
