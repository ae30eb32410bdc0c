package turns

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// TestHand draws what a payer may have read, and checks what [Keys.Hand] makes of it.
func TestHand(t *testing.T) { rapid.Check(t, checkHand) }

func checkHand(t *rapid.T) {
	g, keys := drawGate(t)
	limit := rapid.IntRange(1, 12).Draw(t, "limit")
	free := map[string]int{} // as it was
	for key, k := range g {
		free[key] = k.Free(key)
	}
	first := clone(g)
	h := first.Hand(keys, limit)
	for range 5 { // maps are gone through in another order each time
		again := clone(g)
		if other := again.Hand(keys, limit); !reflect.DeepEqual(h, other) {
			t.Fatalf("decided first\n%+v\nand then\n%+v", h, other)
		} else if !reflect.DeepEqual(first, again) {
			t.Fatalf("left first\n%+v\nand then\n%+v", first, again)
		}
	}

	waiters := map[job.ID]Waiter{}
	for _, key := range keys {
		for _, w := range g[key].Line {
			waiters[w.Job] = w
		}
	}
	if len(h.Grant) > limit {
		t.Fatalf("%d go, and %d may", len(h.Grant), limit)
	}
	decided := map[job.ID]bool{}
	once := func(id job.ID) Waiter {
		w, waits := waiters[id]
		if !waits || decided[id] {
			t.Fatalf("%s, who waits: %t, is decided on twice: %t", id, waits, decided[id])
		}
		decided[id] = true
		return w
	}
	taken := map[string]int{}
	for _, id := range h.Grant {
		for _, key := range once(id).Lacks() {
			taken[key]++
		}
	}
	for _, m := range h.Move {
		w := once(m.Job)
		has := slices.Concat(w.Kept, m.Keep)
		slices.Sort(has)
		full, closed := slices.Index(w.Keys, m.Line), g[m.Line].Closed(m.Line)
		if len(m.Drop) > 0 {
			if !closed || len(m.Keep) > 0 || !slices.Equal(m.Drop, w.Kept) {
				t.Fatalf("%+v waits for %s, which is closed: %t, gives back %q and keeps %q", w, m.Line, closed,
					m.Drop, m.Keep)
			}
			continue
		}
		switch {
		case closed && len(has) > 0:
			t.Fatalf("%+v keeps %q while it waits for %s, which is closed", w, has, m.Line)
		case full < 0 || m.Line == lineOf(w, keys, g):
			t.Fatalf("%+v moves to the line of %s", w, m.Line)
		case len(m.Keep) > 0 && w.Passed < MaxPassed:
			t.Fatalf("%+v keeps %q", w, m.Keep)
		case len(has) > 0 && !slices.Equal(has, w.Keys[:full]):
			t.Fatalf("%+v waits for %s and has %q", w, m.Line, has)
		}
		for _, key := range m.Keep {
			taken[key]++
		}
	}
	for _, key := range keys {
		for _, w := range g[key].Line {
			switch {
			case len(w.Kept) == 0 || decided[w.Job]:
			case g[key].Closed(key):
				t.Fatalf("%+v keeps turns in the line of %s, which is closed", w, key)
			case slices.ContainsFunc(h.Grant, func(id job.ID) bool {
				return lineOf(waiters[id], keys, g) == key && len(waiters[id].Kept) == 0
			}):
				t.Fatalf("%+v keeps turns, and others of the line of %s go", w, key)
			}
		}
	}
	for key, n := range taken {
		if n > free[key] {
			t.Fatalf("%d got turns of %s, of which %d were free", n, key, free[key])
		}
	}
	for _, key := range keys {
		left := free[key] - taken[key]
		if free[key] == math.MaxInt {
			left = free[key]
		}
		for _, w := range g[key].Line {
			if left > 0 && !decided[w.Job] && !slices.Contains(h.Again, key) {
				t.Fatalf("%d places of %s are free, and %+v waits", left, key, w)
			}
		}
		if left > 0 && len(g[key].More) > 0 && !slices.Contains(h.Again, key) {
			t.Fatalf("%d places of %s are free, and those that were not read wait", left, key)
		}
	}
	for _, key := range h.Again {
		if free[key]-taken[key] <= 0 {
			t.Fatalf("%s is full, and is to be looked at again", key)
		}
	}
}

// lineOf returns the line in which a waiter stands.
func lineOf(w Waiter, keys []string, g Keys) string {
	for _, key := range keys {
		if slices.ContainsFunc(g[key].Line, func(x Waiter) bool { return x.Job == w.Job }) {
			return key
		}
	}
	return ""
}

// drawGate draws keys under limits with who has turns of them and who waits, as a store may find
// them.
func drawGate(t *rapid.T) (Keys, []string) {
	names := []string{"a", "b", "c", "d"}
	owners := []string{"ann", "bob", "cid"}
	g := Keys{}
	for _, name := range names {
		k := &Key{Held: map[string]int{}, More: map[string]bool{}}
		if rapid.IntRange(0, 5).Draw(t, "limited") > 0 {
			k.Limit = &job.Limit{
				Key: name, Most: rapid.IntRange(0, 6).Draw(t, "most"),
				Weights: map[string]int{"ann": rapid.IntRange(0, 3).Draw(t, "weight")},
			}
		}
		for _, owner := range owners { // more than the limit may have them: it was lowered
			if n := rapid.IntRange(0, 3).Draw(t, "held"); n > 0 {
				k.Held[owner] = n
			}
			if rapid.IntRange(0, 3).Draw(t, "waited") == 0 {
				if k.Served == nil {
					k.Served = map[string]float64{}
				}
				k.Served[owner] = float64(rapid.IntRange(0, 3).Draw(t, "served"))
			}
		}
		g[name] = k
	}
	keys := names[:rapid.IntRange(1, 2).Draw(t, "keys")]
	for i, key := range keys {
		k := g[key]
		for n := range rapid.IntRange(0, 8).Draw(t, "waiting") {
			w := Waiter{
				Job: job.ID{1, byte(i), byte(n)}, Owner: rapid.SampledFrom(owners).Draw(t, "owner"),
				Passed:   rapid.IntRange(0, 10).Draw(t, "passed"),
				Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
				Created:  int64(rapid.IntRange(0, 2).Draw(t, "created")),
			}
			for j, other := range names {
				if j == i || rapid.Bool().Draw(t, "needs") {
					w.Keys = append(w.Keys, other)
				}
			}
			if at := slices.Index(w.Keys, key); w.Passed > MaxPassed && at > 0 && rapid.Bool().Draw(t, "kept") {
				w.Kept = w.Keys[:at]
				for _, has := range w.Kept {
					g[has].Held[w.Owner]++
				}
			}
			k.Line = append(k.Line, w)
		}
		slices.SortFunc(k.Line, Waiter.Compare)
		if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
			for _, w := range k.Line[:min(1, len(k.Line))] { // of whom none is read there are no more
				k.More[w.Owner] = true
			}
		}
	}
	return g, keys
}

func clone(g Keys) Keys {
	c := Keys{}
	for name, k := range g {
		d := *k
		d.Held, d.Served, d.More, d.Line = maps.Clone(k.Held), maps.Clone(k.Served), maps.Clone(k.More),
			slices.Clone(k.Line)
		c[name] = &d
	}
	return c
}

// TestHandLeavesWhatIsFull: the last place of a key whose line was not read to its end goes to who
// needs it in another line.
func TestHandLeavesWhatIsFull(t *testing.T) {
	t.Parallel()
	one := func(more bool) *Key {
		k := &Key{Limit: &job.Limit{Most: 1}, Held: map[string]int{}, More: map[string]bool{}}
		if more {
			k.More["ann"] = true
		}
		return k
	}
	g := Keys{"a": one(true), "b": one(false)}
	g["b"].Line = []Waiter{{Job: job.ID{1}, Owner: "bob", Keys: []string{"a", "b"}}}
	if h := g.Hand([]string{"a", "b"}, 5); len(h.Grant) != 1 || len(h.Again) != 0 {
		t.Errorf("%d go, want 1; %q are to be looked at again", len(h.Grant), h.Again)
	}
}

// TestHandMovesFew: of a line of jobs that cannot go no more than maxMoved go to another line.
func TestHandMovesFew(t *testing.T) {
	g := Keys{
		"a": {Limit: &job.Limit{Key: "a", Most: 1}, Held: map[string]int{}},
		"b": {Limit: &job.Limit{Key: "b", Most: 0}, Held: map[string]int{}},
	}
	for i := range 3 * maxMoved {
		g["a"].Line = append(g["a"].Line,
			Waiter{Job: job.ID{1, byte(i >> 8), byte(i)}, Owner: fmt.Sprint(i % 7), Keys: []string{"a", "b"}})
	}
	h := g.Hand([]string{"a"}, 10)
	if len(h.Move) != maxMoved || !slices.Equal(h.Again, []string{"a"}) {
		t.Errorf("%d moved, again %q", len(h.Move), h.Again)
	}
}
