// Package sim lets a whole service live in a simulated world: several processes on several
// machines, with everything real above the leaves (engine, sessions, clock, gates, follow-ups,
// duties, retention, the kind "app" with its watcher and its runner, event streams), on the memory
// store of store/fake, a broker and hosts that misbehave, and in virtual time, as testing/synctest
// has it. Hours pass in a fraction of a second.
//
// One seed decides everything that happens in a world: what people submit and wish, what the jobs
// do, which calls fail, which answers are lost or late, which processes die, freeze or are cut off,
// and when. It is drawn by what it is for, see [world.dice], and things happen at moments of their
// own. So a seed that breaks something does so again.
//
//   - world: a world from its beginning to its end
//   - faults: what goes wrong, and when
//   - process: the processes of the service
//   - link, judge: the store as a process reaches it, and who looks on there
//   - broker, machine: what carries wake-ups, and where programs run
//   - ghosts: what only the store refuses
//   - people: who submits, wishes and listens
//   - turns: limits that people set, and who may go by them
//   - rates: how often programs begin, and are launched
//   - orders: jobs that go one after the other
//   - trouble: what jobs need and is away at times, and how long they wait for it
//   - ledger, check: what jobs did, and whether all promises were kept
//   - trace: what happened
package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/fake"
)

const tenant = "default"

// A Result is what became of a world.
type Result struct {
	Seed   uint64        `json:"seed"`
	Jobs   int           `json:"jobs"`
	Deaths int           `json:"deaths"`
	Faults int           `json:"faults"`
	Lasted time.Duration `json:"lasted"` // by its own clock
	Digest uint64        `json:"digest"` // of its trace
	Lines  int           `json:"lines"`  // of its trace
	Broken []string      `json:"broken,omitempty"`
	Story  string        `json:"story,omitempty"` // of the job that the first of these is about
}

// A world is one simulation.
type world struct {
	*trace
	t      *testing.T // of Run
	seed   uint64
	now    func() time.Time // the database's clock
	zero   time.Time        // when the world began, by that clock
	store  *fake.Store
	hub    *hub
	judge  *judge
	ledger *ledger

	machines []*machine
	slots    []*slot
	people   *people
	turns    *limitsAndOrders // nil: there are neither limits nor orders
	rates    *rates           // nil: there are none
	trouble  *trouble         // nil: there is none

	// How it is.
	calm   bool          // nothing goes wrong
	wild   int           // of so many calls one misbehaves
	length time.Duration // of the storm
	lull   time.Duration // between two of its strokes
	lease  time.Duration
	grace  time.Duration
	lanes  map[job.Lane]int
	silent bool // no process hears of ready jobs from another one
	keeps  bool // jobs that ended are removed after an hour

	commit sync.Mutex // held while the store commits and somebody looks on

	mu             sync.Mutex
	away           bool          // guarded by mu: the store
	healed         bool          // guarded by mu: nothing goes wrong any more
	over           bool          // guarded by mu: processes are not started again
	deaths, faults int           // guarded by mu
	shuffled       time.Duration // guarded by mu: when shuffle was last called
	broken         []string      // guarded by mu
	about          job.ID        // guarded by mu: the job of the first of these
}

// Run lets the world of a seed live and end. For the same seed it is the same in each process that
// has done nothing before, with GOMAXPROCS=1 and GOGC=off, and to the nanosecond where [exact] is
// true. out, if set, is told of everything in the end.
func Run(t *testing.T, seed uint64, out func(string)) Result {
	t.Helper()
	var w *world
	virtual.Test(t, func(*testing.T) {
		simulate(seed)
		w = newWorld(t, seed)
		w.live()
		synctest.Wait()
	})
	r := Result{
		Seed: seed, Jobs: w.ledger.jobs(), Deaths: w.deaths, Faults: w.faults,
		Lasted: w.lines[len(w.lines)-1].at, Lines: len(w.lines), Digest: w.digest(), Broken: w.broken,
	}
	if len(w.broken) > 0 {
		r.Story = w.story()
	}
	if out != nil {
		for _, l := range w.trace.about(job.ID{}) {
			out(l.String())
		}
	}
	return r
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, trace: &trace{began: time.Now()}, seed: seed}
	cryptotest.SetGlobalRandom(t, seed)
	r := w.dice("world", 0)
	ahead := []time.Duration{0, 0, time.Hour, -time.Hour, 20 * time.Millisecond}[r.IntN(5)]
	w.now = func() time.Time { return time.Now().Add(ahead) }
	w.zero, w.store = w.now(), fake.New(w.now)
	w.hub, w.judge, w.ledger = &hub{w: w}, newJudge(w), newLedger(w)
	w.calm, w.wild = oneIn(r, 5), []int{10, 30, 100, 400}[r.IntN(4)]
	w.length, w.lull = between(r, 2*time.Minute, 8*time.Minute), between(r, 3*time.Second, 30*time.Second)
	w.lease, w.grace = between(r, 3*time.Second, 15*time.Second), between(r, time.Second, 10*time.Second)
	n := []int{1, 2, 4, 20}[r.IntN(4)]
	if w.calm {
		n = 50
	}
	w.lanes = map[job.Lane]int{job.LaneFinish: n, job.LaneLaunch: n, job.LanePrepare: n, job.LaneTask: n + r.IntN(3)}
	w.keeps, w.silent = oneIn(r, 10), !w.calm && oneIn(r, 5)
	for i := range 1 + r.IntN(2) {
		w.machines = append(w.machines, w.newMachine(i+1))
	}
	for i := range max(1+r.IntN(4), len(w.machines)) {
		w.slots = append(w.slots, &slot{w: w, machine: w.machines[i%len(w.machines)], n: i + 1})
	}
	w.people = newPeople(w, 20+r.IntN(40))
	w.turns, w.rates, w.trouble = newLimitsAndOrders(w), newRates(w), newTrouble(w)
	w.store.PassOn = oneIn(w.dice("pass on", 0), 2)
	w.note("world", "calm %t, wild %d, length %v, lull %v, lease %v, slots %v, %d machines, %d processes, "+
		"database ahead %v, limits %t, orders %t, handed on along %t, rates %t, trouble %t",
		w.calm, w.wild, w.length, w.lull, w.lease, w.lanes, len(w.machines), len(w.slots), ahead, w.turns != nil &&
			w.turns.limited, w.turns != nil && w.turns.ordered, w.store.PassOn, w.rates != nil, w.trouble != nil)
	return w
}

// shuffle has what processes draw from crypto/rand (ids, names, pauses) depend on the seed and on
// the time, and not on what was drawn before.
func (w *world) shuffle() {
	if !exact {
		return // it is no use then, and a race with who draws
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Since(w.began); now != w.shuffled {
		w.shuffled = now
		cryptotest.SetGlobalRandom(w.t, w.dice("random", int(now)).Uint64())
	}
}

// live is the world from its beginning to its end: a storm, a time in which all is well, and the
// end of all processes.
func (w *world) live() {
	var all, processes sync.WaitGroup
	for i, s := range w.slots {
		processes.Go(func() {
			time.Sleep(between(w.dice("start", i), 0, 5*time.Second))
			s.keep()
		})
	}
	listening, silence := context.WithCancel(context.Background())
	inspecting, leave := context.WithCancel(context.Background())
	all.Go(func() { w.people.listen(listening) })
	all.Go(func() { w.inspect(inspecting) })
	var busy sync.WaitGroup
	busy.Go(w.people.act)
	busy.Go(w.turns.act)
	busy.Go(w.rates.act)
	busy.Go(w.trouble.act)
	if !w.calm {
		busy.Go(w.storm)
		busy.Go(w.ghosts)
	}
	busy.Wait()
	leave()
	time.Sleep(time.Minute) // what has begun to go wrong has gone wrong by then
	w.put(&w.healed, true)
	w.put(&w.away, false)
	w.note("world", "all is well from now on")
	w.trouble.settle()
	w.turns.settle()
	w.people.settle()
	w.drain()
	for _, s := range w.slots { // some things are left until the next start
		if p := s.process(); p != nil {
			p.goWell()
		}
		time.Sleep(time.Minute)
	}
	if w.keeps {
		time.Sleep(150 * time.Minute)
	}
	time.Sleep(2 * time.Minute) // the watcher looks at all once a minute
	w.put(&w.over, true)
	w.checkEvents()
	silence()
	all.Wait()
	for _, s := range w.slots {
		if p := s.process(); p != nil {
			p.goWell()
		}
	}
	processes.Wait()
	time.Sleep(2 * time.Minute)
	w.check()
	for _, m := range w.machines { // what runs there now would run for ever
		m.reboot()
	}
}

func (w *world) is(flag *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *flag
}

func (w *world) put(flag *bool, v bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*flag = v
}

func (w *world) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

func (w *world) fault() { w.count(&w.faults) }

// breaks notes that a promise about a job was broken; zero: about no job.
func (w *world) breaks(id job.ID, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("BROKEN", "%s %s", id, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.broken) == 0 || w.about.IsZero() {
		w.about = id
	}
	if !slices.Contains(w.broken, text) && len(w.broken) < 20 {
		w.broken = append(w.broken, text)
	}
}

// order returns what a job is to do.
func (w *world) order(id job.ID) order { return w.people.order(id) }

// known are the jobs that people know of.
func (w *world) known() []job.ID { return w.people.known() }
