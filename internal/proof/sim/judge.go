package sim

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A judge looks on while the store commits, and knows what the store should have answered.
type judge struct {
	w *world

	sessions map[job.ID]*process       // who began a session
	made     map[changed]job.Change    // changes that were committed
	answers  map[changed]store.Outcome // and how they were answered
	claims   map[job.ID]bool           // that were made before
	terms    map[string]store.Duty     // the newest holding of each duty
	holders  map[string]job.ID         // and the session that has it
	loose    map[job.ID]bool           // sessions of which a claim went astray: they may hold strangers
	lanes    map[job.ID]job.Lane       // in which jobs were claimed last
	past     []job.Job                 // as they were claimed
	removed  map[job.ID]bool           // jobs
	bad      map[job.ID]bool           // jobs of which a change is refused for good
	heads    map[string]job.ID         // who goes, by order
	equals   map[equal][]job.ID        // jobs that were made with a unique key
}

// equal is what jobs have in common of which there is one at a time.
type equal struct {
	kind string
	store.Unique
}

type changed struct {
	job      job.ID
	epoch, n int64
}

func newJudge(w *world) *judge {
	return &judge{
		w: w, sessions: map[job.ID]*process{}, made: map[changed]job.Change{}, answers: map[changed]store.Outcome{},
		claims: map[job.ID]bool{}, terms: map[string]store.Duty{},
		holders: map[string]job.ID{}, loose: map[job.ID]bool{}, lanes: map[job.ID]job.Lane{},
		removed: map[job.ID]bool{}, bad: map[job.ID]bool{},
		heads: map[string]job.ID{}, equals: map[equal][]job.ID{},
	}
}

// submit: of a unique key there is one job that has not been started, or has not ended. Who submits
// another one is answered with it, and with no other.
func (g *judge) submit(ctx context.Context, l *link, sub store.Submission) ([]store.Submitted, store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	answers, eff, err := handing(g, func() ([]store.Submitted, store.Effects, error) {
		return l.Store.Submit(ctx, sub)
	})
	if err != nil {
		return answers, eff, err
	}
	for i, a := range answers {
		n := &sub.Jobs[i]
		for _, u := range n.Unique {
			k := equal{n.Job.Kind, u}
			switch {
			case a.ID == n.Job.ID && !a.Existed:
				g.equals[k] = append(g.equals[k], a.ID)
				if hold := g.having(k); len(hold) > 1 {
					g.w.breaks(a.ID, "jobs %v are there, and %s %s says that there is one until it is %s", hold,
						k.kind, k.Key, k.Mode)
				}
			case a.ID != n.Job.ID && sub.Key == "" && n.Job.ExternalID == "" && !slices.Contains(g.having(k), a.ID):
				g.w.breaks(a.ID, "job %s is answered with job %s, which does not have %s", n.Job.ID, a.ID, k.Key)
			}
		}
	}
	return answers, eff, err
}

// having returns the jobs that have a unique key now.
func (g *judge) having(k equal) (hold []job.ID) {
	rows := g.rows(g.equals[k]...)
	for _, id := range g.equals[k] {
		j, there := rows[id]
		started := slices.ContainsFunc(g.w.history(id), func(e store.Event) bool { return e.Custody == job.Worker })
		if there && !j.State.Terminal() && (k.Mode == job.UntilDone || !started) {
			hold = append(hold, id)
		}
	}
	return hold
}

func (g *judge) begin(p *process, id job.ID) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	g.sessions[id] = p
}

// live are the sessions that are alive now.
func (g *judge) live() map[job.ID]bool {
	all, _ := g.w.store.Sessions(context.Background())
	live := map[job.ID]bool{}
	for i := range all {
		live[all[i].ID] = all[i].Live
	}
	return live
}

// rows returns jobs as they stand now.
func (g *judge) rows(ids ...job.ID) map[job.ID]job.Job {
	found, _ := g.w.store.Find(context.Background(), store.FindQuery{IDs: ids})
	rows := map[job.ID]job.Job{}
	for _, j := range found {
		rows[j.ID] = j
	}
	return rows
}

func (g *judge) renew(ctx context.Context, l *link, r store.Renew) (store.Renewal, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	a, err := l.Store.Renew(ctx, r)
	a.Due, a.NextExpiry = l.later(a.Due), l.later(a.NextExpiry)
	for _, d := range a.Duties {
		if d.Term > g.terms[d.Name].Term {
			g.terms[d.Name], g.holders[d.Name] = d, r.Session
		}
	}
	return a, err
}

// claim: a claim that is repeated is answered as before, and a session holds no more than it has
// slots for.
func (g *judge) claim(ctx context.Context, l *link, c store.Claim) ([]job.Job, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	return g.claimed(ctx, l, c, func() ([]job.Job, error) { return l.Store.Claim(ctx, c) })
}

// claimed makes a claim, and judges it.
func (g *judge) claimed(ctx context.Context, l *link, c store.Claim, call func() ([]job.Job, error)) ([]job.Job,
	error,
) {
	before, _ := l.Store.Find(ctx, store.FindQuery{Session: c.Session})
	again := map[job.ID]bool{}
	for i := range before {
		if before[i].Claim == c.ID {
			again[before[i].ID] = true
		}
	}
	jobs, err := call()
	if err != nil {
		return jobs, err
	}
	if g.claims[c.ID] {
		repeated := len(again) > 0
		// it claims anew, and may not be heard
		g.loose[c.Session] = g.loose[c.Session] || len(again) == 0 && len(jobs) > 0
		for i := range jobs {
			if len(again) > 0 && !again[jobs[i].ID] {
				g.w.breaks(jobs[i].ID, "claim %s is repeated, and answered with another job than before: %s", c.ID,
					jobs[i].ID)
			}
			delete(again, jobs[i].ID)
		}
		for id := range again {
			g.w.breaks(id, "claim %s is repeated, and its job %s is left out", c.ID, id)
		}
		if repeated {
			return jobs, nil
		}
	}
	g.claims[c.ID] = true
	for i := range jobs {
		g.lanes[jobs[i].ID] = jobs[i].Lane
		g.past = append(g.past, jobs[i])
	}
	held, _ := l.Store.Find(ctx, store.FindQuery{Session: c.Session})
	used := g.used(held)
	for i := range jobs {
		j := &jobs[i]
		if most := g.slots(j.Lane); used[j.Lane] > most && !g.loose[c.Session] {
			g.w.breaks(j.ID, "session %s holds %d jobs of lane %v and has %d slots", c.Session, used[j.Lane],
				j.Lane, most)
		}
	}
	return jobs, nil
}

// used counts the slots that jobs have. One that has come to a state of another lane has its slot
// there, if one is free.
func (g *judge) used(held []job.Job) map[job.Lane]int {
	used := map[job.Lane]int{}
	var moved []job.Job
	for _, j := range held {
		if lane := g.lanes[j.ID]; lane == j.Lane || lane == job.LaneAlone {
			used[lane]++
		} else {
			moved = append(moved, j)
		}
	}
	for _, j := range moved {
		if lane := j.Lane; used[lane] < g.slots(lane) {
			used[lane]++
		} else {
			used[g.lanes[j.ID]]++
		}
	}
	return used
}

func (g *judge) slots(l job.Lane) int {
	if l == job.LaneAlone {
		return 1
	}
	return g.w.lanes[l]
}

// suspicion: who comes back from a lost lease takes the suspicion from the jobs that it had, unless
// they have moved on.
func (g *judge) suspicion(j *job.Job) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	const soon = 2 * time.Minute
	var taken job.Event // from its holder, when it was taken last
	var holder, last job.ID
	for _, e := range g.w.history(j.ID) {
		switch e.Cause {
		case job.CauseClaim:
			holder, _ = job.ParseID(e.Actor)
		case job.CauseExpired:
			taken, last = e.Event, holder
		}
	}
	p := g.sessions[last]
	if p == nil || !p.well(soon) || g.w.now().Sub(taken.At) < soon || j.Epoch-taken.Epoch > 2 {
		return
	}
	g.w.breaks(j.ID, "job %s is suspected, and %s, which had it in epoch %d, is well", j.ID, p.name, taken.Epoch)
}

// apply: only who has a job, and knows where it stands, changes it; and a change that was made
// before is answered as it was then. Of a claim along holds what holds of a claim, but that a
// session that is not alive is answered, and claims nothing.
func (g *judge) apply(ctx context.Context, l *link, cs []job.Change,
	along *store.Claim,
) (answers []store.Applied, jobs []job.Job, eff store.Effects, err error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	both := func() (jobs []job.Job, err error) {
		answers, eff, err = g.applied(cs, func() (a []store.Applied, eff store.Effects, err error) {
			a, jobs, eff, err = l.Store.Apply(ctx, cs, along)
			return a, eff, err
		})
		return jobs, err
	}
	if along != nil && g.live()[along.Session] {
		jobs, err = g.claimed(ctx, l, *along, both)
		return answers, jobs, eff, err
	}
	jobs, err = both()
	for i := range jobs {
		g.w.breaks(jobs[i].ID, "job %s is claimed along, and no session that is alive asked for that", jobs[i].ID)
	}
	return answers, jobs, eff, err
}

// applied makes changes, and judges what they came to.
func (g *judge) applied(cs []job.Change, call func() ([]store.Applied, store.Effects, error)) ([]store.Applied,
	store.Effects, error,
) {
	ids := make([]job.ID, len(cs))
	for i, c := range cs {
		ids[i] = c.Job
		if g.bad[c.Job] && c.Set.Result != nil {
			return nil, store.Effects{}, job.Errorf(job.Invalid, "the store cannot take the result of job %s", c.Job)
		}
	}
	before, live := g.rows(ids...), g.live()
	answers, eff, err := granting(g, call)
	if err != nil {
		return answers, eff, err
	}
	for i, a := range answers {
		c, was := cs[i], before[cs[i].Job]
		at := changed{c.Job, c.From.Epoch, c.From.N}
		made, known := g.made[at]
		same := known && reflect.DeepEqual(made, c)
		f := c.From.Fence
		alive, decides := live[f.Session], was.Custody == job.Worker && was.Session == f.Session
		if f.Duty != "" {
			alive = g.terms[f.Duty].Term == f.Term && live[g.holders[f.Duty]]
			decides = was.Custody == job.Monitor
		}
		want := store.OK
		switch _, bent := job.Divert(&was, c); {
		case same:
			want = g.answers[at]
		case was.State == "", was.Epoch != c.From.Epoch, !alive, !decides:
			want = store.Fenced
		case was.N != c.From.N || was.Place != c.From.Place:
			want = store.Conflict
		case bent:
			want = store.Diverted
		}
		if was.State == "" && same { // it was removed meanwhile
			want = store.Fenced
		}
		if a.Outcome != want {
			g.w.breaks(c.Job, "a change of job %s from %s epoch %d n %d is answered %s, want %s: it stood at %s "+
				"epoch %d n %d, was made before %t, and %q is alive %t and has it %t",
				c.Job, c.From.Place, c.From.Epoch, c.From.N, a.Outcome, want, was.Place, was.Epoch, was.N, same,
				f.Actor(), alive, decides)
		}
		if !same && (a.Outcome == store.OK || a.Outcome == store.Diverted) {
			g.made[at], g.answers[at] = c, a.Outcome
		}
	}
	return answers, eff, err
}

func (g *judge) remove(ctx context.Context, l *link, tenant string, ids []job.ID) ([]error, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	before := g.rows(ids...)
	answers, err := l.Store.Remove(ctx, tenant, ids)
	for i, e := range answers {
		if e == nil {
			g.removed[ids[i]] = true
			if s := before[ids[i]].State; !s.Terminal() {
				g.w.breaks(ids[i], "job %s was removed while it was %s", ids[i], s)
			}
		}
	}
	return answers, err
}

// gone reports whether a job was removed.
func (g *judge) gone(id job.ID) bool {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	return g.removed[id]
}

// refuse has the store refuse the result of a job.
func (g *judge) refuse(id job.ID) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	g.bad[id] = true
}
