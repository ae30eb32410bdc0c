package store_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func TestEventCursor(t *testing.T) {
	id := job.NewID()
	later := id
	later[15]++
	inOrder := []store.EventCursor{
		{},
		{Ord: 9},
		{Ord: 10},
		{Ord: 36},
		{Ord: 36, Job: id},
		{Ord: 36, Job: id, N: 2},
		{Ord: 36, Job: id, N: 2, Sub: 35},
		{Ord: 36, Job: id, N: 2, Sub: 36},
		{Ord: 36, Job: id, N: 10},
		{Ord: 36, Job: later},
		{Ord: 1 << 62},
	}
	for i, a := range inOrder {
		if got, err := store.ReadEventCursor(a.String()); got != a || err != nil {
			t.Errorf("%s is read as %+v, %v; want %+v", a, got, err, a)
		}
		if n, err := store.ReadOrd(a.String()); (err == nil) != a.Job.IsZero() || err == nil && n != a.Ord {
			t.Errorf("%s is the number %d, %v", a, n, err)
		}
		for j, b := range inOrder {
			if after, err := store.CursorAfter(a.String(), b.String()); after != (i > j) || err != nil {
				t.Errorf("%s comes after %s: %t, %v", a, b, after, err)
			}
		}
	}
	if after, err := store.CursorAfter("0", ""); after || err != nil {
		t.Errorf("nothing is before the first cursor: %t, %v", after, err)
	}
}

func TestNoEventCursor(t *testing.T) {
	id := job.NewID().String()
	for _, s := range []string{
		"x y", "-1", "+1", "01", "A", " 1", "1.", ".", "1.2", "1.2.3", "1." + id, "1." + id + ".1", "1." + id +
			".1.-1", "1." + id + ".1.1.1",
		"1..1.1", "1." + job.ID{}.String() + ".1.1", "zzzzzzzzzzzzz", "1.x.1.1", "x y." + id + ".1.1", "1." + id +
			".x y.1",
	} {
		if c, err := store.ReadEventCursor(s); job.KindOf(err) != job.Invalid || c != (store.EventCursor{}) {
			t.Errorf("%q is read as %+v, %v", s, c, err)
		}
		for _, pair := range [][2]string{{s, ""}, {"", s}} {
			if _, err := store.CursorAfter(pair[0], pair[1]); job.KindOf(err) != job.Invalid {
				t.Errorf("compared %q: %v", pair, err)
			}
		}
	}
}
