package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

type options struct {
	db       string
	seed     uint64
	jobs     int
	duration time.Duration
	sweep    bool
	faults   bool
	keep     bool
	restore  bool      // put the database back to an earlier time when the storm is over
	without  string    // a guard; empty: none is missing
	only     string    // the one fault that there is; empty: all, and processes are killed
	binaries *binaries // nil: they are built
	out      io.Writer
}

// A storm is one run of the program.
type storm struct {
	options
	patience
	dir       string
	net       *network
	server    *testenv.Server // nil: the database is that of the folder
	clock     *clock          // of the machine; nil: it cannot be wrong
	dsn       string          // of the database on the server, past the proxies
	disks     *disks
	nodes     []*node
	book      *book
	strangers *strangers
	limits    *limits
	trouble   *trouble
	ears      []*ear
	settled   atomic.Bool // all jobs have ended: who follows events stays
	saved     *saved
	living    sync.WaitGroup // of the nodes
	databases sync.Mutex     // held by what is wrong with the server
	began     time.Time

	mu      sync.Mutex
	sum     summary    // guarded by mu
	said    checks.Few // guarded by mu: how often each promise was found broken
	astray  time.Time  // guarded by mu: since when times in the database may be wrong; zero: they are not
	stopped bool       // guarded by mu: processes that end are not started again
}

// lease is that of every process. A death is known by the lease alone where there are many.
const lease = 4 * time.Second

// run raises a storm.
func run(ctx context.Context, o options) (summary, error) {
	dir, err := os.MkdirTemp("", "pawl-storm-")
	if err != nil {
		return summary{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as /proc shows it
		return summary{}, err
	}
	s := newStorm(o, dir)
	s.printf("%s, seed %d, %d jobs in %s, folder %s", o.db, o.seed, o.jobs, o.duration, dir)
	err = s.weather(ctx)
	s.sum.Seconds = float64(time.Since(s.began).Round(time.Millisecond)) / float64(time.Second)
	if err == nil && len(s.sum.Broken) == 0 && !s.keep {
		return s.sum, os.RemoveAll(dir)
	}
	s.printf("left for you to look at: %s", dir)
	return s.sum, err
}

func newStorm(o options, dir string) *storm {
	s := &storm{options: o, patience: usual, dir: dir, said: checks.Few{}, sum: summary{
		Seed: o.seed, DB: o.db, Without: o.without, Faults: map[string]int{}, States: map[string]int{},
		Repaired: map[string]int{}, Broken: []string{},
	}}
	s.strangers, s.limits, s.trouble = &strangers{s: s}, &limits{s: s}, &trouble{s: s}
	return s
}

// weather does all that belongs to a storm, and leaves nothing running.
func (s *storm) weather(ctx context.Context) error {
	defer func() {
		if err := checks.End(s.dir); err != nil {
			s.printf("%v", err)
		}
	}()
	if s.binaries == nil {
		dir, err := os.MkdirTemp("", "storm-binaries-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		next := s.db == "postgres" && s.faults && !s.restore // which takes the schema back, too
		if s.binaries, err = build(ctx, dir, s.without, next); err != nil {
			return err
		}
	}
	release, err := s.ground(ctx)
	if err != nil {
		return err
	}
	defer release()
	if s.book, err = newBook(s); err != nil {
		return err
	}
	defer s.book.close()
	defer s.trouble.close()
	if err := s.trouble.open(); err != nil {
		return err
	}
	s.began = time.Now()
	if err := s.storm(ctx); err != nil {
		return err
	}
	if s.restore {
		if err := s.putBack(ctx); err != nil {
			return fmt.Errorf("restore the database: %w", err)
		}
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	return s.check(ctx)
}

// storm lets people and faults have their way at the same time.
func (s *storm) storm(ctx context.Context) error {
	for _, n := range s.nodes {
		s.living.Go(func() { n.live(ctx) })
	}
	for _, n := range s.nodes {
		if err := n.up(ctx); err != nil {
			return err
		}
	}
	for i := range 2 {
		e := newEar(s, i)
		s.ears = append(s.ears, e)
		go e.follow(ctx)
	}
	if err := s.limits.begin(ctx); err != nil {
		return err
	}
	if err := s.trouble.begin(ctx); err != nil {
		return err
	}
	raging, calm := context.WithTimeout(ctx, s.duration)
	defer calm()
	var all sync.WaitGroup
	all.Go(func() { s.submit(raging) })
	all.Go(func() { s.people(raging) })
	all.Go(func() { s.limits.change(raging) })
	all.Go(func() { s.trouble.come(raging) })
	all.Go(func() { s.strangers.come(raging) })
	all.Go(func() { s.sample(raging) })
	all.Go(func() { s.report(raging) })
	if s.restore {
		all.Go(func() { s.save(raging) })
	}
	if s.faults {
		if s.only == "" {
			all.Go(func() { s.strikes(raging) })
		}
		all.Go(func() { s.faultsOf(raging) })
	}
	all.Wait()
	return ctx.Err()
}

// report says from time to time how far the storm has come.
func (s *storm) report(ctx context.Context) {
	for pause(ctx, 10*time.Second) {
		n := len(s.book.where(func(*promise) bool { return true }))
		s.mu.Lock()
		kills, faults := s.sum.Kills, 0
		for name, n := range s.sum.Faults {
			if name != startRefused {
				faults += n
			}
		}
		s.mu.Unlock()
		s.printf("%d jobs accepted, %d kills, %d other faults", n, kills, faults)
	}
}

// random returns numbers for one purpose, which follow from the seed.
func (s *storm) random(purpose string) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], s.seed)
	copy(key[8:], purpose)
	return rand.New(rand.NewChaCha8(key))
}

func (s *storm) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := ""
	if !s.began.IsZero() {
		at = fmt.Sprintf("%6.1f ", time.Since(s.began).Seconds())
	}
	fmt.Fprintf(s.out, at+format+"\n", args...)
}

// breaks notes what does not hold. Of many with one name the first few tell enough.
func (s *storm) breaks(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	name, _, _ := strings.Cut(text, ":")
	s.mu.Lock()
	again := s.said.Enough(name)
	if !again {
		s.sum.Broken = append(s.sum.Broken, text)
	}
	s.mu.Unlock()
	if !again {
		s.printf("BROKEN %s", text)
	}
}

func (s *storm) count(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Faults[fault]++
	// Those of a folder are by the clock of the process, and those of a server by that of its
	// machine.
	if s.astray.IsZero() && (fault == "clock_steps" || fault == "clock_wrong" && s.server == nil) {
		s.astray = time.Now()
	}
}

// machines returns the names of the data folders.
func (s *storm) machines() []string {
	names := map[string]bool{}
	for _, n := range s.nodes {
		names[n.machine] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *storm) folder(machine string) string { return filepath.Join(s.dir, machine) }

// pause waits, and reports whether there is still time.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between returns a random duration.
func between(rnd *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rnd.Int64N(int64(most-least)+1))
}
