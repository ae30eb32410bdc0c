package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var momentTests = []test{
	{"moments are handed out evenly, and none twice", momentsEven},
	{"a key without a rate lets go at once", momentsNone},
	{"each key of a family has moments of its own", momentsFamily},
	{"a moment that was not used does not come back", momentsPassed},
	{"a moment is asked for again", momentsHeld},
	{"who may be late has the room behind its moment", momentsLate},
	{"a rate that is changed holds at once", momentsChanged},
	{"a rate of a family that decides again does not know what it gave before", momentsAgain},
	{"what is asked for is bounded", momentsBounded},
	{"who waits for a moment does so in the gate, with all that it has", momentsGate},
	{"whoever waits comes out when a rate changes", momentsWake},
	{"to many at once", momentsAtOnce},
}

const launches = "launches/system/lab"

func rate(key string, most int, per time.Duration) job.Limit {
	return job.Limit{Key: key, Most: most, Per: job.Duration(per)}
}

// reserve asks for moments and checks what is true of every answer.
func (w *world) reserve(asks ...store.Ask) []store.Reserved {
	w.Helper()
	all, err := w.s.Reserve(w.ctx, acme, asks)
	if err != nil || len(all) != len(asks) {
		w.Fatalf("reserve %+v: %d answers, %v", asks, len(all), err)
	}
	for i, r := range all {
		switch {
		case r.Limit == nil && (!r.First.Equal(r.Now) || r.Every != 0 || !r.Rate.IsZero()):
			w.Errorf("%s: no rate, and %+v", asks[i].Key, r)
		case r.Limit != nil && (r.Every != r.Limit.Every() || r.Rate.IsZero()):
			w.Errorf("%s: %+v under %+v, which is %v apart", asks[i].Key, r, r.Limit, r.Limit.Every())
		case asks[i].Held.Key == "" && r.First.Before(r.Now):
			w.Errorf("%s: %v is before %v", asks[i].Key, r.First, r.Now)
		}
	}
	return all
}

// moments asks for n moments of one key.
func (w *world) moments(key string, n int) store.Reserved {
	w.Helper()
	return w.reserve(store.Ask{Key: key, N: n})[0]
}

// held asks again for a moment.
func (w *world) held(r store.Reserved, i int) store.Reserved {
	w.Helper()
	m := job.Moment{Key: launches, At: r.Moment(i), Rate: r.Rate}
	return w.reserve(store.Ask{Key: launches, N: 1, Held: m})[0]
}

// follows fails the test unless moments are those after others, or after now where these have
// passed.
func (w *world) follows(next, before store.Reserved, n int) {
	w.Helper()
	if want := before.Moment(n); !next.First.Equal(want) && (!next.First.Equal(next.Now) || next.Now.Before(want)) {
		w.Errorf("the next moment is %v, it is %v, want %v", next.First, next.Now, want)
	}
}

func momentsEven(w *world) {
	w.limit(rate(launches, 8, 2*time.Second))
	first := w.moments(launches, 100)
	if first.Every != 262500*time.Microsecond || first.Limit.Key != launches || first.Limit.Most != 8 ||
		first.Limit.Per != job.Duration(2*time.Second) {
		w.Errorf("moments %v apart by %+v", first.Every, first.Limit)
	}
	next := w.moments(launches, 1)
	w.follows(next, first, 100)
	if next.Rate != first.Rate {
		w.Errorf("the rate is another one, and nobody has changed it")
	}
	all := w.reserve(store.Ask{Key: launches, N: 2}, store.Ask{Key: "dials/lab", N: 1},
		store.Ask{Key: launches, N: 3}, store.Ask{Key: launches, N: 1})
	w.follows(all[0], next, 1)
	w.follows(all[2], all[0], 2)
	w.follows(all[3], all[2], 3)
	if all[1].Limit != nil {
		w.Errorf("a key without a rate: %+v", all[1])
	}
}

func momentsNone(w *world) {
	w.limit(most("system/lab", 1))
	for range 3 {
		for _, r := range w.reserve(store.Ask{Key: launches, N: 10}, store.Ask{Key: "system/lab", N: 1}) {
			if r.Limit != nil {
				w.Errorf("under %+v", r.Limit)
			}
		}
	}
	if all, err := w.s.Moments(w.ctx, store.TurnQuery{Tenant: acme}); err != nil || len(all) > 0 {
		w.Errorf("moments %+v, %v", all, err)
	}
	if all, err := w.s.Reserve(w.ctx, acme, nil); err != nil || len(all) > 0 {
		w.Errorf("nothing was asked for: %+v, %v", all, err)
	}
}

func momentsFamily(w *world) {
	w.limit(rate("launches/system/*", 1, time.Hour), rate(launches, 1, time.Minute))
	a, b := w.moments("launches/system/a", 3), w.moments("launches/system/b", 1)
	own, other := w.moments(launches, 1), w.moments("launches/system/a", 1)
	if a.Every != time.Hour+job.Lateness || b.Every != a.Every || own.Every != time.Minute+job.Lateness ||
		a.Limit.Key != "launches/system/*" {
		w.Errorf("%v, %v and %v apart", a.Every, b.Every, own.Every)
	}
	w.follows(other, a, 3)
	if b.First.Sub(a.First) >= time.Minute {
		w.Errorf("keys of a family share moments")
	}
	strange, err := w.s.Reserve(w.ctx, "zeta", []store.Ask{{Key: launches, N: 1}})
	if err != nil || strange[0].Limit != nil {
		w.Errorf("another tenant: %+v, %v", strange, err)
	}
	all, err := w.s.Moments(w.ctx, store.TurnQuery{Tenant: acme})
	var keys []string
	for _, m := range all {
		keys = append(keys, m.Key)
	}
	if err != nil || !slices.Equal(keys, []string{"launches/system/a", "launches/system/b", launches}) {
		w.Fatalf("moments of %v, %v", keys, err)
	}
	if m := all[0]; m.Limit.Key != "launches/system/*" || m.FreeIn > 4*a.Every || m.FreeIn < 4*a.Every-time.Minute {
		w.Errorf("%+v: want four times %v", m, a.Every)
	}
	for _, q := range []store.TurnQuery{{Key: "launches/system/b"}, {After: "launches/system/a", Limit: 1}} {
		q.Tenant = acme
		if some, err := w.s.Moments(w.ctx, q); err != nil || len(some) != 1 || some[0].Key != "launches/system/b" {
			w.Errorf("%+v: %+v, %v", q, some, err)
		}
	}
}

func momentsPassed(w *world) {
	w.limit(rate(launches, 10, 2*time.Second))
	before := w.moments(launches, 1)
	w.clock.Advance(time.Hour)
	for range 3 {
		r := w.moments(launches, 1)
		w.follows(r, before, 1)
		before = r
	}
	if all, err := w.s.Moments(w.ctx, store.TurnQuery{Tenant: acme}); err != nil || len(all) != 1 ||
		all[0].FreeIn > time.Second {
		w.Errorf("moments %+v, %v", all, err)
	}
}

func momentsHeld(w *world) {
	w.limit(rate(launches, 1, time.Minute), rate("dials/lab", 1, time.Minute))
	given := w.moments(launches, 5)
	last := given.Moment(4)
	for range 2 {
		if r := w.held(given, 4); !r.First.Equal(last) {
			w.Errorf("%v was held, and it is %v now", last, r.First)
		}
	}
	next := w.moments(launches, 1)
	w.follows(next, given, 5)
	other := job.Moment{Key: "dials/lab", At: last, Rate: given.Rate}
	if r := w.reserve(store.Ask{Key: launches, N: 1, Held: other})[0]; !r.First.Equal(next.Moment(1)) {
		w.Errorf("a moment of another key was taken for one of this: %v", r.First)
	}
	w.clock.Advance(last.Sub(given.Now) - time.Second)
	if r := w.held(given, 4); !r.First.Equal(last) || r.First.Sub(r.Now) > time.Second {
		w.Errorf("%v was held, and it is %v now, which is in %v", last, r.First, r.First.Sub(r.Now))
	}
	w.clock.Advance(time.Second + 2*job.Lateness)
	if r := w.held(given, 4); !r.First.Equal(next.Moment(2)) {
		w.Errorf("%v has passed; %v was given, want %v", last, r.First, next.Moment(2))
	}
}

func momentsLate(w *world) {
	w.limit(rate(launches, 10, 2*time.Second), rate("dials/lab", 1, time.Second))
	late := func(d time.Duration) store.Ask { return store.Ask{Key: launches, N: 1, Late: d} }
	first := w.moments(launches, 100) // the clock does not come near any of those that follow
	all := w.reserve(late(time.Second), store.Ask{Key: launches, N: 3}, store.Ask{Key: "dials/lab", N: 1},
		late(store.MaxLate), late(time.Microsecond), late(0))
	at := first.Moment(100)
	for i, room := range []time.Duration{0, time.Second, -1, 2 * first.Every, store.MaxLate, time.Microsecond} {
		if room < 0 {
			continue // it is of another key
		}
		if at = at.Add(room); !all[i].First.Equal(at) {
			w.Errorf("%d: %v was given, want %v", i, all[i].First, at)
		}
		at = at.Add(first.Every)
	}
	if next := w.moments(launches, 1); !next.First.Equal(at) {
		w.Errorf("then %v was given, want %v", next.First, at)
	}
	// It may be asked for again as late as it may be used, and its room is not added once more.
	held := job.Moment{Key: launches, At: all[3].First, Rate: all[3].Rate, Late: job.Duration(store.MaxLate)}
	again := store.Ask{Key: launches, N: 1, Held: held, Late: store.MaxLate}
	w.clock.Advance(held.At.Sub(all[3].Now) + store.MaxLate - time.Minute)
	if r := w.reserve(again)[0]; !r.First.Equal(held.At) {
		w.Errorf("%v was held, and it is %v at %v", held.At, r.First, r.Now)
	}
	before := w.moments(launches, 1)
	w.clock.Advance(time.Minute + time.Second)
	if r := w.reserve(again)[0]; r.First.Before(r.Now) {
		w.Errorf("%v has passed, and %v was given", held.At, r.First)
	} else {
		w.follows(r, before, 1)
		if next := w.moments(launches, 1); next.First.Sub(r.First) < r.Every+store.MaxLate {
			w.Errorf("it has no room: the next is %v behind it", next.First.Sub(r.First))
		}
	}
}

func momentsAgain(w *world) {
	const family = "launches/system/*"
	w.limit(rate(family, 1, time.Second))
	before := w.moments(launches, 1)
	w.limit(rate(launches, 1, time.Second))
	between := w.moments(launches, 1)
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, launches); err != nil {
		w.Fatalf("remove: %v", err)
	}
	for _, was := range []store.Reserved{before, between} {
		if r := w.held(was, 0); r.Limit == nil || r.Limit.Key != family || r.Rate == was.Rate ||
			r.First.Equal(was.First) {
			w.Errorf("%+v was held, and is %+v", was, r)
		}
	}
	first := w.moments(launches, 1)
	w.follows(w.moments(launches, 1), first, 1)
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, family); err != nil {
		w.Fatalf("remove: %v", err)
	}
	if r := w.moments(launches, 1); r.Limit != nil {
		w.Errorf("a family that was removed: %+v", r)
	}
}

func momentsChanged(w *world) {
	w.limit(rate(launches, 1, time.Hour))
	slow := w.moments(launches, 10)
	w.limit(rate(launches, 10, time.Second))
	fast := w.held(slow, 9)
	if in := fast.First.Sub(fast.Now); in > job.MaxSlotWait+fast.Every || fast.Rate == slow.Rate {
		w.Errorf("under the new rate it is in %v", in)
	}
	if first := fast.First.Sub(slow.First); first < fast.Every {
		w.Errorf("it comes %v after one that may be used", first)
	}
	w.follows(w.moments(launches, 1), fast, 1)
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, launches); err != nil {
		w.Fatalf("remove: %v", err)
	}
	if r := w.held(fast, 0); r.Limit != nil {
		w.Errorf("a rate that was removed: %+v", r)
	}
	w.limit(rate(launches, 1, time.Hour))
	again := w.moments(launches, 1)
	if again.Rate == slow.Rate || again.First.Sub(again.Now) > time.Hour+2*time.Second {
		w.Errorf("a rate that was set again: in %v", again.First.Sub(again.Now))
	}
	far := w.moments(launches, 5)
	w.limit(rate(launches, 1, time.Hour))
	if r := w.held(far, 4); r.Rate == far.Rate || r.First.Sub(r.Now) > time.Hour+2*time.Second {
		w.Errorf("set to what it was: in %v", r.First.Sub(r.Now))
	}
}

func momentsBounded(w *world) {
	for _, asks := range [][]store.Ask{
		{{Key: launches}},
		{{Key: launches, N: -1}},
		{{Key: launches, N: store.MaxAsked + 1}},
		{{Key: launches, N: 2, Held: job.Moment{Key: launches}}},
		{{Key: launches, N: 2, Late: time.Second}},
		{{Key: launches, N: 1, Late: -time.Second}},
		{{Key: launches, N: 1, Late: store.MaxLate + time.Microsecond}},
		{{Key: launches, N: 1, Late: time.Nanosecond}},
		{{Key: launches, N: 1, Held: job.Moment{Key: launches, Late: -1}}},
		{{Key: launches, N: 1, Held: job.Moment{Key: launches, Late: job.Duration(2 * store.MaxLate)}}},
		make([]store.Ask, store.MaxAsked+1),
	} {
		_, err := w.s.Reserve(w.ctx, acme, asks)
		w.kind(err, job.Invalid)
	}
}

// late hands a program that is about to be launched to the gate, until its moment comes.
func (w *world) late(j job.Job, session job.ID, in time.Duration) job.Job {
	w.Helper()
	return w.must(setting(move(j, by(session), job.Ready, j.State), job.Patch{Delay: in}))
}

func momentsGate(w *world) {
	w.limit(most("system/lab", 1))
	session := w.session()
	id := w.add(newProgram(under("system/lab"), on(machine)))
	w.pay()
	// Before it begins it keeps its place among those that are made ready.
	j := w.late(w.claimOne(session), session, time.Minute)
	if want := (job.Place{State: job.ProcessingInputs, Custody: job.Gate}); j.Place != want || j.Due.IsZero() ||
		j.Line != "" || j.Ties&job.TieAhead == 0 {
		w.Fatalf("it stands at %s, due %v, in line for %q, with %b", j.Place, j.Due, j.Line, j.Ties)
	}
	w.uses("ahead/system/lab", 1, 0)
	if n := w.due(); n != 0 {
		w.Errorf("%d are due", n)
	}
	w.clock.Advance(time.Minute + time.Second)
	w.due()
	w.at(job.ProcessingInputs, job.Ready, id)
	session = w.session() // the one before has not been renewed
	w.must(staged(w.claimOne(session), by(session)))
	w.pay()
	// Before it is launched it keeps its turn.
	w.late(w.claimOne(session), session, time.Minute)
	w.at(job.SubmittingJob, job.Gate, id)
	w.uses("system/lab", 1, 0)
	w.wish(job.WishPause, id)
	w.at(job.Paused, job.User, id)
	w.uses("system/lab", 0, 0)
	w.wish(job.WishResume, id) // it asks again when it has its turn
	w.pay()
	w.at(job.SubmittingJob, job.Ready, id)
	w.uses("system/lab", 1, 0)
	w.late(w.claimOne(session), session, time.Minute)
	w.wish(job.WishCancel, id)
	w.at(job.Canceled, job.None, id)
	w.pay()
	checkTurns(w)
}

func momentsWake(w *world) {
	session := w.session()
	id, other := w.add(newProgram(on(machine))), w.add(newProgram(on(machine)))
	later := w.add(newProgram(on(machine), delayed(time.Hour)))
	for _, j := range w.claim(wanted(session, 100)) {
		if j.ID == id {
			j = w.must(staged(j, by(session)))
			j = w.claim(wanted(session, 100))[0]
		}
		w.late(j, session, time.Hour)
	}
	w.at(job.SubmittingJob, job.Gate, id)
	w.at(job.ProcessingInputs, job.Gate, other)
	for _, change := range []func() (store.Effects, error){
		func() (store.Effects, error) {
			return store.SetLimit(w.ctx, w.s, acme, rate(launches, 8, 2*time.Second))
		},
		func() (store.Effects, error) { return store.RemoveLimit(w.ctx, w.s, acme, launches) },
	} {
		eff, err := change()
		if err != nil || eff.Due.IsZero() {
			w.Fatalf("effects %+v, %v", eff, err)
		}
		w.due()
		w.at(job.SubmittingJob, job.Ready, id)
		w.at(job.ProcessingInputs, job.Ready, other)
		for _, j := range w.claim(wanted(session, 100)) {
			w.late(j, session, time.Hour)
		}
	}
	w.at(job.Waiting, job.Gate, later)
	_, err := store.RemoveLimit(w.ctx, w.s, acme, launches)
	w.kind(err, job.NotFound)
}

func momentsAtOnce(w *world) {
	const askers, times = 8, 20
	w.limit(rate(launches, 10, time.Second), rate("starts/system/lab", 10, time.Second))
	var mu sync.Mutex
	given := map[string][]time.Time{}
	w.together(askers, func(i int) error {
		for range times {
			asks := []store.Ask{{Key: launches, N: 1 + i%3}, {Key: "starts/system/lab", N: 1}}
			if i%2 == 0 { // who asks for several keys asks in any order
				slices.Reverse(asks)
			}
			all, err := w.s.Reserve(w.ctx, acme, asks)
			if err != nil {
				return err
			}
			mu.Lock()
			for k, r := range all {
				for n := range asks[k].N {
					given[asks[k].Key] = append(given[asks[k].Key], r.Moment(n))
				}
			}
			mu.Unlock()
		}
		return nil
	})
	if n := len(given["starts/system/lab"]); n != askers*times {
		w.Errorf("%d moments", n)
	}
	for key, all := range given {
		slices.SortFunc(all, time.Time.Compare)
		for i, at := range all[1:] {
			if between := at.Sub(all[i]); between < 110*time.Millisecond {
				w.Errorf("%s: two moments are %v apart", key, between)
			}
		}
	}
}
