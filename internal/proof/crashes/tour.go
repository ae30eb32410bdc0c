package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A plan says how a point is reached.
type plan struct {
	// once: one process passes the point at most once, for the reason given.
	once string
	// before are points at which processes die first, so that the next one has something to do at
	// this point. Those that the layout does not pass are left out.
	before []string
	// lease of the process; 0: the usual one.
	lease time.Duration
	// first: one process does for all what leads here, so it is tried while there are no others.
	first bool
	// last: it is passed when all jobs have ended.
	last bool
}

// plans are of the points that the load does not pass again and again by itself. No point is
// exempt.
var plans = map[string]plan{
	"settle.linked":  {before: []string{"submit.intent"}},
	"settle.revoked": {before: []string{"launch.armed", "launch.linked"}}, // alone, and with others

	"slurm.settled": {before: []string{"submit.intent"}},
	"slurm.revoked": {before: []string{"slurm.armed"}},

	"store.begin.before":  {once: "a process has one session, unless it loses it"},
	"store.begin.after":   {once: "a process has one session, unless it loses it"},
	"store.expire.before": {once: "where one process has the folder, no other session dies meanwhile"},
	"store.expire.after":  {once: "where one process has the folder, no other session dies meanwhile"},
	"store.end.before":    {once: "a process has one session, unless it loses it", last: true},
	"store.end.after":     {once: "a process has one session, unless it loses it", last: true},

	"store.recount.before": {once: "a process sweeps when it starts, and then once a minute", first: true},
	"store.recount.after":  {once: "a process sweeps when it starts, and then once a minute", first: true},

	// One process makes the tests of all.
	"store.tested.before": {first: true},
	"store.tested.after":  {first: true},

	// Package crashstore keeps back a claimed job for these; it is missed at the third renewal.
	"store.held.before": {once: "one job is kept back", lease: time.Second},
	"store.held.after":  {once: "one job is kept back", lease: time.Second},

	// Package crashstore has the lease lost once for these, at a renewal while there are jobs.
	"store.clear.before": {once: "the lease is lost once", lease: time.Second},
	"store.clear.after":  {once: "the lease is lost once", lease: time.Second},

	"store.renew.before": {lease: time.Second},
	"store.renew.after":  {lease: time.Second},
}

// An entry is a point, and which pass of it ends the process.
type entry struct {
	point string
	pass  int
	alone bool // it is for a process that has its machine for itself: nobody else passes the point in its place
}

func (e entry) String() string { return fmt.Sprintf("%s:%d", e.point, e.pass) }
func (e entry) plan() plan     { return plans[e.point] }

// A tour goes through points: each at its first pass, and then at later ones.
type tour struct {
	points []string
	todo   []entry        // in the order in which they are tried
	tries  map[string]int // how often each was tried
	given  []entry        // to the round under way
	got    map[string][]int
}

const (
	perRound = 20 // entries of one round
	tries    = 6  // how often an entry is tried
)

// newTour returns a tour of points in an order that follows from the seed. Each is to be passed up
// to passes times.
func newTour(seed uint64, passes int, points []string) *tour {
	t := &tour{points: points, tries: map[string]int{}, got: map[string][]int{}}
	rnd := rand.New(rand.NewPCG(seed, 2))
	for pass := 1; pass <= passes; pass++ {
		var es []entry
		for _, p := range points {
			if pass == 1 || plans[p].once == "" {
				es = append(es, entry{p, pass, plans[p].before != nil})
			}
		}
		rnd.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
		t.todo = append(t.todo, es...)
	}
	return t
}

// must reports whether some point was never passed and can still be tried.
func (t *tour) must() bool {
	return slices.ContainsFunc(t.todo, func(e entry) bool { return e.pass == 1 })
}

// next returns the entries of the next round, none when all have been tried.
func (t *tour) next() []entry {
	n := min(perRound, len(t.todo))
	t.given, t.todo = t.todo[:n:n], t.todo[n:]
	return t.given
}

// round notes which entries of the round before were tried, and which of them were passed. The
// others come again. Those that were tried in vain come first: the work that passes them may have
// been done already when it was their turn.
func (t *tour) round(tried, passed []entry) {
	var again, untried []entry
	for _, e := range t.given {
		switch {
		case !slices.Contains(tried, e):
			untried = append(untried, e)
		case slices.Contains(passed, e):
			t.got[e.point] = append(t.got[e.point], e.pass)
		default:
			if t.tries[e.String()]++; t.tries[e.String()] < tries {
				e.alone = true
				again = append(again, e)
			}
		}
	}
	t.todo = slices.Concat(again, untried, t.todo)
}

// report says which passes of each point ended a process, and returns the points that were never
// passed.
func (t *tour) report(out io.Writer) (broken []string) {
	var line []string
	for _, p := range t.points {
		if len(t.got[p]) == 0 {
			broken = append(broken, "unreached: "+p)
		}
		slices.Sort(t.got[p])
		line = append(line, fmt.Sprintf("%s%v", p, t.got[p]))
	}
	fmt.Fprintf(out, "points, and at which pass of each a process died: %s\n", strings.Join(line, " "))
	return broken
}
