package fake_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// TestNobodyStarves: beside a stream of jobs for each key, jobs that need several get all their
// turns, whoever ends first.
func TestNobodyStarves(t *testing.T) { rapid.Check(t, checkNobodyStarves) }

func checkNobodyStarves(t *rapid.T) {
	c := &clock{}
	h := &hall{T: t, s: fake.New(c.Now), clock: c, session: job.NewID(), places: map[string]int{}}
	h.keys = []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(3, 5).Draw(t, "keys")]
	h.must(h.s.Begin(h.Context(), store.Session{ID: h.session, Lease: time.Hour}))
	for _, key := range h.keys {
		h.places[key] = rapid.IntRange(1, 2).Draw(t, "places of "+key)
		_, err := store.SetLimit(h.Context(), h.s, "acme", job.Limit{Key: key, Most: h.places[key]})
		h.must(err)
	}
	owners := []string{"ann", "bob", "cid"}[:rapid.IntRange(1, 3).Draw(t, "owners")]
	for _, key := range h.keys { // one more than run of each key is there at any time
		for n := range h.places[key] + 1 {
			h.submit(owners[n%len(owners)], key)
		}
	}
	var wide []job.ID // jobs that need several keys
	for range rapid.IntRange(1, 5).Draw(t, "wide jobs") {
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom(h.keys), 2, min(4, len(h.keys)), rapid.ID[string]).Draw(t,
			"of keys")
		wide = append(wide, h.submit(rapid.SampledFrom(owners).Draw(t, "of"), keys...))
	}
	h.look()
	// In a round each job that runs as it begins ends, in any order: so who gets a turn gives it
	// back within two. A job moves from line to line until it was passed over MaxPassed times, and
	// then waits once for each of its keys. Each time all that need several keys may go before it,
	// and one of each owner.
	rounds := 2 * (turns.MaxPassed + len(h.keys)) * (len(wide) + len(owners))
	for round := 0; ; round++ {
		waiting := slices.DeleteFunc(slices.Clone(wide), func(id job.ID) bool { return h.job(id).Custody != job.Gate })
		if len(waiting) == 0 {
			return
		}
		if round == rounds {
			t.Fatalf("after %d rounds, of %d jobs %d wait, the first is %+v", round, len(wide), len(waiting),
				h.job(waiting[0]))
		}
		h.claim()
		if len(h.running) == 0 {
			t.Fatalf("nobody runs, and %d wait", len(waiting))
		}
		for n := len(h.running); n > 0; n-- {
			h.end(rapid.IntRange(0, n-1).Draw(t, "ends"))
		}
	}
}

// A hall is a store with jobs that run under limits.
type hall struct {
	*rapid.T
	s       *fake.Store
	clock   *clock
	session job.ID
	keys    []string
	places  map[string]int
	all     []job.ID // that have not ended
	running []job.Job
}

func (h *hall) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hall) submit(owner string, keys ...string) job.ID {
	id := job.NewID()
	n := store.New{Job: job.Job{
		ID: id, Owner: owner, Kind: "send", Name: "send", Queue: job.DefaultQueue,
		Priority: job.DefaultPriority, MaxAttempts: 1, Request: []byte(`{}`), Limits: keys,
	}}
	_, _, err := h.s.Submit(h.Context(), store.Submission{Tenant: "acme", By: owner, Jobs: []store.New{n}})
	h.must(err)
	h.all = append(h.all, id)
	h.clock.Advance(time.Microsecond) // the next one is younger
	h.pay()
	return id
}

func (h *hall) pay() {
	for owed := true; owed; {
		_, eff, err := h.s.Pay(h.Context(), 1000)
		h.must(err)
		owed = eff.Owed
	}
}

func (h *hall) job(id job.ID) job.Job {
	j, err := store.FindJob(h.Context(), h.s, "acme", id)
	h.must(err)
	return j
}

// claim has all run that have their turns.
func (h *hall) claim() {
	jobs, err := h.s.Claim(h.Context(), store.Claim{
		ID: job.NewID(), Session: h.session, Queues: []string{job.DefaultQueue}, Kinds: []string{"send"},
		Slots: map[job.Lane]int{job.LaneTask: 100},
	})
	h.must(err)
	h.running = append(h.running, jobs...)
}

// end ends a job that runs. Another one of its owner comes for its key, where it needs no other.
func (h *hall) end(i int) {
	j := h.running[i]
	h.running = slices.Delete(h.running, i, i+1)
	h.all = slices.DeleteFunc(h.all, func(id job.ID) bool { return id == j.ID })
	if len(j.Limits) == 1 {
		h.submit(j.Owner, j.Limits...)
	}
	c := job.Change{
		Job: j.ID, From: j.Guard(job.Fence{Session: h.session}), To: job.None,
		Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}},
	}
	got, _, _, err := h.s.Apply(h.Context(), []job.Change{c}, nil)
	if err != nil || got[0].Outcome != store.OK {
		h.Fatalf("the end of %s: %+v, %v", j.ID, got, err)
	}
	h.pay()
	h.look()
}

// look: no key has more turns than places, and nobody waits for who waits for them.
func (h *hall) look() {
	// how many have a turn; for which lines those wait who keep one
	held, kept := map[string]int{}, map[string][]string{}
	for _, id := range h.all {
		j := h.job(id)
		for _, key := range j.Turns() {
			held[key]++
		}
		for _, key := range j.Kept() {
			kept[key] = append(kept[key], j.Line)
		}
	}
	for _, key := range h.keys {
		if held[key] > h.places[key] {
			h.Fatalf("%s: %d turns, and there are %d", key, held[key], h.places[key])
		}
	}
	for key := range kept {
		behind, seen := []string{key}, map[string]bool{}
		for len(behind) > 0 {
			next := kept[behind[0]]
			if behind = behind[1:]; slices.Contains(next, key) {
				h.Fatalf("who keeps turns of %s waits for them: %v", key, kept)
			}
			for _, line := range next {
				if !seen[line] {
					seen[line] = true
					behind = append(behind, line)
				}
			}
		}
	}
}
