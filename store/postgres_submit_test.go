package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestPostgresSubmit(t *testing.T) {
	t.Parallel()
	external := func(id string) job.Job {
		j := newTask()
		j.ExternalID = id
		return j
	}
	t.Run("64 at once with one external id make one job", func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		answers, existed := map[string]int{}, map[string]int{}
		w.together(64, func(_ int, c *conn) {
			rows, err := c.tx((&submission{jobs: []job.Job{external("x")}}).parts()...)
			if err != nil || len(rows) != 1 {
				t.Error(rows, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[rows[0]["id"]]++
			existed[rows[0]["existed"]]++
		})
		if len(answers) != 1 || existed["f"] != 1 || existed["t"] != 63 {
			t.Errorf("answered with %d jobs; existed: %v", len(answers), existed)
		}
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "1" {
			t.Errorf("%s jobs", n)
		}
		w.checkHistories()
	})
	t.Run("bulk calls at once whose external ids cross", func(t *testing.T) {
		w := newWorld(t)
		w.together(12, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for round := range 4 {
				var s submission
				for _, k := range r.Perm(60)[:30] {
					s.jobs = append(s.jobs, external(fmt.Sprint(round, "-", k)))
				}
				s.jobs = append(s.jobs, newTask())
				if rows, err := c.tx(s.parts()...); err != nil || len(rows) != 31 {
					t.Error(len(rows), err)
				}
			}
		})
		w.noDeadlock()
		w.checkHistories()
		if n := w.db.value("SELECT count(*) - count(DISTINCT external_id) FROM specs WHERE external_id IS NOT NULL"); n != "0" {
			t.Errorf("%s jobs too many", n)
		}
	})
	t.Run("repeated, and again with other ids under its key", func(t *testing.T) {
		w := newWorld(t)
		s := submission{key: "k", jobs: append(newTasks(2), external("x"))}
		first, err := w.db.tx(s.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		other := submission{key: "k", jobs: append(newTasks(2), external("x"))}
		for name, s := range map[string]submission{"the same": s, "with other ids": other} {
			rows, err := w.db.tx(s.parts()...)
			if err != nil || len(rows) != 3 {
				t.Fatal(name, rows, err)
			}
			for i, r := range rows {
				if r["id"] != first[i]["id"] || r["existed"] != "t" {
					t.Errorf("%s: answer %d is %v, want job %s", name, i, r, first[i]["id"])
				}
			}
		}
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "3" {
			t.Errorf("%s jobs, want 3", n)
		}
	})
	t.Run("one that clashes leaves nothing behind", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.db.tx((&submission{key: "k", jobs: []job.Job{external("x")}}).parts()...); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]submission{
			"the key of another request":            {key: "k", jobs: newTasks(3), mark: 1},
			"the external id of another request":    {jobs: append(newTasks(3), external("x")), mark: 1},
			"the same with a new key":               {key: "l", jobs: append(newTasks(3), external("x")), mark: 1},
			"an external id twice, for other tasks": {jobs: append(newTasks(3), external("x"), external("y")), mark: 1},
		} {
			if rows, err := w.db.tx(s.parts()...); err == nil || !strings.Contains(err.Error(), "PW001") {
				t.Errorf("%s: %v, %v", name, rows, err)
			}
		}
		if n := w.db.value("SELECT count(*) FROM jobs") + w.db.value("SELECT count(*) FROM idempotency"); n != "11" {
			t.Errorf("jobs and keys left: %s", n)
		}
	})
	t.Run("16 at once under one key", func(t *testing.T) {
		w := newWorld(t)
		w.together(16, func(_ int, c *conn) {
			if rows, err := c.tx((&submission{key: "k", jobs: newTasks(2)}).parts()...); err != nil || len(rows) != 2 {
				t.Error(rows, err)
			}
		})
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "2" {
			t.Errorf("%s jobs, want 2", n)
		}
	})
	t.Run("bulk calls at once whose unique keys cross", func(t *testing.T) {
		w := newWorld(t)
		w.together(12, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			for range 4 {
				var keys []string
				for _, k := range r.Perm(40)[:20] {
					keys = append(keys, fmt.Sprint("k", k))
				}
				jobs := newTasks(len(keys))
				kinds, modes := array("text", keys, func(string) string { return "'send'" }), array("text", keys, func(string) string { return "'done'" })
				_, err := c.tx(execute("submit_reserve", str(acme), kinds, modes, array("text", keys, str), ids(idsOf(jobs))),
					execute("submit_holders", str(acme), kinds, modes, array("text", keys, str)))
				if err != nil {
					t.Error(err)
				}
			}
		})
		w.noDeadlock()
		if n := w.db.value("SELECT count(*) FROM unique_keys"); n != "40" {
			t.Errorf("%s keys, want 40", n)
		}
	})
	t.Run("a prerequisite does not end unseen", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		first := w.claimed(session)
		waits := newTask()
		waits.Needs = 1
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		a.must(execute("submit_prerequisites", ids([]job.ID{first.ID})))
		ended := w.beside(b, func() ([]row, error) { return b.tx(applying(done(first, by(session))).parts()...) })
		for _, sql := range (&submission{jobs: []job.Job{waits}}).parts() {
			a.must(sql)
		}
		a.must(execute("submit_ties", ids([]job.ID{first.ID}), ids([]job.ID{waits.ID}), "'{finished}'", "'{}'", "'{}'"))
		a.must("COMMIT")
		if rows := w.got(ended); rows[0]["owed"] != "t" {
			t.Errorf("the end owes nothing: %v", rows)
		}
		w.pay(w.db)
		if j := w.job(waits.ID); j.State != job.Pending {
			t.Errorf("the job that waited is at %s", j.Place)
		}
	})
}
