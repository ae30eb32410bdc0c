package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// Trouble is what is away at times in a world that has some: things that tasks need, and the system
// of programs, which people disable.
type trouble struct {
	w *world

	mu       sync.Mutex
	switched map[string][]time.Time // guarded by mu: when a thing went away, when it came back, and so on

	tested  []tested  // guarded by the commits of the world: tests that were recorded
	steered []steered // guarded by the commits of the world: what people did with groups and blocked jobs
}

// tested is what came of a test, and when that was recorded.
type tested struct {
	groups.Test
	at time.Time
}

// steered is what somebody did, and when.
type steered struct {
	store.Steer
	at time.Time
}

// testerThing is the tester that looks whether a thing is there.
const testerThing = "thing"

// things are what tasks need.
var things = []string{"paper", "ink", "light"}

// newTrouble returns that of a world: one of two has some; nil: it has none. It is drawn apart from
// all else.
func newTrouble(w *world) *trouble {
	if oneIn(w.dice("trouble", 0), 2) {
		return nil
	}
	return &trouble{w: w, switched: map[string][]time.Time{}}
}

// needs returns what a task needs; empty: nothing.
func (t *trouble) needs(n int) string {
	if r := t.dice("needs", n); r != nil && oneIn(r, 2) {
		return things[r.IntN(len(things))]
	}
	return ""
}

// dice is that of the world; nil: there is no trouble.
func (t *trouble) dice(what string, n int) *rand.Rand {
	if t == nil {
		return nil
	}
	return t.w.dice(what, n)
}

// patience says for how long a job waits when something blocks it.
func (t *trouble) patience(n int, s *job.Spec) {
	r := t.dice("patience", n)
	if r == nil {
		return
	}
	switch r.IntN(4) {
	case 0:
		s.Recovery = &job.Patience{Stages: []job.Stage{{Every: job.Duration(between(r, time.Second,
			20*time.Second))}}, MaxWait: job.Duration(between(r, 10*time.Second, 4*time.Minute))}
	case 1:
		s.Recovery = &job.Patience{Stages: []job.Stage{{Every: job.Duration(between(r, time.Second,
			20*time.Second)), Times: 1 + r.IntN(5)}}}
	case 2:
		s.Recovery = &job.Patience{MaxWait: job.Duration(between(r, time.Second, 10*time.Minute))}
	}
}

// act lets things go away and come back, and people deal with that, as long as the storm lasts.
func (t *trouble) act() {
	if t == nil {
		return
	}
	var all sync.WaitGroup
	for i, name := range things {
		all.Go(func() {
			t.often("thing", i, between(t.w.dice("long", i), time.Second, 2*time.Minute),
				func(*rand.Rand) { t.turn(name) })
		})
	}
	all.Go(func() {
		t.often("disable", 0, time.Minute,
			func(r *rand.Rand) { t.disable(r, true); time.Sleep(between(r, 0, 30*time.Second)); t.disable(r, false) })
	})
	all.Go(func() { t.often("steer", 0, 20*time.Second, t.steer) })
	all.Wait()
}

// often does something again and again.
func (t *trouble) often(what string, i int, lull time.Duration, do func(*rand.Rand)) {
	for n := 1; ; n++ {
		r := t.w.dice(fmt.Sprint(what, " ", i), n)
		gap := between(r, 0, 2*lull)
		if time.Since(t.w.began)+gap > t.w.length {
			return
		}
		time.Sleep(gap)
		do(r)
	}
}

// turn takes a thing away, or brings it back.
func (t *trouble) turn(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.switched[name] = append(t.switched[name], t.w.now())
	t.w.note("trouble", "%s is there %t", name, len(t.switched[name])%2 == 0)
}

// there reports whether a thing is there.
func (t *trouble) there(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.switched[name])%2 == 0
}

// wasThere reports whether a thing was there at some moment of a time.
func (t *trouble) wasThere(name string, from, to time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := true
	for _, at := range t.switched[name] {
		if at.After(to) {
			return there
		}
		if there && at.After(from) {
			return true
		}
		there = !there
	}
	return there
}

// looks is the tester of things.
func (p *process) looks(ctx context.Context, params map[string]string) error {
	_, err := through(ctx, p, "look", func(context.Context) (struct{}, error) {
		if name := params["name"]; !p.w.trouble.there(name) {
			return struct{}{}, fmt.Errorf("%s is away", name)
		}
		return struct{}{}, nil
	})
	return err
}

// lacks is what a task says that lacks what it needs.
func lacks(name string) error {
	return service.Block(name+" is away", testerThing, map[string]string{"name": name})
}

func (t *trouble) disable(r *rand.Rand, disabled bool) {
	_ = t.w.people.ask(r, "disable", func(ctx context.Context, s *service.Service) error {
		_, err := s.Systems().Disable(ctx, job.SystemLocal, disabled, service.AnyVersion)
		return err
	})
}

// steer does something with a group, or with a job that is blocked.
func (t *trouble) steer(r *rand.Rand) {
	gs, err := t.w.store.Groups(context.Background(), store.GroupQuery{Tenant: tenant})
	if err != nil {
		panic(err)
	}
	if len(gs) == 0 {
		return
	}
	g := gs[r.IntN(len(gs))]
	want := []groups.Action{groups.TryNow, groups.TryNow, groups.Release, groups.Release, groups.GiveUp}[r.IntN(5)]
	var blocked []job.ID
	for _, j := range t.w.left() {
		if j.Group == g.Key {
			blocked = append(blocked, j.ID)
		}
	}
	one := len(blocked) > 0 && oneIn(r, 2)
	_ = t.w.people.ask(r, string(want), func(ctx context.Context, s *service.Service) error {
		if one {
			_, err := s.ActOnJobs(ctx, want, blocked[0])
			return err
		}
		_, err := s.ActOnGroup(ctx, want, g.Key)
		return err
	})
}

// settle leaves no trouble.
func (t *trouble) settle() {
	if t == nil {
		return
	}
	for _, name := range things {
		if !t.there(name) {
			t.turn(name)
		}
	}
	t.disable(t.w.dice("settle trouble", 0), false)
}

// inspect: whoever is blocked belongs to a group that somebody tests, or that goes on; and when
// nothing is wrong that happens in time.
func (t *trouble) inspect() {
	if t == nil {
		return
	}
	t.w.commit.Lock()
	defer t.w.commit.Unlock()
	gs, err := t.w.store.Groups(context.Background(), store.GroupQuery{Tenant: tenant, Limit: 1000})
	if err != nil {
		panic(err)
	}
	const soon = 5 * time.Second
	jobs, first := map[string]int{}, map[string]time.Time{} // who is blocked, and the first of them, by group
	now, calm := t.w.now(), t.w.calm && time.Since(t.w.began) > 10*time.Second
	of := map[string]*groups.Group{}
	for i := range gs {
		of[gs[i].Key] = &gs[i]
	}
	for _, j := range t.w.left() {
		if j.Custody != job.Recovery {
			continue
		}
		if jobs[j.Group]++; jobs[j.Group] == 1 || j.Since.Before(first[j.Group]) {
			first[j.Group] = j.Since
		}
		if g := of[j.Group]; g == nil {
			t.w.breaks(j.ID, "job %s is blocked, and its group %s is not there", j.ID, j.Group)
		} else if calm && !j.Deadline().IsZero() && g.Clear.IsZero() && now.After(j.Until.Add(groups.LateTestGrace+soon)) {
			t.w.breaks(j.ID, "job %s was to fail %v ago although nothing was wrong", j.ID, now.Sub(j.Until))
		}
	}
	for key, g := range of {
		late := func(at time.Time) time.Duration { // of a group that nobody was in for a while
			if first[key].After(at) {
				at = first[key]
			}
			return now.Sub(at)
		}
		switch {
		case g.Jobs != jobs[key]:
			t.w.breaks(job.ID{}, "group %s is said to have %d jobs, and has %d", key, g.Jobs, jobs[key])
		case g.Jobs > 0 && g.Next.IsZero() && g.At.IsZero() && g.GivenUp.IsZero():
			t.w.breaks(job.ID{}, "group %s has %d jobs, and nobody wakes it", key, g.Jobs)
		case calm && !g.Next.IsZero() && late(g.Next) > soon:
			t.w.breaks(job.ID{}, "the test of group %s has been due for %v although nothing was wrong", key,
				late(g.Next))
		case calm && !g.At.IsZero() && now.Sub(g.At) > soon:
			t.w.breaks(job.ID{}, "of group %s jobs could have gone %v ago although nothing was wrong", key,
				now.Sub(g.At))
		}
	}
}

// written is what the time is now as the store writes it down.
func (w *world) written() time.Time { return w.now().Truncate(time.Microsecond) }

// test: who has no duty any more records nothing, and what is said to be clear was so.
func (g *judge) test(ctx context.Context, l *link, f job.Fence, found []groups.Test) (store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	alive := g.terms[f.Duty].Term == f.Term && g.live()[g.holders[f.Duty]]
	_, eff, err := handing(g, func() (struct{}, store.Effects, error) {
		eff, err := l.Store.Tested(ctx, f, found)
		return struct{}{}, eff, err
	})
	if fenced := job.KindOf(err) == job.Fenced; fenced == alive {
		g.w.breaks(job.ID{}, "tests of term %d of %s are answered %v, and it is held %t", f.Term, f.Duty, err, alive)
	}
	if err != nil || g.w.trouble == nil {
		return eff, err
	}
	for _, t := range found {
		g.w.trouble.tested = append(g.w.trouble.tested, tested{t, g.w.written()})
	}
	return eff, err
}

// steer notes what people do.
func (g *judge) steer(ctx context.Context, l *link, s store.Steer) ([]error, store.Effects, error) {
	g.w.commit.Lock()
	defer g.w.commit.Unlock()
	answers, eff, err := handing(g, func() ([]error, store.Effects, error) { return l.Store.Steer(ctx, s) })
	if err == nil && g.w.trouble != nil {
		g.w.trouble.steered = append(g.w.trouble.steered, steered{s, g.w.written()})
	}
	return answers, eff, err
}

// ends reports whether jobs may end with a code for the trouble that they have.
func (t *trouble) ends(code job.Code) bool {
	return t != nil && (code == job.RecoveryTimeout || code == job.RecoveryGivenUp)
}

// A stay is the time for which a job was blocked.
type stay struct {
	from, to time.Time
	group    string
	end      store.Event
}

// check: what a test found clear was so at some moment of the test. Each job that was blocked went
// on for a reason, or failed when it had waited for as long as it was to wait, and at no other
// time; and of a group no more went at a time than may.
func (t *trouble) check() {
	if t == nil {
		return
	}
	for _, name := range things {
		group := job.Blocking(lacks(name)).Group(tenant)
		for _, x := range t.tested {
			if x.Key == group && x.Clear && !t.wasThere(name, x.Began, x.at) {
				t.w.breaks(job.ID{}, "%s was away, and a test between %v and %v says that it was not", name,
					x.Began.Sub(t.w.zero), x.at.Sub(t.w.zero))
			}
		}
	}
	goes := map[string][]time.Time{}
	for _, p := range t.w.people.promised {
		j, there := t.w.judge.rows(p.id)[p.id]
		if !there {
			continue
		}
		for _, s := range t.stays(&j, p.order) {
			if t.reasoned(&j, s) && s.end.Cause == job.CauseClear && s.end.State != job.Failed {
				goes[s.group] = append(goes[s.group], s.to)
			}
		}
	}
	const most = 10 // per second, and what was missed by as much as job.Lateness
	for group, at := range goes {
		slices.SortFunc(at, time.Time.Compare)
		for i := most + 3; i < len(at); i++ {
			if d := at[i].Sub(at[i-most-3]); d < time.Second {
				t.w.breaks(job.ID{}, "of group %s %d jobs went within %v", group, most+4, d)
			}
		}
	}
}

// stays returns when a job was blocked.
func (t *trouble) stays(j *job.Job, o order) (all []stay) {
	var in *stay
	for _, e := range t.w.history(j.ID) {
		if e.Sub > 0 {
			continue
		}
		if in != nil && e.Custody != job.Recovery {
			in.to, in.end = e.At, e
			all = append(all, *in)
			in = nil
		}
		if e.Custody == job.Recovery && in == nil {
			in = &stay{from: e.At, group: t.groupOf(e.Code, o)}
		}
	}
	return all
}

// groupOf returns the group of jobs that something blocks.
func (t *trouble) groupOf(code job.Code, o order) string {
	if code == job.TaskBlocked {
		return job.Blocking(lacks(o.Needs)).Group(tenant)
	}
	b := job.Block{
		Code: code, Tester: recovery.Enabled,
		Params: map[string]string{"kind": job.KindSystem, "name": job.SystemLocal},
	}
	return b.Group(tenant)
}

// reasoned judges how a stay ended.
func (t *trouble) reasoned(j *job.Job, s stay) bool {
	did := func(want groups.Action) bool {
		return slices.ContainsFunc(t.steered, func(p steered) bool {
			mine := p.Group == s.group || slices.Contains(p.Jobs, j.ID)
			return p.Want == want && mine && !p.at.Before(s.from) && !p.at.After(s.to)
		})
	}
	var spec struct {
		Recovery *job.Patience `json:"recovery"`
	}
	if err := json.Unmarshal(j.Request, &spec); err != nil {
		panic(err)
	}
	switch e := s.end; {
	case e.Code == job.RecoveryGivenUp && !did(groups.GiveUp):
		t.w.breaks(j.ID, "job %s is said to be given up, which nobody did", j.ID)
	case e.Code == job.RecoveryTimeout:
		b := job.Block{Code: t.codeOf(s.group)}.Filled()
		wait := spec.Recovery.Choose(&b, "", func(string) *job.Policy { return nil }).Wait()
		if waited := s.to.Sub(s.from); wait == 0 || waited < wait {
			t.w.breaks(j.ID, "job %s failed after it had been blocked for %v, and was to wait for %v", j.ID, waited,
				wait)
		}
	case e.Cause == job.CauseClear && e.State != job.Failed:
		found := slices.ContainsFunc(t.tested, func(x tested) bool {
			return x.Key == s.group && x.Clear && !x.Began.Before(s.from) && !x.at.After(s.to)
		})
		if !found && !did(groups.Release) {
			t.w.breaks(j.ID, "job %s went on after it had been blocked for %v, and no test said so that began in "+
				"that time", j.ID, s.to.Sub(s.from))
		}
	case e.Cause == job.CauseWish, e.Cause == job.CausePaid:
	case e.State == job.Failed && e.Code != job.RecoveryGivenUp:
		t.w.breaks(j.ID, "job %s failed while it was blocked: %s %s", j.ID, e.Code, e.Message)
	}
	return true
}

// codeOf returns the condition of a group.
func (t *trouble) codeOf(group string) job.Code {
	for _, name := range things {
		if job.Blocking(lacks(name)).Group(tenant) == group {
			return job.TaskBlocked
		}
	}
	return job.SystemDisabled
}
