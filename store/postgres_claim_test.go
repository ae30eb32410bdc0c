package store_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestPostgresClaim(t *testing.T) {
	t.Parallel()
	t.Run("before the expiry, which waits and then takes the job", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTask())
		a, b := w.connect(), w.connect()
		c := claim{id: job.NewID(), session: session, slots: 1}
		a.must("BEGIN")
		for _, sql := range c.parts() {
			a.must(sql)
		}
		w.lapse(session)
		expired := w.beside(b, func() ([]row, error) { return w.expire(b) })
		a.must("COMMIT")
		if n := len(w.got(expired)); n != 1 {
			t.Errorf("expiry took %d jobs, want 1", n)
		}
		if n := w.db.value("SELECT count(*) FROM jobs WHERE custody = 'ready' AND epoch = 3 AND recoveries = 1"); n != "1" {
			t.Error("the job did not go back to its line")
		}
		w.checkHistories()
	})
	t.Run("after the end has locked the session claims nothing", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTask())
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		a.must(execute("end_session", uuid(session)))
		c := claim{id: job.NewID(), session: session, slots: 1}
		claimed := w.beside(b, func() ([]row, error) { return b.tx(c.parts()...) }) // its lease is good
		a.must("COMMIT")
		if rows := w.got(claimed); rows[0]["alive"] != "f" || len(scanAll(rows)) != 0 {
			t.Errorf("a session that had ended claimed: %v", rows)
		}
		if rows, err := b.tx(c.parts()...); err != nil || rows[0]["alive"] != "f" {
			t.Errorf("claim of an ended session: %v, %v", rows, err)
		}
	})
	t.Run("jobs of a session that is gone are taken too", func(t *testing.T) {
		w := newWorld(t)
		session, live := w.session(), w.session()
		w.claimed(session)
		w.claimed(live)
		w.db.must("DELETE FROM sessions WHERE id = " + uuid(session))
		if rows, err := w.expire(w.db); err != nil || len(rows) != 1 || rows[0]["crashed"] != "t" {
			t.Errorf("expiry took %v, %v", rows, err)
		}
		w.checkHistories()
	})
	t.Run("two at once share nothing, and who passed over locked jobs is told", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.connect(), w.connect()
		w.submit(newTasks(3)...)
		first := claim{id: job.NewID(), session: w.session(), slots: 2}
		second := claim{id: job.NewID(), session: w.session(), slots: 3}
		a.must("BEGIN")
		var left, right []row
		for _, sql := range first.parts() {
			left = a.must(sql)
		}
		right, err := b.tx(second.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		if len(scanAll(left)) != 2 || len(scanAll(right)) != 1 || right[0]["more"] != "t" {
			t.Errorf("claimed %d and %d, more %q; want 2 and 1, and more", len(scanAll(left)), len(scanAll(right)), right[0]["more"])
		}
		// The first one is lost. Nobody announces its jobs: only the second knows that it has to come again.
		a.must("ROLLBACK")
		again := claim{id: job.NewID(), session: second.session, slots: 2}
		if right, err = b.tx(again.parts()...); err != nil || len(scanAll(right)) != 2 || right[0]["more"] != "f" {
			t.Errorf("claimed %d, %v", len(scanAll(right)), err)
		}
		w.checkHistories()
	})
	t.Run("a full lane locks heads of other lines, and who meets them is told", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.connect(), w.connect()
		one, other := newTask(), newTask()
		one.Queue, other.Queue, one.Priority = "one", "other", 1
		w.submit(one, other)
		first := claim{id: job.NewID(), session: w.session(), slots: 1, queues: []string{"one", "other"}}
		second := claim{id: job.NewID(), session: w.session(), slots: 1, queues: []string{"other"}}
		a.must("BEGIN")
		var left []row
		for _, sql := range first.parts() {
			left = a.must(sql)
		}
		right, err := b.tx(second.parts()...)
		if err != nil || len(scanAll(right)) != 0 || right[0]["more"] != "t" {
			t.Errorf("claimed %v, %v", right, err)
		}
		a.must("COMMIT")
		if jobs := scanAll(left); len(jobs) != 1 || jobs[0].ID != one.ID {
			t.Errorf("claimed %v, want the job of the higher priority", jobs)
		}
		if right, err = b.tx(second.parts()...); err != nil || len(scanAll(right)) != 1 || right[0]["more"] != "f" {
			t.Errorf("claimed %v, %v", right, err)
		}
	})
	t.Run("sixteen at once take every job once", func(t *testing.T) {
		w := newWorld(t)
		const jobs = 400
		w.submit(newTasks(jobs)...)
		var mu sync.Mutex
		taken := map[job.ID]int{}
		sessions := make([]job.ID, 16)
		for i := range sessions {
			sessions[i] = w.session()
		}
		w.together(16, func(i int, c *conn) {
			for {
				rows, err := c.tx((&claim{id: job.NewID(), session: sessions[i], slots: 7}).parts()...)
				if err != nil {
					t.Error(err)
					return
				}
				got := scanAll(rows)
				if len(got) == 0 && rows[0]["more"] == "f" {
					return
				}
				mu.Lock()
				for _, j := range got {
					taken[j.ID]++
				}
				mu.Unlock()
			}
		})
		if len(taken) != jobs {
			t.Errorf("%d jobs were claimed, want %d", len(taken), jobs)
		}
		for id, n := range taken {
			if n != 1 {
				t.Errorf("job %s was claimed %d times", id, n)
			}
		}
		w.checkHistories()
		w.noDeadlock()
	})
	t.Run("repeated answers the same jobs", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(5)...)
		c := claim{id: job.NewID(), session: session, slots: 3}
		first, err := w.db.tx(c.parts()...) // and the answer was lost
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.db.tx(c.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" || len(first) != 3 {
			t.Errorf("of %d jobs (-first +again):\n%s", len(first), diff)
		}
		w.want("an end", w.must(applying(done(scan(first[0]), by(session)))), "applied")
		if again, err = w.db.tx(c.parts()...); err != nil || len(again) != 2 {
			t.Errorf("after one has moved on: %d jobs, %v", len(again), err)
		}
	})
	t.Run("repeated while the first is under way", func(t *testing.T) {
		w := newWorld(t)
		w.submit(newTasks(5)...)
		c := claim{id: job.NewID(), session: w.session(), slots: 2}
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		var first []row
		for _, sql := range c.parts() {
			first = a.must(sql)
		}
		repeat := w.beside(b, func() ([]row, error) { return b.tx(c.parts()...) })
		a.must("COMMIT")
		if diff := cmp.Diff(first, w.got(repeat)); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
	t.Run("gives up the keys that are held until the start", func(t *testing.T) {
		w := newWorld(t)
		j := newTask()
		j.Ties = job.TieUniqueStart | job.TieUniqueDone
		w.submit(j)
		w.db.must("INSERT INTO unique_keys SELECT 'acme', 'send', mode, 'k', " + uuid(j.ID) + " FROM unnest('{start,done}'::text[]) mode")
		session := w.session()
		j = w.claim(session, 1)[0]
		if left := w.db.value("SELECT string_agg(mode, ',') FROM unique_keys"); left != "done" {
			t.Errorf("keys left after the start: %s", left)
		}
		w.must(applying(done(j, by(session))))
		if left := w.db.value("SELECT count(*) FROM unique_keys"); left != "0" {
			t.Errorf("%s keys left after the end", left)
		}
	})
}
