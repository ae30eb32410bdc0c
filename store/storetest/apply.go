package storetest

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var applyTests = []test{
	{"a change is what package job makes of it", applyFields},
	{"a path is a history row for each state", applyPath},
	{"a guard that does not hold writes nothing, worker", applyGuardsWorker},
	{"a guard that does not hold writes nothing, monitor", applyGuardsMonitor},
	{"a guard that does not hold writes nothing, where nobody works", applyGuardsUnheld},
	{"a job that is not there", applyUnknown},
	{"a claim is no change of its session", applyClaimIsNoChange},
	{"a repeated change is answered as before", applyRepeated},
	{"a change under the number of another one is refused", applyOther},
	{"a repeated change is answered as before when it was diverted", applyRepeatedTurned},
	{"what a claim or an expiry did is no answer to a change", applyPassedByOthers},
	{"a call that fails leaves nothing behind", applyFailed},
	{"what a change says is text with bounds", applyLoud},
	{"evidence is any text, also of a job under a limit", applyAnyText},
	{"refused changes beside applied ones", applyMixed},
	{"a job twice in one call", applyTwice},
	{"no changes", applyNone},
	{"a report keeps work and nothing else", applyReport},
	{"a report takes the place of the work that it names", applyReportInPlace},
	{"a report that is not of the worker writes nothing", applyReportFenced},
}

var applyLong = []test{
	{"of two changes at once by one session one is applied", applyTwoAtOnce},
	{"of two changes at once by two duties one is applied", applyTwoDuties},
	{"a change against the end of its session", applyAgainstExpiry},
	{"one bad change among 500 fails all, and halving finds it", applyBad},
}

func applyFields(w *world) {
	st := w.launched()
	if st.Launch != 1 || !st.Live {
		w.Errorf("launch %d, live %t after an intent", st.Launch, st.Live)
	}
	c := move(st.Job, st.fence, job.Worker, job.SubmittingJob)
	c.Path[0].Message, c.Path[0].Data = "half way", json.RawMessage(`{"a":[1,2]}`)
	c.Set.Resolved, c.Set.Result = json.RawMessage(`{"app":"x"}`), json.RawMessage(`[1]`)
	c.Work = json.RawMessage(`{"note":1}`)
	next := w.follow(c)

	// Resolved is written once; notes that are not given stay.
	c = move(next, st.fence, job.Worker, job.SubmittingJob)
	c.Set.Resolved = json.RawMessage(`{"app":"y"}`)
	next = w.follow(c)
	if !sameJSON(next.Resolved, json.RawMessage(`{"app":"x"}`)) || !sameJSON(next.Work, json.RawMessage(`{"note":1}`)) {
		w.Errorf("resolved %s, work %s", next.Resolved, next.Work)
	}
	next = w.follow(move(next, st.fence, job.Monitor, job.Running))
	next = w.follow(setting(move(next, w.duty(st.session, watch), job.Ready, job.Archiving), job.Patch{Over: true}))
	next = w.claimOne(st.session)
	next = w.follow(setting(move(next, st.fence, job.Gate, job.Waiting),
		job.Patch{Retry: true, Clear: true, Delay: time.Minute}))
	if next.Attempt != 2 || next.Due.IsZero() {
		w.Errorf("attempt %d, due %v after a retry", next.Attempt, next.Due)
	}
	last := w.event(st.ID, 7)
	if last.Message != "half way" || !sameJSON(last.Data, json.RawMessage(`{"a":[1,2]}`)) ||
		last.Actor != st.session.String() || last.Cause != job.CauseWork {
		w.Errorf("the event is %+v", last)
	}
	Check(w, w.s, acme)
}

// follow applies c and fails unless the job is then what package job makes of it.
func (w *world) follow(c job.Change) job.Job {
	w.Helper()
	before := w.job(c.Job)
	after := w.must(c)
	want, _ := before.Apply(c, after.Since)
	if diff := cmp.Diff(want, after, sameJob, ignoreTimes); diff != "" {
		w.Errorf("change %+v (-want +got):\n%s", c, diff)
	}
	return after
}

// ignoreTimes leaves out the times that the database's clock gives.
var ignoreTimes = cmp.FilterPath(func(p cmp.Path) bool {
	switch p.Last().String() {
	case ".Since", ".Due", ".Ended", ".Created":
		return true
	}
	return false
}, cmp.Ignore())

func applyPath(w *world) {
	session := w.session()
	w.add(newProgram())
	j := w.claimOne(session)
	c := move(j, by(session), job.Worker, job.StagingInputs, job.StagingJob, job.StagingJob, job.SubmittingJob)
	c.Path[1].Message = "in the middle"
	got := w.apply(c)
	want := job.Guard{
		Place: job.Place{State: job.SubmittingJob, Custody: job.Worker}, Epoch: j.Epoch, N: j.N + 4,
		Fence: by(session),
	}
	equal(w, "answer", got, store.Applied{Outcome: store.OK, Now: want})
	equal(w, "path", w.path(j.ID), []job.State{
		job.Pending, job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.StagingJob, job.SubmittingJob,
	})
	if e := w.event(j.ID, 4); e.Message != "in the middle" || e.Epoch != j.Epoch || e.Custody != job.Worker {
		w.Errorf("the event in the middle is %+v", e)
	}
	j = w.must(move(w.job(j.ID), by(session), job.Ready, job.Archiving))
	j = w.claimOne(session)
	w.must(finish(j, by(session)))
	Check(w, w.s, acme)
}

func applyUnknown(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	c := finish(j, by(session))
	c.Job = job.NewID()
	got, _, _, err := w.s.Apply(w.ctx, []job.Change{c}, nil)
	switch {
	case err != nil:
		w.kind(err, job.NotFound, job.Fenced, job.Conflict, job.Invalid)
	case got[0].Outcome != store.Fenced && got[0].Outcome != store.Conflict:
		w.Errorf("outcome %s", got[0].Outcome)
	}
}

func applyClaimIsNoChange(w *world) {
	session := w.session()
	id := w.add(newTask())
	ready := w.job(id)
	w.claimOne(session)
	// From the place and the number that the claim went out from: its event is the session's, and
	// no answer.
	w.refused("the claim's own number", move(ready, by(session), job.None, job.Failed), store.Fenced, store.Conflict)
}

func applyRepeated(w *world) {
	session := w.session()
	id := w.add(newTask())
	j := w.claimOne(session)
	record := move(j, by(session), job.Worker, job.Running, job.Running)
	first := w.apply(record)
	same := func(when string, c job.Change, want store.Applied) {
		w.Helper()
		before := w.job(id)
		got := w.apply(c)
		if got.Outcome != want.Outcome || got.Now != want.Now {
			w.Errorf("%s: answered %s %+v, at first %s %+v", when, got.Outcome, got.Now, want.Outcome, want.Now)
		}
		w.untouched(before)
	}
	same("at once", record, first)

	retry := setting(move(w.job(id), by(session), job.Gate, job.Waiting), job.Patch{Retry: true, Delay: time.Minute})
	second := w.apply(retry)
	same("a change of custody", retry, second)
	same("the one before", record, first)

	w.clock.Advance(2 * time.Minute)
	other := w.session()
	w.due()
	same("the job is ready again", retry, second)
	j = w.claimOne(other)
	same("another session has it", retry, second)
	last := finish(j, by(other))
	third := w.apply(last)
	for range 2 {
		same("the job has ended", record, first)
		same("the job has ended", retry, second)
		same("the end itself", last, third)
		w.end(other)
		w.end(session)
	}
	Check(w, w.s, acme)
}

func applyOther(w *world) {
	session := w.session()
	for name, other := range map[string]func(*job.Change){
		"result":   func(c *job.Change) { c.Set.Result = json.RawMessage(`{"x":2}`) },
		"notes":    func(c *job.Change) { c.Work = json.RawMessage(`{"x":2}`) },
		"message":  func(c *job.Change) { c.Path[0].Message = "two" },
		"evidence": func(c *job.Change) { c.Path[0].Data = json.RawMessage(`{"x":2}`) },
		"patch":    func(c *job.Change) { c.Set.Clear = true },
	} {
		for to, state := range map[job.Custody]job.State{
			job.None: job.Finished, job.Ready: job.Pending,
			job.Worker: job.Running,
		} {
			id := w.add(newTask(inQueue(name + string(state))))
			c := wanted(session, 1)
			c.Queues = []string{name + string(state)}
			first := setting(move(w.claim(c)[0], by(session), to, state), job.Patch{Result: json.RawMessage(`{"x":1}`)})
			w.must(first)
			after := w.job(id)
			second := first
			second.Path = slices.Clone(first.Path)
			other(&second)
			if got := w.apply(second); got.Outcome != store.Fenced && got.Outcome != store.Conflict {
				w.Errorf("another %s, %s: %s", name, state, got.Outcome)
			}
			w.untouched(after)
			if got := w.apply(first); got.Outcome != store.OK {
				w.Errorf("the first change once more: %s", got.Outcome)
			}
		}
	}
	Check(w, w.s, acme)
}

func applyRepeatedTurned(w *world) {
	for _, c := range []struct {
		wish job.Wish
		want job.Place
	}{
		{job.WishCancel, job.Place{State: job.Canceled, Custody: job.None}},
		{job.WishPause, job.Place{State: job.Paused, Custody: job.User}},
	} {
		session := w.session()
		id := w.add(newTask())
		j := w.claimOne(session)
		w.wish(c.wish, id)
		change := setting(move(j, by(session), job.Ready, job.Running, job.Pending), job.Patch{Retry: true})
		first := w.apply(change)
		if first.Outcome != store.Diverted || first.Now.Place != c.want || first.Now.N != j.N+2 ||
			first.Now.Epoch != j.Epoch+1 {
			w.Errorf("%s: %s %+v, want diverted to %s", c.wish, first.Outcome, first.Now, c.want)
		}
		for _, when := range []string{"at once", "later"} {
			before := w.job(id)
			if got := w.apply(change); got.Outcome != first.Outcome || got.Now != first.Now {
				w.Errorf("%s, again %s: %s %+v, at first %s %+v", c.wish, when, got.Outcome, got.Now, first.Outcome,
					first.Now)
			}
			w.untouched(before)
			if c.wish == job.WishPause && when == "at once" {
				w.wish(job.WishResume, id)
				w.claimOne(session)
			}
		}
		w.end(session)
		w.wish(job.WishCancel, id)
	}
	Check(w, w.s, acme)
}

func applyPassedByOthers(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	w.end(session)
	w.refused("the end of the session took the number", move(j, by(session), job.Ready, job.Pending), store.Fenced)

	session = w.session()
	j = w.claimOne(session)
	w.clock.Advance(lease + margin)
	w.expire()
	w.refused("the expiry took the number", move(j, by(session), job.Ready, job.Pending), store.Fenced)
	Check(w, w.s, acme)
}

func applyTwoAtOnce(w *world) {
	session := w.session()
	for range rounds(30, 10) {
		w.add(newTask())
		j := w.claimOne(session)
		changes := []job.Change{finish(j, by(session)), move(j, by(session), job.None, job.Failed)}
		w.race(j, changes)
	}
	Check(w, w.s, acme)
}

func applyTwoDuties(w *world) {
	for range 10 {
		st := w.stand(job.Running, job.Monitor)
		terms := map[string]int64{}
		for _, d := range w.renew(st.session, watch, "test").Duties {
			terms[d.Name] = d.Term
		}
		w.race(st.Job, []job.Change{
			setting(move(st.Job, job.Fence{Duty: watch, Term: terms[watch]}, job.Ready, job.Archiving),
				job.Patch{Over: true}),
			move(st.Job, job.Fence{Duty: "test", Term: terms["test"]}, job.Monitor, job.Queued),
		})
		w.end(st.session)
		w.wish(job.WishCancel, st.ID)
	}
	Check(w, w.s, acme)
}

// race makes changes of one job at once, each in its own call, and fails unless one is applied and
// its answer is where the job stands.
func (w *world) race(j job.Job, changes []job.Change) {
	w.Helper()
	answers := make([]store.Applied, len(changes))
	w.together(len(changes), func(i int) error {
		got, _, _, err := w.s.Apply(w.ctx, changes[i:i+1], nil)
		if err != nil {
			return err
		}
		answers[i] = got[0]
		return nil
	})
	now := w.job(j.ID)
	if now.N != j.N+1 {
		w.Fatalf("job %s went from n %d to %d by changes of which one can be applied", j.ID, j.N, now.N)
	}
	applied := 0
	for i, a := range answers {
		if a.Outcome != store.OK {
			continue
		}
		applied++
		if now.Place != changes[i].Target() {
			w.Fatalf("the change to %s is said to be applied, the job stands at %s", changes[i].Target(), now.Place)
		}
	}
	if applied != 1 {
		w.Fatalf("%d changes are said to be applied, want 1: %+v", applied, answers)
	}
}

func applyAgainstExpiry(w *world) {
	for round := range rounds(30, 12) {
		session := w.session()
		id := w.add(newTask())
		j := w.claimOne(session)
		var outcome atomic.Value
		w.together(3, func(i int) error {
			switch i {
			case 0:
				got, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(session))}, nil)
				if err != nil {
					return err
				}
				outcome.Store(got[0].Outcome)
			case 1:
				if round%2 == 0 {
					_, err := w.s.End(w.ctx, session)
					return err
				}
				w.clock.Advance(lease + margin)
			case 2:
				_, _, err := w.s.Expire(w.ctx, 10)
				return err
			}
			return nil
		})
		w.expire()
		want := job.Place{State: job.Pending, Custody: job.Ready}
		if outcome.Load() == store.OK {
			want = job.Place{State: job.Finished, Custody: job.None}
		}
		if now := w.job(id); now.Place != want {
			w.Errorf("the end was %v, and the job is at %s", outcome.Load(), now.Place)
		}
		w.wish(job.WishCancel, id)
	}
	Check(w, w.s, acme)
}

func applyBad(w *world) {
	for _, c := range []struct {
		name string
		bad  func(job.Change) job.Change
	}{
		{"an illegal edge", func(c job.Change) job.Change {
			c.Path[0].State, c.To = job.StagingJob,
				job.Worker
			return c
		}},
		{"an illegal place", func(c job.Change) job.Change {
			c.Path, c.To = []job.Entry{{State: job.Pending}},
				job.Worker
			return c
		}},
		{"an end without a code", func(c job.Change) job.Change { c.Path = []job.Entry{{State: job.Finished}}; return c }},
		{"an end with a live launch", func(c job.Change) job.Change { c.Set.Intent = true; return c }},
		{"an empty path", func(c job.Change) job.Change { c.Path = nil; return c }},
	} {
		w.fresh(c.name, func(w *world) {
			session := w.session()
			w.addMany(500)
			var changes []job.Change
			for _, j := range w.claim(wanted(session, 500)) {
				changes = append(changes, finish(j, by(session)))
			}
			const bad = 317
			changes[bad] = c.bad(changes[bad])
			_, _, _, err := w.s.Apply(w.ctx, changes, nil)
			if k := job.KindOf(err); err == nil || k == job.Unavailable || k == job.Closed {
				w.Fatalf("apply: %v, want an error that blames the change", err)
			}
			if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Running] != 500 {
				w.Fatalf("after the error %v, want 500 RUNNING", n)
			}
			var found []job.ID
			w.halve(changes, &found)
			equal(w, "bad changes", fmtIDs(found), fmtIDs([]job.ID{changes[bad].Job}))
			if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Finished] != 499 || n.States[job.Running] != 1 {
				w.Errorf("after halving %v, want 499 FINISHED and 1 RUNNING", n)
			}
			Check(w, w.s, acme)
		})
	}
}

// halve applies changes in halves until each that fails stands alone.
func (w *world) halve(changes []job.Change, bad *[]job.ID) {
	_, _, _, err := w.s.Apply(w.ctx, changes, nil)
	switch {
	case err == nil:
	case len(changes) == 1:
		*bad = append(*bad, changes[0].Job)
	default:
		w.halve(changes[:len(changes)/2], bad)
		w.halve(changes[len(changes)/2:], bad)
	}
}

func applyFailed(w *world) {
	st := w.launched()
	w.addMany(2)
	jobs := w.claim(wanted(st.session, 2))
	goOn := move(jobs[0], st.fence, job.Worker, job.Running)
	goOn.Path[0].Message = "on and on"
	bad := move(st.Job, st.fence, job.None, job.Failed) // its launch is live
	for _, changes := range [][]job.Change{{goOn, bad}, {goOn, finish(jobs[1], st.fence), bad}} {
		if got, _, _, err := w.s.Apply(w.ctx, changes, nil); err == nil {
			w.Errorf("a launch that is live was left alone: %+v", got)
		}
	}
	// Others at the same time do not suffer from it.
	w.together(20, func(i int) error {
		if i%2 == 1 {
			if _, _, _, err := w.s.Apply(w.ctx, []job.Change{goOn, bad}, nil); err == nil {
				w.Errorf("a launch that is live was left alone")
			}
			return nil
		}
		_, _, err := w.s.Submit(w.ctx, submission(newTask()))
		return err
	})
	for _, j := range []job.Job{jobs[0], jobs[1], st.Job} {
		w.untouched(j)
	}
	w.must(goOn)
	w.must(finish(jobs[1], st.fence))
	Check(w, w.s, acme)
}

// applyLoud changes a job with messages and evidence of any bytes, and any number of them.
func applyLoud(w *world) {
	session := w.session()
	w.addMany(1)
	j := w.claim(wanted(session, 1))[0]
	loud := strings.Repeat("x\xff\x00", 1<<20)
	c := move(j, job.Fence{Session: session}, job.None, job.Running, job.Failed)
	for i := range c.Path {
		c.Path[i].Message, c.Path[i].Data = loud, json.RawMessage(loud)
	}
	c.Path[1].Code = job.TaskFailed
	for range 2 { // it is answered as the same when it is repeated
		w.must(c)
	}
	if j = w.job(j.ID); j.Message != job.Text(loud) {
		w.Errorf("the message of the row has %d bytes", len(j.Message))
	}
	for _, e := range w.history(j.ID) {
		if len(e.Message) > job.MaxMessage || len(e.Data) > job.MaxEvidence || e.Data != nil && !json.Valid(e.Data) {
			w.Errorf("event %d has a message of %d bytes and evidence of %d", e.N, len(e.Message), len(e.Data))
		}
	}
	Check(w, w.s, acme)
}

func applyMixed(w *world) {
	session, other := w.session(), w.session()
	w.addMany(4)
	jobs := w.claim(wanted(session, 4))
	w.wish(job.WishCancel, jobs[3].ID)
	stale := finish(jobs[1], by(session))
	stale.From.Epoch--
	got := w.applyAll(finish(jobs[0], by(session)), stale, finish(jobs[2], by(other)), finish(jobs[3], by(session)))
	for i, want := range []store.Outcome{store.OK, store.Fenced, store.Fenced, store.Diverted} {
		if got[i].Outcome != want {
			w.Errorf("change %d: %s, want %s", i, got[i].Outcome, want)
		}
	}
	w.at(job.Finished, job.None, jobs[0].ID)
	w.at(job.Running, job.Worker, jobs[1].ID, jobs[2].ID)
	w.at(job.Canceled, job.None, jobs[3].ID)
	Check(w, w.s, acme)
}

func applyAnyText(w *world) {
	session := w.session()
	w.limit(most(ofTask, 1))
	told := func(c job.Change) {
		w.Helper()
		for i := range c.Path {
			c.Path[i].Data = json.RawMessage(anyText)
		}
		n := c.From.N
		w.must(c)
		for i := range c.Path {
			if e := w.event(c.Job, n+int64(i)+1); !sameJSON(e.Data, json.RawMessage(anyText)) {
				w.Errorf("event %d has %s", e.N, e.Data)
			}
		}
		w.pay()
	}
	w.add(newTask(asItIs))
	told(setting(move(w.claimOne(session), by(session), job.Ready, job.Pending), job.Patch{Retry: true}))
	told(finish(w.claimOne(session), by(session)))
	w.add(newProgram(spec("{}"), on(machine), asItIs))
	told(move(w.claimOne(session), by(session), job.Ready, job.ProcessingInputs, job.StagingInputs))
}

func applyTwice(w *world) {
	session := w.session()
	w.addMany(2)
	jobs := w.claim(wanted(session, 2))
	next := move(jobs[0], by(session), job.Worker, job.Running)
	then := finish(jobs[0], by(session))
	then.From.N++
	for _, changes := range [][]job.Change{{next, then}, {next, finish(jobs[1], by(session)), next}} {
		_, _, _, err := w.s.Apply(w.ctx, changes, nil)
		if k := job.KindOf(err); err == nil || k == job.Unavailable || k == job.Closed {
			w.Errorf("a job twice: %v, want an error that blames the changes", err)
		}
	}
	w.untouched(jobs[0])
	w.untouched(jobs[1])
}

func applyNone(w *world) {
	if got := w.applyAll(); len(got) != 0 {
		w.Errorf("answers %+v to no change", got)
	}
}
