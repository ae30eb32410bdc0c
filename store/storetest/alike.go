package storetest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A store may write changes together that differ in nothing but whose they are. In each call of
// these tests one is different from those around it, in one respect.
var alikeTests = []test{
	{"a change between others that are nearly alike", alikeChanges},
	{"changes that differ in what the row does not keep", alikeRows},
	{"changes of some of many", alikeSome},
	{"a job between others that are nearly alike", alikeSubmits},
	{"claims of jobs that stand at different places", alikeClaims},
}

func alikeChanges(w *world) {
	goOn := func(j job.Job, s job.ID) job.Change { return move(j, by(s), job.Worker, job.Running) }
	end := func(j job.Job, s job.ID) job.Change { return move(j, by(s), job.None, job.Failed) }
	again := func(j job.Job, s job.ID) job.Change {
		return setting(move(j, by(s), job.Gate, job.Waiting), job.Patch{Retry: true, Clear: true, Delay: time.Minute})
	}
	well := func(j job.Job, s job.ID) job.Change { return finish(j, by(s)) }
	usual := map[string]func(job.Job, job.ID) job.Change{
		"go on": goOn, "end": end, "end well": well,
		"try again": again,
	}

	// What may be different in the change itself...
	last := func(c *job.Change) *job.Entry { return &c.Path[len(c.Path)-1] }
	bends := map[string]func(*job.Change){
		"has a message":     func(c *job.Change) { last(c).Message = "!" },
		"has evidence":      func(c *job.Change) { last(c).Data = json.RawMessage(`{"x":1}`) },
		"has a code":        func(c *job.Change) { last(c).Code = job.TaskPanicked },
		"has notes":         func(c *job.Change) { c.Work = json.RawMessage(`{"x":1}`) },
		"has a result":      func(c *job.Change) { c.Set.Result = json.RawMessage(`{"x":1}`) },
		"goes a longer way": func(c *job.Change) { c.Path = append([]job.Entry{{State: job.Running}}, c.Path...) },
		"waits longer":      func(c *job.Change) { c.Set.Delay *= 2 },
		"is cleared or not": func(c *job.Change) { c.Set.Clear = !c.Set.Clear },
	}
	// ... in the place where it goes ...
	ways := map[string]func(job.Job, job.ID) job.Change{
		"goes on": goOn, "ends": end, "ends well": well, "tries again": again,
		"goes back": func(j job.Job, s job.ID) job.Change { return move(j, by(s), job.Ready, job.Pending) },
	}
	// ... and in the job as it was before, in the hands of the last session.
	pasts := map[string]func(w *world, j job.Job, s, other job.ID) (job.Job, job.ID){
		"is held by another": func(w *world, j job.Job, s, other job.ID) (job.Job, job.ID) {
			w.must(move(j, by(s), job.Ready, job.Pending))
			return w.claimOne(other), other
		},
		"was claimed before": func(w *world, j job.Job, s, _ job.ID) (job.Job, job.ID) {
			w.must(move(j, by(s), job.Ready, job.Pending))
			return w.claimOne(s), s
		},
		"has a longer history": func(w *world, j job.Job, s, _ job.ID) (job.Job, job.ID) {
			return w.must(goOn(j, s)), s
		},
		"had a result": func(w *world, j job.Job, s, _ job.ID) (job.Job, job.ID) {
			return w.must(setting(goOn(j, s), job.Patch{Result: json.RawMessage(`{"x":1}`)})), s
		},
	}

	for others, change := range usual {
		try := func(name string, odd func(w *world, j job.Job, s, other job.ID) job.Change) {
			w.fresh("one that "+name+" where others "+others, func(w *world) {
				session, other := w.session(), w.session()
				w.addMany(4)
				var changes []job.Change
				for i, j := range w.claim(wanted(session, 4)) {
					if i == 2 {
						changes = append(changes, odd(w, j, session, other))
					} else {
						changes = append(changes, change(j, session))
					}
				}
				w.makes(changes)
			})
		}
		for name, bend := range bends {
			try(name, func(_ *world, j job.Job, s, _ job.ID) job.Change {
				c := change(j, s)
				bend(&c)
				return c
			})
		}
		for name, way := range ways {
			try(name, func(_ *world, j job.Job, s, _ job.ID) job.Change { return way(j, s) })
		}
		for name, past := range pasts {
			try(name, func(w *world, j job.Job, s, other job.ID) job.Change { return change(past(w, j, s, other)) })
		}
	}
}

// A store may name those that it writes together by the first and the last of them, if nobody
// stands between.
func alikeSome(w *world) {
	for name, some := range map[string][]int{
		"in a row": {1, 2, 3, 4}, "in a row, and the last first": {4, 3, 2, 1}, "with a gap": {0, 1, 4, 5},
		"every other one":        {1, 3, 5},
		"the first and the last": {0, 5}, "one": {2}, "all": {0, 1, 2, 3, 4, 5},
	} {
		w.fresh(name, func(w *world) {
			session := w.session()
			w.addMany(6)
			jobs := w.claim(wanted(session, 6))
			var changes []job.Change
			for _, i := range some {
				changes = append(changes, move(jobs[i], by(session), job.None, job.Failed))
			}
			w.makes(changes)
			for i, j := range jobs {
				if slices.Contains(some, i) {
					continue
				}
				if diff := cmp.Diff(j, w.job(j.ID), sameJob); diff != "" {
					w.Errorf("job %d, which nobody changed (-before +after):\n%s", i, diff)
				}
			}
		})
	}
}

// makes applies changes in one call and fails unless each job and its history are then what package
// job makes of them.
func (w *world) makes(changes []job.Change) {
	w.Helper()
	var before []job.Job
	for _, c := range changes {
		before = append(before, w.job(c.Job))
	}
	for i, a := range w.applyAll(changes...) {
		c, after := changes[i], w.job(changes[i].Job)
		if a.Outcome != store.OK {
			w.Errorf("change %d: %s", i, a.Outcome)
		}
		want, path := before[i].Apply(c, after.Since)
		if diff := cmp.Diff(want, after, sameJob, ignoreTimes); diff != "" {
			w.Errorf("change %d (-want +got):\n%s", i, diff)
		}
		if !want.Due.IsZero() && !near(want.Due, after.Due) {
			w.Errorf("change %d: due %v, want %v", i, after.Due, want.Due)
		}
		var history []job.Event
		for k, e := range path {
			history = append(history, job.Event{
				Job: c.Job, N: c.From.N + 1 + int64(k), Epoch: c.From.Epoch, State: e.State,
				Custody: c.From.Place.Custody,
				Cause:   job.CauseWork, Actor: c.From.Fence.Actor(), Code: e.Code, Message: e.Message, Data: e.Data,
			})
		}
		history[len(history)-1].Custody = want.Custody
		if diff := cmp.Diff(history, w.history(c.Job)[c.From.N:], cmp.Comparer(sameJSON),
			cmp.FilterPath(func(p cmp.Path) bool {
				return p.Last().String() == ".At"
			}, cmp.Ignore())); diff != "" {
			w.Errorf("history of change %d (-want +got):\n%s", i, diff)
		}
	}
	Check(w, w.s, acme)
}

// alikeRows makes changes after which the rows are alike, but not their histories.
func alikeRows(w *world) {
	session, other := w.session(), w.session()
	goOn := func(j job.Job, s job.ID) job.Change { return move(j, by(s), job.Worker, job.Running, job.Running) }

	w.addMany(3)
	two := w.claim(wanted(session, 2))
	w.makes([]job.Change{goOn(two[0], session), goOn(w.claimOne(other), other), goOn(two[1], session)})

	w.addMany(3)
	three := w.claim(wanted(session, 3))
	told, coded := goOn(three[0], session), goOn(three[2], session)
	told.Path[0].Message, coded.Path[0].Code = "on its way", job.TaskPanicked
	w.makes([]job.Change{told, goOn(three[1], session), coded})

	// Two have come to the same number of changes with different epochs.
	w.addMany(2)
	two = w.claim(wanted(session, 2))
	w.must(move(two[0], by(session), job.Ready, job.Pending))
	two[0], two[1] = w.claimOne(session), w.must(goOn(two[1], session))
	if two[0].N != two[1].N || two[0].Epoch == two[1].Epoch {
		w.Fatalf("epochs %d and %d, changes %d and %d", two[0].Epoch, two[1].Epoch, two[0].N, two[1].N)
	}
	w.makes([]job.Change{goOn(two[0], session), goOn(two[1], session)})
}

func alikeSubmits(w *world) {
	session := w.session()
	first := w.add(newTask())
	w.must(finish(w.claimOne(session), by(session)))
	failed := w.add(newTask())
	w.must(move(w.claimOne(session), by(session), job.None, job.Failed))
	answers := w.submit(newTask(), newTask(), newTask(delayed(time.Hour)), newTask(), newProgram(), newTask(),
		newTask(after(job.NeedFinished, first)), newTask(), newTask(after(job.NeedFinished, failed)), newTask())
	for i, a := range answers {
		e := w.event(a.ID, 1)
		want := job.Place{State: job.Pending, Custody: job.Ready}
		if i == 2 || i == 8 {
			want = job.Place{State: job.Waiting, Custody: job.Gate}
		}
		if at := (job.Place{State: e.State, Custody: e.Custody}); at != want {
			w.Errorf("job %d begins at %s, want %s", i, at, want)
		}
	}
	Check(w, w.s, acme)
}

func alikeClaims(w *world) {
	session := w.session()
	w.addMany(1)
	var changes []job.Change
	states := []job.State{job.ProcessingInputs, job.StagingInputs, job.StagingInputs, job.StagingInputs}
	for range states {
		w.add(newProgram())
	}
	claim := wanted(session, 10)
	claim.Kinds = []string{job.KindApp}
	for i, j := range w.claim(claim) {
		changes = append(changes, move(j, by(session), job.Ready, states[i]))
	}
	w.makes(changes)
	w.add(newProgram())
	jobs := w.claim(wanted(session, 10))
	if len(jobs) != len(states)+2 {
		w.Fatalf("claimed %d jobs, want %d", len(jobs), len(states)+2)
	}
	for i, c := range changes {
		w.at(states[i], job.Worker, c.Job)
	}
	for _, j := range jobs {
		w.untouched(j)
	}
	Check(w, w.s, acme)
}
