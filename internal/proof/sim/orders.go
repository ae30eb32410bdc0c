package sim

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// put puts a job in order with others.
func (t *limitsAndOrders) put(n int, id job.ID, s *job.Spec) {
	if t == nil || !t.ordered {
		return
	}
	r := t.w.dice("order of", n)
	if oneIn(r, 3) {
		return
	}
	key := r.IntN(4)
	o := &job.Order{Key: fmt.Sprint("order ", key), By: []string{"", "created", "due", "args.Every"}[key]}
	if oneIn(r, 10) { // it compares with nothing that the others go by, and has its place all the same
		o.By = []string{"created", "due", "args.Fails", "args.lacks"}[r.IntN(4)]
	}
	if s.Kind == "" && strings.HasPrefix(o.By, "args.") { // a program has none
		o.By = "due"
	}
	if oneIn(r, 2) {
		o.Failing = []job.OrderFailing{job.OrderBlock, job.OrderPass}[r.IntN(2)]
	}
	s.Order = o
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass[id] = o.Failing == job.OrderPass
}

// passes reports whether a job lets others of its order pass, as whoever submitted it said.
func (t *limitsAndOrders) passes(id job.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pass[id]
}

// commit makes a call of the store while nobody else does, and looks on.
func commit[T any](g *judge, call func() (T, store.Effects, error)) (T, store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	return handing(g, call)
}

// handing looks at the orders before and after a call of the store.
func handing[T any](g *judge, call func() (T, store.Effects, error)) (T, store.Effects, error) {
	if t := g.w.turns; t == nil || !t.ordered {
		return call()
	}
	before := g.w.left()
	v, eff, err := call()
	if err == nil {
		g.orders(before, g.w.all())
	}
	return v, eff, err
}

// orders: one job of an order goes at a time, until it has ended or lets others pass; and it was
// the first of those who waited.
func (g *judge) orders(before, after []job.Job) {
	is, heads := map[job.ID]*job.Job{}, map[string]job.ID{}
	for i := range after {
		j := &after[i]
		is[j.ID] = j
		other, taken := heads[j.Order]
		switch {
		case j.Order == "":
		case j.Ties&job.TieOrder == 0:
			if j.Custody == job.Ready || j.Custody == job.Worker || j.Custody == job.Monitor {
				g.w.breaks(j.ID, "job %s is at %s, and is not the one that goes of %s", j.ID, j.Place, j.Order)
			}
		case taken:
			g.w.breaks(j.ID, "of %s go both job %s and job %s", j.Order, j.ID, other)
		case j.State.Terminal():
			g.w.breaks(j.ID, "job %s is %s, and still the one that goes of %s", j.ID, j.State, j.Order)
		default:
			heads[j.Order] = j.ID
		}
	}
	for key, id := range g.heads {
		if j := is[id]; heads[key] != id && j != nil && !j.State.Terminal() &&
			(!g.w.turns.passes(id) || j.Custody != job.Gate && j.Custody != job.Recovery && j.Custody != job.User) {
			g.w.breaks(id, "job %s is at %s, and has lost its place in %s", id, j.Place, key)
		}
	}
	for key, id := range heads {
		if g.heads[key] == id {
			continue
		}
		for i := range before {
			was := &before[i]
			if was.ID != id && was.Line == key && is[was.ID].Line == key && precedes(was, is[id]) {
				g.w.breaks(id, "job %s goes before job %s, which stood before it in the line of %s", id, was.ID, key)
			}
		}
	}
	g.heads = heads
}

// precedes reports whether a stands before b in the line of their order, whoever their owners are.
func precedes(a, b *job.Job) bool {
	return cmp.Or(strings.Compare(a.Rank, b.Rank), cmp.Compare(a.Priority, b.Priority),
		a.Created.Compare(b.Created)) < 0
}

// follows: by the account of those who run, nobody of an order begins before the one has ended that
// began before it, but for those who let others pass.
func (l *ledger) follows(id job.ID) {
	j := l.w.judge.rows(id)[id]
	if j.Order == "" || !l.rightly(&j) {
		return
	}
	last := l.newest[j.Order]
	l.newest[j.Order] = id
	if before, there := l.w.judge.rows(last)[last]; there && last != id && !before.State.Terminal() &&
		!l.w.turns.passes(last) {
		l.w.breaks(id, "job %s begins, and job %s, which began before it in %s, is %s", id, last, j.Order, before.Place)
	}
}

// rightly reports whether what runs of j last is what the database knows of.
func (l *ledger) rightly(j *job.Job) bool {
	if runs := l.runs[j.ID]; len(runs) > 0 {
		return j.Custody == job.Worker && j.Epoch == runs[len(runs)-1].epoch
	}
	starts := l.launches[j.ID]
	return len(starts) > 0 && j.Live && j.Launch == starts[len(starts)-1].Launch
}

// checkOrders: of jobs that go by their submission, and that waited for nothing else, the earlier
// one went first.
func (w *world) checkOrders(there map[job.ID]job.Job) {
	type first struct {
		id job.ID
		at time.Time // when it went; zero: it did not
		in time.Time // when it was submitted
	}
	lines := map[string][]first{} // in the order of submission
	for _, p := range w.people.promised {
		j, known := there[p.id]
		if !known || j.Order == "" || len(p.after) > 0 {
			continue
		}
		f := first{id: j.ID, in: j.Created}
		skip := false
		for _, e := range w.history(j.ID) {
			if e.Sub == 0 && (e.State == job.Paused || !e.State.Terminal() && e.Cause == job.CauseDue) &&
				f.at.IsZero() {
				skip = true // it was out of line for a while
			}
			if e.State == job.Pending && f.at.IsZero() {
				f.at = e.At
			}
		}
		spec, err := job.ParseSpec(j.Request)
		if err != nil {
			panic(err)
		}
		if skip || f.at.IsZero() || spec.Delay > 0 || spec.Order.By != "" && spec.Order.By != "created" {
			continue
		}
		for _, before := range lines[j.Order] {
			if before.in.Before(f.in) && before.at.After(f.at) {
				w.breaks(j.ID, "job %s went at %v, before job %s, which was submitted earlier to %s and went at %v",
					j.ID, f.at.Sub(w.zero), before.id, j.Order, before.at.Sub(w.zero))
			}
		}
		lines[j.Order] = append(lines[j.Order], f)
	}
}
