package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestPostgresApply(t *testing.T) {
	t.Parallel()
	t.Run("makes what package job makes", applyParity)
	t.Run("of two at once one is applied", func(t *testing.T) {
		for name, second := range map[string]func(job.Job, job.Fence) job.Change{"conflict": step, "fenced": done} {
			w := newWorld(t)
			session := w.session()
			j := w.claimed(session)
			a, b := w.connect(), w.connect()
			one := applying(step(j, by(session)))
			if name == "fenced" {
				one = applying(done(j, by(session)))
			}
			two := applying(second(j, by(session)))
			two.changes[0].Path[0].Message = "another"
			a.must("BEGIN")
			for _, sql := range one.parts() {
				a.must(sql)
			}
			late := w.beside(b, func() ([]row, error) { return b.tx(two.parts()...) })
			a.must("COMMIT")
			w.want("the second", w.got(late), name)
			w.want("the first, repeated", w.must(one), "applied")
			w.checkHistories()
		}
	})
	t.Run("against the end of its session, which waits", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		a, b := w.connect(), w.connect()
		one := applying(done(j, by(session)))
		a.must("BEGIN")
		for _, sql := range one.parts() {
			w.lapse(session) // a renewal or the clock may change the row: the lock lets them
			w.db.must("UPDATE sessions SET lease_until = now() + interval '1 hour' WHERE id = " + uuid(session))
			a.must(sql)
		}
		w.lapse(session)
		expired := w.beside(b, func() ([]row, error) { return w.expire(b) })
		a.must("COMMIT")
		if rows := w.got(expired); len(rows) != 0 {
			t.Errorf("expiry took %v", rows)
		}
		w.want("after the expiry, repeated", w.must(one), "applied")
		w.checkHistories()
	})
	t.Run("after the end of its session, for which it waited", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		a, b := w.connect(), w.connect()
		w.lapse(session)
		a.must("BEGIN; EXECUTE expire_close")
		late := w.beside(b, func() ([]row, error) { return b.tx(applying(step(j, by(session))).parts()...) })
		a.must("COMMIT")
		w.want("a change of a session that was ended", w.got(late), "fenced")
	})
	t.Run("under a duty, which nobody takes over before the commit", func(t *testing.T) {
		w := newWorld(t)
		worker, old, next := w.session(), w.session(), w.session()
		j := w.claimed(worker)
		f := w.duty(old)
		w.want("into monitor", w.must(applying(job.Change{Job: j.ID, From: j.Guard(by(worker)), Path: []job.Entry{{State: job.Running}}, To: job.Monitor})), "applied")
		j = w.job(j.ID)
		renew := execute("renew", uuid(next), "1000000", "'{}'", "'{}'", "''", "'{watch}'")

		a := w.connect()
		b := applying(job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: job.Running}}, To: job.Monitor})
		a.must("BEGIN")
		a.must(b.fences())
		a.must(b.lock())
		rows := a.must(b.apply())
		w.want("by the duty", rows, "applied")
		w.lapse(old)
		if got := w.db.must(renew); got[0]["duties"] != "" {
			t.Errorf("the duty was taken over beside an open transaction under it: %v", got)
		}
		a.must("COMMIT")
		if got := w.db.must(renew); got[0]["duties"] != `[["watch", 8]]` {
			t.Errorf("the duty was not taken over: %v", got)
		}
		j = w.job(j.ID)
		b.changes[0].From = j.Guard(f)
		w.want("by the old term", w.must(b), "fenced")
		b.changes[0].From.Fence.Term = 8
		w.want("by the new term", w.must(b), "applied")
		w.checkHistories()
	})
	t.Run("one bad change fails the batch, the halves apply", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(64)...)
		jobs := w.claim(session, 64)
		changes := make([]job.Change, len(jobs))
		for i, j := range jobs {
			changes[i] = done(j, by(session))
			changes[i].Path[0].Data = json.RawMessage(`{"a":1}`)
		}
		changes[41].Set.Intent = true // an end with a launch whose end is not known
		changes[7].Path[0].Data = json.RawMessage(`{"a":`)
		calls, bad := 0, map[job.ID]bool{}
		var halve func([]job.Change)
		halve = func(part []job.Change) {
			calls++
			got, err := w.outcomes(w.db, applying(part...))
			switch {
			case err == nil && len(got) == len(part):
				for i, o := range got {
					if o != "applied" {
						t.Errorf("change %d: %s", i, o)
					}
				}
			case len(part) == 1:
				bad[part[0].Job] = true
			default:
				halve(part[:len(part)/2])
				halve(part[len(part)/2:])
			}
		}
		halve(changes)
		if len(bad) != 2 || !bad[jobs[41].ID] || !bad[jobs[7].ID] {
			t.Errorf("found to be bad: %v", bad)
		}
		if n := w.db.value("SELECT count(*) FROM jobs WHERE state = 'FINISHED'"); n != "62" {
			t.Errorf("%s jobs finished, want 62", n)
		}
		t.Logf("%d calls found 2 bad changes of 64", calls)
		w.checkHistories()
	})
	t.Run("repeated is answered as it was", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		c := step(j, by(session))
		c.Path = append(c.Path, job.Entry{State: job.Running, Message: "half way"})
		first := w.must(applying(c))
		w.want("first", first, "applied")
		again := w.must(applying(c))
		for _, k := range []string{"outcome", "state", "custody", "epoch", "n"} {
			if first[0][k] != again[0][k] {
				t.Errorf("%s: %s, and repeated %s", k, first[0][k], again[0][k])
			}
		}
		end := done(w.job(j.ID), by(session))
		first = w.must(applying(end))
		w.lapse(session)
		w.want("repeated after the end of the job and of the session", w.must(applying(c, done(newTask(), by(session)))), "applied", "fenced")
		again = w.must(applying(end))
		for _, k := range []string{"outcome", "state", "custody", "epoch", "n"} {
			if first[0][k] != again[0][k] {
				t.Errorf("%s: %s, and repeated %s", k, first[0][k], again[0][k])
			}
		}
		if n := w.job(j.ID).N; n != 5 {
			t.Errorf("n %d, want 5", n)
		}
		w.checkHistories()
	})
	t.Run("a wish hands the change back, to be turned", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(2)...)
		jobs := w.claim(session, 2)
		w.db.must("UPDATE jobs SET wish = 'cancel', wished_by = 'ann' WHERE id = " + uuid(jobs[1].ID))
		changes := []job.Change{done(jobs[0], by(session)), done(jobs[1], by(session))}
		rows := w.must(applying(changes...))
		w.want("with a wish", rows, "applied", "wish")

		seen := jobs[1]
		seen.Wish, seen.WishedBy, seen.Live = job.Wish(rows[1]["wish"]), rows[1]["wished_by"], rows[1]["live"] == "t"
		turned, bent := job.Turn(&seen, changes[1])
		if !bent {
			t.Fatal("it was not turned")
		}
		b := &batch{changes: []job.Change{turned}, asked: changes[1:], cause: job.CauseTurned, wish: seen.Wish}
		// The wish is another one by now: it comes back again.
		w.db.must("UPDATE jobs SET wish = 'pause' WHERE id = " + uuid(jobs[1].ID))
		w.want("with another wish", w.must(b), "wish")
		w.db.must("UPDATE jobs SET wish = 'cancel' WHERE id = " + uuid(jobs[1].ID))
		w.want("turned", w.must(b), "turned")
		w.want("the change as it was, repeated", w.must(applying(changes[1])), "turned")
		if j := w.job(jobs[1].ID); j.State != job.Canceled || j.Wish != "" {
			t.Errorf("job at %s with wish %q", j.Place, j.Wish)
		}
		w.checkHistories()
	})
	t.Run("owes for jobs with ties only", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		plain, tied := newTask(), newTask()
		tied.Ties = job.TieDependants
		w.submit(plain, tied)
		for _, j := range w.claim(session, 2) {
			w.must(applying(done(j, by(session))))
		}
		if got := w.db.value("SELECT string_agg(debt || ' ' || job, ',') FROM followups"); got != "dependants "+tied.ID.String() {
			t.Errorf("owed: %s", got)
		}
	})
	t.Run("sixteen at once with overlapping batches", applyStorm)
}

// applyParity compares the statement with job.Apply, for each edge of the table and each thing that a change records.
func applyParity(t *testing.T) {
	w := newWorld(t)
	session := w.session()
	duty := w.duty(session)
	type tried struct {
		before job.Job
		change job.Change
	}
	var all []tried
	sets := []job.Patch{
		{},
		{Intent: true},
		{Over: true},
		{Intent: true, Over: true},
		{Retry: true, Delay: time.Hour},
		{Recovery: true, Crash: true},
		{Clear: true, Crash: true},
		{Result: json.RawMessage(`[1]`), Resolved: json.RawMessage(`{"r":1}`)},
		{Delay: time.Minute},
	}
	for _, from := range job.States {
		for _, custody := range job.Places(from) {
			if custody == job.Gate || custody == job.Ready || custody == job.None {
				continue // left by rows and the clock, or never
			}
			for _, to := range job.Edges(from) {
				for _, target := range job.Places(to) {
					if target == job.Worker && custody != job.Worker {
						continue // a claim
					}
					for i, set := range sets {
						for _, due := range []time.Duration{0, -time.Hour, time.Hour} {
							j := newTask()
							if i%2 == 0 || to == job.ProcessingInputs {
								j.Kind = job.KindApp
							}
							f := duty
							if custody == job.Worker {
								f, j.Session, j.Claim = by(session), session, job.NewID()
							}
							j.Tenant, j.Place, j.Epoch, j.N, j.Lane = acme, job.Place{State: from, Custody: custody}, 4, 9, job.LaneOf(from, j.Program(), 1)
							j.Attempt, j.Recoveries, j.Suspect, j.Launch, j.Live = 2, 1, 1, 3, i == 2
							j.Created, j.Since = time.UnixMicro(1e15).UTC(), time.UnixMicro(2e15).UTC()
							j.Code, j.Message, j.Resume, j.Work = job.NormalCompletion, "before", job.Pending, json.RawMessage(`{"w":1}`)
							if due != 0 {
								j.Due, j.Needs = time.Now().Add(due).Truncate(time.Microsecond).UTC(), int(due/time.Hour)+1
							}
							set.Resume = job.Pending
							c := job.Change{Job: j.ID, From: j.Guard(f), To: target, Set: set}
							if job.Edge(from, from) {
								c.Path = append(c.Path, job.Entry{State: from, Message: "first", Data: json.RawMessage(`{"d":1}`)})
							}
							c.Path = append(c.Path, job.Entry{State: to, Code: job.NormalCompletion, Message: "it's done"})
							if c.Check() != nil {
								continue
							}
							if after, _ := j.Apply(c, time.Now()); after.Live && (after.State.Terminal() || after.Custody == job.User) {
								continue // refused
							}
							all = append(all, tried{j, c})
						}
					}
				}
			}
		}
	}
	const chunk = 500
	for len(all) > 0 {
		part := all[:min(chunk, len(all))]
		all = all[len(part):]
		jobs := make([]job.Job, len(part))
		b := &batch{cause: job.CauseWork}
		for i, p := range part {
			jobs[i] = p.before
			b.changes = append(b.changes, p.change)
		}
		w.insert(jobs)
		for i, r := range w.must(b) {
			if r["outcome"] != "applied" {
				t.Fatalf("%+v: %v", part[i].change, r)
			}
		}
		got := map[job.ID]job.Job{}
		for _, j := range scanAll(w.db.must("SELECT * FROM jobs WHERE id = ANY (" + ids(idsOf(jobs)) + ")")) {
			got[j.ID] = j
		}
		for _, p := range part {
			after := got[p.before.ID]
			now := after.Since
			if now.Equal(p.before.Since) { // it stayed: take the time from elsewhere
				now = time.Now()
			}
			want, _ := p.before.Apply(p.change, now)
			want.Resolved = nil // of the spec
			want.Owner, want.Name, want.Request = "", "", nil
			close := cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute/2 })
			if diff := cmp.Diff(want, after, close); diff != "" {
				t.Fatalf("%s: %+v (-package job +SQL):\n%s", p.before.Place, p.change, diff)
			}
			if target := after.Place; target != (job.Place{State: after.State, Custody: after.Custody}) || !target.Legal() {
				t.Fatalf("%s is no legal place", target)
			}
		}
		events := w.db.value("SELECT count(*) FROM events e JOIN jobs j ON j.id = e.job AND j.n = e.n AND j.state = e.state AND j.custody = e.custody AND j.message = e.message WHERE j.id = ANY (" + ids(idsOf(jobs)) + ")")
		if events != strconv.Itoa(len(part)) {
			t.Fatalf("%s last events that agree with the row, want %d", events, len(part))
		}
		t.Logf("%d changes", len(part))
	}
}

// insert puts jobs into the tables as they are.
func (w *world) insert(jobs []job.Job) {
	w.Helper()
	null := func(id job.ID) any {
		if id.IsZero() {
			return nil
		}
		return id
	}
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t
	}
	rows := make([]map[string]any, len(jobs))
	for i, j := range jobs {
		rows[i] = map[string]any{
			"id": j.ID, "tenant": j.Tenant, "kind": j.Kind, "queue": j.Queue, "machine": j.Machine, "priority": j.Priority, "created": j.Created,
			"state": j.State, "custody": j.Custody, "epoch": j.Epoch, "n": j.N, "ord": "3", "lane": j.Lane, "session": null(j.Session),
			"claim": null(j.Claim), "attempt": j.Attempt, "max_attempts": j.MaxAttempts, "recoveries": j.Recoveries, "suspect": j.Suspect,
			"launch": j.Launch, "live": j.Live, "since": j.Since, "due": at(j.Due), "ended": at(j.Ended), "needs": j.Needs, "ties": j.Ties,
			"wish": j.Wish, "wished_by": j.WishedBy, "resume": j.Resume, "code": j.Code, "message": j.Message, "work": j.Work, "result": j.Result,
			"owner": j.Owner, "name": j.Name, "request": j.Request,
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		w.Fatal(err)
	}
	lit := str(string(text))
	w.db.must("INSERT INTO jobs SELECT * FROM json_populate_recordset(NULL::jobs, " + lit + ")")
	w.db.must("INSERT INTO specs SELECT * FROM json_populate_recordset(NULL::specs, " + lit + ")")
}

func applyStorm(t *testing.T) {
	w := newWorld(t)
	session := w.session()
	const jobs, appliers, rounds, size = 120, 16, 12, 40
	w.submit(newTasks(jobs)...)
	held := w.claim(session, jobs)
	var mu sync.Mutex
	applied := map[job.ID]int64{}
	w.together(appliers, func(i int, c *conn) {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		known := map[job.ID]job.Job{}
		for _, j := range held {
			known[j.ID] = j
		}
		for range rounds {
			b := &batch{cause: job.CauseWork}
			for _, k := range r.Perm(jobs)[:size] {
				change := step(known[held[k].ID], by(session))
				change.Path[0].Message = fmt.Sprint("by ", i)
				b.changes = append(b.changes, change)
			}
			rows, err := c.tx(b.parts()...)
			if err != nil {
				t.Error(err)
				return
			}
			for k, r := range rows {
				j := known[b.changes[k].Job]
				j.N, _ = strconv.ParseInt(r["n"], 10, 64)
				known[j.ID] = j
				if r["outcome"] == "applied" {
					mu.Lock()
					applied[j.ID]++
					mu.Unlock()
				}
			}
		}
	})
	w.noDeadlock()
	w.checkHistories()
	sum := int64(0)
	for _, j := range scanAll(w.db.must("SELECT * FROM jobs")) {
		sum += j.N - 2
		if applied[j.ID] != j.N-2 {
			t.Errorf("job %s: %d changes were answered applied, %d were made", j.ID, applied[j.ID], j.N-2)
		}
	}
	t.Logf("%d changes made by %d transactions of %d", sum, appliers*rounds, size)
}
