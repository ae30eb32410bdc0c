package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// It runs alone: a transaction that is open in any database of the server holds back every cursor.
func TestPostgresEvents(t *testing.T) {
	// follow reads from a cursor and returns "job n" of each event, and the cursor to go on from.
	follow := func(w *world, cursor string) (seen []string, next string) {
		for {
			rows := w.db.must(execute("events_after", str(acme), cursor, "2"))
			for _, r := range rows {
				seen = append(seen, r["job"]+" "+r["n"])
				cursor = fmt.Sprintf("'%s', '%s', %s", r["ord"], r["job"], r["n"])
			}
			if len(rows) < 2 {
				return seen, cursor
			}
		}
	}
	const first = "'0', '00000000-0000-0000-0000-000000000000', 0"
	all := func(w *world) int { n, _ := strconv.Atoi(w.db.value("SELECT count(*) FROM events")); return n }

	t.Run("commits out of order", func(t *testing.T) {
		w := newWorld(t)
		w.db.must("ALTER TABLE events ADD id bigint GENERATED ALWAYS AS IDENTITY") // for the way that is wrong
		w.db = w.connect()
		w.submit(newTask())
		seen, cursor := follow(w, first)
		if len(seen) != 1 {
			t.Fatalf("seen: %v", seen)
		}
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		for _, sql := range (&submission{jobs: newTasks(1)}).parts() {
			a.must(sql)
		}
		if _, err := b.tx((&submission{jobs: newTasks(1)}).parts()...); err != nil {
			t.Fatal(err)
		}
		byID := w.db.value("SELECT max(id) FROM events") // a follower of ids has seen this one
		more, cursor := follow(w, cursor)
		if len(more) != 0 {
			t.Errorf("the cursor passed a transaction that is open: %v", more)
		}
		a.must("COMMIT")
		more, _ = follow(w, cursor)
		if len(more) != 2 {
			t.Errorf("seen after the commits: %v, want 2 events", more)
		}
		if n := w.db.value("SELECT count(*) FROM events WHERE id > " + byID); n != "0" {
			t.Errorf("a follower of ids sees %s more events: nothing is shown here", n)
		}
	})
	t.Run("a job's own order", func(t *testing.T) {
		w := newWorld(t)
		session, early := w.session(), w.session()
		w.submit(newTasks(2)...)
		jobs := w.claim(session, 2)
		_, cursor := follow(w, first)
		a, b := w.connect(), w.connect()
		// a has its transaction's id before b, and then waits for the job that b has.
		a.must("BEGIN")
		a.must("SELECT FROM sessions WHERE id = " + uuid(early) + " FOR KEY SHARE")
		one := applying(step(jobs[0], by(session)))
		b.must("BEGIN")
		for _, sql := range one.parts() {
			b.must(sql)
		}
		c := step(jobs[0], by(session))
		c.From.N++
		two := applying(c)
		a.must(two.fences())
		locked := w.beside(a, func() ([]row, error) { return a.run(two.lock()) })
		b.must("COMMIT")
		w.got(locked)
		if rows := a.must(two.apply()); rows[0]["outcome"] != "applied" {
			t.Fatal(rows)
		}
		if seen, _ := follow(w, cursor); len(seen) != 0 {
			t.Errorf("seen beside the open transaction: %v", seen)
		}
		own := a.value("SELECT pg_current_xact_id()")
		a.must("COMMIT")
		id := jobs[0].ID.String()
		seen, _ := follow(w, cursor)
		if diff := cmp.Diff([]string{id + " 3", id + " 4"}, seen); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := w.db.value("SELECT count(*) FROM events WHERE job = " + str(id) + " AND n = 3 AND ord > " + str(own)); n != "1" {
			t.Error("the ids of the two transactions stand in the order of the events: nothing is shown here")
		}
	})
	t.Run("storm", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(30)...)
		held := w.claim(session, 30)
		stop := make(chan struct{})
		var seen []string
		reader := w.connect()
		var wg sync.WaitGroup
		wg.Go(func() {
			side := *w
			side.db = reader
			cursor := first
			for last := false; ; {
				var more []string
				more, cursor = follow(&side, cursor)
				seen = append(seen, more...)
				if last {
					return
				}
				select {
				case <-stop:
					last = true
				default:
				}
			}
		})
		w.together(8, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(4, uint64(i)))
			n := map[job.ID]int64{}
			for range 25 {
				b := &batch{cause: job.CauseWork}
				for _, k := range r.Perm(len(held))[:4] {
					change := step(held[k], by(session))
					change.From.N += n[held[k].ID]
					b.changes = append(b.changes, change)
				}
				rows, err := c.tx(b.parts()...)
				if err != nil {
					t.Error(err)
					return
				}
				for k, r := range rows {
					at, _ := strconv.ParseInt(r["n"], 10, 64)
					n[b.changes[k].Job] = at - 2
				}
			}
		})
		close(stop)
		wg.Wait()
		at := map[string]int{}
		for _, s := range seen {
			id, n, _ := strings.Cut(s, " ")
			if at[id]++; n != strconv.Itoa(at[id]) {
				t.Fatalf("event %s of job %s came as number %d", n, id, at[id])
			}
		}
		if len(seen) != all(w) {
			t.Errorf("seen %d events of %d", len(seen), all(w))
		}
	})
}
