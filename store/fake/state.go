package fake

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// State is the whole content of a store: see [Store.Snapshot]. It is safe for concurrent use.
type State struct {
	rows      []*row // by number, which is the order of submission; nil: it has been removed
	events    []*event
	jobs      map[job.ID]*row
	external  map[name]job.ID    // by external id
	unique    map[unique]job.ID  // the job that has the key
	calls     map[name]keyed     // by idempotency key
	edges     map[job.ID][]edge  // the jobs that wait for a job's end, in the order of submission
	owed      []debt             // oldest first
	limits    map[name]job.Limit // by key
	walks     map[name]walk      // of those that take in the jobs which are there
	turns     map[name][]turn    // by key; a list is never changed
	served    map[name]map[string]float64
	rates     map[name]job.ID // of limits that are rates: see [store.Reserved]
	anew      int             // how often a rate was set
	moments   map[name]moments
	groups    map[name]groups.Group // never changed in place
	shut      map[name]int          // how many places groups leave a line that they close
	shutting  map[name]time.Time    // lines that may be closed or open since
	sessions  map[job.ID]session    // as they were told, and begun
	duties    map[string]duty
	resources map[resource]store.Resource

	// What follows is made from the rows.
	at      map[spot][]*row // those that have not ended, each list in the order in which they are claimed
	waiting map[name]int    // how many jobs of a queue are in custody gate or ready
}

// A row is a version of a job. It is never changed: another one takes its place.
type row struct {
	job.Job
	fingerprint [32]byte
	seq         int // its place in rows, from 1
	newest      int // the place of its newest event in events, from 1
	notes       int // events of users and its own
	keys        []store.Unique
	after       []job.ID // what it waited for when it was submitted
}

// An event is a row of history. It is never changed once its call is over.
type event struct {
	job.Event
	tenant string
	before int         // the place of the event before it of the same job; 0: it is the first
	change *job.Change // if it is the last entry of a change by a session or a duty: that change, as it was asked for
	key    string
}

type (
	session = store.SessionInfo // without Live, Held and Oldest

	name     struct{ tenant, name string }
	resource struct{ tenant, kind, name string }
	unique   struct {
		tenant, kind string
		store.Unique
	}
	edge struct {
		job  job.ID
		need job.Need
	}
	keyed struct {
		digest string
		jobs   []job.ID
		at     time.Time
	}
	debt struct {
		job job.ID // that owes it to its dependants; zero: it is owed to the jobs that wait for turns of a key
		key name
		at  time.Time
	}
	turn struct {
		job   job.ID
		owner string
	}
	walk struct {
		after int // the number of the last job that was looked at
		at    time.Time
	}
	moments struct {
		next time.Time // the one after those that were given
		rate job.ID
	}
	duty struct {
		term   int64
		holder job.ID
	}
)

// A spot is where jobs are that are looked for together.
type spot struct {
	custody     job.Custody
	queue, kind string   // of jobs in custody ready
	machine     string   // of these
	watch       string   // of jobs in custody monitor
	lane        job.Lane // of those in custody ready
	session     job.ID   // of those in custody worker
	// of those in custody gate: the key for whose turn they wait; of those in custody recovery
	// their group
	line name
}

func (r *row) spot() spot {
	switch r.Custody {
	case job.Ready:
		return spot{custody: r.Custody, queue: r.Queue, kind: r.Kind, machine: r.Machine, lane: r.Lane}
	case job.Monitor:
		return spot{custody: r.Custody, watch: r.Watch}
	case job.Worker:
		return spot{custody: r.Custody, session: r.Session}
	case job.Gate:
		return spot{custody: r.Custody, line: r.line()}
	case job.Recovery:
		return spot{custody: r.Custody, line: r.group()}
	}
	return spot{custody: r.Custody}
}

// line is where a job waits for its turn.
func (r *row) line() name {
	if r.Line == "" {
		return name{}
	}
	return name{r.Tenant, r.Line}
}

// group is the group of a job that is blocked.
func (r *row) group() name { return name{r.Tenant, r.Group} }

// compare orders lines by queue, kind and machine.
func (a spot) compare(b spot) int {
	return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.kind, b.kind),
		strings.Compare(a.machine, b.machine), strings.Compare(a.watch, b.watch),
		cmp.Compare(a.lane, b.lane), bytes.Compare(a.session[:], b.session[:]), a.line.compare(b.line))
}

// compare orders jobs as they are claimed, and in the line of an order as they go.
func (r *row) compare(o *row) int {
	rank := 0
	if job.Ordered(r.Line) {
		rank = strings.Compare(r.Rank, o.Rank)
	}
	return cmp.Or(rank, cmp.Compare(r.Priority, o.Priority), r.Created.Compare(o.Created), cmp.Compare(r.seq, o.seq))
}

func newState() *State {
	return &State{
		jobs: map[job.ID]*row{}, external: map[name]job.ID{}, unique: map[unique]job.ID{}, calls: map[name]keyed{},
		edges:    map[job.ID][]edge{},
		sessions: map[job.ID]session{}, duties: map[string]duty{}, resources: map[resource]store.Resource{},
		limits: map[name]job.Limit{}, walks: map[name]walk{}, turns: map[name][]turn{},
		served: map[name]map[string]float64{},
		rates:  map[name]job.ID{}, moments: map[name]moments{},
		groups: map[name]groups.Group{}, shut: map[name]int{}, shutting: map[name]time.Time{},
		at: map[spot][]*row{}, waiting: map[name]int{},
	}
}

func (s *State) clone() *State {
	c := &State{
		rows: slices.Clone(s.rows), events: slices.Clone(s.events), jobs: maps.Clone(s.jobs),
		external: maps.Clone(s.external),
		unique:   maps.Clone(s.unique), calls: maps.Clone(s.calls), edges: maps.Clone(s.edges),
		owed:     slices.Clone(s.owed),
		sessions: maps.Clone(s.sessions), duties: maps.Clone(s.duties), resources: maps.Clone(s.resources),
		limits: maps.Clone(s.limits), walks: maps.Clone(s.walks), turns: maps.Clone(s.turns),
		served: maps.Clone(s.served),
		rates:  maps.Clone(s.rates), anew: s.anew, moments: maps.Clone(s.moments),
		groups: maps.Clone(s.groups), shut: maps.Clone(s.shut), shutting: maps.Clone(s.shutting),
		at: map[spot][]*row{}, waiting: map[name]int{},
	}
	for id, list := range c.edges { // they grow in place
		c.edges[id] = slices.Clone(list)
	}
	for _, r := range c.rows {
		c.enter(r)
	}
	return c
}

// swap puts a version of a job in the place of another, until the call fails. Nil stands for a job
// that is not there.
func (t *tx) swap(old, next *row) {
	t.replace(old, next)
	t.undo = append(t.undo, func() { t.replace(next, old) })
}

func (s *State) replace(old, next *row) {
	s.leave(old)
	s.enter(next)
	switch {
	case next == nil:
		s.rows[old.seq-1] = nil
		delete(s.jobs, old.ID)
	case next.seq > len(s.rows):
		s.rows = append(s.rows, next)
		s.jobs[next.ID] = next
	default:
		s.rows[next.seq-1] = next
		s.jobs[next.ID] = next
	}
}

// enter puts a row into the indexes of those that have not ended.
func (s *State) enter(r *row) {
	if r == nil || r.Custody == job.None {
		return
	}
	at := r.spot()
	list := s.at[at]
	i, _ := slices.BinarySearchFunc(list, r, (*row).compare)
	s.at[at] = slices.Insert(list, i, r)
	s.waits(r, 1)
}

// leave takes a row out of these.
func (s *State) leave(r *row) {
	if r == nil || r.Custody == job.None {
		return
	}
	at := r.spot()
	list := s.at[at]
	switch i, _ := slices.BinarySearchFunc(list, r, (*row).compare); {
	case len(list) == 1:
		delete(s.at, at)
	case i == 0: // most are taken from the front
		list[0] = nil
		s.at[at] = list[1:]
	default:
		s.at[at] = slices.Delete(list, i, i+1)
	}
	s.waits(r, -1)
}

func (s *State) waits(r *row, n int) {
	if r.Custody == job.Gate || r.Custody == job.Ready {
		s.waiting[name{r.Tenant, r.Queue}] += n
	}
}

// spots returns where there are jobs in a custody, in order.
func (s *State) spots(c job.Custody) []spot {
	var all []spot
	for at := range s.at {
		if at.custody == c {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, spot.compare)
	return all
}

// held returns the jobs of a session.
func (s *State) held(session job.ID) []*row { return s.at[spot{custody: job.Worker, session: session}] }

// firstDue returns when the first job behind a schedule gate is due, or in a group; zero: there is
// none.
func (s *State) firstDue() time.Time {
	var first store.Effects
	for _, r := range s.at[spot{custody: job.Gate}] {
		first.Soon(r.Due)
	}
	for _, g := range s.groups {
		first.Soon(g.Wake())
	}
	for at, rows := range s.at {
		if at.custody == job.Recovery {
			g := s.groups[at.line]
			for _, r := range rows {
				first.Soon(g.Fails(r.Deadline()))
			}
		}
	}
	return first.Due
}

// copyOf returns a deep copy of a job.
func copyOf(j job.Job) job.Job {
	j.Limits = slices.Clone(j.Limits)
	j.Labels = maps.Clone(j.Labels)
	j.Notes, j.Request, j.Resolved = slices.Clone(j.Notes), slices.Clone(j.Request), slices.Clone(j.Resolved)
	j.Work, j.Result = slices.Clone(j.Work), slices.Clone(j.Result)
	return j
}
