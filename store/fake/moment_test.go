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
}

// pacing is callers who ask for moments of one key and use each up to [job.Lateness] late, while the rate is changed.
type pacing struct {
	*rapid.T
	now   time.Time
	store *fake.Store
	set   []job.Limit // all rates that there were
	held  []store.Ask // for moments that were far
	uses  []use
}

const paced = "launches/system/lab"

// TestAnyWindow: no time of the length of a rate holds more moments that are used than it allows, as long as no faster one had its
// hand in it.
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
				p.ask(store.Ask{Key: paced, N: rapid.IntRange(1, 30).Draw(t, "n")})
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
	l := job.Limit{
		Key:  rapid.SampledFrom([]string{paced, "launches/system/*"}).Draw(p.T, "key"),
		Most: rapid.IntRange(1, 20).Draw(p.T, "most"), Per: job.Duration(rapid.IntRange(1, 4000).Draw(p.T, "per")) * job.Duration(time.Millisecond),
	}
	if rapid.IntRange(0, 3).Draw(p.T, "removed") == 0 {
		_, err := p.store.RemoveLimit(p.Context(), "acme", l.Key)
		if err != nil && job.KindOf(err) != job.NotFound {
			p.Fatal(err)
		}
		return
	}
	if _, err := p.store.SetLimit(p.Context(), "acme", l); err != nil {
		p.Fatal(err)
	}
	p.set = append(p.set, l)
}

// again asks for the first of those that are held and near by now; or before that.
func (p *pacing) again() {
	slices.SortFunc(p.held, func(a, b store.Ask) int { return a.Held.At.Compare(b.Held.At) })
	for i := range p.held {
		if a := p.held[i]; rapid.IntRange(0, 5).Draw(p.T, "soon") == 0 || a.Held.At.Sub(p.now) < store.Near {
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
	for i := range a.N {
		at := r.Moment(i)
		switch {
		case r.Limit == nil:
			p.uses = append(p.uses, use{at: at})
		case at.Sub(r.Now) > store.Near:
			p.held = append(p.held, store.Ask{Key: paced, N: 1, Held: job.Moment{Key: paced, At: at, Rate: r.Rate}})
		case rapid.IntRange(0, 9).Draw(p.T, "crash") > 0:
			late := time.Duration(rapid.IntRange(0, 100).Draw(p.T, "late")) * time.Millisecond
			if late = min(late, at.Add(job.Lateness).Sub(p.now)); at.Add(late).Before(p.now) {
				late = p.now.Sub(at) // it was held, and asked for again after it had come
			}
			p.uses = append(p.uses, use{at: at.Add(late), every: r.Every})
		}
	}
}

func (p *pacing) check() {
	slices.SortFunc(p.uses, func(a, b use) int { return a.at.Compare(b.at) })
	for _, l := range p.set {
		run := 0 // how many came one after the other under this rate, or slower ones
		for i, u := range p.uses {
			if run++; u.every < l.Every() {
				run = 0
			}
			if run > l.Most && u.at.Sub(p.uses[i-l.Most].at) < time.Duration(l.Per) {
				p.Fatalf("%d within %v, %s", l.Most+1, u.at.Sub(p.uses[i-l.Most].at), l.Terms())
			}
		}
	}
}
