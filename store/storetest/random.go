package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var randomTests = []test{
	{"any order of calls leaves sound jobs", randomCalls},
	{"any filter chooses what it matches, in any order and by pages of any size", listAny},
}

// over ends the use of a store. One that has a method Over is left to other tests by it.
func over(s store.Store) {
	if l, lent := s.(interface{ Over() }); lent {
		l.Over()
		return
	}
	s.Close()
}

// randomCalls makes calls in random order. After each change of a worker or a watcher the row must
// be what package job makes of it; after all of them the histories must be sound and nothing may be
// left that nobody would move on.
func randomCalls(w *world) {
	open, parent := w.open, w.t
	rapid.Check(parent, func(t *rapid.T) {
		s, clock := open(parent)
		defer over(s)
		m := &machineOfCalls{
			world: &world{TB: t, s: s, clock: clock, ctx: parent.Context()},
			t:     t, refs: map[job.ID]job.Change{}, answers: map[job.ID]store.Applied{},
			created: map[job.ID]bool{}, stood: map[job.ID]job.Job{},
		}
		m.limit(most("gpu", 2))
		m.begin()
		t.Repeat(map[string]func(*rapid.T){
			"":        m.held,
			"submit":  m.submit,
			"claim":   m.claim,
			"change":  m.change,
			"repeat":  m.repeat,
			"wish":    m.wish,
			"advance": m.advance,
			"due":     func(*rapid.T) { m.due() },
			"pay":     m.payOnce,
			"expire":  func(*rapid.T) { m.world.expire() },
			"clear":   m.clear,
			"begin":   func(*rapid.T) { m.begin() },
			"end":     m.endOne,
			"limit":   m.setLimit,
			"settle":  func(*rapid.T) { m.settle() },
		})
		m.settle() // while jobs still stand in lines
		m.world.limit(most("gpu", 2), most("disk", 1), most("tenant", 3), most(ofTask, 2), most("user/*", 3))
		m.drain()
		m.settle()
	})
}

type machineOfCalls struct {
	*world
	t        *rapid.T
	ids      []job.ID
	sessions []job.ID // begun and not ended; some may have expired
	claims   []store.Claim
	refs     map[job.ID]job.Change // the newest change of each job that was applied
	answers  map[job.ID]store.Applied

	created map[job.ID]bool    // in order by their submission
	stood   map[job.ID]job.Job // as they were after the last call
}

func (m *machineOfCalls) begin() { m.sessions = append(m.sessions, m.session()) }

func draw[T any](t *rapid.T, what string, from []T) T { return rapid.SampledFrom(from).Draw(t, what) }

// held is the invariant after each call: every row agrees with itself, who is ready lacks no turn,
// nobody got one beyond a limit, and of an order the first goes.
func (m *machineOfCalls) held(*rapid.T) {
	for _, j := range listAll(m, m.s, store.Query{Tenant: acme}) {
		checkRow(m, &j)
	}
	// turns by key: all of them, and one that was got by the last call
	have, got := map[string]int{}, map[string]job.ID{}
	first := map[string]job.ID{} // of those that go by their submission, in line by order
	open := slices.DeleteFunc(slices.Clone(m.ids), func(id job.ID) bool { return m.stood[id].State.Terminal() })
	for _, j := range m.jobs(open...) {
		id := j.ID
		was, known := m.stood[id]
		m.stood[id] = j
		for _, key := range j.Turns() {
			if have[key]++; m.gotTurn(&was, &j, key) {
				got[key] = id
			}
		}
		if j.Custody == job.Ready && j.Lacks(j.State) != 0 {
			m.Fatalf("job %s is at %s, and lacks turns of %q", id, j.Place, j.TurnKeys(j.Lacks(j.State)))
		}
		if j.Order != "" && j.Ties&job.TieOrder == 0 && (j.Custody == job.Worker || j.Custody == job.Monitor) {
			m.Fatalf("job %s is at %s, and is not the one that goes of %s", id, j.Place, j.Order)
		}
		if !m.created[id] {
			continue
		}
		before, waits := first[j.Order]
		switch {
		case waits && j.Ties&job.TieOrder != 0 && was.Ties&job.TieOrder == 0:
			m.Fatalf("job %s goes before job %s, which stands before it in the line of %s", id, before, j.Order)
		// it was in line already, or came there as a new job
		case !waits && j.Line == j.Order && (!known || was.Line == j.Line):
			first[j.Order] = id
		}
	}
	all, err := m.s.Turns(m.ctx, store.TurnQuery{Tenant: acme, Limit: 1000})
	if err != nil {
		m.Fatalf("turns: %v", err)
	}
	for _, t := range all {
		n := 0
		for _, s := range t.Owners {
			n += s.Held
		}
		if n != have[t.Key] {
			m.Fatalf("%s: %d turns, and %d jobs have one", t.Key, n, have[t.Key])
		}
		if id, more := got[t.Key]; more && t.Limit != nil && n > t.Limit.Places(t.Key) {
			m.Fatalf("job %s got a turn of %s, of which there are %d now, and may be %d", id, t.Key, n,
				t.Limit.Places(t.Key))
		}
		delete(have, t.Key)
	}
	if len(have) > 0 {
		m.Fatalf("nobody knows of the turns %v", have)
	}
}

// gotTurn reports whether a job got its turn of a key since it was seen last. Who comes under a
// limit later has one without getting it.
func (m *machineOfCalls) gotTurn(was, is *job.Job, key string) bool {
	switch {
	case was.N == 0:
		return true
	case !was.HasTurn(key):
		return key == is.Order || slices.Contains(was.Limits, job.LimitOf(key))
	case is.N < was.N+2 || slices.Contains(was.Kept(), key):
		return false
	}
	return slices.ContainsFunc(m.history(is.ID), func(e job.Event) bool { // it gave one back, and got another one
		return e.N > was.N && e.Cause == job.CauseTurn && e.Custody == job.Ready
	})
}

// setLimit sets a limit, or takes one away.
func (m *machineOfCalls) setLimit(t *rapid.T) {
	key := draw(t, "key", []string{"gpu", "disk", "tenant", ofTask, "user/*"})
	if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
		if _, err := store.RemoveLimit(m.ctx, m.s, acme, key); err != nil {
			m.kind(err, job.NotFound)
		}
		return
	}
	l := most(key, rapid.IntRange(0, 3).Draw(t, "most"))
	if rapid.Bool().Draw(t, "weighed") {
		l.Weights = map[string]int{"bob": rapid.IntRange(1, 3).Draw(t, "weight")}
	}
	m.set(l)
}

// submit submits up to three jobs at once.
func (m *machineOfCalls) submit(t *rapid.T) {
	jobs := make([]store.New, rapid.IntRange(1, 3).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = m.drawn(t)
	}
	for i, got := range m.world.submit(jobs...) {
		n := jobs[i].Job
		if got.Existed != (got.ID != n.ID) {
			m.Fatalf("answer %+v to the submission of job %s", got, n.ID)
		}
		if got.Existed {
			continue
		}
		m.ids = append(m.ids, got.ID)
		m.created[got.ID] = n.Order != "" && n.Rank == ""
	}
}

func (m *machineOfCalls) drawn(t *rapid.T) store.New {
	n := newTask(on(machine), withPriority(rapid.IntRange(0, 9).Draw(t, "priority")))
	if rapid.Bool().Draw(t, "program") {
		n = newProgram(on(machine))
	}
	if rapid.IntRange(0, 3).Draw(t, "delay") == 0 {
		n.Delay = time.Minute
	}
	if len(m.ids) > 0 && rapid.Bool().Draw(t, "waits") {
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids), 1, min(3, len(m.ids)),
			rapid.ID[job.ID]).Draw(t, "for") {
			need := draw(t, "need", []job.Need{job.NeedFinished, job.NeedEnded})
			n.After = append(n.After, store.After{Job: id, Need: need})
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "unique") == 0 {
		unique(draw(t, "mode", []job.UniqueMode{job.UntilStart, job.UntilDone}), draw(t, "key", []string{"a", "b"}))(&n)
	}
	if rapid.IntRange(0, 2).Draw(t, "order") == 0 {
		key, by := draw(t, "of", []string{"a", "b"}), draw(t, "by", []string{"created", "due"})
		inOrder(job.Order{
			Key: key, By: by,
			Failing: draw(t, "failing", []job.OrderFailing{job.OrderBlock, job.OrderPass}),
		}, "")(&n)
	}
	if rapid.IntRange(0, 2).Draw(t, "limit") == 0 {
		under(draw(t, "under", [][]string{
			{"gpu"},
			{"disk"},
			{"disk", "gpu"},
			{"disk", "gpu", "unique/send/a"},
			{"unique/send/a"},
		})...)(&n)
	}
	if rapid.IntRange(0, 2).Draw(t, "owner") == 0 {
		ownedBy("bob")(&n)
	}
	if rapid.Bool().Draw(t, "as it is") {
		asItIs(&n)
	}
	return n
}

func (m *machineOfCalls) claim(t *rapid.T) {
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	c := wanted(draw(t, "session", m.sessions), rapid.IntRange(1, 4).Draw(t, "slots"))
	again := false
	if len(m.claims) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		c, again = m.claims[len(m.claims)-1], true
	}
	jobs, err := m.s.Claim(m.ctx, c)
	if err != nil {
		m.kind(err, job.Fenced)
		return
	}
	for _, j := range jobs {
		if j.Session != c.Session || j.Claim != c.ID || j.Custody != job.Worker {
			m.Fatalf("claim answers %+v", j)
		}
	}
	if !again {
		m.claims = append(m.claims, c)
	}
}

// steps are the ways in which workers and watchers move jobs on.
func steps(j job.Job) []job.Change {
	f := by(j.Session)
	set := setting
	switch {
	case j.Custody == job.Worker && !j.Program():
		return []job.Change{
			finish(j, f), set(move(j, f, job.None, job.Failed), job.Patch{Clear: true}),
			move(j, f, job.Ready, job.Pending), move(j, f, job.Worker, job.Running),
			set(move(j, f, job.Worker, job.Running), job.Patch{Clear: true}),
			move(j, f, job.Worker, job.Running, job.Running),
			set(move(j, f, job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Minute}),
			move(j, f, job.Recovery, job.Blocked),
		}
	case j.Custody == job.Worker:
		changes := []job.Change{
			set(move(j, f, job.None, job.Failed), job.Patch{Over: true}), move(j, f, job.Recovery, job.Blocked),
			move(j, f, job.Ready, j.State),
		}
		switch j.State {
		case job.ProcessingInputs:
			changes = append(changes, set(move(j, f, job.Worker, job.StagingInputs), job.Patch{Clear: true}),
				move(j, f, job.Worker, job.StagingInputs, job.StagingJob))
		case job.StagingInputs:
			changes = append(changes, move(j, f, job.Worker, job.StagingJob))
		case job.StagingJob:
			changes = append(changes, move(j, f, job.Worker, job.SubmittingJob))
		case job.SubmittingJob:
			if j.Live {
				return append(changes, move(j, f, job.Monitor, job.Queued), move(j, f, job.Monitor, job.Running),
					set(move(j, f, job.Worker, job.SubmittingJob), job.Patch{Over: true}))
			}
			changes = append(changes, set(move(j, f, job.Worker, job.SubmittingJob), job.Patch{Intent: true}),
				set(move(j, f, job.Gate, job.SubmittingJob), job.Patch{Delay: time.Minute}))
		case job.Archiving:
			changes = append(changes, set(finish(j, f), job.Patch{Over: true}))
		}
		return changes
	case j.Custody == job.Monitor:
		return []job.Change{
			move(j, f, job.Monitor, job.Running),
			set(move(j, f, job.Ready, job.Archiving), job.Patch{Over: true}),
			set(move(j, f, job.Gate, job.Waiting), job.Patch{Over: true, Retry: true, Delay: time.Minute}),
			set(move(j, f, job.None, job.Failed), job.Patch{Over: true}),
		}
	case j.Custody == job.Recovery:
		return []job.Change{
			move(j, f, job.Ready, j.Resume),
			set(move(j, f, job.None, job.Failed), job.Patch{Over: true}),
		}
	}
	return nil
}

func (m *machineOfCalls) change(t *rapid.T) {
	var changes []job.Change
	for _, j := range m.jobs(m.ids...) {
		for _, c := range steps(j) {
			if c.Check() == nil {
				changes = append(changes, c)
			}
		}
	}
	if len(changes) == 0 {
		t.Skip("nothing can change")
	}
	m.make(t, draw(t, "change", changes))
}

// make applies c and compares the row with what package job makes of it.
func (m *machineOfCalls) make(t *rapid.T, c job.Change) {
	if c.From.Place.Custody != job.Worker {
		watcher := m.session()
		c.From.Fence = m.duty(watcher, "watch "+watcher.String())
		defer m.end(watcher)
	}
	before := m.job(c.Job)
	got := m.apply(c)
	if got.Outcome == store.Fenced {
		// Only a session whose lease is over is fenced here.
		if _, err := m.s.Renew(m.ctx, renewal(c.From.Fence.Session)); err == nil {
			m.Fatalf("change %+v is fenced and its session lives", c)
		}
		m.untouched(before)
		return
	}
	after := m.job(c.Job)
	diverted, bent := job.Divert(&before, c)
	want, _ := before.Apply(diverted, after.Since)
	at := want.Guard(c.From.Fence)
	for want.Line != "" && want.N < after.N { // what it waits for there was free, and was handed on to it at once
		want, _ = want.Apply(job.Granted(&want), after.Since)
	}
	if bent != (got.Outcome == store.Diverted) || !bent && got.Outcome != store.OK {
		m.Fatalf("change %+v is answered %s; diverted by %q: %t", c, got.Outcome, before.Wish, bent)
	}
	if diff := cmp.Diff(want, after, sameJob, ignoreTimes, ignoreTies, ignoreLine); diff != "" {
		m.Fatalf("change %+v, diverted %t (-want +got):\n%s", c, bent, diff)
	}
	if !sameGuard(got.Now, at) {
		m.Fatalf("change %+v is answered %+v, want %+v", c, got.Now, at)
	}
	m.refs[c.Job], m.answers[c.Job] = c, got
}

// sameGuard compares what is a condition in guards.
func sameGuard(a, b job.Guard) bool {
	a.Limited = b.Limited
	return a == b
}

// ignoreTies leaves out what a store may clean up on its own account.
var ignoreTies = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Ties" }, cmp.Ignore())

// ignoreLine leaves out in which line a job waits: it may have met another limit that is full.
var ignoreLine = cmp.FilterPath(func(p cmp.Path) bool {
	return p.Last().String() == ".Line" ||
		p.Last().String() == ".Passed"
}, cmp.Ignore())

func (m *machineOfCalls) repeat(t *rapid.T) {
	if len(m.refs) == 0 {
		t.Skip("no change yet")
	}
	changed := slices.SortedFunc(maps.Keys(m.refs), func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	id := draw(t, "job", changed)
	before := m.job(id)
	got, want := m.apply(m.refs[id]), m.answers[id]
	if got.Outcome != want.Outcome || !sameGuard(got.Now, want.Now) {
		m.Fatalf("change %+v: answered %+v, at first %+v", m.refs[id], got, want)
	}
	m.untouched(before)
}

func (m *machineOfCalls) wish(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job")
	}
	id, wish := draw(t, "job", m.ids), draw(t, "wish", []job.Wish{job.WishCancel, job.WishPause, job.WishResume})
	before := m.job(id)
	got := m.world.wish(wish, id)
	after := m.job(id)
	switch {
	case got.Err != nil:
		m.kind(got.Err, job.Conflict)
		m.untouched(before)
	case got.Place != after.Place:
		m.Fatalf("wish to %s: answered %+v, the job is at %s", wish, got, after.Place)
	case before.State.Terminal() && after.Place != before.Place:
		m.Fatalf("wish to %s moved an ended job to %s", wish, after.Place)
	case before.Live && after.State == job.Canceled:
		m.Fatalf("a live launch was canceled")
	case wish == job.WishCancel && !got.Done && after.Wish != job.WishCancel:
		m.Fatalf("wish to cancel: answered %+v, and %q stands on the row", got, after.Wish)
	}
}

func (m *machineOfCalls) advance(t *rapid.T) {
	m.clock.Advance(draw(t, "by", []time.Duration{time.Second, lease / 2, lease + margin, time.Minute}))
}

func (m *machineOfCalls) payOnce(t *rapid.T) {
	if _, _, err := m.s.Pay(m.ctx, rapid.IntRange(1, 5).Draw(t, "limit")); err != nil {
		m.Fatalf("pay: %v", err)
	}
}

// settle pays all that is owed. Nobody waits beside a free place then.
func (m *machineOfCalls) settle() {
	m.pay()
	checkTurns(m.world)
}

func (m *machineOfCalls) clear(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job")
	}
	before := m.job(draw(t, "job", m.ids))
	lost := before
	lost.Epoch -= int64(rapid.IntRange(0, 3).Draw(t, "epochs ago"))
	m.world.clear(lost)
	want, _ := before.Cleared(lost.Epoch)
	m.sameBut(before, want.Suspect, want.Lane)
}

func (m *machineOfCalls) endOne(t *rapid.T) {
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	i := rapid.IntRange(0, len(m.sessions)-1).Draw(t, "session")
	m.world.end(m.sessions[i])
	m.sessions = slices.Delete(m.sessions, i, i+1)
}

// drain brings every job to its end: whatever was done before, each must have somebody who moves it
// on.
func (m *machineOfCalls) drain() {
	for _, s := range m.sessions {
		m.world.end(s)
	}
	for range 500 {
		m.clock.Advance(2 * time.Minute)
		m.due()
		m.pay()
		m.world.expire()
		session := m.session()
		m.world.claim(wanted(session, 100))
		open := 0
		for _, id := range m.ids {
			if m.stood[id].State.Terminal() {
				continue
			}
			j := m.job(id)
			m.stood[id] = j
			if j.State.Terminal() {
				continue
			}
			open++
			switch j.Custody {
			case job.User:
				m.world.wish(job.WishResume, id)
			case job.Worker, job.Monitor, job.Recovery:
				c := setting(move(j, by(session), job.None, job.Failed), job.Patch{Over: true})
				if j.Custody != job.Worker {
					c.From.Fence = m.duty(session, watch)
				}
				m.apply(c)
			}
		}
		m.world.end(session)
		if open == 0 {
			return
		}
	}
	m.Fatalf("jobs are left that nobody moves on")
}
