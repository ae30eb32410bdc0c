package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// pay runs Pay on c, and returns how many edges it paid.
func (w *world) pay(c *conn) (int, error) {
	if _, err := c.run("BEGIN"); err != nil {
		return 0, err
	}
	rows, err := c.run("EXECUTE pay(1000)")
	if err != nil {
		return 0, err
	}
	return w.paid(c, rows)
}

// paid writes what package job makes of the jobs that pay answered, and commits.
func (w *world) paid(c *conn, rows []row) (int, error) {
	var before []job.Job
	var changes []job.Change
	for _, r := range rows {
		if r["id"] == "" {
			continue
		}
		j := scan(r)
		change := job.Change{Job: j.ID, From: j.Guard(job.Fence{})}
		switch {
		case j.State.Terminal():
			continue
		case r["unmet"] != "":
			change.To = job.None
			change.Path = []job.Entry{{State: job.Canceled, Code: job.PrerequisiteFailed, Message: r["unmet_name"] + " ended " + r["unmet_state"]}}
		case j.State != job.Waiting:
			continue
		default:
			p := job.Next(&j, job.Pending, time.Now())
			if p == j.Place {
				continue
			}
			change.To, change.Path = p.Custody, []job.Entry{{State: p.State}}
		}
		before, changes = append(before, j), append(changes, change)
	}
	if len(before) > 0 {
		if _, err := c.run(written(before, changes, time.Now(), job.CausePaid)); err != nil {
			return 0, err
		}
	}
	n, _ := strconv.Atoi(rows[0]["paid"])
	_, err := c.run("COMMIT")
	return n, err
}

// payAll pays until nothing is owed.
func (w *world) payAll() {
	w.Helper()
	for w.db.value("EXECUTE owed") == "t" {
		if _, err := w.pay(w.db); err != nil {
			w.Fatal(err)
		}
	}
}

// waiting submits jobs that end, and jobs that each wait for all of them.
func (w *world) waiting(session job.ID, first, waits int) (ending, waiting []job.Job) {
	w.Helper()
	w.submit(newTasks(first)...)
	ending = w.claim(session, first)
	waiting = newTasks(waits)
	var needs, jobs []job.ID
	for i := range waiting {
		waiting[i].Needs = first
		for _, e := range ending {
			needs, jobs = append(needs, e.ID), append(jobs, waiting[i].ID)
		}
	}
	w.submit(waiting...)
	w.db.must(execute("submit_ties", ids(needs), ids(jobs), array("text", jobs, func(job.ID) string { return "'finished'" }), "'{}'", "'{}'"))
	return ending, waiting
}

func TestPostgresPay(t *testing.T) {
	t.Parallel()
	t.Run("two last prerequisites at once release once", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 2, 3)
		w.must(applying(done(ending[0], by(session))))
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		left := a.must("EXECUTE pay(1000)")
		w.must(applying(done(ending[1], by(session))))
		// The second payer has another follow-up, and waits for the rows of the same jobs.
		right := w.beside(b, func() ([]row, error) { n, err := w.pay(b); return make([]row, n), err })
		if n, err := w.paid(a, left); n != 3 || err != nil {
			t.Errorf("the first paid %d, %v", n, err)
		}
		if n := len(w.got(right)); n != 3 {
			t.Errorf("the second paid %d", n)
		}
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 || j.Needs != 0 {
				t.Errorf("at %s with %d events, needs %d", j.Place, j.N, j.Needs)
			}
		}
		if owed := w.db.value("EXECUTE owed"); owed != "f" {
			t.Error("something is still owed")
		}
		w.checkHistories()
	})
	t.Run("a page of a follow-up is counted once, also under an old snapshot", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 2, 10)
		w.must(applying(done(ending[0], by(session))))
		a, b := w.connect(), w.connect()
		text, err := os.ReadFile(filepath.Join("testdata", "postgres", "pay.sql"))
		if err != nil {
			t.Fatal(err)
		}
		// The same statement, held up between its snapshot and its first lock.
		pay, _, _ := strings.Cut(string(text[bytes.Index(text, []byte("PREPARE")):]), ";")
		b.must(strings.NewReplacer("PREPARE pay(", "PREPARE late(", "WITH debts", "WITH stop AS MATERIALIZED (SELECT pg_advisory_xact_lock(77)), debts",
			"FROM followups f ORDER BY", "FROM followups f WHERE (SELECT count(*) FROM stop) = 1 ORDER BY").Replace(pay))
		a.must("SELECT pg_advisory_lock(77)")
		b.must("BEGIN")
		held := w.beside(b, func() ([]row, error) { return b.run("EXECUTE late(4)") })
		a.must("BEGIN")
		if n, err := w.paid(a, a.must("EXECUTE pay(4)")); n != 4 || err != nil {
			t.Errorf("the first paid %d, %v", n, err)
		}
		a.must("SELECT pg_advisory_unlock(77)")
		if n, err := w.paid(b, w.got(held)); n != 0 || err != nil {
			t.Errorf("the second paid %d edges that were gone, %v", n, err)
		}
		if n := w.db.value("SELECT count(*) FROM jobs j WHERE j.needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = j.id)"); n != "0" {
			t.Errorf("%s jobs count other prerequisites than they have", n)
		}
		w.must(applying(done(ending[1], by(session))))
		w.payAll()
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 {
				t.Errorf("at %s with %d events", j.Place, j.N)
			}
		}
	})
	t.Run("storm", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 24, 20)
		w.together(8, func(i int, c *conn) {
			for k := i; k < len(ending); k += 8 {
				if _, err := c.tx(applying(done(ending[k], by(session))).parts()...); err != nil {
					t.Error(err)
				}
				if _, err := w.pay(c); err != nil {
					t.Error(err)
				}
			}
		})
		w.payAll()
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 || j.Needs != 0 {
				t.Errorf("at %s with %d events, needs %d", j.Place, j.N, j.Needs)
			}
		}
		w.noDeadlock()
		w.checkHistories()
	})
}
