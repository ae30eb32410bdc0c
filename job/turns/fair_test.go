package turns

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// A shared key has owners who always have jobs waiting.
type shared struct {
	*rapid.T
	gate   Keys
	owners []string
	weight map[string]int
	whole  int            // of all weights
	given  map[string]int // turns, so far
	jobs   map[job.ID]string
	held   []job.ID // jobs that have turns, oldest first
	made   int
}

func newShared(t *rapid.T, places int) *shared {
	s := &shared{T: t, weight: map[string]int{}, given: map[string]int{}, jobs: map[job.ID]string{}}
	limit := &job.Limit{Key: "key", Most: places, Weights: map[string]int{}}
	for i := range rapid.IntRange(2, 6).Draw(t, "owners") {
		owner := fmt.Sprintf("owner %d", i)
		s.owners = append(s.owners, owner)
		s.weight[owner] = rapid.IntRange(1, 9).Draw(t, "weight")
		s.whole += s.weight[owner]
		if w := s.weight[owner]; w > 1 {
			limit.Weights[owner] = w
		}
	}
	s.gate = Keys{"key": {Limit: limit, Held: map[string]int{}}}
	return s
}

// hand hands on all that is free.
func (s *shared) hand() {
	k := s.gate["key"]
	for left := true; left; {
		k.Line, k.More = nil, map[string]bool{}
		for _, owner := range s.owners { // as they are read: the first ones of each
			for range rapid.IntRange(1, 3).Draw(s.T, "read") {
				s.made++
				id := job.ID{1, byte(s.made >> 16), byte(s.made >> 8), byte(s.made)}
				s.jobs[id] = owner
				k.Line = append(k.Line, Waiter{
					Job: id, Owner: owner,
					Priority: rapid.IntRange(0, 9).Draw(s.T, "priority"), Created: int64(s.made),
					Keys: []string{"key"},
				})
			}
			k.More[owner] = true
		}
		slices.SortFunc(k.Line, Waiter.Compare)
		h := s.gate.Hand([]string{"key"}, 1000)
		for _, id := range h.Grant {
			s.given[s.jobs[id]]++
			s.held = append(s.held, id)
		}
		left = len(h.Again) > 0
	}
}

// end ends a job that has a turn.
func (s *shared) end(i int) {
	k, owner := s.gate["key"], s.jobs[s.held[i]]
	s.held = slices.Delete(s.held, i, i+1)
	if k.Held[owner]--; k.Held[owner] == 0 {
		delete(k.Held, owner)
	}
}

// proportional fails the test unless n of each owner are its share of all of them. Whoever is next
// has the fewest, by weight: so after it has got one more, each other one has at least as many by
// weight as it had before. Summed up over all others, it has less than one more than its share; and
// an owner lacks of its own no more than what others have more.
func (s *shared) proportional(what string, n map[string]int) {
	s.Helper()
	all := 0
	for _, k := range n {
		all += k
	}
	for owner, w := range s.weight {
		// n <= all·w/whole + (whole-w)/whole, and n >= w·(all-(owners-1))/whole
		if n[owner]*s.whole > all*w+s.whole-w || n[owner]*s.whole < w*(all-(len(s.owners)-1)) {
			s.Fatalf("%s: %s has %d of %d, with a weight of %d of %d; all have %v by weights %v", what, owner,
				n[owner], all, w, s.whole, n, s.weight)
		}
	}
}

// TestTurnsByWeight: of one place, the turns that are given are those of owners by weight, at any
// time.
func TestTurnsByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShared(t, 1)
		for range 200 {
			s.hand()
			s.proportional("turns given", s.given)
			s.end(0)
		}
	})
}

// TestPlacesByWeight: of several places each owner has its share by weight at any time, whoever
// ends first, and however the limit changes: then as soon as those have ended who ran when it was
// lowered.
func TestPlacesByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 30)
		s := newShared(t, limit.Draw(t, "places"))
		lowered := map[job.ID]bool{} // who ran then, and has not ended
		for range 300 {
			k := s.gate["key"]
			if rapid.IntRange(0, 19).Draw(t, "change") == 0 {
				was := k.Limit.Most
				if k.Limit.Most = limit.Draw(t, "places"); k.Limit.Most < was {
					for _, id := range s.held {
						lowered[id] = true
					}
				}
			}
			had := len(s.held)
			s.hand()
			if most := max(had, k.Limit.Most); len(s.held) != most {
				t.Fatalf("%d have turns, want %d", len(s.held), most)
			}
			if len(lowered) == 0 {
				s.proportional("turns", k.Held)
			}
			if len(s.held) > 0 {
				i := rapid.IntRange(0, len(s.held)-1).Draw(t, "ends")
				if len(lowered) > 0 && rapid.Bool().Draw(t, "an old one") {
					i = slices.IndexFunc(s.held, func(id job.ID) bool { return lowered[id] })
				}
				delete(lowered, s.held[i])
				s.end(i)
			}
		}
	})
}

// TestManyOwners: of more owners than are looked at each gets a turn after the other, as often as
// its weight says. Who reads no more of a line than its owners whose turn it is hands on as who
// reads all of it.
func TestManyOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := &job.Limit{Key: "key", Most: rapid.IntRange(1, 60).Draw(t, "places"), Weights: map[string]int{}}
		n := (&Key{Limit: limit}).MaxOwners("key") + rapid.IntRange(1, 30).Draw(t, "more owners")
		owners, place := make([]string, n), map[string]int{}
		for i := range owners {
			owners[i] = fmt.Sprintf("owner %03d", i)
			place[owners[i]] = i
		}
		whole := n
		for range rapid.IntRange(0, 3).Draw(t, "weights") {
			owner := rapid.SampledFrom(owners).Draw(t, "owner")
			whole -= limit.Weight(owner)
			limit.Weights[owner] = rapid.IntRange(1, 5).Draw(t, "weight")
			whole += limit.Weight(owner)
		}
		long := rapid.Bool().Draw(t, "some take long")
		gone := map[string]int{} // jobs of each owner that have left the line
		waiter := func(owner string, i int) Waiter {
			p := place[owner]
			return Waiter{
				Job: job.ID{1, byte(p >> 8), byte(p), byte(i >> 8), byte(i)}, Owner: owner,
				Created: int64(1000*i + p), Keys: []string{"key"},
			}
		}
		whose := func(id job.ID) string { return owners[int(id[1])<<8+int(id[2])] }
		all, some := &Key{Limit: limit, Held: map[string]int{}}, &Key{Limit: limit, Held: map[string]int{}}
		hand := func(k *Key, read func(k *Key)) (granted []job.ID) {
			for left := true; left && k.Free("key") > 0; {
				k.Line, k.More = nil, nil
				read(k)
				h := (Keys{"key": k}).Hand([]string{"key"}, 1000)
				for _, id := range h.Grant {
					gone[whose(id)]++
				}
				granted, left = append(granted, h.Grant...), len(h.Again) > 0
			}
			for _, id := range granted {
				gone[whose(id)]--
			}
			return granted
		}
		var held []job.ID
		given, sum := map[string]int{}, 0
		for range 20 {
			want := hand(all, func(k *Key) {
				for _, owner := range owners {
					for i := range 8 {
						k.Line = append(k.Line, waiter(owner, gone[owner]+i))
					}
				}
				k.Trim(7)
			})
			got := hand(some, func(k *Key) {
				last, _ := k.Last()
				first, _ := slices.BinarySearch(owners, last)
				most := PerOwner(k.Free("key")+2, k.MaxOwners("key")+1)
				for i := range k.MaxOwners("key") + 1 {
					owner := owners[(first+i)%n]
					for i := range most + 1 {
						k.Line = append(k.Line, waiter(owner, gone[owner]+i))
					}
				}
				k.Trim(most)
			})
			if !slices.Equal(got, want) {
				t.Fatalf("who reads some hands on to\n%v\nand who reads all to\n%v", got, want)
			}
			for _, id := range want {
				given[whose(id)]++
				gone[whose(id)]++
				sum++
			}
			held = append(held, want...)
			if len(held) != limit.Most {
				t.Fatalf("%d have turns, and %d may", len(held), limit.Most)
			}
			for owner, n := range all.Held {
				if n > limit.Weight(owner) {
					t.Fatalf("%s has %d turns, with a weight of %d, and others have none", owner, n,
						limit.Weight(owner))
				}
			}
			stay := 0 // the first ones, for ever
			if long {
				stay = limit.Most / 2
			}
			for range len(held) - stay {
				owner := whose(held[stay])
				held = slices.Delete(held, stay, stay+1)
				for _, k := range []*Key{all, some} {
					if k.Held[owner]--; k.Held[owner] == 0 {
						delete(k.Held, owner)
					}
				}
			}
			for _, owner := range owners {
				least, most := sum/whole*limit.Weight(owner), (sum/whole+1)*limit.Weight(owner)
				if n := given[owner]; !long && (n < least || n > most) {
					t.Fatalf("%s has got %d of %d, want %d to %d: it has a weight of %d of %d", owner, n, sum,
						least, most, limit.Weight(owner), whole)
				}
			}
		}
	})
}

// TestKeptIsNoTurnOfARound: who goes because he kept turns goes whosever turn it is, and it is
// theirs still.
func TestKeptIsNoTurnOfARound(t *testing.T) {
	t.Parallel()
	k := &Key{
		Limit: &job.Limit{Key: "key", Most: 3}, Held: map[string]int{},
		Served: map[string]float64{"owner 005": 1},
	}
	for i := range fewOwners + 10 {
		k.Line = append(k.Line, Waiter{
			Job: job.ID{1, byte(i)}, Owner: fmt.Sprintf("owner %03d", i),
			Keys: []string{"key"},
		})
	}
	k.Line[90].Kept, k.Line[90].Keys = []string{"another"}, []string{"another", "key"}
	h := (Keys{"key": k, "another": {}}).Hand([]string{"key"}, 10)
	if want := []job.ID{{1, 90}, {1, 6}, {1, 7}}; !slices.Equal(h.Grant, want) {
		t.Errorf("%v go, want %v", h.Grant, want)
	}
	if last, times := k.Last(); last != "owner 007" || times != 1 {
		t.Errorf("%s was served last, %d times", last, times)
	}
}

// TestOwnersComeAndGo: nobody is passed over for ever because there are more owners than are looked
// at now and then, or because those who have turns are as many as are looked at.
func TestOwnersComeAndGo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                   string
		places, owners, others int // others are there at each other hand
		long                   int // owners with a turn that they keep
		hands                  int
	}{
		{"one before the first", 1, fewOwners, 1, 0, 600},
		{"as many again", 1, fewOwners, fewOwners, 0, 800},
		{"more places than owners are looked at", 1500, 1100, 0, 1000, 300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := &Key{Limit: &job.Limit{Key: "key", Most: tt.places}, Held: map[string]int{}}
			all := tt.others + tt.owners
			waiter := func(i, n int) Waiter {
				w := Waiter{
					Job:   job.ID{1, byte(i >> 8), byte(i), byte(n >> 8), byte(n)},
					Owner: fmt.Sprintf("owner %04d", i), Priority: 1, Created: int64(n), Keys: []string{"key"},
				}
				if i == all-30 {
					w.Priority = 0 // it goes first, were it not for turns
				}
				return w
			}
			for i := range tt.long {
				k.Held[waiter(i, 0).Owner] = 1
			}
			k.Held["elsewhere"] = tt.places - tt.long - 1
			given := make([]int, all)
			for n := range tt.hands {
				k.Line, k.More = nil, nil
				first := 0
				if n%2 == 0 {
					first = tt.others
				}
				for i := first; i < all; i++ {
					k.Line = append(k.Line, waiter(i, given[i]), waiter(i, given[i]+1))
				}
				h := (Keys{"key": k}).Hand([]string{"key"}, 10)
				if len(h.Grant) != 1 {
					t.Fatalf("%d go, want one", len(h.Grant))
				}
				id := h.Grant[0]
				i := int(id[1])<<8 + int(id[2])
				given[i]++
				if k.Held[waiter(i, 0).Owner]--; k.Held[waiter(i, 0).Owner] == 0 {
					delete(k.Held, waiter(i, 0).Owner)
				}
			}
			for i := max(tt.others, tt.long); i < all; i++ {
				if given[i] < 2 {
					t.Errorf("owner %d of %d got %d turns of %d", i, all, given[i], tt.hands)
				}
			}
		})
	}
}

// TestBlockedHeadsGoSoon: jobs that cannot go stand before those that can, of one owner of some,
// and one place is free. It is not idle for as many steps as there are such jobs.
func TestBlockedHeadsGoSoon(t *testing.T) {
	t.Parallel()
	const blocked, owners = 300, 20
	full := &Key{Limit: &job.Limit{Key: "full", Most: 0}}
	k := &Key{Limit: &job.Limit{Key: "key", Most: 1}, Held: map[string]int{}}
	hands, gone := 0, 0
	for granted := 0; granted == 0; hands++ {
		k.Line = nil
		each := PerOwner(k.Free("key")+2, owners)
		for i := range min(each+1, blocked-gone) {
			k.Line = append(k.Line, Waiter{
				Job: job.ID{1, byte(i >> 8), byte(i)}, Owner: "ann",
				Keys: []string{"full", "key"},
			})
		}
		for i := range owners - 1 {
			k.Line = append(k.Line, Waiter{
				Job: job.ID{2, byte(i)}, Owner: fmt.Sprintf("bob %d", i), Created: 1,
				Keys: []string{"key"},
			})
		}
		k.Trim(each)
		h := (Keys{"key": k, "full": full}).Hand([]string{"key"}, 100)
		gone, granted = gone+len(h.Move), len(h.Grant)
	}
	if gone != blocked || hands > blocked/2 {
		t.Errorf("%d jobs moved in %d steps", gone, hands)
	}
}
