package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var sessionTests = []test{
	{"a session tells of its process", sessionTells},
	{"a session shows what it holds", sessionHolds},
	{"a session is known for an hour after its end", sessionEnded},
	{"the last session of a machine is known for longer", sessionOfMachine},
	{"a session that was told to drain claims nothing", sessionDrains},
	{"a claim is answered again after its session was told to drain", sessionDrainsLate},
	{"a command stands until another takes its place", sessionCommands},
	{"a session may begin with a command", sessionBeginsDrained},
	{"only a session that lives can be told", sessionTold},
	{"a duty leaves a holder that drains", sessionDuties},
}

// process is one that serves everything.
func process(edit ...func(*store.Process)) store.Process {
	p := store.Process{
		Host: "host", PID: 1, Version: "1.2.3", Roles: []store.Role{store.RoleWorker, store.RoleRecovery},
		Queues: []string{job.DefaultQueue}, Kinds: []string{task, job.KindApp}, Machine: machine,
		Slots: map[job.Lane]int{job.LaneTask: 50}, Address: "http://host:7295",
	}
	for _, f := range edit {
		f(&p)
	}
	return p
}

// begin begins a session of a process.
func (w *world) begin(p store.Process) job.ID {
	w.Helper()
	id := job.NewID()
	if err := w.s.Begin(w.ctx, store.Session{ID: id, Process: p, Lease: lease}); err != nil {
		w.Fatalf("begin: %v", err)
	}
	return id
}

// sessions reads all sessions, by id.
func (w *world) sessions() map[job.ID]store.SessionInfo {
	w.Helper()
	list, err := w.s.Sessions(w.ctx)
	if err != nil {
		w.Fatalf("sessions: %v", err)
	}
	all := map[job.ID]store.SessionInfo{}
	for i, s := range list {
		if i > 0 && s.Started.After(list[i-1].Started) {
			w.Errorf("session %d began after the one before it", i)
		}
		all[s.ID] = s
	}
	if len(all) != len(list) {
		w.Errorf("%d sessions, %d of them different", len(list), len(all))
	}
	return all
}

// command tells a session.
func (w *world) command(session job.ID, c store.Mode) {
	w.Helper()
	eff, err := w.s.SetMode(w.ctx, session, c)
	if err != nil {
		w.Fatalf("tell %q: %v", c, err)
	}
	equal(w, "sessions to wake", fmtIDs(eff.Held), fmtIDs([]job.ID{session}))
}

func sessionTells(w *world) {
	is := func(id job.ID, p store.Process, used map[job.Lane]int) {
		w.Helper()
		got := w.sessions()[id]
		if diff := cmp.Diff(p, got.Process, cmpopts.EquateEmpty()); diff != "" {
			w.Errorf("process (-told +read):\n%s", diff)
		}
		equal(w, "used slots", got.Used, used)
	}
	p := process()
	id := w.begin(p)
	other := w.begin(store.Process{})
	is(id, p, nil)
	w.renew(id)
	is(id, p, nil)

	next := process(func(p *store.Process) {
		p.Queues, p.Tenants, p.Address = append(p.Queues, "gpu"), []string{acme}, ""
		p.Silent = map[string]store.Silence{"watch/lab/ada": {Since: time.Unix(1e9, 0).UTC(), Message: "refused"}}
	})
	r := renewal(id)
	r.Process, r.Used = &next, map[job.Lane]int{job.LaneTask: 3}
	if _, err := w.s.Renew(w.ctx, r); err != nil {
		w.Fatalf("renew: %v", err)
	}
	is(id, next, r.Used)
	w.renew(id)
	is(id, next, r.Used)
	r.Process, r.Used = nil, map[job.Lane]int{}
	if _, err := w.s.Renew(w.ctx, r); err != nil {
		w.Fatalf("renew: %v", err)
	}
	is(id, next, nil)
	is(other, store.Process{}, nil)
}

func sessionHolds(w *world) {
	before := w.job(w.add(newTask(delayed(time.Hour)))).Created
	id, idle := w.session(), w.session()
	after := w.job(w.addMany(3)[0]).Created
	w.clock.Advance(time.Second)
	first := w.claim(wanted(id, 1))[0]
	w.clock.Advance(time.Second)
	w.claim(wanted(id, 2))
	w.clock.Advance(time.Second)
	at := w.renew(id).Now
	all := w.sessions()
	got := all[id]
	if !got.Live || got.Held != 3 || got.Oldest.Job != first.ID || got.Oldest.Tenant != acme ||
		!near(got.Oldest.Since, w.job(first.ID).Since) {
		w.Errorf("the session shows live %t, %d jobs, the oldest %+v; want 3, and %s", got.Live, got.Held,
			got.Oldest, first.ID)
	}
	if got.Started.Before(before) || got.Started.After(after) || !near(got.Renewed, at) ||
		!near(got.Until, at.Add(lease)) || !got.Ended.IsZero() || got.Crashed {
		w.Errorf("it shows started %v, renewed %v, until %v, ended %v, crashed %t", got.Started, got.Renewed,
			got.Until, got.Ended, got.Crashed)
	}
	if got := all[idle]; !got.Live || got.Held != 0 || got.Oldest != (store.HeldJob{}) {
		w.Errorf("one that holds nothing shows live %t, %d jobs, the oldest %+v", got.Live, got.Held, got.Oldest)
	}
	w.must(finish(first, by(id)))
	if got := w.sessions()[id]; got.Held != 2 || got.Oldest.Job == first.ID {
		w.Errorf("%d jobs, the oldest %s, after that one has ended", got.Held, got.Oldest.Job)
	}
}

func sessionEnded(w *world) {
	ended, dies := w.session(), w.session()
	w.add(newTask())
	w.claimOne(dies)
	w.end(ended)
	if s := w.sessions()[ended]; s.Live || s.Ended.IsZero() || s.Crashed {
		w.Errorf("one that has ended shows live %t, ended %v, crashed %t", s.Live, s.Ended, s.Crashed)
	}
	w.clock.Advance(lease + margin)
	if s := w.sessions()[dies]; s.Live || !s.Ended.IsZero() || s.Held != 1 {
		w.Errorf("one that has died shows live %t, ended %v, %d jobs", s.Live, s.Ended, s.Held)
	}
	w.expire()
	if s := w.sessions()[dies]; s.Live || s.Ended.IsZero() || !s.Crashed || s.Held != 0 {
		w.Errorf("one whose jobs were taken shows live %t, ended %v, crashed %t, %d jobs", s.Live, s.Ended,
			s.Crashed, s.Held)
	}
	w.clock.Advance(store.SessionKept - 2*lease)
	w.expire()
	if all := w.sessions(); len(all) != 2 {
		w.Errorf("%d sessions within the hour, want 2", len(all))
	}
	w.clock.Advance(3 * lease)
	if all := w.sessions(); len(all) != 0 {
		w.Errorf("%d sessions after more than an hour, want none", len(all))
	}
}

func sessionOfMachine(w *world) {
	on := func(name string) job.ID {
		w.Helper()
		id := w.begin(process(func(p *store.Process) { p.Machine = name }))
		w.clock.Advance(time.Second)
		return id
	}
	first, last, there := on("gone"), on("gone"), on("here")
	before := on("here")
	for _, id := range []job.ID{first, last, before} {
		w.end(id)
		w.clock.Advance(time.Second)
	}
	known := func(want ...job.ID) {
		w.Helper()
		for range 2 { // the second time others have been removed
			var got []job.ID
			for id := range w.sessions() {
				got = append(got, id)
			}
			sameSet(w, "sessions", got, want)
			w.expire()
		}
	}
	keep := func(d time.Duration) {
		w.Helper()
		w.renew(there)
		for range d / (lease - margin) {
			w.clock.Advance(lease - margin)
			w.renew(there)
		}
		w.clock.Advance(d % (lease - margin))
		w.renew(there)
	}
	known(first, last, there, before)
	keep(2 * store.SessionKept)
	known(last, there)
	w.clock.Advance(store.MachineKept)
	w.expire()
	known(there)
}

func sessionDrains(w *world) {
	id, other := w.session(), w.session()
	w.addMany(2)
	mine := w.claim(wanted(id, 1))[0]
	for _, c := range []store.Mode{store.Drain, store.Stop} {
		w.command(id, c)
		if jobs := w.claim(wanted(id, 1)); len(jobs) != 0 {
			w.Errorf("told to %s it claimed %d jobs", c, len(jobs))
		}
	}
	w.must(finish(mine, by(id)))
	w.claimOne(other)
	Check(w, w.s, acme)
}

func sessionDrainsLate(w *world) {
	id := w.session()
	w.addMany(2)
	c := wanted(id, 1)
	first := jobIDs(w.claim(c))
	w.command(id, store.Drain)
	sameSet(w, "the claim again", jobIDs(w.claim(c)), first)
}

func sessionCommands(w *world) {
	id, other := w.session(), w.session()
	stands := func(want store.Mode) {
		w.Helper()
		for range 2 {
			if got := w.renew(id).Mode; got != want {
				w.Errorf("the renewal answers %q, want %q", got, want)
			}
		}
		if got := w.sessions()[id].Mode; got != want {
			w.Errorf("the session shows %q, want %q", got, want)
		}
		if got := w.renew(other).Mode; got != store.Work {
			w.Errorf("another session hears %q", got)
		}
	}
	stands(store.Work)
	for _, c := range []store.Mode{store.Drain, store.Drain, store.Work, store.Drain, store.Stop, store.Stop} {
		w.command(id, c)
		stands(c)
	}
	for _, c := range []store.Mode{store.Work, store.Drain} {
		_, err := w.s.SetMode(w.ctx, id, c)
		w.kind(err, job.Conflict)
	}
	stands(store.Stop)
}

func sessionBeginsDrained(w *world) {
	w.add(newTask())
	s := store.Session{ID: job.NewID(), Lease: lease, Mode: store.Drain}
	for range 2 {
		if err := w.s.Begin(w.ctx, s); err != nil {
			w.Fatalf("begin: %v", err)
		}
	}
	if jobs := w.claim(wanted(s.ID, 1)); len(jobs) != 0 {
		w.Errorf("claimed %d jobs", len(jobs))
	}
	if got := w.renew(s.ID).Mode; got != store.Drain {
		w.Errorf("the renewal answers %q", got)
	}
	w.command(s.ID, store.Work)
	w.claimOne(s.ID)
}

func sessionTold(w *world) {
	ended, dead, alive := w.session(), w.session(), w.session()
	w.end(ended)
	_, err := w.s.SetMode(w.ctx, alive, "dance")
	w.kind(err, job.Invalid)
	w.clock.Advance(lease + margin)
	_, err = w.s.SetMode(w.ctx, job.NewID(), store.Drain)
	w.kind(err, job.NotFound)
	for _, id := range []job.ID{ended, dead} {
		_, err := w.s.SetMode(w.ctx, id, store.Drain)
		w.kind(err, job.Conflict)
	}
}

func sessionDuties(w *world) {
	holder, other, third := w.session(), w.session(), w.session()
	before := w.duty(holder, watch)
	w.command(holder, store.Drain)
	if again := w.duty(holder, watch); again.Term != before.Term {
		w.Errorf("the term went from %d to %d although nobody else wants the duty", before.Term, again.Term)
	}
	after := w.duty(other, watch)
	if after.Term <= before.Term {
		w.Errorf("another gets the duty with term %d after %d", after.Term, before.Term)
	}
	for _, d := range w.renew(holder, watch).Duties {
		w.Errorf("the one that drains has it back, with term %d", d.Term)
	}
	for _, d := range w.renew(third, watch).Duties {
		w.Errorf("a third one has it, with term %d", d.Term)
	}

	// A draining session does not take it from another, and takes it if nobody has it.
	w.command(other, store.Drain)
	if again := w.duty(other, watch); again.Term != after.Term {
		w.Errorf("the term went from %d to %d", after.Term, again.Term)
	}
	for _, d := range w.renew(holder, watch).Duties {
		w.Errorf("one that drains took it from another, with term %d", d.Term)
	}
	w.end(other)
	w.duty(holder, watch)
	Check(w, w.s, acme)
}
