// Package turns decides who gets the turns of a limit.
//
// A turn is a permit under a limit: of a key with a limit of five, at most five jobs have a turn at
// the same time. A job may need turns of several keys; it gets all of them or none. A job whose
// turns are not free waits in a line: that of the first of its keys which is full.
//
// A store reads what it must know of some keys of a tenant ([Keys]), and [Keys.Hand] decides who
// gets the free turns. No two stores, and no two processes of a store, decide for one tenant at a
// time. Nothing here reads or writes anything: the store writes down what was decided.
//
// Three rules decide who is next:
//
//   - Owners share by weight. The next turn goes to the owner with the fewest turns of the key for
//     its weight; where that is equal, to the owner who was served least.
//   - Where very many owners wait they go in a round, by name, and one hand-on considers only some
//     of them ([Key.MaxOwners]).
//   - Among the jobs of one owner priority decides, then age.
//
// Jobs that need several turns must not starve. A job that was passed over [MaxPassed] times keeps
// the turns that are free, in the order of its keys, and waits for the others. All jobs take keys
// in the same order, so they never wait for each other in a circle. Nobody uses the turns that such
// a job keeps, so it is first in its line, before every owner: it waits for the end of one job
// there, and no longer. In a line that is closed (its limit is 0) a job keeps nothing.
//
// When a limit is set on a key for the first time, a walk takes in the jobs that are there: see
// [NewKeys].
//
// The package imports package job and the standard library.
package turns

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

const (
	// MaxPassed is how often a job is passed over before it keeps the turns that it can get.
	MaxPassed = 8

	// MinConsidered is how many jobs of a line are considered at least, evenly over its owners,
	// also where few turns are free: some of these jobs may have to go to another line.
	MinConsidered = 60

	// fewOwners is up to how many owners of a line are always considered; manyOwners is how many
	// are considered at most.
	fewOwners  = 100
	manyOwners = 1000

	// maxMoved is how many jobs of one line a hand-on moves to other lines.
	maxMoved = 100
)

// Keys are what a store has read of keys of a tenant: the keys whose turns are handed on, and all
// other keys of the jobs that wait for these.
type Keys map[string]*Key

// A Key holds the turns of a key and the jobs that wait for one.
type Key struct {
	// Limit decides how many turns there are. It is that of [job.Implied] where none is set; nil:
	// there is no limit, and turns without end.
	Limit *job.Limit
	// Held counts the turns by owner, with those that waiting jobs keep. Without a limit it is not
	// used.
	Held map[string]int
	// Served says, where several owners wait, how many turns each was given, divided by its weight.
	// In a round it has one entry: the owner who was served last, and how often in a row.
	Served map[string]float64
	// Line has the jobs that wait: the first ones of each owner, and all that keep turns.
	Line []Waiter
	// More names the owners who have more jobs in the line than Line has.
	More map[string]bool
}

// A Waiter is a job that waits in a line.
type Waiter struct {
	Job      job.ID
	Owner    string
	Priority int
	Created  int64    // when it was submitted, in microseconds of Unix time
	Keys     []string // all keys that it needs a turn of, in their order
	Kept     []string // the keys that it keeps a turn of while it waits
	Passed   int      // how often it was passed over
}

// WaiterOf returns j as it waits.
func WaiterOf(j *job.Job) Waiter {
	return Waiter{
		Job: j.ID, Owner: j.Owner, Priority: j.Priority, Created: j.Created.UnixMicro(),
		Keys: j.TurnKeys(j.Lacks(j.State)), Kept: j.Kept(), Passed: j.Passed,
	}
}

// Lacks returns the keys of the turns that w still needs.
func (w Waiter) Lacks() []string { return without(w.Keys, w.Kept) }

// Compare orders the jobs of one owner: by priority, then by age.
func (w Waiter) Compare(o Waiter) int {
	return cmp.Or(cmp.Compare(w.Priority, o.Priority), cmp.Compare(w.Created, o.Created),
		bytes.Compare(w.Job[:], o.Job[:]))
}

// A Decision is what [Keys.Hand] decided.
type Decision struct {
	Grant []job.ID // jobs that get all turns that they lack
	Move  []Move
	Again []string // keys that must be handed on again: not all jobs in their lines were considered
}

// A Move puts a job into the line of another key. A job that is in Line already stays there, and
// gives back the turns that it keeps.
type Move struct {
	Job  job.ID
	Line string
	Keep []string // turns that it takes and keeps, beside those that it keeps already
	Drop []string // turns that it gives back
}

// Hand hands the free turns of some keys on, one key after the other, to at most limit jobs. It
// changes Held, Served and the lines of ks accordingly.
func (ks Keys) Hand(keys []string, limit int) (d Decision) {
	for _, key := range keys {
		k := ks[key]
		if k.Closed(key) {
			for _, w := range k.Line {
				if len(w.Kept) > 0 {
					d.Move = append(d.Move, Move{Job: w.Job, Line: key, Drop: w.Kept})
				}
			}
		}
		if !k.free(key) {
			continue // Served stays as it is until a job goes
		}
		line := newLine(k, k.MaxOwners(key))
		for moved := 0; k.free(key); {
			w, found := line.next()
			if found && (w.Job.IsZero() || len(d.Grant) == limit || moved == maxMoved) || !found &&
				line.round != nil {
				d.Again = append(d.Again, key)
				found = false
			}
			if !found {
				break
			}
			line.take(w)
			full := slices.IndexFunc(w.Keys,
				func(other string) bool { return !slices.Contains(w.Kept, other) && !ks[other].free(other) })
			if full >= 0 {
				m := Move{Job: w.Job, Line: w.Keys[full]}
				switch {
				case ks[m.Line].Closed(m.Line):
					m.Drop = w.Kept
				case w.Passed >= MaxPassed:
					m.Keep = without(w.Keys[:full], w.Kept)
				}
				ks.hold(w.Owner, m.Keep)
				d.Move = append(d.Move, m)
				moved++
				continue
			}
			ks.hold(w.Owner, w.Lacks())
			line.serve(w)
			d.Grant = append(d.Grant, w.Job)
		}
	}
	// a job of another line may have taken the last turn
	d.Again = slices.DeleteFunc(d.Again, func(key string) bool { return !ks[key].free(key) })
	return d
}

func without(list, some []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(some, s) })
}

func (ks Keys) hold(owner string, keys []string) {
	for _, key := range keys {
		if k := ks[key]; k.Limit != nil {
			k.Held[owner]++
		}
	}
}

// Free returns how many turns of the key are free.
func (k *Key) Free(key string) int {
	if k.Limit == nil {
		return math.MaxInt
	}
	n := k.Limit.Places(key)
	for _, held := range k.Held {
		n -= held
	}
	return max(0, n)
}

func (k *Key) free(key string) bool { return k.Free(key) > 0 }

// Closed reports whether the limit of the key is 0: no job gets a turn, however many are given
// back.
func (k *Key) Closed(key string) bool { return k.Limit != nil && k.Limit.Places(key) == 0 }

func (k *Key) weight(owner string) float64 {
	if k.Limit == nil {
		return 1
	}
	return float64(k.Limit.Weight(owner))
}

// share returns how many turns an owner has, divided by its weight.
func (k *Key) share(owner string) float64 {
	if k.Limit == nil {
		return 0
	}
	return float64(k.Held[owner]) / k.weight(owner)
}

// MaxOwners returns how many owners one hand-on considers: 100, or twice the places of the limit if
// that is more, at most 1,000. A store reads one more, so that Hand sees whether there are more.
//
// A store that reads so many owners, and [PerOwner] jobs of each, may need several hand-ons for
// what one could do that reads the whole line.
func (k *Key) MaxOwners(key string) int {
	if k.Limit == nil {
		return fewOwners
	}
	return min(max(fewOwners, 2*k.Limit.Places(key)), manyOwners)
}

// InRound reports whether more owners than are considered waited at the last hand-on: then they
// are served in a round.
func (k *Key) InRound() bool { return len(k.Served) == 1 }

// Last returns the owner with whom the next hand-off begins, and how often it was served in a row.
// In a round that is the owner served last. Otherwise it is the first of the owners served least,
// and times is 0. Without owners it is "", which comes before all names.
func (k *Key) Last() (owner string, times int) {
	least, found := 0.0, false
	for o, n := range k.Served {
		if !found || n < least || n == least && o < owner {
			owner, least, found = o, n, true
		}
	}
	if k.InRound() {
		times = int(least)
	}
	return owner, times
}

// Trim sorts the line and keeps the first jobs of each owner, at most perOwner of them, and all
// jobs that keep turns. It notes in More which owners have more.
func (k *Key) Trim(perOwner int) {
	slices.SortFunc(k.Line, Waiter.Compare)
	seen := map[string]int{}
	k.More = map[string]bool{}
	k.Line = slices.DeleteFunc(k.Line, func(w Waiter) bool {
		if seen[w.Owner]++; seen[w.Owner] <= perOwner {
			return false
		}
		k.More[w.Owner] = true
		return len(w.Kept) == 0
	})
}

// PerOwner returns how many jobs of each owner a store reads where n jobs may go: twice the share
// of an owner, and enough that all owners together have [MinConsidered].
func PerOwner(n, owners int) int { return min(n, 1+max(2*n, MinConsidered)/max(1, owners)) }

// A line is the jobs that wait for a key: those that keep turns, and the others by owner.
type line struct {
	*Key
	keeping []Waiter
	waiting map[string][]Waiter
	round   *round // nil: the owners are few
}

// A round serves many owners one after the other, in the order of their names.
type round struct {
	place map[string]int // of each owner, counted from the owner served last
	last  string         // the owner served last
	times int            // how often it was served in a row
}

// newLine returns the line of a key. At most maxOwners of its owners are considered.
func newLine(k *Key, maxOwners int) *line {
	l := &line{Key: k, waiting: map[string][]Waiter{}}
	for _, w := range k.Line {
		ws := l.waiting[w.Owner]
		if len(w.Kept) > 0 {
			l.keeping = append(l.keeping, w)
		} else {
			ws = append(ws, w)
		}
		l.waiting[w.Owner] = ws
	}
	slices.SortFunc(l.keeping, Waiter.Compare)
	for owner := range k.More { // a waiter without a job stands for those that were not read
		l.waiting[owner] = append(l.waiting[owner], Waiter{Owner: owner})
	}
	switch n := len(l.waiting); {
	case n > maxOwners:
		l.startRound(maxOwners)
		return l
	case n < 2:
		k.Served = nil
		return l
	}
	if last, times := k.Last(); k.InRound() { // the round ends: owners after last have not had their turn in it
		k.Served = map[string]float64{last: float64(times) / k.weight(last)}
		for owner := range l.waiting {
			if owner != last {
				k.Served[owner] = 0
			}
			if owner < last {
				k.Served[owner] = 1
			}
		}
	}
	// An owner who comes back does not catch up on what others were given meanwhile.
	least := 0.0
	if len(k.Served) > 0 {
		least = slices.Min(slices.Collect(maps.Values(k.Served)))
	}
	served := map[string]float64{}
	for owner := range l.waiting {
		served[owner] = max(least, k.Served[owner])
	}
	k.Served = served
	return l
}

// startRound leaves maxOwners owners in the line, beginning with the owner served last.
func (l *line) startRound(maxOwners int) {
	r := &round{place: map[string]int{}}
	r.last, r.times = l.Last()
	owners := slices.Sorted(maps.Keys(l.waiting))
	first, _ := slices.BinarySearch(owners, r.last)
	for i := range maxOwners {
		r.place[owners[(first+i)%len(owners)]] = i
	}
	maps.DeleteFunc(l.waiting, func(owner string, _ []Waiter) bool {
		_, considered := r.place[owner]
		return !considered
	})
	l.round = r
}

// next returns the job that is next.
func (l *line) next() (first Waiter, found bool) {
	if len(l.keeping) > 0 {
		return l.keeping[0], true
	}
	for _, ws := range l.waiting {
		if len(ws) > 0 && (!found || l.before(ws[0], first)) {
			first, found = ws[0], true
		}
	}
	return first, found
}

// before reports whether a goes before b, which has another owner.
func (l *line) before(a, b Waiter) bool {
	x, y := a.Owner, b.Owner
	if l.round != nil {
		return cmp.Or(
			cmp.Compare(l.past(x), l.past(y)),
			cmp.Compare(math.Floor(l.share(x)), math.Floor(l.share(y))),
			cmp.Compare(l.distance(x), l.distance(y)),
		) < 0
	}
	return cmp.Or(
		cmp.Compare(l.share(x), l.share(y)),
		cmp.Compare(l.Served[x], l.Served[y]),
		a.Compare(b),
	) < 0
}

// past returns 1 for the owner served last, once it was served as often as its weight says: its
// part of the round is over.
func (l *line) past(owner string) int {
	if r := l.round; owner == r.last && float64(r.times) >= l.weight(owner) {
		return 1
	}
	return 0
}

// distance returns how many places owner comes after the owner served last. If that one has left
// the line, the owner after it comes first.
func (l *line) distance(owner string) int {
	r := l.round
	return (r.place[owner] - r.place[r.last] + len(r.place)) % len(r.place)
}

func (l *line) take(w Waiter) {
	if len(w.Kept) > 0 {
		l.keeping = l.keeping[1:]
		return
	}
	l.waiting[w.Owner] = l.waiting[w.Owner][1:]
}

// serve notes that a job goes. In a round a job that kept turns does not count: it was first
// whatever its owner.
func (l *line) serve(w Waiter) {
	r := l.round
	switch {
	case r == nil && l.Served != nil:
		l.Served[w.Owner] += 1 / l.weight(w.Owner)
	case r == nil, len(w.Kept) > 0:
	default:
		if w.Owner != r.last {
			r.last, r.times = w.Owner, 0
		}
		r.times++
		l.Served = map[string]float64{r.last: float64(r.times)}
	}
}
