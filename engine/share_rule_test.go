package engine

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TestShare lets sessions take their shares one after the other, in any order, twice.
func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := store.Demand{Ready: rapid.IntRange(0, 60).Draw(t, "ready")}
		free := 0
		slots := rapid.SampledFrom([]int{0, 5, 20}).Draw(t, "slots of each; 0: of their own")
		for range rapid.IntRange(1, 6).Draw(t, "sessions") {
			s := store.Serving{ID: job.NewID(), Slots: slots}
			if slots == 0 {
				s.Slots = rapid.IntRange(1, 20).Draw(t, "slots")
			}
			s.Held = rapid.IntRange(0, s.Slots).Draw(t, "held")
			free += s.Slots - s.Held
			d.Sessions = append(d.Sessions, s)
		}
		level := level(d)
		ready := d.Ready
		took := make([]bool, len(d.Sessions))
		turns := rapid.Permutation(order(len(d.Sessions))).Draw(t, "order")
		for _, i := range append(turns, turns...) {
			s := &d.Sessions[i]
			n := share(d, s.ID)
			if ready >= free && n != math.MaxInt && d.Ready > 0 {
				t.Fatalf("session %d may take %d, though there is work for all", i, n)
			}
			n = min(n, d.Ready, s.Slots-s.Held)
			took[i] = took[i] || n > 0
			d.Ready, s.Held = d.Ready-n, s.Held+n
		}
		if ready >= free {
			return
		}
		if d.Ready != 0 {
			t.Errorf("%d jobs are left when all have taken their shares twice", d.Ready)
		}
		for i, s := range d.Sessions {
			part := level * float64(s.Slots)
			if slots > 0 && float64(s.Held) <= part-2 || took[i] && float64(s.Held) > part+1.001 {
				t.Errorf("session %d has %d of %d slots in use, its part is %.1f", i, s.Held, s.Slots, part)
			}
		}
	})
}

func order(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// level finds by halving to which part slots are in use when the ready jobs have gone where most
// are free.
func level(d store.Demand) float64 {
	low, high := 0.0, 1.0
	for range 50 {
		at, room := (low+high)/2, 0.0
		for _, s := range d.Sessions {
			room += max(0, at*float64(s.Slots)-float64(s.Held))
		}
		if room > float64(d.Ready) {
			high = at
		} else {
			low = at
		}
	}
	return low
}
