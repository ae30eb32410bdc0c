package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var leaseTests = []test{
	{"a session that expires loses its jobs", leaseExpires},
	{"a session that ends gives its jobs back", leaseEnds},
	{"a renewal keeps a session alive", leaseRenewed},
	{"expiry goes in bounded steps", leaseBounded},
	{"expiry takes what earlier ones left, too", leaseLeftOver},
	{"a launch survives the death of its session", leaseLive},
	{"an expired session cannot be renewed", leaseFenced},
	{"begin can be repeated", leaseBegin},
	{"a renewal counts the jobs that it has held for long", leaseHeld},
	{"a renewal tells of wishes", leaseWishes},
	{"a renewal tells of the next expiry", leaseNextExpiry},
	{"a renewal tells of ready work", leaseReady},
	{"a duty has one holder", leaseDuty},
	{"a duty has one holder, whoever asks at once", leaseDutyAtOnce},
	{"a duty that nobody wants any more is free", leaseDutyDropped},
	{"who closes a dead session tells of all that it may have left", leaseLeft},
	{"a renewal tells of follow-ups that nobody pays", leaseUnpaid},
	{"a renewal tells when the first job is due", leaseDue},
}

func leaseExpires(w *world) {
	dead, alive := w.session(), w.session()
	t, p := w.add(newTask()), w.add(newProgram())
	w.claim(wanted(dead, 10))
	mine := w.add(newTask())
	w.claimOne(alive)
	w.clock.Advance(lease - margin)
	w.renew(alive)
	if n := w.expire(); n != 0 {
		w.Errorf("expired %d jobs before a lease was over", n)
	}
	w.clock.Advance(2 * margin)
	n, effects, err := w.s.Expire(w.ctx, 100)
	if err != nil || n != 2 {
		w.Errorf("expired %d, %v; want 2", n, err)
	}
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task},
		job.QueueKind{Queue: job.DefaultQueue, Kind: job.KindApp})
	w.at(job.Pending, job.Ready, t)
	w.at(job.ProcessingInputs, job.Ready, p)
	w.at(job.Running, job.Worker, mine)
	for _, id := range []job.ID{t, p} {
		if j := w.job(id); j.Recoveries != 1 || j.Suspect != 1 || j.Attempt != 1 {
			w.Errorf("job %s: recoveries %d, suspect %d, attempt %d; want 1 of each", id, j.Recoveries, j.Suspect,
				j.Attempt)
		}
		if e := w.event(id, 3); e.Cause != job.CauseExpired {
			w.Errorf("the event is %+v", e)
		}
	}
	if j := w.job(mine); j.Recoveries != 0 || j.Suspect != 0 {
		w.Errorf("a job of a live session counts recoveries %d, suspect %d", j.Recoveries, j.Suspect)
	}
	if n := w.expire(); n != 0 {
		w.Errorf("expired %d jobs again", n)
	}
	Check(w, w.s, acme)
}

func leaseEnds(w *world) {
	session := w.session()
	t, p := w.add(newTask()), w.add(newProgram())
	w.claim(wanted(session, 10))
	effects := w.end(session)
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task},
		job.QueueKind{Queue: job.DefaultQueue, Kind: job.KindApp})
	w.expire() // a store may end a session first and take its jobs then
	w.at(job.Pending, job.Ready, t)
	w.at(job.ProcessingInputs, job.Ready, p)
	for _, id := range []job.ID{t, p} {
		if j := w.job(id); j.Recoveries != 0 || j.Suspect != 0 {
			w.Errorf("job %s: recoveries %d, suspect %d after an end in good order", id, j.Recoveries, j.Suspect)
		}
	}
	w.end(session)
	w.end(session)
	if n := len(w.history(t)); n != 3 {
		w.Errorf("%d events, want 3", n)
	}
	Check(w, w.s, acme)
}

func leaseRenewed(w *world) {
	session := w.session()
	w.add(newTask())
	j := w.claimOne(session)
	for range 10 {
		w.clock.Advance(lease - margin)
		w.renew(session)
		if n := w.expire(); n != 0 {
			w.Fatalf("expired %d jobs of a session that renews", n)
		}
	}
	w.must(finish(j, by(session)))
}

func leaseBounded(w *world) {
	w.addMany(25)
	first, second := w.session(), w.session()
	w.claim(wanted(first, 12))
	w.claim(wanted(second, 13))
	w.clock.Advance(lease + margin)
	for _, want := range []int{10, 10, 5, 0} {
		n, _, err := w.s.Expire(w.ctx, 10)
		if err != nil || n != want {
			w.Errorf("expired %d, %v; want %d", n, err, want)
		}
	}
	if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Pending] != 25 {
		w.Errorf("counted %v, want 25 PENDING", n)
	}
	Check(w, w.s, acme)
}

func leaseLeftOver(w *world) {
	w.addMany(20)
	first, second := w.session(), w.session()
	w.claim(wanted(first, 10))
	w.claim(wanted(second, 10))
	w.clock.Advance(lease - margin)
	w.renew(second)
	w.clock.Advance(2 * margin)
	if n, _, err := w.s.Expire(w.ctx, 4); err != nil || n != 4 {
		w.Errorf("expired %d, %v; want 4", n, err)
	}
	w.clock.Advance(lease)
	if n := w.expire(); n != 16 {
		w.Errorf("expired %d, want the 6 that were left and 10 more", n)
	}
	if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Pending] != 20 {
		w.Errorf("counted %v, want 20 PENDING", n)
	}
	Check(w, w.s, acme)
}

func leaseLive(w *world) {
	st := w.launched()
	w.clock.Advance(lease + margin)
	w.expire()
	w.at(job.SubmittingJob, job.Ready, st.ID)
	if j := w.job(st.ID); !j.Live || j.Launch != 1 {
		w.Errorf("launch %d, live %t after the session died", j.Launch, j.Live)
	}
	if j := w.claimOne(w.session()); !j.Live || j.State != job.SubmittingJob {
		w.Errorf("claimed at %s, live %t", j.Place, j.Live)
	}
	Check(w, w.s, acme)
}

func leaseFenced(w *world) {
	ended, expired, taken := w.session(), w.session(), w.session()
	w.end(ended)
	w.clock.Advance(lease + margin)
	for name, id := range map[string]job.ID{"ended": ended, "expired": expired, "unknown": job.NewID()} {
		if _, err := w.s.Renew(w.ctx, renewal(id)); job.KindOf(err) != job.Fenced {
			w.Errorf("renewal of a session that is %s: %v, want fenced", name, err)
		}
	}
	w.expire()
	if _, err := w.s.Renew(w.ctx, renewal(taken)); job.KindOf(err) != job.Fenced {
		w.Errorf("renewal after the expiry: %v, want fenced", err)
	}
}

func leaseBegin(w *world) {
	w.add(newTask())
	s := store.Session{ID: job.NewID(), Process: store.Process{Host: "host", PID: 1}, Lease: lease}
	for range 2 {
		if err := w.s.Begin(w.ctx, s); err != nil {
			w.Fatalf("begin: %v", err)
		}
	}
	j := w.claimOne(s.ID)
	if err := w.s.Begin(w.ctx, s); err != nil {
		w.Fatalf("begin: %v", err)
	}
	w.must(move(j, by(s.ID), job.Ready, job.Pending))

	// What has ended stays ended.
	w.end(s.ID)
	_ = w.s.Begin(w.ctx, s)
	if _, err := w.s.Claim(w.ctx, wanted(s.ID, 1)); job.KindOf(err) != job.Fenced {
		w.Errorf("a claim by a session that was begun again after its end: %v, want fenced", err)
	}
	if err := w.s.Begin(w.ctx, store.Session{ID: job.NewID(), Lease: store.MinLease}); err != nil {
		w.Errorf("the shortest lease: %v", err)
	}
}

func leaseHeld(w *world) {
	session := w.session()
	w.submit(newTask(), newTask(), newProgram())
	jobs := w.claim(wanted(session, 10))
	var before time.Time // the renewal before the newest one
	held := func(want int) {
		w.Helper()
		w.clock.Advance(time.Second)
		last := w.renew(session)
		if last.Held != want {
			w.Errorf("held %d since before %v, want %d", last.Held, last.HeldBefore, want)
		}
		if last.HeldBefore.After(before.Add(time.Millisecond)) {
			w.Errorf("held before %v, which is not before the renewal at %v", last.HeldBefore, before)
		}
		before = last.Now
	}
	for range 3 {
		w.clock.Advance(time.Second)
		before = w.renew(session).Now
	}
	held(3)

	// New jobs count when two renewals have passed; what a job does meanwhile takes nothing away.
	w.addMany(2)
	w.claim(wanted(session, 10))
	for _, j := range jobs {
		if j.Program() {
			w.must(move(j, by(session), job.Worker, job.StagingInputs))
		}
	}
	w.clock.Advance(time.Second)
	if r := w.renew(session); r.Held != 3 {
		w.Errorf("held %d right after a claim of two more and a step of one, want 3", r.Held)
	}
	for range 3 {
		w.clock.Advance(time.Second)
		before = w.renew(session).Now
	}
	held(5)
	for _, j := range jobs {
		if !j.Program() {
			w.must(finish(j, by(session)))
		}
	}
	held(3)

	all, err := w.s.Find(w.ctx, store.FindQuery{Session: session})
	if err != nil || len(all) != 3 {
		w.Errorf("held lists %d jobs, %v; want 3", len(all), err)
	}
}

func leaseWishes(w *world) {
	session, other := w.session(), w.session()
	w.addMany(3)
	jobs := w.claim(wanted(session, 3))
	_, effects := w.wishAll(job.WishCancel, jobs[0].ID)
	equal(w, "sessions to tell", fmtIDs(effects.Held), fmtIDs([]job.ID{session}))
	w.wish(job.WishPause, jobs[1].ID)
	want := map[job.ID]store.StandingWish{
		jobs[0].ID: {Job: jobs[0].ID, Epoch: jobs[0].Epoch, Wish: job.WishCancel},
		jobs[1].ID: {Job: jobs[1].ID, Epoch: jobs[1].Epoch, Wish: job.WishPause},
	}
	for range 2 { // each renewal tells again
		got := map[job.ID]store.StandingWish{}
		for _, s := range w.renew(session).Wishes {
			got[s.Job] = s
		}
		equal(w, "wishes", got, want)
	}
	if got := w.renew(other).Wishes; len(got) != 0 {
		w.Errorf("another session is told of %+v", got)
	}
	w.apply(finish(jobs[0], by(session)))
	w.apply(move(jobs[1], by(session), job.Ready, job.Pending))
	if got := w.renew(session).Wishes; len(got) != 0 {
		w.Errorf("told of %+v after they were obeyed", got)
	}
	Check(w, w.s, acme)
}

func leaseNextExpiry(w *world) {
	a := w.session()
	if next := w.renew(a).NextExpiry; !next.IsZero() {
		w.Errorf("the only session is told of an expiry at %v", next)
	}
	b := w.session()
	w.clock.Advance(time.Second)
	first := w.renew(b)
	c := w.session()
	w.clock.Advance(time.Second)
	w.renew(c)
	if next := w.renew(a).NextExpiry; !near(next, first.Now.Add(lease)) {
		w.Errorf("next expiry at %v, want %v", next, first.Now.Add(lease))
	}
	w.end(c)
	w.end(b)
	if next := w.renew(a).NextExpiry; !next.IsZero() {
		w.Errorf("told of an expiry at %v when the others have ended", next)
	}
	// A session that has expired and was not taken yet is told of too.
	d := w.session()
	w.add(newTask())
	w.claimOne(d)
	last := w.renew(d).Now.Add(lease)
	for range 3 {
		w.clock.Advance(lease - margin)
		if next := w.renew(a).NextExpiry; !near(next, last) {
			w.Errorf("next expiry at %v, want %v", next, last)
		}
	}
	w.expire()
	if next := w.renew(a).NextExpiry; !next.IsZero() {
		w.Errorf("told of an expiry at %v when all jobs were taken", next)
	}
}

func leaseReady(w *world) {
	session := w.session()
	sameLines(w, w.renew(session).Ready)
	w.submit(newTask(), newTask(), newTask(inQueue("gpu")), newTask(ofKind("other")), newProgram(on("m2")),
		newTask(inQueue("later"), delayed(time.Hour)))
	sameLines(w, w.renew(session).Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	w.add(newProgram(on(machine)))
	all := []job.QueueKind{{Queue: job.DefaultQueue, Kind: task}, {Queue: job.DefaultQueue, Kind: job.KindApp}}
	sameLines(w, w.renew(session).Ready, all...)

	r := renewal(session)
	r.Queues = []string{"gpu", "later", "none", job.DefaultQueue}
	got, err := w.s.Renew(w.ctx, r)
	if err != nil {
		w.Fatalf("renew: %v", err)
	}
	sameLines(w, got.Ready, append(all, job.QueueKind{Queue: "gpu", Kind: task})...)
	w.claim(wanted(session, 10))
	sameLines(w, w.renew(session).Ready)
}

func leaseDuty(w *world) {
	a, b := w.session(), w.session()
	first := w.renew(a, "sweep", "clock").Duties
	if len(first) != 2 {
		w.Fatalf("the first who asks gets %+v, want two duties", first)
	}
	if got := w.renew(b, "clock").Duties; len(got) != 0 {
		w.Errorf("another gets %+v", got)
	}
	terms := map[string]int64{}
	for _, d := range first {
		terms[d.Name] = d.Term
	}
	for range 3 {
		w.clock.Advance(lease - margin)
		for _, d := range w.renew(a, "clock", "sweep").Duties {
			if d.Term != terms[d.Name] {
				w.Errorf("the term of %s went from %d to %d with its holder", d.Name, terms[d.Name], d.Term)
			}
		}
		w.renew(b)
	}
	w.clock.Advance(lease / 2)
	w.renew(b)
	w.clock.Advance(lease/2 + margin)
	got := w.renew(b, "clock").Duties
	if len(got) != 1 || got[0].Name != "clock" || got[0].Term <= terms["clock"] {
		w.Errorf("after the holder's lease another gets %+v, want clock with a term over %d", got, terms["clock"])
	}

	// An end in good order frees them at once.
	c := w.session()
	w.end(b)
	if next := w.renew(c, "clock").Duties; len(next) != 1 || next[0].Term <= got[0].Term {
		w.Errorf("after the holder's end another gets %+v, want a term over %d", next, got[0].Term)
	}
}

func leaseDutyAtOnce(w *world) {
	sessions := make([]job.ID, 8)
	for i := range sessions {
		sessions[i] = w.session()
	}
	holders := make([]int64, len(sessions))
	w.together(len(sessions), func(i int) error {
		r, err := w.s.Renew(w.ctx, renewal(sessions[i], watch))
		for _, d := range r.Duties {
			holders[i] = d.Term
		}
		return err
	})
	n := 0
	for _, term := range holders {
		if term != 0 {
			n++
		}
	}
	if n != 1 {
		w.Errorf("%d sessions hold the duty: %v", n, holders)
	}
}

func leaseDutyDropped(w *world) {
	a, b := w.session(), w.session()
	before := w.duty(a, watch)
	w.renew(a)
	if after := w.duty(b, watch); after.Term <= before.Term {
		w.Errorf("term %d after %d", after.Term, before.Term)
	}
}

func leaseLeft(w *world) {
	const mail = "mail"
	session := w.session()
	first := w.add(newTask(inQueue("ended")))
	w.add(newTask(after(job.NeedEnded, first)))
	w.endAll("ended", job.Finished)
	due := w.job(w.add(newTask(delayed(time.Hour)))).Due
	w.add(newTask(delayed(2 * time.Hour)))
	w.addMany(3, inQueue("b"))
	w.addMany(2, inQueue("b"), on("m9")) // the machine of nobody here
	w.add(newTask(inQueue("a")))
	w.add(newTask(inQueue("a"), ofKind(mail)))
	w.add(newProgram(inQueue("a")))
	expire := func(want store.Effects) {
		w.Helper()
		n, eff, err := w.s.Expire(w.ctx, 100)
		if err != nil || n != 0 {
			w.Errorf("expired %d jobs, %v", n, err)
		}
		sameLines(w, eff.Ready, want.Ready...)
		if eff.Owed != want.Owed || !near(eff.Due, want.Due) {
			w.Errorf("owed %t, due %v; want %t and %v", eff.Owed, eff.Due, want.Owed, want.Due)
		}
	}
	expire(store.Effects{})
	w.clock.Advance(lease - margin)
	w.session() // dies, and holds nothing
	w.renew(session)
	w.clock.Advance(lease - margin)
	w.renew(session)
	expire(store.Effects{})
	w.clock.Advance(2 * margin)
	all := store.Effects{
		Owed: true, Due: due,
		Ready: []job.QueueKind{line("a", job.KindApp), line("a", mail), line("a", task), line("b", task)},
	}
	expire(all)
	expire(store.Effects{})

	w.pay()
	w.claim(store.Claim{
		ID: job.NewID(), Session: session, Queues: []string{job.DefaultQueue, "a", "b"},
		Kinds: []string{task, mail, job.KindApp}, Machine: "m9",
		Slots: map[job.Lane]int{job.LaneTask: 100, job.LanePrepare: 100},
	})
	w.session() // dies too
	w.renew(session)
	w.clock.Advance(lease - margin)
	w.renew(session)
	w.clock.Advance(2 * margin)
	expire(store.Effects{Due: due})
	w.end(session)
	Check(w, w.s, acme)
}

func leaseUnpaid(w *world) {
	session := w.session()
	first := w.add(newTask())
	w.add(newTask(after(job.NeedEnded, first)))
	w.must(finish(w.claimOne(session), by(session)))
	if w.renew(session).Unpaid {
		w.Errorf("told of an unpaid follow-up right after it was owed")
	}
	w.clock.Advance(lease/3 - margin)
	if w.renew(session).Unpaid {
		w.Errorf("told of a follow-up that is unpaid for less than a renewal")
	}
	w.clock.Advance(2 * margin)
	if !w.renew(session).Unpaid {
		w.Errorf("not told of a follow-up that is unpaid for longer than a renewal")
	}
	w.pay()
	if w.renew(session).Unpaid {
		w.Errorf("told of an unpaid follow-up when all are paid")
	}
}

func leaseDue(w *world) {
	session, other := w.session(), w.session()
	due := func(what string, want time.Time) {
		w.Helper()
		for _, s := range []job.ID{session, other} { // for every session, whatever it serves
			r := renewal(s)
			if s == other {
				r.Queues, r.Kinds, r.Machine = nil, nil, ""
			}
			got, err := w.s.Renew(w.ctx, r)
			if err != nil {
				w.Fatalf("renew: %v", err)
			}
			if !near(got.Due, want) {
				w.Errorf("%s: due %v, want %v", what, got.Due, want)
			}
		}
	}
	never := time.Time{}
	due("no job", never)
	first := w.add(newTask())
	waits := w.add(newTask(after(job.NeedEnded, first)))
	due("none waits for a time", never)

	last := w.add(newTask(delayed(3*time.Hour), inQueue("apart")))
	due("one does", w.job(last).Due)
	soon := w.add(newProgram(on("m2"), delayed(time.Minute)))
	due("another is earlier", w.job(soon).Due)
	paused := w.add(newTask(delayed(time.Second)))
	w.wish(job.WishPause, paused)
	due("a paused job waits for a person", w.job(soon).Due)

	j := w.claimOne(session)
	retried := w.must(setting(move(j, by(session), job.Gate, job.Waiting),
		job.Patch{Retry: true, Delay: 10 * time.Second}))
	due("a retry after a delay", retried.Due)
	w.clock.Advance(11 * time.Second)
	due("its time has passed and nobody has looked", retried.Due)
	w.due()
	w.at(job.Pending, job.Ready, first)
	due("after that", w.job(soon).Due)
	w.wish(job.WishCancel, soon)
	due("a canceled job", w.job(last).Due)
	w.wish(job.WishCancel, last)
	due("no job again", never)
	w.at(job.Waiting, job.Gate, waits)
	Check(w, w.s, acme)
}
