package job

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestIDsIncrease(t *testing.T) {
	t.Run("faster than the clock", func(t *testing.T) {
		var s idSource
		now := time.UnixMilli(1_750_000_000_123)
		last := s.next(now)
		for i := range 10_000 { // more than the ticks of two milliseconds
			id := s.next(now)
			if slices.Compare(last[:], id[:]) >= 0 || last.String() >= id.String() {
				t.Fatalf("id %d: %s follows %s", i, id, last)
			}
			last = id
		}
	})
	t.Run("when the clock goes back", func(t *testing.T) {
		var s idSource
		now := time.UnixMilli(1_750_000_000_123)
		a, b := s.next(now), s.next(now.Add(-time.Hour))
		if slices.Compare(a[:], b[:]) >= 0 {
			t.Errorf("%s follows %s", b, a)
		}
	})
	t.Run("within a millisecond", func(t *testing.T) {
		now := time.UnixMilli(1_750_000_000_123)
		var last ID
		for range 90 {
			var s idSource // each in another process
			id := s.next(now)
			if slices.Compare(last[:], id[:]) >= 0 {
				t.Errorf("%s was made 10µs after %s", id, last)
			}
			last, now = id, now.Add(10*time.Microsecond)
		}
	})
	t.Run("side by side", func(t *testing.T) {
		const makers, each = 8, 2000
		made := make([][]ID, makers)
		var wg sync.WaitGroup
		for m := range made {
			wg.Go(func() {
				for range each {
					made[m] = append(made[m], NewID())
				}
			})
		}
		wg.Wait()
		seen := map[[8]byte]bool{} // without the random part
		for _, ids := range made {
			if !slices.IsSortedFunc(ids, func(a, b ID) int { return slices.Compare(a[:], b[:]) }) {
				t.Error("one maker's ids do not increase")
			}
			for _, id := range ids {
				seen[[8]byte(id[:8])] = true
			}
		}
		if len(seen) != makers*each {
			t.Errorf("%d different ids, want %d", len(seen), makers*each)
		}
	})
}

func TestIDIsAUUID(t *testing.T) {
	var s idSource
	now := time.UnixMilli(1_750_000_000_123)
	id := s.next(now)
	if version, variant := id[6]>>4, id[8]>>6; version != 7 || variant != 0b10 {
		t.Errorf("%s has version %d and variant %b", id, version, variant)
	}
	if ms := slices.Concat([]byte{0, 0}, id[:6]); time.UnixMilli(int64(uint64(ms[2])<<40|uint64(ms[3])<<32|uint64(ms[4])<<24|uint64(ms[5])<<16|uint64(ms[6])<<8|uint64(ms[7]))) != now {
		t.Errorf("%s was made at %s", id, now)
	}
}

func TestIDText(t *testing.T) {
	const text = "01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77"
	id, err := ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	if id.String() != text || id.Short() != "8a3e1b77" || id.IsZero() {
		t.Errorf("%s, in short %s", id, id.Short())
	}
	if upper, err := ParseID(strings.ToUpper(text)); err != nil || upper != id {
		t.Errorf("in capitals: %s, %v", upper, err)
	}

	for _, want := range []ID{id, {}} {
		b, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got := NewID()
		if err := got.UnmarshalText(b); err != nil || got != want {
			t.Errorf("%q is read as %s, %v", b, got, err)
		}
	}
	if b, _ := (ID{}).MarshalText(); len(b) != 0 {
		t.Errorf("no id is written as %q", b)
	}

	for _, bad := range []string{
		"", "x", text[1:], text + "0", strings.ReplaceAll(text, "-", ""), strings.Replace(text, "7b1e", "7bge", 1),
		"{" + text[:34] + "}", text[:8] + "0" + text[9:], strings.Repeat("-", 36),
	} {
		got, err := ParseID(bad)
		if err == nil || KindOf(err) != Invalid || !got.IsZero() {
			t.Errorf("%q is read as %s, %v", bad, got, err)
		}
		kept := id
		if err := kept.UnmarshalText([]byte(bad)); bad != "" && (err == nil || kept != id) {
			t.Errorf("%q overwrites an id with %s, %v", bad, kept, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	f.Add("01926D3C-7B1E-7C43-9D52-6F0C8A3E1B77")
	f.Add("00000000-0000-0000-0000-000000000000")
	f.Add("01926d3c7b1e7c439d526f0c8a3e1b77")
	f.Add("------------------------------------")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			if KindOf(err) != Invalid || !id.IsZero() {
				t.Errorf("%q: %s, %v", s, id, err)
			}
			return
		}
		if id.String() != strings.ToLower(s) {
			t.Errorf("%q is written as %s", s, id)
		}
		again, err := ParseID(id.String())
		if err != nil || again != id {
			t.Errorf("%s is read as %s, %v", id, again, err)
		}
	})
}

func TestStem(t *testing.T) {
	id := NewID()
	end := id.Short()
	other := NewID().Short()
	for name, want := range map[string]string{
		"wordcount":                    "wordcount",
		"wordcount-" + end:             "wordcount-",
		"wordcount-" + other:           "wordcount-" + other,
		"wordcount" + end:              "wordcount" + end,
		"wordcount-" + end + "x":       "wordcount-" + end + "x",
		"wordcount-" + end + "-" + end: "wordcount-" + end + "-",
		"":                             "",
	} {
		if got := (&Job{ID: id, Name: name}).Stem(); got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
}
