package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// TestEveryHistory walks random lives of a job, the way a store and everybody who hands it changes
// would, and looks after each change whether what must always hold still does.
func TestEveryHistory(t *testing.T) {
	seen := map[string]bool{} // places and turns, over all walks
	rapid.Check(t, func(t *rapid.T) {
		h := history{now: noon, seen: seen}
		h.submit(t)
		for range 300 {
			h.move(t)
			h.rest(t)
		}
	})
	for _, s := range job.States {
		for _, c := range job.Places(s) {
			p := job.Place{State: s, Custody: c}
			if !seen[p.String()] {
				t.Errorf("no walk came to %s", p)
			}
		}
	}
	for _, turn := range []string{"worker > ready", "worker > user", "worker > none", "monitor > user", "monitor > none"} {
		if !seen[turn] {
			t.Errorf("no wish diverted a change: %s", turn)
		}
	}
}

// history is a job, and the clock of its database.
type history struct {
	job  job.Job
	now  time.Time
	seen map[string]bool
}

// oneOf draws from a list. Each element is as likely as the others; rapid.SampledFrom leans to the
// first.
func oneOf[T any](t *rapid.T, label string, list ...T) T {
	return rapid.Custom(func(t *rapid.T) T {
		i := 0
		for range 12 {
			i <<= 1
			if rapid.Bool().Draw(t, "bit") {
				i++
			}
		}
		return list[i%len(list)]
	}).Draw(t, label)
}

// rarely draws true one time in n.
func rarely(t *rapid.T, label string, n int) bool {
	return oneOf(t, label, append(make([]bool, n-1), true)...)
}

func (h *history) submit(t *rapid.T) {
	h.job = job.Job{
		ID:          job.NewID(),
		Kind:        oneOf(t, "kind", job.KindApp, job.KindApp, "mail"),
		Attempt:     1,
		MaxAttempts: oneOf(t, "attempts", 1, 2, 5),
		Needs:       oneOf(t, "needs", 0, 0, 0, 0, 0, 0, 1, 2),
		Ties:        job.Ties(oneOf(t, "ties", 0, 1, 2, 4, 7)),
		Since:       h.now,
		N:           1,
	}
	if rarely(t, "scheduled", 4) {
		h.job.Due = h.now.Add(time.Hour)
	}
	h.job.Place = job.Next(&h.job, job.Pending, h.now)
	if h.job.Program() && h.job.State == job.Pending && rarely(t, "staged", 2) {
		h.job.State = job.SubmittingJob // few walks from the beginning get beyond it
	}
	h.job.Lane = job.LaneOf(h.job.State, h.job.Program(), 0)
}

// apply does what a store does with a change that has passed the guard, and checks the change.
func (h *history) apply(t *rapid.T, c job.Change) {
	t.Helper()
	before := h.job
	c.Job, c.From = before.ID, before.Guard(job.Fence{})
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	nothingLive := c.Set.Over || !before.Live && !c.Set.Intent
	leaves := c.To != before.Custody && (before.Custody == job.Worker || before.Custody == job.Monitor)

	c, diverted := job.Divert(&h.job, c)
	if err := c.Check(); err != nil {
		t.Fatalf("diverted: %v: %v", diverted, err)
	}
	after, entries := h.job.Apply(c, h.now)
	if diff := cmp.Diff(before, h.job); diff != "" {
		t.Fatalf("the row before is written over:\n%s", diff)
	}
	h.job = after
	h.seen[after.Place.String()] = true
	if diverted {
		h.seen[string(before.Custody)+" > "+string(after.Custody)] = true
	}
	t.Logf("%s to %s (diverted: %v): %+v", before.Place, after.Place, diverted, entries)

	if before.State.Terminal() {
		t.Fatalf("%s is followed by %s", before.State, after.State)
	}
	stands := before.Place
	for i, e := range entries {
		if !job.Edge(stands.State, e.State) {
			t.Fatalf("the history goes from %s to %s", stands.State, e.State)
		}
		stands.State = e.State
		if i == len(entries)-1 {
			stands.Custody = after.Custody
		}
		if !stands.Legal() {
			t.Fatalf("the history passes %s", stands)
		}
	}
	if stands != after.Place {
		t.Fatalf("the history ends at %s, and the job stands at %s", stands, after.Place)
	}
	if moved := after.Custody != before.Custody; after.Epoch-before.Epoch != one(moved) {
		t.Fatalf("from %s to %s the epoch goes from %d to %d", before.Place, after.Place, before.Epoch, after.Epoch)
	}
	if after.N != before.N+int64(len(entries)) {
		t.Fatalf("%d entries take n from %d to %d", len(entries), before.N, after.N)
	}
	if leaves && nothingLive && before.Wish == job.WishCancel && after.State != job.Canceled {
		t.Fatalf("a cancel was wished, and nothing runs, and the job goes from %s to %s", before.Place, after.Place)
	}
	if leaves && nothingLive && before.Wish == job.WishPause && after.State != job.Paused && !after.State.Terminal() && after.Custody != job.Monitor {
		t.Fatalf("a pause was wished, and nothing runs, and the job goes from %s to %s", before.Place, after.Place)
	}
	if d := after.Attempt - before.Attempt; d < 0 || d > 1 || after.Attempt > after.MaxAttempts || d == 1 && (after.State.Terminal() || after.State.Working()) {
		t.Fatalf("from %s to %s the attempt goes from %d to %d of %d", before.Place, after.Place, before.Attempt, after.Attempt, after.MaxAttempts)
	}
	if d := after.Launch - before.Launch; int64(d) != one(c.Set.Intent) {
		t.Fatalf("the launch goes from %d to %d", before.Launch, after.Launch)
	}
	if owes := len(job.Owes(&before, &after)) > 0; owes != (after.State.Terminal() && after.Ties&job.TieDependants != 0) {
		t.Fatalf("from %s to %s its dependants are told: %v", before.Place, after.Place, owes)
	}
	h.rest(t)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// rest checks what holds of every job at every time.
func (h *history) rest(t *rapid.T) {
	t.Helper()
	j := &h.job
	resumes := j.State == job.Blocked || j.State == job.Paused
	for _, rule := range []struct {
		holds bool
		name  string
	}{
		{j.Place.Legal(), "a job stands at a legal place"},
		{!j.State.Terminal() || !j.Live, "nothing of a terminal job runs"},
		{j.Custody != job.User || !j.Live, "nothing of a paused job runs"},
		{j.Custody != job.Monitor || j.Live, "a watcher has something to watch"},
		{(j.Group != "") == (j.State == job.Blocked), "a blocked job, and no other, waits with its group"},
		{j.Until.IsZero() || j.State == job.Blocked, "who is not blocked has no time to fail at"},
		{(j.Resume != "") == resumes, "a job that is held, and no other, knows where to go on"},
		{!resumes || job.Resumable(j.Resume) && job.Edge(j.State, j.Resume), "work can go on there"},
		{!j.State.Terminal() || j.Wish == "", "no wish stands on a terminal job"},
		{j.State != job.Paused || j.Wish == "", "a pause that is granted is no wish any more"},
		{j.Wish != job.WishResume, "a resume never stands"},
		{j.Wish == "" || j.Live || j.Custody == job.Worker || j.Custody == job.Monitor, "a wish that can be obeyed does not wait"},
		{j.Session.IsZero() == (j.Custody != job.Worker) && j.Claim.IsZero() == j.Session.IsZero(), "a worker's job has a holder, and no other has"},
		{j.State.Terminal() == !j.Ended.IsZero(), "a terminal job knows when it ended"},
		{!j.State.Terminal() || j.Code.Known(), "a terminal job says why"},
		{j.Due.IsZero() || j.Custody == job.Gate || j.Custody == job.User, "only a gate needs a time"},
		{j.State != job.Waiting || j.Needs > 0 || !j.Due.IsZero(), "a job waits for something"},
		{j.Custody != job.Gate || j.State == job.Waiting || !j.Due.IsZero() && !j.Live, "a job waits for its moment until that comes, and nothing of it runs"},
		{j.State != job.Pending || j.Needs == 0, "a job whose prerequisites have not ended does not go on"},
		{j.Lane == job.LaneOf(j.State, j.Program(), j.Suspect), "the lane follows from the state and from suspicion"},
		{j.Program() || !j.Live && j.Custody != job.Monitor, "a task launches nothing"},
	} {
		if !rule.holds {
			t.Fatalf("%s: %+v", rule.name, *j)
		}
	}
}

// move makes one of the moves that the custody of the job allows. A job that has ended makes room
// for the next.
func (h *history) move(t *rapid.T) {
	type moves []func(*rapid.T)
	cancel := func(t *rapid.T) { h.wish(t, job.WishCancel) }
	pause := func(t *rapid.T) { h.wish(t, job.WishPause) }
	resume := func(t *rapid.T) { h.wish(t, job.WishResume) }
	var often, seldom moves
	switch h.job.Custody {
	case job.Gate:
		often, seldom = moves{h.passTime, h.endPrerequisite}, moves{pause, cancel}
	case job.Ready:
		often, seldom = moves{h.claim}, moves{pause, resume, cancel}
	case job.Worker:
		often, seldom = moves{h.step}, moves{h.failAttempt, h.expire, pause, resume, cancel}
	case job.Monitor:
		often, seldom = moves{h.step}, moves{pause, resume, cancel}
	case job.Recovery:
		often, seldom = moves{h.release}, moves{pause, cancel}
	case job.User:
		often, seldom = moves{resume}, moves{h.passTime, h.endPrerequisite, cancel}
	case job.None:
		often, seldom = moves{h.submit}, moves{h.tryAfterTheEnd}
	}
	if rarely(t, "seldom", 4) {
		often = seldom
	}
	oneOf(t, "move", often...)(t)
}

// open opens the gate, if nothing closes it any more.
func (h *history) open(t *rapid.T) {
	if p := job.Next(&h.job, h.job.Opened(), h.now); h.job.Custody == job.Gate && p != h.job.Place {
		h.apply(t, job.Change{Path: path(p.State), To: p.Custody})
	}
}

func (h *history) passTime(t *rapid.T) {
	h.now = h.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute)
	h.open(t)
}

func (h *history) endPrerequisite(t *rapid.T) {
	if h.job.Needs == 0 {
		return
	}
	if rarely(t, "fails", 10) {
		h.apply(t, job.Change{Path: []job.Entry{{State: job.Canceled, Code: job.PrerequisiteFailed}}, To: job.None})
		return
	}
	h.job.Needs--
	h.open(t)
}

func (h *history) claim(t *rapid.T) {
	to := job.Claimed(h.job.State, h.job.Program())
	h.apply(t, job.Change{Path: path(to), To: job.Worker, Set: job.Patch{Session: job.NewID(), Claim: job.NewID()}})
}

// step makes a random change that a kind may ask for: any path in the tables, less what the kind of
// the job never does.
func (h *history) step(t *rapid.T) {
	j := &h.job
	c := job.Change{To: j.Custody}
	if j.Custody == job.Worker && j.State == job.SubmittingJob && !j.Live && !rarely(t, "not yet", 3) {
		c.Path, c.Set.Intent = path(job.SubmittingJob), true
		h.apply(t, c)
		return
	}
	stands := j.Place
	for range oneOf(t, "steps", 0, 0, 1, 2, 3) {
		var on []job.State
		for _, s := range job.Edges(stands.State) {
			if h.own(stands.State, s) && (job.Place{State: s, Custody: j.Custody}).Legal() {
				on = append(on, s)
			}
		}
		if len(on) == 0 {
			break
		}
		stands.State = oneOf(t, "through", on...)
		c.Path = append(c.Path, job.Entry{State: stands.State})
	}
	end := oneOf(t, "end", h.ends(stands.State)...)
	last := job.Entry{State: end.State, Message: "so it goes"}
	c.To = end.Custody

	submits := slices.ContainsFunc(append(c.Path, last), func(e job.Entry) bool { return e.State == job.SubmittingJob })
	ended := slices.ContainsFunc(append(c.Path, last), func(e job.Entry) bool { return e.State == job.Archiving || e.State == job.Finished })
	if submits && j.Program() && !j.Live {
		c.Set.Intent = oneOf(t, "intent", true, true, false)
	}
	switch alive := j.Live || c.Set.Intent; {
	case end.Custody == job.Monitor:
		if !alive {
			return // nothing to watch
		}
	case alive && (ended || end.Custody == job.None || j.Custody == job.Monitor):
		c.Set.Over = true // who lets go of a launch, or goes on to what follows it, has seen its end
	case alive:
		c.Set.Over = oneOf(t, "over", true, false, false)
	}
	switch end.State {
	case job.Finished:
		last.Code = job.NormalCompletion
	case job.Failed:
		last.Code = job.ProgramFailed
	case job.Canceled:
		last.Code = job.PrerequisiteFailed
	case job.Blocked:
		last.Code, c.Set.Block = job.FilesystemFull, block()
		if c.Set.Resume = job.Pending; j.Program() {
			c.Set.Resume = oneOf(t, "resume", steps...)
		}
	case job.Waiting:
		c.Set.Delay = time.Duration(oneOf(t, "hours", 0, 1, 2)) * time.Hour
	}
	if end.Custody == job.Gate && end.State != job.Waiting {
		c.Set.Delay = time.Minute // until its moment comes
	}
	c.Path = append(c.Path, last)
	c.Set.Clear = oneOf(t, "clear", true, false)
	h.apply(t, c)
	if c.Set.Clear && h.job.Suspect != 0 {
		t.Fatalf("a step came to its end, and its job is suspected %d times", h.job.Suspect)
	}
}

// ends lists where a change may end that has come to a state. Ways ahead are listed more often than
// others, and failures less, or few walks would get far.
func (h *history) ends(from job.State) []job.Place {
	var ends []job.Place
	for _, s := range job.Edges(from) {
		weight := 2
		switch {
		case !h.own(from, s):
			continue
		case s.Working() && s != from:
			weight = 6
		case s == job.Failed, s == job.Canceled:
			weight = 1
		}
		for _, c := range job.Places(s) {
			if c == job.Worker && h.job.Custody != c || h.job.Program() && s == job.Running && c != job.Monitor || !h.job.Program() && c == job.Monitor {
				continue
			}
			ends = append(ends, slices.Repeat([]job.Place{{State: s, Custody: c}}, weight)...)
		}
	}
	return ends
}

// own reports whether the kind of the job asks for the edge from one state to another. A person
// alone pauses. A task has no working state but RUNNING. A worker has a program RUNNING only on its
// way to the watcher or to ARCHIVING, and a program that ran is archived.
func (h *history) own(from, to job.State) bool {
	launches := h.job.Program() && h.job.Custody == job.Worker
	switch {
	case to == job.Paused:
		return false
	case !h.job.Program():
		return to == job.Running || !to.Working()
	case launches && from == job.Running:
		return to == job.Archiving
	case launches && to == job.Running:
		return from == job.SubmittingJob
	}
	return from != job.Running || to != job.Finished
}

func (h *history) failAttempt(t *rapid.T) {
	if h.job.Live {
		return // its launch may still run
	}
	p := job.RetryPolicy{Backoff: job.Backoff{
		Kind: job.BackoffExponential, Base: job.Duration(time.Duration(oneOf(t, "base", 0, 10, 60)) * time.Minute),
	}}
	h.apply(t, job.Retry(&h.job, job.Fence{}, p, job.Entry{Code: job.TaskFailed, Message: "boom"}, 0.5))
}

func (h *history) expire(t *rapid.T) {
	if rarely(t, "worn", 10) {
		h.job.Recoveries = job.MaxRecoveries
	}
	if rarely(t, "suspected", 5) {
		h.job.Suspect = oneOf(t, "times", 1, 2, 4)
		h.job.Lane = job.LaneOf(h.job.State, h.job.Program(), h.job.Suspect)
	}
	before, crashed := h.job, oneOf(t, "crashed", true, false)
	h.apply(t, job.Expired(&h.job, crashed))
	if n := h.job.Suspect - before.Suspect; int64(n) != one(crashed) {
		t.Fatalf("a session ends (crashed: %v) and its job is suspected %d times more", crashed, n)
	}
	if poison := crashed && h.job.Suspect >= job.PoisonAt && !before.Live && before.Wish != job.WishCancel; poison != (h.job.Code == job.Poison) {
		t.Fatalf("suspected %d times, live: %v, and it goes to %s (%s)", h.job.Suspect, before.Live, h.job.Place, h.job.Code)
	}
}

func (h *history) release(t *rapid.T) {
	if !h.job.Live && rarely(t, "hopeless", 4) {
		h.apply(t, job.Change{Path: []job.Entry{{State: job.Failed, Code: job.RecoveryTimeout}}, To: job.None})
		return
	}
	h.apply(t, job.Change{Path: path(h.job.Resume), To: job.Ready})
}

// wish does what a store does with a wish.
func (h *history) wish(t *rapid.T, w job.Wish) {
	switch {
	case w == job.WishPause && h.job.Wish != "":
		return // it says nothing new, or stands behind a cancel
	case w == job.WishResume && h.job.Wish == job.WishPause:
		h.job.Wish, h.job.WishedBy = "", ""
		return
	case w != job.WishResume:
		h.job.Wish, h.job.WishedBy = w, "ann"
	}
	at, runs := h.job.Place, h.job.Live || h.job.Custody == job.Worker || h.job.Custody == job.Monitor
	c, ok := job.Obey(&h.job, w, h.now)
	if ok {
		h.apply(t, c)
	}
	if !runs && w == job.WishCancel && h.job.State != job.Canceled || !runs && w == job.WishPause && h.job.State != job.Paused {
		t.Fatalf("%s at %s leads to %s", w, at, h.job.Place)
	}
	if at.State == job.Paused && w == job.WishResume && h.job.State == job.Paused {
		t.Fatal("a resume of a paused job leads nowhere")
	}
}

// tryAfterTheEnd looks for a change or a wish that a terminal job would accept.
func (h *history) tryAfterTheEnd(t *rapid.T) {
	to := oneOf(t, "to", job.States...)
	c := job.Change{Job: h.job.ID, From: h.job.Guard(job.Fence{}), Path: path(to), To: oneOf(t, "custody", job.Custodies...)}
	c.Set.Resume = job.Pending
	if c.Check() == nil {
		t.Fatalf("%s may be followed by %s", h.job.State, c.Target())
	}
	for _, w := range []job.Wish{job.WishCancel, job.WishPause, job.WishResume} {
		if c, ok := job.Obey(&h.job, w, h.now); ok {
			t.Fatalf("a %s job obeys %s: %+v", h.job.State, w, c)
		}
	}
}
