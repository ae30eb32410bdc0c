package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// goesOn has time go by in steps, and returns how many jobs are not blocked any more.
func (w *world) goesOn(step time.Duration, steps int, ids ...job.ID) int {
	w.Helper()
	for range steps {
		w.dueOnce()
		w.clock.Advance(step)
	}
	w.dueOnce()
	return w.went(ids...)
}

// A pace is how jobs go of groups that were found clear, on the database's clock, which may go on
// between two looks at it: from the first moment, which is not before from and not after to, until
// then.
type pace struct {
	*world
	from, to       time.Time
	before, looked time.Time // the last time that jobs could go
	lost           time.Duration
}

// clearing has a minute go by, and all groups be found clear.
func (t tester) clearing() *pace {
	t.Helper()
	t.clock.Advance(time.Minute)
	p := &pace{world: t.world, from: t.now()}
	if eff := t.find(true, 0); eff.Due.IsZero() {
		t.Errorf("what is clear means %+v", eff)
	}
	p.to = t.now()
	p.before, p.looked = p.to, p.to
	return p
}

// now is the time of the database.
func (w *world) now() time.Time {
	w.Helper()
	return w.tests(groups.RecoveryDuty).Now
}

// look has those go whose moment has come. What was missed since the last time is lost.
func (p *pace) look() {
	p.Helper()
	began := p.now()
	p.dueOnce()
	ended := p.now()
	p.lost += max(0, ended.Sub(p.before)-job.Lateness)
	p.before, p.looked = began, ended
}

// goesOn has time go by in steps.
func (p *pace) goesOn(step time.Duration, steps int) {
	p.Helper()
	for range steps {
		p.look()
		p.clock.Advance(step)
	}
	p.look()
}

// keeps fails the test unless as many of some jobs went as there were moments: n of all. These are
// gap apart, and after a second as far as the rate has them.
func (p *pace) keeps(what string, n, all int, gap, rate time.Duration) {
	p.Helper()
	moments := func(d time.Duration) int {
		return int(min(d, time.Second).Seconds()/gap.Seconds() + max(0, d-time.Second).Seconds()/rate.Seconds())
	}
	within(p.world, what, n, min(all, moments(p.before.Sub(p.to)-p.lost)), min(all, 1+moments(p.looked.Sub(p.from))))
}

// went returns how many jobs are not blocked any more.
func (w *world) went(ids ...job.ID) (n int) {
	w.Helper()
	for _, id := range ids {
		if w.job(id).State != job.Blocked {
			n++
		}
	}
	return n
}

// within fails the test unless n is one of from to to.
func within(w *world, what string, n, from, to int) {
	w.Helper()
	if n < from || n > to {
		w.Errorf("%s: %d, want %d to %d", what, n, from, to)
	}
}

func groupGoes(w *world) {
	t := w.tester()
	var anns, bobs []job.ID
	for range 15 {
		anns = append(anns, w.blocked(1, full())...)
		w.clock.Advance(time.Millisecond)
	}
	for range 5 {
		bobs = append(bobs, w.blocked(1, full(), owned("bob"))...)
		w.clock.Advance(time.Millisecond)
	}
	if n := w.goesOn(time.Second, 2, anns...); n != 0 {
		w.Errorf("%d jobs went before anything was clear", n)
	}
	all := append(slices.Clone(anns), bobs...)
	p := t.clearing()
	p.look()
	p.keeps("of 20 jobs at once", w.went(all...), 20, releaseGap, releaseGap)
	p.goesOn(50*time.Millisecond, 20)
	p.keeps("within a second", w.went(all...), 20, releaseGap, releaseGap)
	count := func(ids []job.ID) (n int) {
		for i, id := range ids {
			if w.job(id).State == job.Blocked {
				continue
			}
			if n++; n != i+1 {
				w.Errorf("job %d went before %d", i, n-1)
			}
		}
		return n
	}
	a, b := count(anns), count(bobs)
	if b < 4 {
		w.Errorf("ann has %d, and bob %d", a, b)
	}
	if b < len(bobs) {
		within(w, "one owner was served more than the other", a-b, -1, 1)
	}
	if n := w.goesOn(100*time.Millisecond, 30, all...); n != 20 {
		w.Errorf("%d jobs went in all", n)
	}
	if n := w.told[store.IsReleased]; n != 20 {
		w.Errorf("%d jobs are told of that went, want 20", n)
	}
	j := w.job(anns[0])
	if j.Recoveries != 1 || j.Attempt != 1 || j.Group != "" || !j.Until.IsZero() || j.Resume != "" {
		w.Errorf("who went on: %+v", j)
	}
	w.at(job.Pending, job.Ready, all...)
	e := w.event(anns[0], j.N)
	if e.Cause != job.CauseClear || !strings.Contains(e.Message, "FILESYSTEM_FULL has cleared") {
		w.Errorf("its event is %+v", e)
	}
	if left := w.groups(); len(left) != 0 {
		w.Errorf("groups that are left: %+v", left)
	}
	session := w.session()
	if jobs := w.claim(wanted(session, 50)); len(jobs) != 20 {
		w.Errorf("claimed %d", len(jobs))
	}
	Check(w, w.s, acme)
}

func groupRate(w *world) {
	t := w.tester()
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)},
		job.Limit{Key: "releases/" + away().Group(acme), Most: 2, Per: job.Duration(time.Second)})
	many, few := w.blocked(50, full()), w.blocked(10, away())
	p := t.clearing()
	p.goesOn(time.Millisecond, 5)
	if n := w.went(many...); n != 50 {
		w.Errorf("without a rate %d went", n)
	}
	p.goesOn(100*time.Millisecond, 15)
	two := job.Limit{Most: 2, Per: job.Duration(time.Second)}
	p.keeps("two in a second", w.went(few...), 10, two.Every(), two.Every())
}

// groupRateShared: the moments of a group are the same for all processes, however many have jobs
// go.
func groupRateShared(w *world) {
	t := w.tester()
	ids := w.blocked(100, full())
	p := t.clearing()
	for range 20 {
		p.look()
		w.together(4, func(int) error {
			_, _, err := w.s.Due(w.ctx, 1000)
			return err
		})
		w.clock.Advance(150 * time.Millisecond)
	}
	p.look()
	p.keeps("of four processes", w.went(ids...), len(ids), releaseGap, releaseGap)
}

// groupPlaces: who goes on stands where it was taken from.
func groupPlaces(w *world) {
	t := w.tester()
	session := w.sessionFor(24 * time.Hour)
	ids := map[string]job.ID{"night": w.add(newTask(inQueue("night"))), "day": w.add(newProgram(inQueue("day")))}
	of := func(queue string) job.Job {
		c := wanted(session, 10)
		c.Queues = []string{queue}
		jobs := w.claim(c)
		if len(jobs) != 1 || jobs[0].ID != ids[queue] || jobs[0].Queue != queue {
			w.Fatalf("in queue %s are %+v", queue, jobs)
		}
		return jobs[0]
	}
	w.must(blocking(of("night"), session, full()))
	w.must(move(of("day"), by(session), job.Worker, job.StagingInputs))
	w.must(blocking(w.job(ids["day"]), session, full()))
	t.clears()
	w.goesOn(time.Second, 2)
	w.at(job.Pending, job.Ready, ids["night"])
	w.at(job.StagingInputs, job.Ready, ids["day"])
	of("night")
	of("day")
}

// groupRerated: a job that waits for a distant moment stops waiting for it when the rate is raised
// or removed.
func groupRerated(w *world) {
	key := "releases/" + full().Group(acme)
	for name, change := range map[string]func(*world){
		"raised": func(w *world) { w.limit(job.Limit{Key: key, Most: 100, Per: job.Duration(time.Second)}) },
		"removed": func(w *world) {
			if _, err := store.RemoveLimit(w.ctx, w.s, acme, key); err != nil {
				w.Fatalf("remove: %v", err)
			}
		},
	} {
		w.fresh(name, func(w *world) {
			t := w.tester()
			w.limit(job.Limit{Key: key, Most: 1, Per: job.Duration(time.Hour)})
			ids := w.blocked(10, full())
			t.clearing().goesOn(10*time.Millisecond, 5)
			if n := w.went(ids...); n != 1 {
				w.Fatalf("%d went, at one in an hour", n)
			}
			change(w)
			if n := w.goesOn(100*time.Millisecond, 3, ids...); n < 3 {
				w.Errorf("then %d went", n)
			}
		})
	}
}

func groupLate(w *world) {
	t := w.tester()
	early := w.blocked(1, full())[0]
	w.clock.Advance(time.Minute)
	due := w.tests(groups.RecoveryDuty)
	w.clock.Advance(time.Second)
	late := w.blocked(1, full())[0]
	if _, err := w.s.Tested(w.ctx, t.fence,
		[]groups.Test{{Tenant: acme, Key: due.Due[0].Key, Began: due.Now, Clear: true}}); err != nil {
		w.Fatalf("tested: %v", err)
	}
	w.goesOn(time.Second, 3)
	w.at(job.Pending, job.Ready, early)
	w.at(job.Blocked, job.Recovery, late)
	if g := w.group(); !g.Clear.IsZero() || g.Next.IsZero() || g.Jobs != 1 {
		w.Errorf("a group of whom somebody is left: %+v", g)
	}
	t.clears()
	w.goesOn(time.Second, 2)
	w.at(job.Pending, job.Ready, late)
}

func groupMay(w *world) {
	t := w.tester()
	ids := w.blocked(5, full())
	w.clock.Advance(time.Minute)
	t.find(true, 2)
	if n := w.goesOn(time.Second, 10, ids...); n != 2 {
		w.Errorf("%d jobs went, and two might", n)
	}
	if g := w.group(); !g.Clear.IsZero() || g.Jobs != 3 || g.Pace != 0 {
		w.Errorf("after that: %+v", g)
	}
	w.clock.Advance(time.Minute)
	t.find(true, 9)
	if n := w.goesOn(time.Second, 10, ids...); n != 5 {
		w.Errorf("%d jobs went in all", n)
	}
}

func groupAgain(w *world) {
	t := w.tester()
	ids := w.blocked(30, full())
	p := t.clearing()
	p.goesOn(50*time.Millisecond, 20)
	p.keeps("within a second", w.went(ids...), 30, releaseGap, releaseGap)
	more := w.blocked(2, full())
	g := w.group()
	if !g.Clear.IsZero() || g.Pace != -1 || g.Next.IsZero() || w.told[store.IsReblocked] != 1 {
		w.Fatalf("when somebody blocks again: %+v, and %d times it is told", g, w.told[store.IsReblocked])
	}
	before := w.goesOn(0, 0, ids...)
	if n := w.goesOn(time.Second, 5, ids...); n != before {
		w.Errorf("%d go on, and nothing is clear", n-before)
	}
	left, all := len(ids)+len(more)-before, append(ids, more...)
	p = t.clearing()
	p.goesOn(50*time.Millisecond, 18)
	p.keeps("in the first second", w.went(all...)-before, left, 2*releaseGap, releaseGap)
	p.goesOn(50*time.Millisecond, 40)
	p.keeps("with two more seconds", w.went(all...)-before, left, 2*releaseGap, releaseGap)
}

func groupBounded(w *world) {
	t := w.tester()
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)})
	ids := w.blocked(25, full())
	t.clears()
	w.clock.Advance(10 * time.Millisecond)
	for left := 25; left > 0; {
		n, eff, err := w.s.Due(w.ctx, 10)
		if err != nil || n > 10 || n == 0 {
			w.Fatalf("due: %d, %v", n, err)
		}
		if left -= n; left > 0 && eff.Due.IsZero() {
			w.Fatalf("%d are left, and nobody says when they are due", left)
		}
		w.clock.Advance(time.Millisecond)
	}
	w.at(job.Pending, job.Ready, ids...)
	ids = w.blocked(25, away())
	w.clock.Advance(2 * time.Minute)
	for left := 25; left > 0; {
		n, _, err := w.s.Due(w.ctx, 10)
		if err != nil || n == 0 || n > 10 {
			w.Fatalf("due: %d, %v", n, err)
		}
		left -= n
	}
	w.at(job.Failed, job.None, ids...)
	ids = w.blocked(25, full())
	w.steer(store.Steer{Want: groups.GiveUp, Group: full().Group(acme)})
	for left := 25; left > 0; {
		n, _, err := w.s.Due(w.ctx, 10)
		if err != nil || n == 0 || n > 10 {
			w.Fatalf("due: %d, %v", n, err)
		}
		left -= n
	}
	w.at(job.Failed, job.None, ids...)
}

func groupAtOnce(w *world) {
	const workers = 8
	each := rounds(20, 8)
	w.limit(job.Limit{Key: "releases/*", Most: 1_000_000, Per: job.Duration(time.Second)})
	ids := w.addMany(each*workers, owned("bob"))
	sessions := make([]job.ID, workers)
	for i := range sessions {
		sessions[i] = w.sessionFor(24 * time.Hour)
	}
	patient := away()
	patient.Policy = job.Policy{} // nobody fails for having waited
	blocks := []*job.Block{full(), patient}
	answers := map[job.ID]store.Wished{} // to who cancels
	w.clock.Advance(time.Minute)
	w.together(workers+3, func(i int) error {
		switch {
		case i < workers:
			jobs, err := w.s.Claim(w.ctx, wanted(sessions[i], each))
			if err != nil {
				return err
			}
			for n, j := range jobs {
				c := blocking(j, sessions[i], blocks[i%2])
				if n%4 == 3 {
					c = finish(j, by(sessions[i]))
				}
				a, _, _, err := w.s.Apply(w.ctx, []job.Change{c}, nil)
				if err != nil {
					return err
				}
				if o := a[0].Outcome; o != store.OK && (o != store.Diverted || a[0].Now.Place.State != job.Canceled) {
					return fmt.Errorf("a change of a job in custody is answered %+v", a[0])
				}
			}
			return nil
		case i == workers:
			for range 20 {
				for _, b := range blocks {
					_, _, err := w.s.Steer(w.ctx,
						store.Steer{Tenant: acme, By: "root", Want: groups.Release, Group: b.Group(acme)})
					if err != nil && job.KindOf(err) != job.NotFound {
						return err
					}
				}
			}
			return nil
		case i == workers+1:
			for n, id := range ids {
				if n%3 != 0 {
					continue
				}
				a, _, err := w.s.Wish(w.ctx,
					store.Wish{Tenant: acme, By: "root", Wish: job.WishCancel, Jobs: []job.ID{id}})
				if err != nil {
					return err
				}
				answers[id] = a[0]
			}
			return nil
		}
		for range 20 {
			if _, _, err := w.s.Due(w.ctx, 7); err != nil {
				return err
			}
		}
		return nil
	})
	for range 5 { // what a race left to others
		for _, s := range sessions {
			for _, j := range w.claim(wanted(s, each*workers)) {
				w.apply(finish(j, by(s)))
			}
			w.end(s)
		}
		for _, g := range w.groups() {
			w.steer(store.Steer{Want: groups.Release, Group: g.Key})
		}
		w.goesOn(time.Second, 3)
		sessions = []job.ID{w.session()}
	}
	for _, id := range ids {
		j, want := w.job(id), job.Finished
		if a, asked := answers[id]; asked {
			switch {
			case a.Err == nil:
				want = job.Canceled // at once, or when a worker lets go of it
				if a.Done != (a.Place.State == job.Canceled) || !a.Done && a.Place.Custody != job.Worker {
					w.Errorf("a cancel that is accepted is answered %+v", a)
				}
			// what has ended cannot be canceled
			case job.KindOf(a.Err) != job.Conflict || a.Place.State != job.Finished:
				w.Errorf("a cancel is refused with %+v", a)
			}
		}
		if j.State != want {
			w.Errorf("job %s is left %s, want %s; its cancel was answered %+v", id, j.Place, want, answers[id])
		}
	}
	Check(w, w.s, acme)
}
