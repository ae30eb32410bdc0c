package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A page of a list by what is indexed is read from indexes that are in its order: nothing is
// sorted, and what lies before the page is not read.
func TestPlansOfLists(t *testing.T) {
	testenv.Aside(t)
	s := openAt(t, t.TempDir())
	fill(t, s, fewToSort+1000)
	for _, filter := range []string{
		"", "state=PENDING", "state=PENDING,WAITING", "custody=ready,gate", "kind=k", "owner=o,p", "queue=q", "name=n", "kind=k,m", "label.a=1",
		"label.a=1,2", "app=a", "kind=k state=PENDING", "owner=o label.a=1 created>30d", "hidden=true,false", "priority=5 name=n",
	} {
		for _, by := range []store.Sort{store.Newest, store.Oldest, store.ByName, store.ByNameRev} {
			f, err := job.ParseFilter(filter, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			q := store.Query{Tenant: "t", Filter: f, Sort: by, Limit: 10}
			for page := 1; page < 3; page++ {
				s.reads.stmts = nil
				got, err := s.List(t.Context(), q)
				if err != nil || len(got.Jobs) != q.Limit || got.Next == "" {
					t.Fatalf("%q by %s, page %d: %d jobs, %v", filter, by, page, len(got.Jobs), err)
				}
				q.Cursor = got.Next
				t.Run(fmt.Sprintf("%s by %s page %d", filter, by, page), func(t *testing.T) { checkPage(t, s, page > 1) })
			}
		}
	}
}

// By an argument that the kind has an index of, only the jobs that have it are read.
func TestPlansOfArguments(t *testing.T) {
	s := openAt(t, t.TempDir())
	fill(t, s, 3*sample)
	err := s.do(t.Context(), func(tx *tx) error {
		_, err := tx.exec(`UPDATE labels SET value = 'x' WHERE key = 'args:n' AND job % 20 <> 0`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := job.Where("kind", job.Is, "k").And("args.n", job.Is, "7")
	f[1].From = time.Unix(1, 0)
	for _, by := range []store.Sort{store.Newest, store.Oldest} {
		q := store.Query{Tenant: "t", Filter: f, Sort: by, Limit: 10}
		for page := 1; page < 3; page++ {
			s.reads.stmts = nil
			got, err := s.List(t.Context(), q)
			if err != nil || len(got.Jobs) != q.Limit || got.Next == "" {
				t.Fatalf("page %d: %d jobs, %v", page, len(got.Jobs), err)
			}
			q.Cursor = got.Next
			checkPage(t, s, page > 1)
			if _, steps := planOfPage(t, s); !strings.Contains(strings.Join(steps, "\n"), "SEARCH l ") {
				t.Errorf("page %d by %s is read so:\n%s", page, by, strings.Join(steps, "\n"))
			}
		}
	}
}

// Of a group that has few of the blocked jobs those of the group are read and sorted; of one that
// has many a page is read as others are, from all that are blocked.
func TestPlansOfGroups(t *testing.T) {
	s := openAt(t, t.TempDir())
	fill(t, s, 3*sample)
	rare, common := (&job.Block{Code: job.FilesystemFull}).Group("t"), (&job.Block{Code: job.SystemDisabled}).Group("t")
	err := s.do(t.Context(), func(tx *tx) error {
		_, err := tx.exec(`UPDATE jobs SET state = 'BLOCKED', custody = 'recovery', grp = iif(seq % 20 = 0, ?, ?)`, rare, common)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []store.Sort{store.Newest, store.Oldest} {
		for group, n := range map[string]int{rare: 3 * sample / 20, common: 3 * sample * 19 / 20} {
			q := store.Query{Tenant: "t", Filter: job.Where("group", job.Is, group), Sort: by, Limit: 10}
			counts, err := s.Count(t.Context(), "t", q.Filter)
			if err != nil || counts.States[job.Blocked] != n {
				t.Fatalf("%d jobs of %d are counted, %v", counts.States[job.Blocked], n, err)
			}
			for page := 1; page < 3; page++ {
				s.reads.stmts = nil
				got, err := s.List(t.Context(), q)
				if err != nil || len(got.Jobs) != q.Limit || got.Next == "" {
					t.Fatalf("page %d: %d jobs, %v", page, len(got.Jobs), err)
				}
				q.Cursor = got.Next
				_, steps := planOfPage(t, s)
				if plan := strings.Join(steps, "\n"); strings.Contains(plan, "jobs_group (tenant=? AND grp=?") != (group == rare) {
					t.Errorf("a group of %d jobs by %s, page %d, is read so:\n%s", n, by, page, plan)
				}
				if group == common {
					checkPage(t, s, page > 1)
				}
			}
		}
	}
}

// fill submits n jobs that every one of the filters above finds.
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	seven := job.Where("args.n", job.Is, "7")[0].ArgsKeys()[0]
	for n > 0 {
		sub := store.Submission{Tenant: "t"}
		for range min(n, 1000) {
			sub.Jobs = append(sub.Jobs, store.New{Job: job.Job{
				ID: job.NewID(), Owner: "o", Kind: "k", Name: "n", Queue: "q", App: "a", Priority: 5, MaxAttempts: 1, Request: []byte(`{}`),
				Labels: map[string]string{"a": "1"},
			}, Index: map[string]string{"n": seven}})
		}
		if _, _, err := s.Submit(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		n -= len(sub.Jobs)
	}
}

// Nothing stays in the table of labels of jobs that are removed, hidden ones included.
func TestLabelsOfRemovedJobs(t *testing.T) {
	s := openAt(t, t.TempDir())
	fill(t, s, 3)
	page, err := s.List(t.Context(), store.Query{Tenant: "t", Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]job.ID, len(page.Jobs))
	for i := range page.Jobs {
		ids[i] = page.Jobs[i].ID
	}
	if _, _, err := s.Wish(t.Context(), store.Wish{Tenant: "t", By: "ann", Wish: job.WishCancel, Jobs: ids}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Annotate(t.Context(), store.Annotation{Tenant: "t", Jobs: ids[:1], Hidden: new(true)}); err != nil {
		t.Fatal(err)
	}
	count := func() (n int64) {
		if err := s.query(t.Context(), "SELECT count(*) FROM labels", 1, func(v []driver.Value) { n = v[0].(int64) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n == 0 {
		t.Fatal("no job has a label")
	}
	errs, err := s.Remove(t.Context(), "t", ids)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d labels of jobs that are gone", n)
	}
}

// planOfPage returns the statement of the list that was read last, and its plan.
func planOfPage(t *testing.T, s *Store) (list string, plan []string) {
	t.Helper()
	for q := range s.reads.stmts {
		if strings.HasPrefix(q, "SELECT m.k") {
			list = q
		}
	}
	err := s.query(t.Context(), "EXPLAIN QUERY PLAN "+list, 4, func(v []driver.Value) { plan = append(plan, text(v[3])) }, make([]any, strings.Count(list, "?"))...)
	if err != nil {
		t.Fatal(err)
	}
	return list, plan
}

// checkPage looks at the plan of the list that was read last. Few jobs are hidden or held by
// workers; these may be sorted.
func checkPage(t *testing.T, s *Store, further bool) {
	t.Helper()
	list, plan := planOfPage(t, s)
	searched, few := 0, false
	for _, step := range plan {
		switch {
		case strings.HasPrefix(step, "SCAN j"), strings.HasPrefix(step, "SCAN l"), strings.HasPrefix(step, "USE TEMP B-TREE") && !few:
			t.Errorf("%s in\n%s\n%s", step, strings.Join(plan, "\n"), list)
		case strings.HasPrefix(step, "SEARCH j USING ") && !strings.Contains(step, "PRIMARY KEY (rowid=?)"), strings.HasPrefix(step, "SEARCH l USING "):
			searched++
			if few = strings.Contains(step, "jobs_session") || strings.Contains(step, "jobs_hidden"); further && !few && !strings.ContainsAny(step, "<>") {
				t.Errorf("%s reads what is before the page in\n%s\n%s", step, strings.Join(plan, "\n"), list)
			}
		}
	}
	if searched == 0 {
		t.Errorf("nothing is searched in\n%s\n%s", strings.Join(plan, "\n"), list)
	}
}
