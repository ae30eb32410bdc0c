package sqlite

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A cursor of a database that was restored to an earlier point in time is known where it is newer
// than that.
func TestNewerCursor(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	fill(t, s, 3)
	end, err := s.Events(t.Context(), store.EventQuery{Tenant: "t", End: true})
	if err != nil {
		t.Fatal(err)
	}
	last, err := store.ReadOrd(end.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	read := func(after int64) error {
		_, err := s.Events(t.Context(), store.EventQuery{Tenant: "t", Cursor: store.EventCursor{Ord: after}.String()})
		return err
	}
	if err := read(last); err != nil {
		t.Errorf("behind the newest event: %v", err)
	}
	if err := read(last + 1); job.KindOf(err) != job.Invalid {
		t.Errorf("one further: %v", err)
	}
}

// Whatever somebody passes for a cursor is refused, or leads to a page.
func FuzzCursor(f *testing.F) {
	s, err := Open(f.Context(), f.TempDir(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	fill(f, s, 30)
	for i, by := range store.Sorts {
		page, err := s.List(f.Context(), store.Query{Tenant: "t", Sort: by, Limit: 10})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(page.Next, i)
	}
	es, err := s.Events(f.Context(), store.EventQuery{Tenant: "t", Limit: 10})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(es.Cursor, 0)
	f.Add("LWNyZWF0ZWQKLTEKCg", 1)
	f.Fuzz(func(t *testing.T, cursor string, i int) {
		const limit = 7
		page, err := s.List(t.Context(), store.Query{Tenant: "t", Sort: store.Sorts[uint(i)%uint(len(store.Sorts))], Limit: limit, Cursor: cursor})
		if err != nil && job.KindOf(err) != job.Invalid || len(page.Jobs) > limit {
			t.Errorf("list: %d jobs, %v", len(page.Jobs), err)
		}
		es, err := s.Events(t.Context(), store.EventQuery{Tenant: "t", Limit: limit, Cursor: cursor})
		if err != nil && job.KindOf(err) != job.Invalid || len(es.Events) > limit {
			t.Errorf("events: %d, %v", len(es.Events), err)
		}
	})
}
