package fake_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A use is that of a moment, which was given under a rate.
type use struct {
	at    time.Time
	every time.Duration // 0: there was none
	room  bool          // it may be used later than usual
	given time.Time
	far   bool // it was given, and is not used yet
}

// pacing is callers who ask for moments of one key and use each up to [job.Lateness] late, or more
// where they have asked for that, while the rate is changed.
type pacing struct {
	*rapid.T
	now   time.Time
	store *fake.Store
	set   []job.Limit // all rates that there were
	anew  []time.Time // when they were changed
	held  []store.Ask // for moments that were far
	uses  []use
}

const paced = "launches/system/lab"

// TestAnyWindow: no time of the length of a rate holds more moments that are used than it allows,
// as long as no faster one had its hand in it.
func TestAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pacing{T: t, now: time.Unix(1e9, 0)}
		p.store = fake.New(func() time.Time { return p.now })
		p.change()
		for range rapid.IntRange(1, 80).Draw(t, "moves") {
			switch rapid.IntRange(0, 9).Draw(t, "move") {
			case 0:
				p.change()
			case 1, 2, 3:
				p.pass(rapid.IntRange(0, 3000).Draw(t, "ms"))
			case 4, 5:
				p.again()
			default:
				a := store.Ask{Key: paced, N: rapid.IntRange(1, 30).Draw(t, "n")}
				if a.N == 1 || a.N > 15 {
					a.N, a.Late = 1, time.Duration(rapid.SampledFrom([]int{0, 1, 100, 1600, 10_000}).Draw(t, "room"))*time.Millisecond
				}
				p.ask(a)
			}
		}
		for tries := 0; len(p.held) > 0 && tries < 2000; tries++ {
			p.pass(500)
			p.again()
		}
		p.check()
	})
}

func (p *pacing) pass(ms int) { p.now = p.now.Add(time.Duration(ms) * time.Millisecond) }

func (p *pacing) change() {
	p.anew = append(p.anew, p.now)
	l := job.Limit{
		Key:  rapid.SampledFrom([]string{paced, "launches/system/*"}).Draw(p.T, "key"),
		Most: rapid.IntRange(1, 20).Draw(p.T, "most"), Per: job.Duration(rapid.IntRange(1, 4000).Draw(p.T, "per")) * job.Duration(time.Millisecond),
	}
	if rapid.IntRange(0, 3).Draw(p.T, "removed") == 0 {
		if _, err := store.RemoveLimit(p.Context(), p.store, "acme", l.Key); err != nil && job.KindOf(err) != job.NotFound {
			p.Fatal(err)
		}
		return
	}
	if _, err := store.SetLimit(p.Context(), p.store, "acme", l); err != nil {
		p.Fatal(err)
	}
	p.set = append(p.set, l)
}

// again asks for the first of those that are held and near by now; or before that.
func (p *pacing) again() {
	slices.SortFunc(p.held, func(a, b store.Ask) int { return a.Held.At.Compare(b.Held.At) })
	for i := range p.held {
		if a := p.held[i]; rapid.IntRange(0, 5).Draw(p.T, "soon") == 0 || a.Held.At.Sub(p.now) < job.MaxSlotWait {
			p.held = slices.Delete(p.held, i, i+1)
			p.ask(a)
			return
		}
	}
}

func (p *pacing) ask(a store.Ask) {
	all, err := p.store.Reserve(p.Context(), "acme", []store.Ask{a})
	if err != nil {
		p.Fatal(err)
	}
	r := all[0]
	room := a.Late
	if a.Held.At.Equal(r.First) {
		room = time.Duration(a.Held.Late)
	}
	for i := range a.N {
		at := r.Moment(i)
		switch {
		case r.Limit == nil:
			p.uses = append(p.uses, use{at: at})
		case at.Sub(r.Now) > job.MaxSlotWait:
			p.uses = append(p.uses, use{at: at, every: r.Every, far: true})
			p.held = append(p.held, store.Ask{Key: paced, N: 1, Late: 2 * room, Held: job.Moment{
				Key: paced, At: at, Rate: r.Rate, Late: job.Duration(room),
			}})
		case rapid.IntRange(0, 9).Draw(p.T, "crash") > 0:
			late := time.Duration(rapid.IntRange(0, 100+int(room.Milliseconds())).Draw(p.T, "late")) * time.Millisecond
			if late = min(late, at.Add(job.Lateness+room).Sub(p.now)); at.Add(late).Before(p.now) {
				late = p.now.Sub(at) // it was held, and asked for again after it had come
			}
			p.uses = append(p.uses, use{at: at.Add(late), every: r.Every, room: room > 0, given: p.now})
		}
	}
}

func (p *pacing) check() {
	for i, u := range p.uses { // who has room goes on as told when the rate is changed
		if u.room && slices.ContainsFunc(p.anew, func(at time.Time) bool { return !at.Before(u.given) && !at.After(u.at) }) {
			p.uses[i].every = 0
		}
	}
	slices.SortFunc(p.uses, func(a, b use) int { return a.at.Compare(b.at) })
	for _, l := range p.set {
		var run []time.Time // those that came one after the other under this rate, or slower ones
		for _, u := range p.uses {
			switch {
			case u.every < l.Every():
				run = nil
			case !u.far:
				run = append(run, u.at)
			}
			if n := len(run) - l.Most; n > 0 && u.at.Sub(run[n-1]) < time.Duration(l.Per) {
				p.Fatalf("%d within %v, %s", l.Most+1, u.at.Sub(run[n-1]), l.Terms())
			}
		}
	}
}
