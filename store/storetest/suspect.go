package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var suspectTests = []test{
	{"a job suspected twice is claimed in the lane of its own, whatever it is", suspectLane},
	{"the third crash alone ends a suspect", suspectPoison},
	{"a suspect whose launch may still run does not end", suspectLive},
	{"a step that comes to an end clears a suspect", suspectOutlived},
	{"an end in good order accuses nobody", suspectEnded},
	{"a session whose lease has run out can still end in good order", suspectEndedLate},
	{"one job that kills its workers is found among 199 others", suspectFound},
	{"who comes back clears what expiry took from it", suspectCleared},
	{"a job that was interrupted too often fails", suspectLimit},
	{"a job is cleared in the hands of its next worker", suspectClearedHeld},
	{"who comes back harms no job that went on without it", suspectClearedLate},
	{"clearing is repeatable, and jobs that are not there are nothing to it", suspectClearedAgain},
}

// crash lets the lease of everybody run out, and expires them.
func (w *world) crash() {
	w.Helper()
	w.clock.Advance(lease + margin)
	w.expire()
}

// suspected makes a job that stood in n crashes, and is ready.
func (w *world) suspected(n int, new store.New) job.Job {
	w.Helper()
	id := w.add(new)
	for range n {
		c := wanted(w.session(), 1)
		c.Queues, c.Kinds, c.Jobs = []string{new.Job.Queue}, []string{new.Job.Kind}, []job.ID{id}
		if len(w.claim(c)) != 1 {
			w.Fatalf("job %s is not claimed", id)
		}
		w.crash()
	}
	j := w.job(id)
	if j.Suspect != n || j.Recoveries != n || j.Custody != job.Ready {
		w.Fatalf("after %d crashes: %s, suspect %d, %d recoveries", n, j.Place, j.Suspect, j.Recoveries)
	}
	return j
}

// aloneOnly is a claim for n suspects and nothing else; noneAlone one for n jobs in each lane but
// theirs.
func aloneOnly(session job.ID, n int) store.Claim {
	c := wanted(session, 0)
	c.Slots = map[job.Lane]int{job.LaneAlone: n}
	return c
}

func noneAlone(session job.ID, n int) store.Claim {
	c := wanted(session, n)
	delete(c.Slots, job.LaneAlone)
	return c
}

func suspectLane(w *world) {
	once := w.suspected(job.AloneAt-1, newTask())
	if once.Lane != job.LaneTask {
		w.Errorf("suspected once: lane %s", once.Lane)
	}
	session := w.session()
	sameSet(w, "a job suspected once", jobIDs(w.claim(noneAlone(session, 10))), []job.ID{once.ID})
	w.must(finish(w.job(once.ID), by(session)))

	twice := []job.ID{
		w.suspected(job.AloneAt, newTask(withPriority(3))).ID,
		w.suspected(job.AloneAt, newProgram(on(machine))).ID,
		w.suspected(job.AloneAt, newTask()).ID,
	}
	apart := w.suspected(job.AloneAt, newTask(on(machine), inQueue("apart"))).ID
	staged := w.stand(job.StagingInputs, job.Worker).ID
	w.crash()
	w.claim(noneAlone(w.session(), 10))
	w.crash()
	twice = append(twice, staged)
	for _, id := range append(twice, apart) {
		if j := w.job(id); j.Lane != job.LaneAlone {
			w.Errorf("job %s: lane %s", id, j.Lane)
		}
	}

	session = w.session()
	sameSet(w, "in all other lanes", jobIDs(w.claim(noneAlone(session, 10))), nil)
	plain := w.add(newTask(withPriority(9)))
	// the first by priority
	sameSet(w, "one slot in each lane", jobIDs(w.claim(wanted(session, 1))), []job.ID{plain, twice[0]})
	for _, id := range twice[1:] {
		sameSet(w, "the next suspect by age", jobIDs(w.claim(aloneOnly(session, 1))), []job.ID{id})
	}
	sameSet(w, "no suspect in the queue is left", jobIDs(w.claim(aloneOnly(session, 10))), nil)
	elsewhere := aloneOnly(session, 10)
	elsewhere.Queues, elsewhere.Machine = []string{"apart"}, "m2"
	sameSet(w, "a suspect of another machine", jobIDs(w.claim(elsewhere)), nil)
	elsewhere.ID, elsewhere.Machine = job.NewID(), machine
	sameSet(w, "a suspect of this machine", jobIDs(w.claim(elsewhere)), []job.ID{apart})

	w.at(job.Running, job.Worker, twice[0], twice[2])
	w.at(job.ProcessingInputs, job.Worker, twice[1])
	w.at(job.StagingInputs, job.Worker, staged)
	Check(w, w.s, acme)
}

func suspectPoison(w *world) {
	for name, n := range map[string]store.New{"task": newTask(), "program": newProgram(on(machine))} {
		j := w.suspected(job.PoisonAt-1, n)
		waits := w.add(newTask(after(job.NeedEnded, j.ID)))
		w.claim(aloneOnly(w.session(), 1))
		w.clock.Advance(lease + margin)
		taken, effects, err := w.s.Expire(w.ctx, 10)
		if err != nil || taken != 1 || !effects.Owed || len(effects.Ready) != 0 {
			w.Errorf("%s: expired %d, %+v, %v; want 1, something owed and nothing ready", name, taken, effects, err)
		}
		w.at(job.Failed, job.None, j.ID)
		if j = w.job(j.ID); j.Code != job.Poison || j.Suspect != job.PoisonAt || j.Recoveries != job.PoisonAt {
			w.Errorf("%s: %s, suspect %d, %d recoveries", name, j.Code, j.Suspect, j.Recoveries)
		}
		if e := w.event(j.ID, j.N); e.Cause != job.CauseExpired {
			w.Errorf("%s: the event is %+v", name, e)
		}
		w.pay()
		w.at(job.Pending, job.Ready, waits)
		w.wish(job.WishCancel, waits)
	}
	Check(w, w.s, acme)
}

func suspectLive(w *world) {
	id := w.launched().ID
	w.crash()
	for range job.PoisonAt {
		w.claimOne(w.session())
		w.crash()
	}
	w.at(job.SubmittingJob, job.Ready, id)
	session := w.session()
	sameSet(w, "in all other lanes", jobIDs(w.claim(noneAlone(session, 10))), nil)
	j := w.claimOne(session)
	w.must(setting(move(j, by(session), job.Worker, job.SubmittingJob), job.Patch{Over: true}))
	w.crash()
	w.at(job.Failed, job.None, id)
	if j := w.job(id); j.Code != job.Poison {
		w.Errorf("code %s", j.Code)
	}
	Check(w, w.s, acme)
}

func suspectOutlived(w *world) {
	is := func(id job.ID, suspect int, lane job.Lane) {
		w.Helper()
		if j := w.job(id); j.Suspect != suspect || j.Lane != lane {
			w.Errorf("suspect %d in lane %s, want %d in %s", j.Suspect, j.Lane, suspect, lane)
		}
	}
	program := w.suspected(3, newProgram(on(machine))).ID
	session := w.session()
	j := w.claimOne(session)
	j = w.must(move(j, by(session), job.Worker, job.ProcessingInputs)) // something recorded
	is(program, 3, job.LaneAlone)
	w.must(move(j, by(session), job.Ready, job.ProcessingInputs)) // given back
	is(program, 3, job.LaneAlone)
	j = w.claimOne(session)
	w.must(setting(move(j, by(session), job.Worker, job.StagingInputs), job.Patch{Clear: true}))
	is(program, 0, job.LanePrepare)
	w.crash()
	is(program, 1, job.LanePrepare)

	retried := w.suspected(4, newTask()).ID
	session = w.session()
	c := aloneOnly(session, 1)
	j = w.claim(c)[0]
	w.must(setting(move(j, by(session), job.Ready, job.Pending), job.Patch{Retry: true, Clear: true}))
	is(retried, 0, job.LaneTask)
	sameSet(w, "the next claim", jobIDs(w.claim(noneAlone(session, 10))), []job.ID{program, retried})

	for _, clear := range []bool{true, false} {
		id := w.suspected(1, newTask(inQueue("ends"))).ID
		session = w.session()
		c := wanted(session, 1)
		c.Queues = []string{"ends"}
		w.must(setting(finish(w.claim(c)[0], by(session)), job.Patch{Clear: clear}))
		if j, want := w.job(id), map[bool]int{false: 1}[clear]; j.Suspect != want {
			w.Errorf("a job that ends, cleared %t: suspect %d, want %d", clear, j.Suspect, want)
		}
	}
	Check(w, w.s, acme)
}

func suspectEnded(w *world) {
	j := w.suspected(job.PoisonAt-1, newTask())
	for range 3 {
		session := w.session()
		w.claim(aloneOnly(session, 1))
		w.end(session)
	}
	w.at(job.Pending, job.Ready, j.ID)
	if after := w.job(j.ID); after.Suspect != j.Suspect || after.Recoveries != j.Recoveries ||
		after.Lane != job.LaneAlone {
		w.Errorf("suspect %d, %d recoveries, lane %s; want %d, %d", after.Suspect, after.Recoveries, after.Lane,
			j.Suspect, j.Recoveries)
	}
	Check(w, w.s, acme)
}

func suspectEndedLate(w *world) {
	w.addMany(20)
	late, half := w.session(), w.session()
	first := jobIDs(w.claim(wanted(late, 10)))
	w.clock.Advance(lease / 2)
	w.renew(half)
	w.claim(wanted(half, 10))
	w.clock.Advance(lease/2 + margin)
	effects := w.end(late) // before anybody looked
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	if n := w.expire(); n != 0 {
		w.Errorf("expired %d jobs of a session that has ended", n)
	}
	for _, id := range first {
		if j := w.job(id); j.Custody != job.Ready || j.Suspect != 0 || j.Recoveries != 0 {
			w.Errorf("%s, suspect %d, %d recoveries", j.Place, j.Suspect, j.Recoveries)
		}
	}
	w.clock.Advance(lease)
	if n, _, err := w.s.Expire(w.ctx, 4); n != 4 || err != nil {
		w.Errorf("expired %d, %v; want 4", n, err)
	}
	w.end(half) // when some have been taken
	w.expire()
	if n, err := w.s.Count(w.ctx, acme, nil); err != nil || n.States[job.Pending] != 20 {
		w.Errorf("counted %v, %v; want 20 PENDING", n.States, err)
	}
	Check(w, w.s, acme)
}

// suspectFound: the job is found after the number of crashes that it takes, however many jobs run
// beside it, and no other comes near.
func suspectFound(w *world) {
	for _, slots := range []int{1, 20, 200} {
		w.fresh(fmt.Sprintf("%d slots", slots), func(w *world) {
			ids := w.addMany(rounds(200, 60))
			poison := ids[len(ids)/2]
			crashes := 0
			for rounds := 0; ; rounds++ {
				if rounds > 1000 {
					w.Fatalf("not all have ended")
				}
				session := w.session()
				c := wanted(session, slots)
				c.Slots[job.LaneAlone] = 1
				jobs := w.claim(c)
				switch {
				case len(jobs) == 0:
					w.end(session)
				case slices.Contains(jobIDs(jobs), poison):
					crashes++
					w.crash()
					continue
				default:
					var changes []job.Change
					for _, j := range jobs {
						if j.Suspect > job.AloneAt {
							w.Errorf("job %s was suspected %d times", j.ID, j.Suspect)
						}
						changes = append(changes, setting(finish(j, by(session)), job.Patch{Clear: true}))
					}
					for _, a := range w.applyAll(changes...) {
						if a.Outcome != store.OK {
							w.Errorf("outcome %s", a.Outcome)
						}
					}
					w.end(session)
					continue
				}
				break
			}
			if crashes != job.PoisonAt {
				w.Errorf("it took %d crashes, want %d", crashes, job.PoisonAt)
			}
			if j := w.job(poison); j.State != job.Failed || j.Code != job.Poison {
				w.Errorf("it ended %s, %s", j.State, j.Code)
			}
			if n, err := w.s.Count(w.ctx, acme, nil); err != nil || n.States[job.Finished] != len(ids)-1 {
				w.Errorf("counted %v, %v; want all others FINISHED", n.States, err)
			}
			Check(w, w.s, acme)
		})
	}
}

// clear tells that jobs were lost by a process that lives.
func (w *world) clear(lost ...job.Job) store.Effects {
	w.Helper()
	list := make([]store.Lost, len(lost))
	for i, j := range lost {
		list[i] = store.Lost{Job: j.ID, Epoch: j.Epoch}
	}
	effects, err := w.s.Clear(w.ctx, list)
	if err != nil {
		w.Fatalf("clear: %v", err)
	}
	return effects
}

// sameBut fails the test unless job and history are as they were, less the suspicion.
func (w *world) sameBut(j job.Job, suspect int, lane job.Lane) {
	w.Helper()
	j.Suspect, j.Lane = suspect, lane
	w.untouched(j)
}

func suspectCleared(w *world) {
	w.submit(newTask(), newProgram(on(machine)), newTask(inQueue("apart")))
	w.suspected(1, newTask())
	w.suspected(job.AloneAt, newTask(ofKind("other")))
	session := w.session()
	c := wanted(session, 10)
	c.Queues, c.Kinds = append(c.Queues, "apart"), append(c.Kinds, "other")
	held := w.claim(c)
	if len(held) != 5 {
		w.Fatalf("claimed %d jobs, want 5", len(held))
	}
	w.crash()
	before := make([]job.Job, len(held))
	for i, j := range held {
		before[i] = w.job(j.ID)
	}
	effects := w.clear(held...)
	// Only a job that stands in another lane now is announced.
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task},
		job.QueueKind{Queue: job.DefaultQueue, Kind: "other"})
	for _, j := range before {
		lane := job.LaneTask
		if j.Program() {
			lane = job.LanePrepare
		}
		w.sameBut(j, 0, lane)
		if j.Recoveries == 0 {
			w.Errorf("job %s counts no recovery", j.ID)
		}
	}
	c = noneAlone(w.session(), 10)
	c.Queues, c.Kinds = append(c.Queues, "apart"), append(c.Kinds, "other")
	sameSet(w, "claimed in their own lanes", jobIDs(w.claim(c)), jobIDs(held))
	Check(w, w.s, acme)
}

func suspectClearedHeld(w *world) {
	w.submit(newTask(), newTask())
	alone := w.suspected(job.PoisonAt-2, newTask()).ID
	lost := w.claim(wanted(w.session(), 10))
	w.crash()
	next := w.session()
	again := w.claim(wanted(next, 10))
	if len(again) != 3 {
		w.Fatalf("claimed %d jobs, want 3", len(again))
	}
	if effects := w.clear(lost...); len(effects.Ready) != 0 {
		w.Errorf("lines %v are announced", effects.Ready)
	}
	for _, j := range again {
		w.sameBut(j, 0, job.LaneTask)
	}
	// What its worker knew of it is still good for a change.
	w.must(finish(again[0], by(next)))
	w.crash()
	for _, j := range again[1:] {
		if j := w.job(j.ID); j.Suspect != 1 || j.Custody != job.Ready {
			w.Errorf("after the crash of its next process: %s, suspect %d", j.Place, j.Suspect)
		}
	}
	if j := w.job(alone); j.State.Terminal() && j.Code == job.Poison {
		w.Errorf("the one that had been suspected often ended %s", j.Code)
	}
	Check(w, w.s, acme)
}

func suspectClearedLate(w *world) {
	ids := w.addMany(5)
	ended, crashed, drained, paused, canceled := ids[0], ids[1], ids[2], ids[3], ids[4]
	lost := w.claim(wanted(w.session(), 10))
	held := w.suspected(0, newTask()) // still in the hands of a session when it is cleared
	w.crash()
	next := w.session()
	c := wanted(next, 10)
	c.Jobs = []job.ID{ended, drained, held.ID}
	for _, j := range w.claim(c) {
		switch j.ID {
		case ended:
			w.must(finish(j, by(next)))
		case drained:
			w.must(move(j, by(next), job.Ready, job.Pending))
		case held.ID:
			held = j
		}
	}
	dies := w.session()
	c = wanted(dies, 10)
	c.Jobs = []job.ID{crashed}
	w.claim(c)
	w.wish(job.WishPause, paused)
	w.wish(job.WishCancel, canceled)
	w.clock.Advance(lease - margin)
	w.renew(next)
	w.clock.Advance(2 * margin)
	w.expire()

	before := map[job.ID]job.Job{}
	for _, id := range append(ids, held.ID) {
		before[id] = w.job(id)
	}
	if n := before[crashed].Suspect; n != 2 {
		w.Fatalf("after two crashes: suspect %d", n)
	}
	w.clear(append(lost, held)...)
	for _, id := range []job.ID{ended, crashed, drained, canceled, held.ID} {
		w.untouched(before[id])
	}
	w.sameBut(before[paused], 0, job.LaneTask)

	// A job that was never taken from the process, and a job that it knows under another epoch.
	j := before[crashed]
	for _, epoch := range []int64{0, j.Epoch - 3, j.Epoch, j.Epoch + 1, j.Epoch + 100} {
		j.Epoch = epoch
		w.clear(j)
	}
	w.untouched(before[crashed])
	Check(w, w.s, acme)
}

func suspectClearedAgain(w *world) {
	w.clear()
	unknown := job.Job{ID: job.NewID(), Epoch: 1}
	w.clear(unknown)
	w.add(newTask())
	lost := w.claimOne(w.session())
	w.crash()
	for range 3 {
		w.clear(unknown, lost, lost)
		if j := w.job(lost.ID); j.Suspect != 0 {
			w.Errorf("suspect %d", j.Suspect)
		}
	}
	// A crash after that counts, however often the call is made.
	w.claimOne(w.session())
	w.crash()
	w.clear(lost)
	if j := w.job(lost.ID); j.Suspect != 1 {
		w.Errorf("suspect %d after a crash of its next process, want 1", j.Suspect)
	}
	Check(w, w.s, acme)
}

// interrupted brings jobs near the number of interruptions that is too many, where the store can do
// that, and returns how many they have now.
func (w *world) interrupted(jobs ...job.Job) (n int) {
	w.Helper()
	s, can := w.s.(interface {
		HasRecoveries(ctx context.Context, id job.ID, n int) error
	})
	if !can || testenv.Long() {
		return jobs[0].Recoveries
	}
	for _, j := range jobs {
		if err := s.HasRecoveries(w.ctx, j.ID, job.MaxRecoveries-25); err != nil {
			w.Fatalf("%v", err)
		}
	}
	return job.MaxRecoveries - 25
}

func suspectLimit(w *world) {
	session := w.session()
	id := w.add(newTask())
	j := w.claimOne(session)
	j.Recoveries = w.interrupted(j)
	for j.Recoveries < job.MaxRecoveries {
		c := setting(move(j, by(session), job.Worker, job.Running), job.Patch{Recovery: true})
		got := w.apply(c)
		if got.Outcome != store.OK {
			w.Fatalf("apply: %+v", got)
		}
		j.Recoveries, j.N = j.Recoveries+1, got.Now.N
		if j.Recoveries%20 == 0 {
			w.renew(session) // all of them may take longer than a lease
		}
	}
	waits := w.add(newTask(after(job.NeedEnded, id)))
	w.clock.Advance(lease + margin)
	n, effects, err := w.s.Expire(w.ctx, 10)
	if err != nil || n != 1 || !effects.Owed {
		w.Errorf("expired %d, owed %t, %v; want 1 and something owed", n, effects.Owed, err)
	}
	w.at(job.Failed, job.None, id)
	if j := w.job(id); j.Code != job.RecoveryLimit {
		w.Errorf("code %s, want %s", j.Code, job.RecoveryLimit)
	}
	w.pay()
	w.at(job.Pending, job.Ready, waits)
	Check(w, w.s, acme)
}
