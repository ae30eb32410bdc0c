package store

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// A Gate is what who pays has read of some keys of a tenant, while nobody else pays there.
// [Gate.Hand] decides who goes.
//
// Between owners who wait in one line the place goes to whoever has the fewest turns of the key,
// measured by weight; where that is equal, to whoever was served least, by weight again. Among the
// jobs of an owner priority decides, then age. Where more owners wait than are looked at
// ([GateKey.Owners]), which are twice as many as there are places and more, they are served one
// after the other, by their names: each as often as its weight says, and those first who have the
// fewest turns.
//
// A job has all its turns or none. It waits in the line of the first of its keys that was full, and
// moves on where it meets another one. So two keys that are never free at the same moment would
// keep a job for ever that needs both: one that was passed over too often takes the turns that are
// free, in the order of the keys, and waits for the others with them. Since all do that in the same
// order, they never wait for each other in a circle. What it keeps nobody uses, so it goes first in
// the line where it stands, whoever else is there: it waits for the end of one job there, and no
// longer. In a line that is closed, for the limit is 0, it keeps nothing.
type Gate struct {
	Keys map[string]*GateKey // those that are handed on, and all others of those who wait for them
}

// A GateKey is a key with who has turns of it and who waits for one.
type GateKey struct {
	Limit *job.Limit     // that decides, [job.Implied] where none is set; nil: there is none
	Held  map[string]int // turns by owner, those included that are kept; not looked at where there is no limit
	// by owner, where several wait: how much was given to each, by weight; of many owners only who
	// came last, and how often
	Served map[string]float64
	Line   []Waiter        // who stands in its line: of each owner the first ones, and those who keep turns
	More   map[string]bool // owners of whom more may stand there
}

// A Waiter is a job that waits for its turn.
type Waiter struct {
	Job      job.ID
	Owner    string
	Priority int
	Created  int64    // time of submission, microseconds of Unix time
	Keys     []string // of all turns that it lacks, in their order
	Kept     []string // those that it has of them
	Passed   int
}

// WaiterOf returns a job as it stands in its line.
func WaiterOf(j *job.Job) Waiter {
	return Waiter{
		Job: j.ID, Owner: j.Owner, Priority: j.Priority, Created: j.Created.UnixMicro(),
		Keys: j.TurnKeys(j.Lacks(j.State)), Kept: j.Kept(), Passed: j.Passed,
	}
}

// Lacks returns the keys of the turns that w has not.
func (w Waiter) Lacks() []string { return without(w.Keys, w.Kept) }

// A Handing is what becomes of those who waited.
type Handing struct {
	Grant []job.ID
	Move  []Moving // to another line
	Left  []string // keys that are to be handed on again: not all of those who wait were looked at
}

// Moving is a job that goes to the line of another key; or that stays, and keeps no turns there.
type Moving struct {
	Job  job.ID
	Line string
	Keep []string // turns that it takes with it, beside those that it has
	Drop []string // turns that it gives back
}

const (
	// MostOwners is of how many owners of a line the jobs are looked at, or of twice as many as
	// there are places, but no more than manyOwners.
	MostOwners = 100
	manyOwners = 1000
	// Spread is how many jobs of a line are looked at, of its owners the same number, however few
	// may go.
	Spread = 60
	// MostPassed is how often a job is passed over before it keeps what it gets.
	MostPassed = 8
	// MostLooked is how many jobs of a line are looked at that cannot go.
	MostLooked = 100
)

// Hand hands free places of keys on, in their order, to no more than limit jobs.
func (g *Gate) Hand(keys []string, limit int) (h Handing) {
	for _, key := range keys {
		k := g.Keys[key]
		if k.Closed(key) {
			for _, w := range k.Line {
				if len(w.Kept) > 0 {
					h.Move = append(h.Move, Moving{Job: w.Job, Line: key, Drop: w.Kept})
				}
			}
		}
		if !k.free(key) {
			continue // what was served stands until somebody goes
		}
		line := newLine(k, k.Owners(key))
		for looked := 0; k.free(key); {
			w, found := line.next()
			if found && (w.Job.IsZero() || len(h.Grant) == limit || looked == MostLooked) || !found &&
				line.round != nil {
				h.Left = append(h.Left, key)
				found = false
			}
			if !found {
				break
			}
			line.take(w)
			full := slices.IndexFunc(w.Keys,
				func(other string) bool { return !slices.Contains(w.Kept, other) && !g.Keys[other].free(other) })
			if full >= 0 {
				m := Moving{Job: w.Job, Line: w.Keys[full]}
				switch {
				case g.Keys[m.Line].Closed(m.Line):
					m.Drop = w.Kept
				case w.Passed >= MostPassed:
					m.Keep = without(w.Keys[:full], w.Kept)
				}
				g.hold(w.Owner, m.Keep)
				h.Move = append(h.Move, m)
				looked++
				continue
			}
			g.hold(w.Owner, w.Lacks())
			line.serve(w)
			h.Grant = append(h.Grant, w.Job)
		}
	}
	// somebody in another line needed it, too
	h.Left = slices.DeleteFunc(h.Left, func(key string) bool { return !g.Keys[key].free(key) })
	return h
}

func without(list, some []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(some, s) })
}

func (g *Gate) hold(owner string, keys []string) {
	for _, key := range keys {
		if k := g.Keys[key]; k.Limit != nil {
			k.Held[owner]++
		}
	}
}

// Free returns how many more jobs may have turns of a key.
func (k *GateKey) Free(key string) int {
	if k.Limit == nil {
		return math.MaxInt
	}
	n := k.Limit.Places(key)
	for _, held := range k.Held {
		n -= held
	}
	return max(0, n)
}

func (k *GateKey) free(key string) bool { return k.Free(key) > 0 }

// Closed reports whether nobody gets a turn of a key, however many are given back.
func (k *GateKey) Closed(key string) bool { return k.Limit != nil && k.Limit.Places(key) == 0 }

func (k *GateKey) weight(owner string) float64 {
	if k.Limit == nil {
		return 1
	}
	return float64(k.Limit.Weight(owner))
}

// share is how much of the turns an owner has, by weight.
func (k *GateKey) share(owner string) float64 {
	if k.Limit == nil {
		return 0
	}
	return float64(k.Held[owner]) / k.weight(owner)
}

// Owners returns how many owners who wait for a key are looked at. Who reads no more than these,
// and of each no more than [Apiece], may hand on in several steps what who reads all does at once,
// and decides anew in each of them.
func (k *GateKey) Owners(key string) int {
	if k.Limit == nil {
		return MostOwners
	}
	return min(max(MostOwners, 2*k.Limit.Places(key)), manyOwners)
}

// Last returns who of many owners was served last, and how often, one time after the other: from
// him on they are looked at. Where they were few until now that is the first of those who were
// served least, and not yet. Empty: from the first on.
func (k *GateKey) Last() (owner string, times int) {
	least, found := 0.0, false
	for o, n := range k.Served {
		if !found || n < least || n == least && o < owner {
			owner, least, found = o, n, true
		}
	}
	if len(k.Served) == 1 {
		times = int(least)
	}
	return owner, times
}

// Many reports whether more owners waited in the line, when it was looked at last, than are looked
// at.
func (k *GateKey) Many() bool { return len(k.Served) == 1 }

// Cut puts who stands in the line in order, and leaves of each owner the first ones, no more than
// most; and those who keep turns.
func (k *GateKey) Cut(most int) {
	slices.SortFunc(k.Line, Waiter.Compare)
	seen := map[string]int{}
	k.More = map[string]bool{}
	k.Line = slices.DeleteFunc(k.Line, func(w Waiter) bool {
		if seen[w.Owner]++; seen[w.Owner] <= most {
			return false
		}
		k.More[w.Owner] = true
		return len(w.Kept) == 0
	})
}

// Apiece returns how many jobs of each owner are looked at, where so many in all are to go if they
// can: twice his share, and [Spread] of all together, for some may have to go to another line.
func Apiece(most, owners int) int { return min(most, 1+max(2*most, Spread)/max(1, owners)) }

// A line is who waits: those who keep turns, and the others by owner.
type line struct {
	*GateKey
	keeping []Waiter
	waiting map[string][]Waiter
	round   *round // of many owners; nil: they are few
}

// A round is how many owners are served: one after the other.
type round struct {
	place map[string]int // of each, from who was served last on
	last  string         // who was served last
	times int            // how often, one time after the other
}

// newLine returns the line of a key, of which so many owners are looked at.
func newLine(k *GateKey, most int) *line {
	l := &line{GateKey: k, waiting: map[string][]Waiter{}}
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
	for owner := range k.More { // whose turn it is when this one comes first is not known here
		l.waiting[owner] = append(l.waiting[owner], Waiter{Owner: owner})
	}
	switch n := len(l.waiting); {
	case n > most:
		l.goRound(most)
		return l
	case n < 2:
		k.Served = nil
		return l
	}
	if last, times := k.Last(); k.Many() { // they were many: who had his turn in this round comes after who had not
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
	// Who comes back has no claim to what was given to others meanwhile.
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

// goRound has the owners served one after the other, from who was served last on, and looks at so
// many of them.
func (l *line) goRound(most int) {
	r := &round{place: map[string]int{}}
	r.last, r.times = l.Last()
	owners := slices.Sorted(maps.Keys(l.waiting))
	first, _ := slices.BinarySearch(owners, r.last)
	for i := range most {
		r.place[owners[(first+i)%len(owners)]] = i
	}
	maps.DeleteFunc(l.waiting, func(owner string, _ []Waiter) bool {
		_, looked := r.place[owner]
		return !looked
	})
	l.round = r
}

// next returns who is first.
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

func (l *line) before(a, b Waiter) bool {
	x, y := a.Owner, b.Owner
	if l.round != nil {
		return cmp.Or(
			cmp.Compare(l.past(x), l.past(y)),
			cmp.Compare(math.Floor(l.share(x)), math.Floor(l.share(y))),
			cmp.Compare(l.turn(x), l.turn(y)),
		) < 0
	}
	return cmp.Or(
		cmp.Compare(l.share(x), l.share(y)),
		cmp.Compare(l.Served[x], l.Served[y]),
		a.Compare(b),
	) < 0
}

// past returns 1 for who was served last, if that was as often as his weight says: his turn in the
// round is past.
func (l *line) past(owner string) int {
	if r := l.round; owner == r.last && float64(r.times) >= l.weight(owner) {
		return 1
	}
	return 0
}

// turn returns how many owners there are in the round from who was served last to one.
func (l *line) turn(owner string) int {
	r := l.round // who was served last may be gone: then the one after him is the first
	return (r.place[owner] - r.place[r.last] + len(r.place)) % len(r.place)
}

// Compare orders the jobs of an owner.
func (w Waiter) Compare(o Waiter) int {
	return cmp.Or(cmp.Compare(w.Priority, o.Priority), cmp.Compare(w.Created, o.Created),
		bytes.Compare(w.Job[:], o.Job[:]))
}

func (l *line) take(w Waiter) {
	if len(w.Kept) > 0 {
		l.keeping = l.keeping[1:]
		return
	}
	l.waiting[w.Owner] = l.waiting[w.Owner][1:]
}

// serve notes that a job goes. One that kept turns goes whosever turn it is in a round.
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
