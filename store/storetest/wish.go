package storetest

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

var wishTests = []test{
	{"cancel where nobody works ends a job at once", wishCancelAtOnce},
	{"pause where nobody works pauses a job at once", wishPauseAtOnce},
	{"a worker's job obeys when it leaves the worker", wishWorker},
	{"a watcher's job obeys when its end is known", wishMonitor},
	{"cancel overrides pause", wishOverride},
	{"a cancel that was first turns an end", wishBeforeEnd},
	{"an end that was first stands", wishAfterEnd},
	{"a live launch is not canceled before it is over", wishLive},
	{"a live launch is not canceled in recovery", wishLiveRecovery},
	{"a session dies with a wish on its jobs", wishExpired},
	{"resume goes through the gate", wishResume},
	{"resume returns to the state where work goes on", wishResumeWhere},
	{"resume of what is not paused is a conflict", wishResumeConflict},
	{"many jobs at once, and some that are not there", wishMany},
}

var wishLong = []test{
	{"a wish against a change at the same time", wishRace},
}

func wishCancelAtOnce(w *world) {
	for _, place := range []job.Place{
		{State: job.Waiting, Custody: job.Gate},
		{State: job.Pending, Custody: job.Ready},
		{State: job.StagingInputs, Custody: job.Ready},
		{State: job.SubmittingJob, Custody: job.Ready},
		{State: job.Archiving, Custody: job.Ready},
		{State: job.Blocked, Custody: job.Recovery},
		{State: job.Paused, Custody: job.User},
	} {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			got := w.wish(job.WishCancel, st.ID)
			ended := job.Place{State: job.Canceled, Custody: job.None}
			equal(w, "answer", got, store.Wished{Place: ended, Done: true})
			j := w.job(st.ID)
			if j.Place != ended || j.Code != job.CanceledByUser || j.Epoch != st.Epoch+1 || j.N != st.N+1 {
				w.Errorf("the job is %+v", j)
			}
			if e := w.event(st.ID, st.N+1); e.Cause != job.CauseWish || e.Actor != ann {
				w.Errorf("the event is %+v", e)
			}
			if jobs := w.claim(wanted(st.session, 10)); len(jobs) != 0 {
				w.Errorf("claimed %d jobs after the cancel", len(jobs))
			}
			Check(w, w.s, acme)
		})
	}
}

func wishPauseAtOnce(w *world) {
	for _, place := range []job.Place{
		{State: job.Waiting, Custody: job.Gate},
		{State: job.Pending, Custody: job.Ready},
		{State: job.StagingInputs, Custody: job.Ready},
		{State: job.SubmittingJob, Custody: job.Ready},
		{State: job.Archiving, Custody: job.Ready},
		{State: job.Blocked, Custody: job.Recovery},
	} {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			got := w.wish(job.WishPause, st.ID)
			equal(w, "answer", got, store.Wished{Place: job.Place{State: job.Paused, Custody: job.User}, Done: true})
			w.at(job.Paused, job.User, st.ID)
			w.clock.Advance(2 * time.Hour)
			w.due()
			w.expire()
			if jobs := w.claim(wanted(w.session(), 10)); len(jobs) != 0 {
				w.Errorf("claimed %d jobs after the pause", len(jobs))
			}
			w.at(job.Paused, job.User, st.ID)
			if got := w.wish(job.WishResume, st.ID); !got.Done || got.Err != nil || got.Place.State == job.Paused {
				w.Errorf("resume: %+v", got)
			}
			Check(w, w.s, acme)
		})
	}
}

func wishWorker(w *world) {
	for _, c := range []struct {
		name   string
		wish   job.Wish
		change func(j job.Job) job.Change
		want   store.Outcome
		state  job.State
	}{
		{
			"cancel, back", job.WishCancel,
			func(j job.Job) job.Change { return move(j, by(j.Session), job.Ready, job.Pending) }, store.Diverted,
			job.Canceled,
		},
		{"cancel, snooze", job.WishCancel, func(j job.Job) job.Change {
			return setting(move(j, by(j.Session), job.Gate, job.Waiting), job.Patch{Delay: time.Hour})
		}, store.Diverted, job.Canceled},
		{
			"cancel, blocked", job.WishCancel,
			func(j job.Job) job.Change { return move(j, by(j.Session), job.Recovery, job.Blocked) }, store.Diverted,
			job.Canceled,
		},
		{
			"cancel, step", job.WishCancel,
			func(j job.Job) job.Change { return move(j, by(j.Session), job.Worker, job.Running) }, store.OK,
			job.Running,
		},
		{"pause, back", job.WishPause, func(j job.Job) job.Change {
			return move(j, by(j.Session), job.Ready,
				job.Pending)
		}, store.Diverted, job.Paused},
		{
			"pause, finished", job.WishPause, func(j job.Job) job.Change { return finish(j, by(j.Session)) }, store.OK,
			job.Finished,
		},
		{
			"pause, failed", job.WishPause,
			func(j job.Job) job.Change { return move(j, by(j.Session), job.None, job.Failed) }, store.OK, job.Failed,
		},
		{
			"pause, blocked", job.WishPause,
			func(j job.Job) job.Change { return move(j, by(j.Session), job.Recovery, job.Blocked) }, store.Diverted,
			job.Paused,
		},
		{"pause, step", job.WishPause, func(j job.Job) job.Change {
			return move(j, by(j.Session), job.Worker,
				job.Running)
		}, store.OK, job.Running},
	} {
		w.fresh(c.name, func(w *world) {
			session := w.session()
			w.add(newTask())
			j := w.claimOne(session)
			got, effects := w.wishAll(c.wish, j.ID)
			equal(w, "answer", got[0], store.Wished{Place: j.Place})
			equal(w, "sessions to tell", fmtIDs(effects.Held), fmtIDs([]job.ID{session}))
			if now := w.job(j.ID); now.Wish != c.wish || now.Epoch != j.Epoch || now.N != j.N {
				w.Errorf("after the wish the job is %+v", now)
			}
			applied := w.apply(c.change(j))
			if applied.Outcome != c.want || applied.Now.Place.State != c.state {
				w.Errorf("%s at %s, want %s at %s", applied.Outcome, applied.Now.Place, c.want, c.state)
			}
			if c.state == job.Running && applied.Wish != c.wish {
				w.Errorf("the answer tells of wish %q, want %q", applied.Wish, c.wish)
			}
			if now := w.job(j.ID); now.Place != applied.Now.Place || now.N != applied.Now.N ||
				now.Epoch != applied.Now.Epoch {
				w.Errorf("answered %+v, the job is %+v", applied.Now, now)
			}
			if e := w.event(j.ID, j.N+1); (e.Cause == job.CauseDiverted) != (c.want == store.Diverted) {
				w.Errorf("the event is %+v", e)
			}
			Check(w, w.s, acme)
		})
	}
}

func wishMonitor(w *world) {
	for _, wish := range []job.Wish{job.WishCancel, job.WishPause} {
		for _, state := range []job.State{job.Queued, job.Running} {
			w.fresh(string(wish)+" "+string(state), func(w *world) {
				st := w.stand(state, job.Monitor)
				got, effects := w.wishAll(wish, st.ID)
				equal(w, "answer", got[0], store.Wished{Place: st.Place})
				equal(w, "watches to tell", effects.Watch, []string{machine})
				w.at(state, job.Monitor, st.ID)
				// A wish brings a job to the watcher's eyes however long it has been there.
				watched, err := w.s.Find(w.ctx, store.FindQuery{Watch: machine})
				if err != nil || len(watched) != 1 || watched[0].Wish != wish {
					w.Errorf("watched %+v, %v", watched, err)
				}

				// News that the program runs on changes nothing.
				j := w.job(st.ID)
				if state == job.Queued {
					j = w.must(move(j, st.fence, job.Monitor, job.Running))
				}
				applied := w.apply(setting(move(j, st.fence, job.Ready, job.Archiving), job.Patch{Over: true}))
				want := job.Place{State: job.Canceled, Custody: job.None}
				if wish == job.WishPause {
					want = job.Place{State: job.Paused, Custody: job.User}
				}
				if applied.Outcome != store.Diverted || applied.Now.Place != want {
					w.Errorf("%s at %s, want diverted at %s", applied.Outcome, applied.Now.Place, want)
				}
				if wish == job.WishPause {
					w.wish(job.WishResume, st.ID)
					w.at(job.Archiving, job.Ready, st.ID)
				}
				Check(w, w.s, acme)
			})
		}
	}
}

func wishOverride(w *world) {
	session := w.session()
	w.addMany(2)
	jobs := w.claim(wanted(session, 2))
	w.wish(job.WishPause, jobs[0].ID)
	w.wish(job.WishCancel, jobs[0].ID)
	w.wish(job.WishCancel, jobs[1].ID)
	w.wish(job.WishPause, jobs[1].ID) // whatever the answer
	for _, j := range jobs {
		if now := w.job(j.ID); now.Wish != job.WishCancel {
			w.Errorf("the wish is %q, want cancel", now.Wish)
		}
		w.apply(move(j, by(session), job.Ready, job.Pending))
		w.at(job.Canceled, job.None, j.ID)
	}
	Check(w, w.s, acme)
}

func wishBeforeEnd(w *world) {
	session := w.session()
	w.addMany(2)
	jobs := w.claim(wanted(session, 2))
	w.wishAll(job.WishCancel, jobs[0].ID, jobs[1].ID)
	for i, c := range []job.Change{finish(jobs[0], by(session)), move(jobs[1], by(session), job.None, job.Failed)} {
		got := w.apply(c)
		if got.Outcome != store.Diverted || got.Now.Place.State != job.Canceled {
			w.Errorf("%s at %s, want diverted at CANCELED", got.Outcome, got.Now.Place)
		}
		if j := w.job(jobs[i].ID); j.Code != job.CanceledByUser {
			w.Errorf("code %s", j.Code)
		}
	}
	Check(w, w.s, acme)
}

func wishAfterEnd(w *world) {
	session := w.session()
	w.addMany(3)
	jobs := w.claim(wanted(session, 3))
	w.must(finish(jobs[0], by(session)))
	w.must(move(jobs[1], by(session), job.None, job.Failed))
	w.must(move(jobs[2], by(session), job.None, job.Canceled))
	for _, j := range jobs {
		before := w.job(j.ID)
		for _, wish := range []job.Wish{job.WishCancel, job.WishPause, job.WishResume} {
			got := w.wish(wish, j.ID)
			if wish == job.WishCancel && before.State == job.Canceled {
				equal(w, "cancel of what is canceled", got, store.Wished{Place: before.Place, Done: true})
			} else if job.KindOf(got.Err) != job.Conflict || got.Err == nil || got.Done {
				w.Errorf("%s after the end: %+v, want a conflict", wish, got)
			}
		}
		w.untouched(before)
	}
}

func wishLive(w *world) {
	// In a worker's hands, then in its queue, then in another worker's hands, then at the watcher.
	st := w.launched()
	if got := w.wish(job.WishCancel, st.ID); got.Done {
		w.Errorf("canceled at once: %+v", got)
	}
	w.clock.Advance(lease + margin)
	w.expire()
	w.at(job.SubmittingJob, job.Ready, st.ID)
	if got := w.wish(job.WishCancel, st.ID); got.Done || got.Err != nil {
		w.Errorf("canceled at once: %+v", got)
	}
	w.at(job.SubmittingJob, job.Ready, st.ID)
	session := w.session()
	j := w.claimOne(session)
	if j.Wish != job.WishCancel || !j.Live {
		w.Errorf("claimed with wish %q, live %t", j.Wish, j.Live)
	}
	again := setting(move(j, by(session), job.Gate, job.Waiting), job.Patch{Retry: true})
	if got := w.apply(again); got.Outcome != store.Diverted || got.Now.Place.Custody != job.Ready {
		w.Errorf("to another attempt: %s at %s, want diverted and ready", got.Outcome, got.Now.Place)
	}
	j = w.claimOne(session)
	j = w.must(move(j, by(session), job.Monitor, job.Running))
	fence := w.duty(session, watch)
	j = w.must(move(j, fence, job.Ready, job.Archiving)) // its end is not known
	if !j.Live || j.Wish != job.WishCancel {
		w.Errorf("live %t, wish %q", j.Live, j.Wish)
	}
	j = w.claimOne(session)
	if _, _, _, err := w.s.Apply(w.ctx, []job.Change{finish(j, by(session))}, nil); err == nil {
		w.Errorf("an end with a live launch is no error")
	}
	w.untouched(j)
	got := w.apply(setting(finish(j, by(session)), job.Patch{Over: true}))
	if got.Outcome != store.Diverted || got.Now.Place.State != job.Canceled {
		w.Errorf("%s at %s, want diverted at CANCELED", got.Outcome, got.Now.Place)
	}
	for _, e := range w.history(st.ID)[:w.job(st.ID).N-1] {
		if e.State == job.Canceled {
			w.Errorf("canceled before the launch was over: %+v", e)
		}
	}
	Check(w, w.s, acme)
}

func wishLiveRecovery(w *world) {
	st := w.launched()
	j := w.must(move(st.Job, st.fence, job.Recovery, job.Blocked))
	if !j.Live {
		w.Fatalf("the launch is over: %+v", j)
	}
	if got := w.wish(job.WishCancel, st.ID); got.Done || got.Err != nil {
		w.Errorf("answer %+v, want one that is not done", got)
	}
	w.at(job.SubmittingJob, job.Ready, st.ID)
	j = w.must(move(w.claimOne(st.session), st.fence, job.Recovery, job.Blocked)) // it cannot be ended yet
	if j.Wish != job.WishCancel || w.group().Jobs != 1 {
		w.Errorf("blocked once more: %+v in %+v", j, w.group())
	}
	w.steer(store.Steer{Want: groups.Release, Jobs: []job.ID{st.ID}})
	w.at(job.SubmittingJob, job.Ready, st.ID)
	got := w.apply(setting(move(w.claimOne(st.session), st.fence, job.Ready, job.SubmittingJob), job.Patch{Over: true}))
	if got.Outcome != store.Diverted || got.Now.Place.State != job.Canceled {
		w.Errorf("%s at %s, want diverted at CANCELED", got.Outcome, got.Now.Place)
	}
	Check(w, w.s, acme)
}

func wishExpired(w *world) {
	for name, end := range map[string]func(w *world, session job.ID){
		"expired": func(w *world, _ job.ID) { w.clock.Advance(lease + margin) },
		"ended":   func(w *world, session job.ID) { w.end(session) },
	} {
		w.fresh(name, func(w *world) {
			session := w.session()
			ids := w.addMany(3)
			p := w.add(newProgram())
			w.claim(wanted(session, 10))
			w.wish(job.WishCancel, ids[0])
			w.wishAll(job.WishPause, ids[1], p)
			end(w, session)
			w.expire()
			w.at(job.Canceled, job.None, ids[0])
			w.at(job.Paused, job.User, ids[1], p)
			w.at(job.Pending, job.Ready, ids[2])
			w.wishAll(job.WishResume, ids[1], p)
			w.at(job.Pending, job.Ready, ids[1])
			w.at(job.ProcessingInputs, job.Ready, p)
			Check(w, w.s, acme)
		})
	}
}

func wishResume(w *world) {
	first := w.add(newTask(inQueue("first")))
	early := w.add(newTask(delayed(time.Hour)))
	late := w.add(newTask(delayed(3 * time.Hour)))
	waits := w.add(newTask(after(job.NeedEnded, first)))
	freed := w.add(newTask(after(job.NeedEnded, first)))
	w.wishAll(job.WishPause, early, late, waits, freed)
	w.wish(job.WishResume, waits)
	w.at(job.Waiting, job.Gate, waits)

	w.clock.Advance(2 * time.Hour)
	w.due()
	w.wish(job.WishCancel, first)
	w.pay()
	w.at(job.Pending, job.Ready, waits)
	w.at(job.Paused, job.User, early, late, freed)
	got, effects := w.wishAll(job.WishResume, early, late, freed)
	for i, want := range []job.State{job.Pending, job.Waiting, job.Pending} {
		if got[i].Place.State != want || !got[i].Done || got[i].Err != nil {
			w.Errorf("resume %d: %+v, want %s", i, got[i], want)
		}
	}
	sameLines(w, effects.Ready, job.QueueKind{Queue: job.DefaultQueue, Kind: task})
	if due := w.job(late).Due; !near(effects.Due, due) || due.IsZero() {
		w.Errorf("effects are due at %v, the job at %v", effects.Due, due)
	}
	w.clock.Advance(2 * time.Hour)
	w.due()
	w.at(job.Pending, job.Ready, early, late, freed)
	Check(w, w.s, acme)
}

func wishResumeWhere(w *world) {
	for _, place := range []job.Place{
		{State: job.StagingInputs, Custody: job.Ready},
		{State: job.SubmittingJob, Custody: job.Ready},
		{State: job.Archiving, Custody: job.Ready},
	} {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			w.wish(job.WishPause, st.ID)
			if j := w.job(st.ID); j.Resume != place.State {
				w.Errorf("resumes in %s, want %s", j.Resume, place.State)
			}
			w.wish(job.WishResume, st.ID)
			w.at(place.State, place.Custody, st.ID)
			Check(w, w.s, acme)
		})
	}
}

func wishResumeConflict(w *world) {
	for _, place := range []job.Place{
		{State: job.Waiting, Custody: job.Gate},
		{State: job.Pending, Custody: job.Ready},
		{State: job.ProcessingInputs, Custody: job.Worker},
		{State: job.Running, Custody: job.Monitor},
		{State: job.Blocked, Custody: job.Recovery},
	} {
		w.fresh(place.String(), func(w *world) {
			st := w.stand(place.State, place.Custody)
			if got := w.wish(job.WishResume, st.ID); got.Err == nil || job.KindOf(got.Err) != job.Conflict {
				w.Errorf("answer %+v, want a conflict", got)
			}
			if j := w.job(st.ID); j.Wish != "" {
				w.Errorf("a wish to %s stands on the row", j.Wish)
			}
			w.untouched(st.Job)
		})
	}
}

func wishMany(w *world) {
	ids := w.addMany(300)
	other := submission(newTask())
	other.Tenant = "other"
	theirs, _, err := w.s.Submit(w.ctx, other)
	if err != nil {
		w.Fatalf("submit: %v", err)
	}
	all := append([]job.ID{job.NewID()}, ids...)
	all = append(all, theirs[0].ID)
	got, _ := w.wishAll(job.WishCancel, all...)
	for i, a := range got {
		known := i > 0 && i <= len(ids)
		switch {
		case known && (a.Err != nil || !a.Done):
			w.Errorf("answer %d: %+v", i, a)
		case !known && (a.Err == nil || job.KindOf(a.Err) != job.NotFound):
			w.Errorf("answer %d: %+v, want not found", i, a)
		}
	}
	if n, _ := w.s.Count(w.ctx, acme, nil); n.States[job.Canceled] != 300 {
		w.Errorf("counted %v", n)
	}
	Check(w, w.s, acme)
}

func wishRace(w *world) {
	session := w.sessionFor(time.Hour)
	wishes := []job.Wish{job.WishCancel, job.WishPause}
	ends := []job.Place{
		{State: job.Finished, Custody: job.None},
		{State: job.Failed, Custody: job.None},
		{State: job.Pending, Custody: job.Ready},
		{State: job.Blocked, Custody: job.Recovery},
		{State: job.Running, Custody: job.Worker},
	}
	for round := range rounds(200, 30) {
		wish, end := wishes[round%len(wishes)], ends[round%len(ends)]
		id := w.add(newTask())
		j := w.claimOne(session)
		var wished store.Wished
		var applied store.Applied
		w.together(2, func(i int) error {
			if i == 0 {
				got, _, err := w.s.Wish(w.ctx, store.Wish{Tenant: acme, By: ann, Wish: wish, Jobs: []job.ID{id}})
				if err == nil {
					wished = got[0]
				}
				return err
			}
			got, _, _, err := w.s.Apply(w.ctx, []job.Change{move(j, by(session), end.Custody, end.State)}, nil)
			if err == nil {
				applied = got[0]
			}
			return err
		})
		now := w.job(id)
		// Whichever was first, the job obeys in the end, or has ended before.
		var sound bool
		switch {
		case wished.Err != nil:
			sound = job.KindOf(wished.Err) == job.Conflict && end.Custody == job.None &&
				applied.Outcome == store.OK && now.Place == end
		case end.Custody == job.Worker:
			sound = applied.Outcome == store.OK && !wished.Done && now.Wish == wish && now.Place == end
		case wish == job.WishPause && end.Custody == job.None:
			sound = applied.Outcome == store.OK && !wished.Done && now.Place == end
		case wish == job.WishCancel:
			sound = now.State == job.Canceled && (applied.Outcome == store.Diverted) == !wished.Done
		default:
			sound = now.State == job.Paused && (applied.Outcome == store.Diverted) == !wished.Done
		}
		if !sound {
			w.Fatalf("round %d: wish to %s answered %+v, change to %s answered %+v, the job is at %s with wish %q",
				round, wish, wished, end, applied, now.Place, now.Wish)
		}
		if now.Custody == job.Worker {
			w.apply(move(now, by(session), job.Ready, job.Pending))
		}
		w.wish(job.WishCancel, id)
	}
	Check(w, w.s, acme)
}
