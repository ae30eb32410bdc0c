package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// limitsAndOrders are what people say of limits in a world that has some, the orders in which jobs
// go, and what is looked at there.
type limitsAndOrders struct {
	w       *world
	limited bool // there are limits
	ordered bool // there are orders

	mu    sync.Mutex
	said  []rule               // guarded by mu: what was set, in order
	pass  map[job.ID]bool      // guarded by mu: jobs that let others of their order pass
	taken map[taking]time.Time // guarded by mu: when
	idle  map[string]time.Time // used by inspect: since when somebody waits beside a free place, by key
}

// A taking is that a new limit takes in a job that is under way: it counts, and needs no place.
type taking struct {
	job job.ID
	key string
}

// A rule is that so many jobs may have turns of a key, from a time on. It is of a key or of a
// family.
type rule struct {
	key  string
	most int // math.MaxInt: any number
	from time.Time
}

// named are keys that jobs name, and built those which each job has of which a limit is set.
var (
	named = []string{"disk", "gpu", "net/a", "net/b"}
	built = []string{"net/*", "kind/" + taskKind, "system/local", "user/*", "user/ann", "system/local/user/*", "tenant"}
)

// newLimitsAndOrders returns those of a world: one of two has limits, one of two orders; nil: it
// has neither. They are drawn apart from all else.
func newLimitsAndOrders(w *world) *limitsAndOrders {
	t := &limitsAndOrders{
		w: w, limited: !oneIn(w.dice("turns", 0), 2), ordered: oneIn(w.dice("orders", 0), 2),
		pass: map[job.ID]bool{}, taken: map[taking]time.Time{}, idle: map[string]time.Time{},
	}
	if !t.limited && !t.ordered {
		return nil
	}
	return t
}

// under puts a job under limits.
func (t *limitsAndOrders) under(n int, s *job.Spec) {
	if t == nil || !t.limited {
		return
	}
	r := t.w.dice("turns of", n)
	s.Owner = []string{"ann", "bob", "cid"}[r.IntN(3)]
	for _, key := range named {
		if oneIn(r, 3) {
			s.Limits = append(s.Limits, key)
		}
	}
	if oneIn(r, 8) {
		s.Unique = &job.Unique{Key: fmt.Sprint("one at a time ", r.IntN(2)), Until: job.WhileRunning}
	}
}

// change sets a limit, or takes one away.
func (t *limitsAndOrders) change(r *rand.Rand, least int) {
	keys := slices.Concat(named, named, built)
	key := keys[r.IntN(len(keys))]
	l := job.Limit{Key: key, Most: least + []int{0, 1, 1, 2, 3, 5}[r.IntN(6)]}
	if oneIn(r, 3) {
		l.Ahead = 1 + r.IntN(5)
	}
	if oneIn(r, 2) {
		l.Weights = map[string]int{"bob": 1 + r.IntN(4)}
	}
	remove := oneIn(r, 5)
	_ = t.w.people.ask(r, "limit", func(ctx context.Context, s *service.Service) error {
		if remove {
			return s.RemoveLimit(ctx, key)
		}
		return s.SetLimit(ctx, l)
	})
}

// act changes limits as long as the storm lasts.
func (t *limitsAndOrders) act() {
	for n := 1; t != nil && t.limited; n++ {
		r := t.w.dice("change", n)
		t.change(r, 0)
		time.Sleep(between(r, time.Millisecond, 20*time.Second))
		if time.Since(t.w.began) > t.w.length {
			return
		}
	}
}

// settle leaves limits with which all come to their end. With any rate they do.
func (t *limitsAndOrders) settle() {
	if t == nil {
		return
	}
	r := t.w.dice("settle limits", 0)
	for _, l := range t.limits() {
		if l.Per > 0 {
			continue
		}
		l.Most, l.Ahead = 3+r.IntN(4), 0
		_ = t.w.people.ask(r, "limit", func(ctx context.Context, s *service.Service) error { return s.SetLimit(ctx, l) })
	}
}

func (t *limitsAndOrders) limits() []job.Limit {
	all, err := t.w.store.Limits(context.Background(), tenant)
	if err != nil {
		panic(err)
	}
	return all
}

// say notes a rule at the moment in which it is committed.
func (t *limitsAndOrders) say(key string, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, rule{key, most, t.w.now()})
}

// takes notes that a limit takes in a job.
func (t *limitsAndOrders) takes(id job.ID, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken[taking{id, key}] = t.w.now()
}

// takenSince reports whether a limit has taken in a job that had got its turns before.
func (t *limitsAndOrders) takenSince(granted time.Time, id job.ID, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken[taking{id, key}].After(granted)
}

// may returns how many jobs may have turns of a key at some time between since and now: the most
// that anything said allowed.
func (t *limitsAndOrders) may(key string, since time.Time) (most int) {
	if job.Implied(key) != nil {
		return 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own, family := math.MaxInt, math.MaxInt // math.MaxInt: none is set
	decides := func() int {
		if own < math.MaxInt {
			return own
		}
		return family
	}
	for i, r := range t.said {
		switch r.key {
		case key:
			own = r.most
		case job.Family(key):
			family = r.most
		}
		if i+1 == len(t.said) || t.said[i+1].from.After(since) {
			most = max(most, decides())
		}
	}
	if len(t.said) == 0 || t.said[0].from.After(since) {
		return math.MaxInt
	}
	return most
}

// turns: by the account of those who run, no more run under a key than may. Only those count whose
// run it is by right: a handler that is frozen while others have its job has no turn.
func (l *ledger) turns(id job.ID) {
	t := l.w.turns
	if t == nil {
		return
	}
	l.follows(id)
	under := map[string]int{}
	oldest := map[string]time.Time{}
	count := func(j *job.Job) {
		for _, key := range keysOf(j) {
			granted := l.w.granted(j)
			if t.takenSince(granted, j.ID, key) {
				granted = time.Unix(0, 0) // the limit came later
			}
			if under[key]++; oldest[key].IsZero() || granted.Before(oldest[key]) {
				oldest[key] = granted
			}
		}
	}
	for id, runs := range l.runs {
		r := runs[len(runs)-1]
		if !r.ended.IsZero() || r.p.dead() {
			continue
		}
		if j := l.w.judge.rows(id)[id]; j.Custody == job.Worker && j.Epoch == r.epoch {
			count(&j)
		}
	}
	for id, starts := range l.launches {
		n := starts[len(starts)-1]
		if !n.ended.IsZero() {
			continue
		}
		if j := l.w.judge.rows(id)[id]; j.Live && j.Launch == n.Launch {
			count(&j)
		}
	}
	for key, n := range under {
		if most := t.may(key, oldest[key]); n > most {
			l.w.breaks(id, "with job %s, %d run under %s, and %d may", id, n, key, most)
		}
	}
}

// keysOf returns the keys of the turns that a job has while it runs.
func keysOf(j *job.Job) []string {
	if j.Order == "" {
		return j.Limits
	}
	return append([]string{j.Order}, j.Limits...)
}

// granted returns since when a job has its turns at the earliest. One that was passed over too
// often may have kept some of them while it stood in line for others.
func (w *world) granted(j *job.Job) (at time.Time) {
	var before time.Time
	for _, e := range w.history(j.ID) {
		switch {
		case e.Cause == job.CauseTurn && j.Passed > turns.MaxPassed:
			at = before
		case e.Cause == job.CauseTurn, at.IsZero():
			at = e.At
		}
		before = e.At
	}
	return at
}

// limit sets a limit, or takes it away.
func (g *judge) limit(key string, most int, call func() (store.Effects, error)) (store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	eff, err := call()
	if err == nil && g.w.turns != nil {
		g.w.turns.say(key, most)
	}
	return eff, err
}

func (g *judge) pay(ctx context.Context, l *link, limit int) (int, store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	return granting(g, func() (int, store.Effects, error) { return l.Store.Pay(ctx, limit) })
}

// granting judges a call that hands turns on: they go to as many as may have one, and within a
// line, of an owner, to who comes first; in that of an order to the first of all.
func granting[T any](g *judge, call func() (T, store.Effects, error)) (T, store.Effects, error) {
	if g.w.turns == nil {
		return call()
	}
	before := g.w.left()
	v, eff, err := handing(g, call)
	if err == nil {
		g.handed(before, g.rows(ids(before)...))
	}
	return v, eff, err
}

func ids(jobs []job.Job) (all []job.ID) {
	for i := range jobs {
		all = append(all, jobs[i].ID)
	}
	return all
}

func (g *judge) handed(before []job.Job, after map[job.ID]job.Job) {
	held, more := map[string]int{}, map[string]job.ID{}
	lines := map[string][]job.Job{} // as they were, by key and owner; those of orders by key
	for i := range before {
		was, is := &before[i], after[before[i].ID]
		for _, key := range slices.Concat(keysOf(&is), is.TurnKeys(job.TieAhead)) {
			if is.HasTurn(key) {
				held[key]++
				switch {
				case was.HasTurn(key):
				case slices.Contains(keysOf(was), job.LimitOf(key)):
					more[key] = is.ID
				default: // a limit that takes a job in grants nothing
					g.w.turns.takes(is.ID, job.LimitOf(key))
				}
			}
		}
		if line := was.Line; line != "" {
			if !job.Ordered(line) {
				line += " " + was.Owner
			}
			lines[line] = append(lines[line], *was)
		}
	}
	for key, id := range more {
		k := turns.Key{Limit: g.w.decides(key)}
		if k.Limit != nil && held[key] > k.Limit.Places(key) {
			g.w.breaks(id, "job %s got a turn of %s, of which there are %d now, and may be %d", id, key, held[key],
				k.Limit.Places(key))
		}
	}
	for _, line := range lines {
		slices.SortFunc(line, func(a, b job.Job) int {
			if job.Ordered(a.Line) && a.Rank != b.Rank {
				return strings.Compare(a.Rank, b.Rank)
			}
			x, y := turns.WaiterOf(&a), turns.WaiterOf(&b)
			switch keeps := len(x.Kept) > 0; { // who keeps turns goes first
			case keeps == (len(y.Kept) > 0):
				return x.Compare(y)
			case keeps:
				return -1
			}
			return 1
		})
		for i := range line {
			first := after[line[i].ID]
			if first.Line != line[i].Line { // it has gone, or met another key that is full
				continue
			}
			for j := range line[i+1:] {
				next := after[line[i+1+j].ID]
				went := next.Custody == job.Ready && slices.Equal(next.Limits, first.Limits)
				if job.Ordered(first.Line) {
					went = next.HasTurn(first.Line)
				}
				if went {
					g.w.breaks(first.ID, "job %s got a turn of %s before job %s, which stands before it", next.ID,
						first.Line, first.ID)
				}
			}
		}
	}
}

// decides returns the limit that decides on a key; nil: there is none.
func (w *world) decides(key string) *job.Limit {
	of := job.LimitOf(key)
	var found *job.Limit
	for _, l := range w.turns.limits() {
		if l.Key == of {
			return &l
		}
		if l.Key == job.Family(of) {
			found = &l
		}
	}
	if found == nil {
		found = job.Implied(key)
	}
	return found
}

// inspect: turns are those of the jobs that have them, nothing is to be repaired, and once what is
// owed is paid nobody waits beside a free place. That holds at every moment, whatever goes wrong.
func (t *limitsAndOrders) inspect() {
	if t == nil || len(t.w.left()) == 0 {
		return
	}
	ctx := context.Background()
	probe := fake.New(t.w.now)
	probe.Restore(t.w.store.Snapshot())
	if n, _, err := probe.Recount(ctx, 1000); err != nil || n != (store.Recounted{}) {
		t.w.breaks(job.ID{}, "turns are to be repaired: %+v, %v", n, err)
	}
	t.idles(probe)
	for more := true; more; {
		_, eff, err := probe.Pay(ctx, 1000)
		if err != nil {
			t.w.breaks(job.ID{}, "what is owed cannot be paid: %v", err)
			return
		}
		more = eff.Owed
	}
	t.w.free(probe, func(key string, first job.ID) {
		t.w.breaks(first, "job %s waits for %s, of which there is a free place, and nothing is owed", first, key)
	})
}

// idles: a place is free beside a line for no longer than a hand-on takes.
func (t *limitsAndOrders) idles(probe *fake.Store) {
	now := map[string]time.Time{}
	t.w.free(probe, func(key string, first job.ID) {
		if now[key] = t.idle[key]; now[key].IsZero() {
			now[key] = time.Now()
		}
		if waited := time.Since(now[key]); t.w.calm && waited > time.Second && time.Since(t.w.began) > 10*time.Second {
			t.w.breaks(first, "job %s waits for %s, of which there was a free place for %v although nothing was wrong", first, key, waited)
		}
	})
	t.idle = now
}

// free tells of each line that stands beside a free place, and of a job in it.
func (w *world) free(of *fake.Store, tell func(key string, first job.ID)) {
	ctx := context.Background()
	all, err := of.Turns(ctx, store.TurnQuery{Tenant: tenant, Limit: 1000})
	if err != nil {
		panic(err)
	}
	page, err := of.List(ctx, store.Query{Tenant: tenant, Limit: 1000})
	if err != nil {
		panic(err)
	}
	for _, u := range all {
		k := turns.Key{Limit: u.Limit, Held: map[string]int{}}
		waiting, has := 0, 0
		for _, s := range u.Owners {
			k.Held[s.Owner], waiting = s.Held, waiting+s.Waiting
		}
		var first job.ID
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if j.HasTurn(u.Key) {
				has++
			}
			if j.Line == u.Key {
				first = j.ID
			}
		}
		for _, held := range k.Held {
			has -= held
		}
		if has != 0 {
			w.breaks(first, "of %s jobs have %d turns more than there are", u.Key, has)
		}
		if waiting > 0 && k.Free(u.Key) > 0 {
			tell(u.Key, first)
		}
	}
}
