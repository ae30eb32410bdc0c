package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A summary is the last line of the program.
type summary struct {
	DB            string   `json:"db"`
	Seed          uint64   `json:"seed"`
	Kills         int      `json:"kills"`
	Drains        int      `json:"drains"`  // processes that went in good order when told to
	Freezes       int      `json:"freezes"` // processes that stood still for longer than their lease
	Jobs          int      `json:"jobs"`
	Lost          int      `json:"lost"`           // accepted, and not there or not ended
	LaunchedTwice int      `json:"launched_twice"` // attempts whose program was started twice
	Poison        int      `json:"poison"`         // jobs that were at work in too many kills
	Blocked       int      `json:"blocked"`        // times that a job was blocked and went on
	Waited        int      `json:"waited"`         // times that a job stood in line and got its turn
	Full          int      `json:"full"`           // times that as many jobs ran side by side as a limit lets go
	Broken        []string `json:"broken"`         // what does not hold, as "name: what was seen"
}

// A harness runs rounds. Its methods may be called side by side.
type harness struct {
	layout
	bin   string
	dir   string
	limit time.Duration // in which a job does something; else a start of the binary is stuck
	keep  bool

	mu  sync.Mutex
	out io.Writer // guarded by mu
	n   int       // guarded by mu: rounds so far
	sum summary   // guarded by mu
}

func (h *harness) printf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.out, format+"\n", args...)
}

// A round is one database and the load in it.
type round struct {
	h     *harness
	name  string
	dir   string // with the data folders, the ledger, and what the processes said
	db    string // name of the database on the server
	dsn   string // to connect to it; empty: the database is that of the folder
	seed  uint64
	jobs  int
	path  string // in which programs are looked up
	tally *tally
	began time.Time
	procs []*proc // the newest start of each process that was not waited for

	freezes int
	frozen  sync.WaitGroup // those that stand still now

	mu      sync.Mutex
	starts  int      // guarded by mu
	kills   int      // guarded by mu
	drains  int      // guarded by mu
	orderly []int    // guarded by mu: pids of processes that ended by themselves and had nothing to warn of
	broken  []string // guarded by mu
}

func (h *harness) begin(ctx context.Context, name string, seed uint64, jobs int) *round {
	h.mu.Lock()
	h.n++
	r := &round{
		h: h, name: fmt.Sprintf("%d %s", h.n, name), dir: filepath.Join(h.dir, fmt.Sprintf("%d-%s", h.n, name)),
		db:   fmt.Sprintf("round_%d_%d", h.n, seed),
		seed: seed, jobs: jobs, began: time.Now(), procs: make([]*proc, len(h.folders)),
	}
	h.mu.Unlock()
	r.tally = &tally{name: r.ledger()}
	if err := r.make(ctx); err != nil {
		r.breaks("harness: %v", err)
	}
	return r
}

// make makes what the processes of the round find.
func (r *round) make(ctx context.Context) (err error) {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(r.ledger()+".input", []byte("an input\n"), 0o600); err != nil {
		return err
	}
	if err := r.makeFar(); err != nil {
		return err
	}
	r.path = os.Getenv("PATH")
	if wait := slowness[r.seed%uint64(len(slowness))]; wait > 0 {
		slow := filepath.Join(r.dir, "slow")
		if err := slowly(slow, wait); err != nil {
			return err
		}
		r.path = slow + ":" + r.path
	}
	r.dsn, err = r.h.database(ctx, r.db)
	return err
}

// slowness is for how long wrappers of a round wait, by its seed. The longest wait is more than the
// time that some programs of the load have.
var slowness = [...]time.Duration{0, 200 * time.Millisecond, 0, 400 * time.Millisecond}

// folder is the data folder of a process, or of a machine.
func (r *round) folder(name string) string { return filepath.Join(r.dir, name) }
func (r *round) ledger() string            { return filepath.Join(r.dir, "ledger") }

func (r *round) breaks(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// over reports whether there is nothing more to do in this round.
func (r *round) over(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.broken) > 0 || ctx.Err() != nil
}

// open opens the database to read it.
func (r *round) open(ctx context.Context) (store.Store, error) {
	return checks.OpenStore(ctx, r.dsn, r.folder(r.h.folders[0]))
}

// finish starts each process until it exits 0, and checks everything.
func (r *round) finish(ctx context.Context) {
	var all sync.WaitGroup
	for i := range r.procs {
		all.Go(func() { r.toEnd(ctx, i) })
	}
	all.Wait()
	c := &checker{round: r}
	if r.h.many() && !r.over(ctx) {
		r.bury(ctx)
	}
	if !r.over(ctx) {
		c.check(ctx)
	}
	if r.over(ctx) {
		if err := checks.End(r.dir); err != nil {
			r.h.printf("round %s: %v", r.name, err)
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.report(c)
	if len(r.broken) > 0 {
		if err := r.keepTables(ctx); err != nil {
			r.h.printf("round %s: the database was not kept: %v", r.name, err)
		}
	}
	if len(r.broken) == 0 && !r.h.keep {
		os.RemoveAll(r.dir)
		if err := r.h.drop(ctx, r.db); err != nil {
			r.h.printf("round %s: %v", r.name, err)
		}
	}
}

// toEnd starts a process again and again until it exits 0.
func (r *round) toEnd(ctx context.Context, i int) {
	for !r.over(ctx) {
		if r.procs[i] == nil {
			r.start(ctx, i, "", 0)
		}
		if r.wait(i).ended {
			return
		}
	}
}

// bury has the sessions end of processes that were killed last, where death is known by the lease
// alone and nobody was left to notice. Their leases run out, and then one more process comes by: it
// ends when no such session is left.
func (r *round) bury(ctx context.Context) {
	st, err := r.open(ctx)
	if err != nil {
		r.breaks("database: %v", err)
		return
	}
	defer st.Close()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := st.Sessions(ctx)
		if err != nil {
			r.breaks("database: %v", err)
			return
		}
		open, live := 0, 0
		for _, s := range all {
			if s.Ended.IsZero() {
				open++
			}
			if s.Live {
				live++
			}
		}
		switch {
		case open == 0:
			return
		case live == 0:
			i := int(r.seed % uint64(len(r.procs)))
			r.start(ctx, i, "", 0)
			r.wait(i)
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// query opens the database for statements; mode is that of a file: ro or rw.
func (r *round) query(mode string) (*sql.DB, error) {
	return checks.Open(r.dsn, r.folder(r.h.folders[0]), mode)
}

// keepTables writes the tables of a database on the server into the folder of the round, for the
// server goes when this program ends.
func (r *round) keepTables(ctx context.Context) error {
	if r.dsn == "" {
		return nil
	}
	db, err := r.query("ro")
	if err != nil {
		return err
	}
	defer db.Close()
	return checks.Keep(ctx, db, r.dir)
}

// report says what became of the round, and adds it to the summary.
func (r *round) report(c *checker) {
	h := r.h
	h.mu.Lock()
	h.sum.Kills += r.kills
	h.sum.Drains += r.drains
	h.sum.Freezes += r.freezes
	h.sum.Jobs += c.jobs
	h.sum.Lost += c.lost
	h.sum.LaunchedTwice += c.twice
	h.sum.Poison += c.poison
	h.sum.Blocked += c.blocked
	h.sum.Waited += c.waited
	h.sum.Full += c.full
	for _, b := range r.broken {
		h.sum.Broken = append(h.sum.Broken, fmt.Sprintf("%s (round %s, seed %d)", b, r.name, r.seed))
	}
	h.mu.Unlock()
	strikes := fmt.Sprintf("%d kills", r.kills)
	if h.many() {
		strikes += fmt.Sprintf(", %d drains, %d freezes, programs %v", r.drains, r.freezes, c.programs)
	}
	if c.blocked > 0 {
		strikes += fmt.Sprintf(", %d times blocked", c.blocked)
	}
	if c.waited > 0 {
		strikes += fmt.Sprintf(", %d turns waited for", c.waited)
	}
	if c.poison > 0 {
		strikes += fmt.Sprintf(", %d innocent at work in too many of them", c.poison)
	}
	h.printf("round %s: seed %d, %d jobs, %d starts, %s, %s; states %v; broken %d",
		r.name, r.seed, c.jobs, r.starts, strikes, time.Since(r.began).Round(time.Millisecond), c.states, len(r.broken))
	for _, b := range r.broken {
		h.printf("    %s", b)
	}
}

// unfinished lists the jobs that have not ended.
func (r *round) unfinished() ([]string, error) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	s, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var lines []string
	page, err := s.List(ctx, store.Query{Tenant: tenant, Filter: job.Unended(), Limit: 20})
	for _, j := range page.Jobs {
		line := fmt.Sprintf("%s %s %s of machine %s session %s attempt %d launch %d live %t wish %q needs %d due %s since %s: %s",
			j.ExternalID, j.ID, j.Place, j.Machine, j.Session, j.Attempt, j.Launch, j.Live, j.Wish, j.Needs,
			j.Due.Format(time.TimeOnly), j.Since.Format(time.TimeOnly), j.Message)
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines, err
}
