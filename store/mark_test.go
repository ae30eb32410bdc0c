package store_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var (
	markID   = job.ID{1, 2, 3, 15: 4}
	markTime = time.Date(2026, 11, 27, 12, 0, 0, 1000, time.UTC)
)

// marks returns the marks behind a job in lists of every order, where jobs have numbers and where
// they have none.
func marks(numbered bool) (all []store.Mark) {
	at := store.PositionOf(markTime, markID)
	if numbered {
		at = store.Position{Ord: 7}
	}
	j := &job.Job{ID: markID, Name: "na\nme", Ended: markTime.Add(time.Hour)}
	for _, by := range store.Sorts {
		for _, since := range []time.Time{{}, markTime.Add(-time.Hour)} {
			all = append(all, store.MarkOf(by, since, j, at))
		}
	}
	return all
}

func TestMark(t *testing.T) {
	for _, numbered := range []bool{true, false} {
		for _, m := range marks(numbered) {
			if got, err := store.ReadMark(m.String(), m.By, numbered); got != m || err != nil {
				t.Errorf("%+v is read as %+v, %v", m, got, err)
			}
			if _, err := store.ReadMark(m.String(), m.By, !numbered); job.KindOf(err) != job.Invalid {
				t.Errorf("%+v is read by another database: %v", m, err)
			}
			for _, by := range store.Sorts {
				if _, err := store.ReadMark(m.String(), by, numbered); (err == nil) != (by == m.By) {
					t.Errorf("%+v is read in the order %s: %v", m, by, err)
				}
			}
		}
	}
}

func TestMarksInOrder(t *testing.T) {
	later := store.PositionOf(markTime.Add(time.Second), markID)
	j := &job.Job{Name: "b", Ended: markTime}
	for _, by := range store.Sorts {
		m := store.MarkOf(by, time.Time{}, j, store.PositionOf(markTime, markID))
		next := []store.Mark{m}
		next[0].Position = later
		switch by.Field() {
		case "ended":
			x := m
			x.Ended = x.Ended.Add(time.Second)
			next = append(next, x)
		case "stem":
			x := m
			x.Stem = "c"
			next = append(next, x)
		}
		want := -1
		if by.Descends() {
			want = 1
		}
		for _, n := range next {
			if m.Compare(n) != want || n.Compare(m) != -want || m.Compare(m) != 0 {
				t.Errorf("%s: %+v and %+v compare as %d, want %d", by, m, n, m.Compare(n), want)
			}
		}
	}
}

func TestEndMark(t *testing.T) {
	of := store.Kept{Tenant: "acme", State: job.Finished}
	for _, numbered := range []bool{true, false} {
		m := store.EndMark{Of: of, Ended: markTime, Position: store.Position{Ord: 7}}
		if !numbered {
			m.Position = store.PositionOf(markTime, markID)
		}
		if got, err := store.ReadEndMark(m.String(), numbered); got != m || err != nil {
			t.Errorf("%+v is read as %+v, %v", m, got, err)
		}
		if _, err := store.ReadEndMark(m.String(), !numbered); job.KindOf(err) != job.Invalid {
			t.Errorf("%+v is read by another database: %v", m, err)
		}
		zero, err := store.ReadEndMark("", numbered)
		if err != nil || zero.Compare(m) >= 0 || m.Compare(zero) <= 0 {
			t.Errorf("no cursor is %+v, %v", zero, err)
		}
	}
}

func TestNoMark(t *testing.T) {
	id := markID.String()
	for _, parts := range [][]string{
		{},
		{"-created"},
		{"-created", "", "", "0", "", ""},
		{"-created", "", "", "-1", "", ""},
		{"-created", "", "", "x y", "", ""},
		{"-created", "", "", "1", "", "stem"},
		{"-created", "", "1", "1", "", ""},
		{"-created", "x y", "", "1", "", ""},
		{"-created", "", "", "1", "x", ""},
		{"-created", "zzzzzzzzzzzz", "", "1", "", ""},
		{"-created", "", "", "", id, ""},
		{"-created", "", "", "-zzzzzzzzzzzz", id, ""},
		{"created", "", "", "1", "", ""},
		{"-created", "", "", "1", "", "\x00"},
		{"-created", "", "", "1", "", "\xff"},
	} {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
		for _, numbered := range []bool{true, false} {
			if m, err := store.ReadMark(cursor, store.Newest, numbered); job.KindOf(err) != job.Invalid ||
				m != (store.Mark{}) {
				t.Errorf("%q is read as %+v, %v", parts, m, err)
			}
		}
	}
	for _, cursor := range []string{"!", "x", "eA"} {
		if _, err := store.ReadMark(cursor, store.Newest, true); job.KindOf(err) != job.Invalid {
			t.Errorf("%q: %v", cursor, err)
		}
		if _, err := store.ReadEndMark(cursor, true); job.KindOf(err) != job.Invalid {
			t.Errorf("%q: %v", cursor, err)
		}
	}
}

// Whatever somebody passes for a cursor is refused, or is a mark that is written and read again.
func FuzzReadMark(f *testing.F) {
	for i, m := range append(marks(true), marks(false)...) {
		f.Add(m.String(), i, i < 2*len(store.Sorts))
	}
	f.Fuzz(func(t *testing.T, cursor string, i int, numbered bool) {
		by := store.Sorts[uint(i)%uint(len(store.Sorts))]
		m, err := store.ReadMark(cursor, by, numbered)
		if err != nil {
			return
		}
		if again, err := store.ReadMark(m.String(), by, numbered); err != nil || again != m {
			t.Errorf("%+v is written and read as %+v, %v", m, again, err)
		}
	})
}
