package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/victims"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// A spoil breaks one thing in a sound world.
type spoil struct {
	name string // of what the check must say
	job  string // of which that is, whose story must be told; empty: of none
	sql  string // a statement, with the id of that job
	do   func(t *testing.T, w *world, p *promise)
}

// seq is the number of the job.
const seq = `(SELECT seq FROM jobs WHERE id = ?1)`

var spoils = []spoil{
	{name: "lost", job: task, sql: `DELETE FROM jobs WHERE id = ?1`},
	{name: "lost", job: task, sql: `UPDATE jobs SET state = 'PENDING', custody = 'ready' WHERE id = ?1`},
	{name: "deleted", job: task, do: func(_ *testing.T, _ *world, p *promise) { p.deleted = true }},
	{name: "accepted", do: forget(task)},
	{name: "stranger", job: task, sql: `UPDATE jobs SET name = 'storm-x' WHERE id = ?1`},
	{name: "stranger", job: task, sql: `UPDATE jobs SET name = 'another' WHERE id = ?1`},
	{name: "stranger", job: task, sql: `DELETE FROM specs WHERE seq = ` + seq},
	{name: "stranger", sql: `INSERT INTO specs (seq, request) VALUES (1000, '{}')`},
	{name: "stranger", sql: `INSERT INTO events (job, n, epoch, state, custody, at, cause) VALUES (1000, 1, 0, 'PENDING', 'ready', 1, 'submit')`},
	{name: "stranger", job: deleted, do: func(_ *testing.T, w *world, p *promise) { delete(w.book.byID, p.id) }},
	{name: "stranger", job: task, do: note("task", "2 2")},
	{name: "stranger", job: program, do: note("launch", "2 1")},
	{name: "twice", do: forget(twice)},
	{name: "twice", do: func(_ *testing.T, w *world, p *promise) {
		w.book.accept(order{name: "storm-x"},
			w.promise(task).id)
	}},
	{name: "twice", sql: `UPDATE jobs SET external_id = 'x', tenant = 't' || seq`},

	{name: "launched_twice", job: program, do: again("launch")},
	{name: "launched_twice", job: deleted, do: twoNotes("launch 1 1")},
	{name: "ran_twice", job: task, do: again("task")},
	{name: "ran_twice", job: deleted, do: again("task")},
	{name: "ran_on", job: task, do: note("task", "1 3")},
	{name: "ran_on", job: delayed, do: note("task", "1 2")},
	{name: "ran_on", job: lasting, do: note("launch", "2 1")},
	{name: "not_run", job: program, do: without("launch")},
	{name: "not_run", job: broke, do: without("task")},
	{name: "pace", job: program, sql: `INSERT INTO events (job, n, epoch, state, custody, at, cause)
		WITH RECURSIVE i (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM i WHERE k < 121)
		SELECT j.seq, 1000 + k, 9, iif(k % 2, 'STAGING_INPUTS', 'PROCESSING_INPUTS'), 'worker', 1e15 + k * 15000, iif(k % 2, 'work', 'claim')
		FROM i, jobs j WHERE j.id = ?1`},
	{name: "ledger", do: func(t *testing.T, w *world, _ *promise) { write(t, w.jobsLedger(), "task\n") }},
	{name: "ledger", do: func(t *testing.T, w *world, p *promise) {
		write(t, w.jobsLedger(), "task "+w.book.all[0].id.String()+" 1 x\n")
	}},
	{name: "ledger", do: func(t *testing.T, w *world, p *promise) {
		write(t, w.jobsLedger(), "song "+w.book.all[0].id.String()+" 1 1\n")
	}},

	{name: "wrong_end", job: task, sql: `UPDATE jobs SET state = 'FAILED' WHERE id = ?1`},
	{name: "wrong_end", job: task, sql: `UPDATE jobs SET state = 'CANCELED' WHERE id = ?1`},
	{name: "wrong_attempts", job: task, sql: `UPDATE jobs SET attempt = 2 WHERE id = ?1`},
	{name: "cancel_forgotten", job: lasting, sql: `UPDATE jobs SET state = 'FINISHED' WHERE id = ?1`},
	{name: "poison", job: broke, sql: `UPDATE jobs SET code = 'POISON' WHERE id = ?1`},
	{name: "result", job: task, sql: `UPDATE jobs SET result = '{"epoch": 7}' WHERE id = ?1`},
	{name: "result", job: task, sql: `UPDATE jobs SET result = '' WHERE id = ?1`},
	{name: "archive", job: program, do: func(t *testing.T, w *world, p *promise) {
		write(t,
			w.in("archive", p, "stdout"), "more")
	}},
	{name: "archive", job: program, do: func(t *testing.T, w *world, p *promise) {
		must(t,
			os.Remove(w.in("archive", p, "stdout")))
	}},

	{name: "history", job: task, sql: `DELETE FROM events WHERE n = 2 AND job = ` + seq},
	{name: "history", job: task, sql: `DELETE FROM events WHERE job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET n = 99 WHERE n = 2 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET state = 'ARCHIVING' WHERE n = 2 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET custody = 'monitor' WHERE n = 1 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET epoch = 7 WHERE n = 3 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET at = 1 WHERE n = 2 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE events SET code = 'NONE' WHERE n = 3 AND job = ` + seq},
	{name: "history", job: task, sql: `INSERT INTO events (job, n, epoch, state, custody, at, cause, code) SELECT job, 4, epoch + 1, state, custody, at, 'work', code FROM events WHERE n = 3 AND job = ` + seq},
	{name: "history", job: task, sql: `INSERT INTO events (job, n, sub, name, epoch, state, custody, at, cause) SELECT job, n, 1, 'note', epoch, state, custody, at, 'user' FROM events WHERE n = 3 AND job = ` + seq},
	{name: "history", job: task, sql: `UPDATE jobs SET epoch = epoch + 1 WHERE id = ?1`},
	{name: "history", job: task, sql: `UPDATE jobs SET code = 'CANCELED_BY_USER' WHERE id = ?1`},
	{name: "history", job: task, sql: `UPDATE jobs SET lane = 'launch' WHERE id = ?1`},
	{name: "history", job: task, sql: `UPDATE jobs SET ended = NULL WHERE id = ?1`},

	{name: "events", job: task, do: ears(func(all []job.Event) []job.Event { return all[:len(all)-1] })},
	{name: "events", job: task, do: ears(func([]job.Event) []job.Event { return nil })},
	{name: "events", job: task, do: ears(func(all []job.Event) []job.Event { return append(all, all[len(all)-1]) })},
	{name: "events", job: task, do: ears(func(all []job.Event) []job.Event {
		all[0], all[1] = all[1],
			all[0]
		return all
	})},
	{name: "events", job: task, do: ears(func(all []job.Event) []job.Event { all[1].Message = "other"; return all })},
	{name: "events", job: task, do: ears(
		func(all []job.Event) []job.Event { all[1].At = all[1].At.Add(time.Second); return all })},
	{name: "events", job: deleted, do: func(_ *testing.T, _ *world, p *promise) {
		p.deleting, p.deleted = false,
			false
	}},
	{name: "events", job: task, do: hears(2, 4)},
	{name: "events", job: task, do: hears(1, 2, 2)},
	{name: "events", job: task, do: hears(1, 3, 2)},

	{name: "tenant", sql: `UPDATE jobs SET name = 'storm-9' WHERE tenant = 'strangers'`},
	{name: "tenant", sql: `UPDATE jobs SET state = 'CANCELED' WHERE tenant = 'strangers'`},
	{name: "stranger", sql: `UPDATE jobs SET tenant = 'default' WHERE tenant = 'strangers'`},
	{name: "lost", sql: `DELETE FROM jobs WHERE tenant = 'strangers'`},
	{name: "tenant", do: func(_ *testing.T, w *world, _ *promise) {
		w.ears[0].jobs[w.strangers.accepted[0]] = []job.Event{{}}
	}},

	{name: "session_left", sql: `UPDATE sessions SET ended = NULL`},
	{name: "session_left", job: task, sql: `UPDATE jobs SET session = randomblob(16) WHERE id = ?1`},
	{name: "duty_left", sql: `UPDATE sessions SET ended = NULL`},
	{name: "followup_left", job: task, sql: `INSERT INTO followups (debt, job, at) VALUES ('dependants', ` + seq +
		`, 1)`},
	{name: "prerequisite_left", job: task, sql: `INSERT INTO prerequisites (needs, job, need) VALUES (1, ` + seq +
		`, 'ended')`},
	{name: "prerequisite_left", job: task, sql: `UPDATE jobs SET needs = 1 WHERE id = ?1`},
	{
		name: "unique_key_left", job: task,
		sql: `INSERT INTO unique_keys (tenant, kind, mode, key, job) VALUES ('default', 'storm', 'done', 'k', ` +
			seq + `)`,
	},
	{name: "turn_left", job: task, sql: `INSERT INTO turns (tenant, key, owner, job) VALUES ('default', 'gpu', 'ada', ` + seq + `)`},
	{name: "line_left", job: task, sql: `UPDATE jobs SET line = 'gpu' WHERE id = ?1`},
	{name: "line_left", sql: `INSERT INTO served (tenant, key, doc) VALUES ('default', 'gpu', '{}')`},
	{name: "line_left", sql: `INSERT INTO lines (tenant, key, places) VALUES ('default', 'gpu', 0)`},
	{name: "followup_left", sql: `INSERT INTO lines (tenant, key, owed) VALUES ('default', 'gpu', 1)`},
	{name: "followup_left", sql: `INSERT INTO walks (tenant, key, walked, at) VALUES ('default', 'gpu', 0, 1)`},
	{name: "group_left", job: task, sql: `UPDATE jobs SET grp = 'g' WHERE id = ?1`},
	{name: "group_left", sql: `INSERT INTO groups (tenant, key, duty, probe, line, places, doc) VALUES ('default', 'g', 'recovery', 'p', 'gpu', 0, '{}')`},
	{name: "followup_left", sql: `INSERT INTO followups (debt, job, at, tenant, key) VALUES ('turns', 0, 1, 'default', 'gpu')`},
	{name: "unlimited", job: task, do: func(_ *testing.T, _ *world, p *promise) { p.keys = []string{"gpu"} }},
	{name: "limit", do: sideBySide("unique/storm/x")},
	{name: "limit", do: sideBySide("lab/x")},
	{name: "limit", do: func(t *testing.T, w *world, _ *promise) {
		for _, name := range []string{task, twice} {
			w.promise(name).unique = "unique/storm until done/x"
		}
		overlap(t, w, task, twice)
	}},
	{name: "order", job: behind, sql: `UPDATE jobs SET ordered = 'order/x' WHERE id = ?1`},
	{name: "order", job: behind, sql: `UPDATE events SET at = (SELECT max(e.at) - 1 FROM events e JOIN jobs j ON j.seq = e.job WHERE j.name = '` + ahead + `') WHERE job = ` + seq},
	{name: "order", job: ahead, sql: `UPDATE events SET state = 'WAITING', custody = 'gate', cause = 'submit' WHERE (n = 1 OR cause = 'turn') AND job = ` + seq},
	{name: "order", job: ahead, do: func(_ *testing.T, w *world, p *promise) {
		p.since = w.promise(
			behind).answered + 1
	}},
	{name: "order", job: ahead, do: edit("span", func(line string) string {
		return line + strings.Join(append(strings.Fields(line)[:4], "1000000000", "1000000001\n"), " ")
	})},
	{name: "limit", job: ahead, do: func(t *testing.T, w *world, _ *promise) {
		edit("span", func(line string) string {
			return strings.Join(append(strings.Fields(line)[:4], "1", "1000000001\n"), " ")
		})(t, w, w.promise(behind))
	}},
	{name: "pace", job: program, sql: `INSERT INTO events (job, n, epoch, state, custody, at, cause, message)
		WITH RECURSIVE i (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM i WHERE k < 61)
		SELECT j.seq, 1000 + k, 9, iif(k % 2, 'RUNNING', 'SUBMITTING_JOB'), iif(k % 2, 'monitor', 'worker'), 1e15 + k * 30000, 'work', iif(k % 2, '', 'about to be launched')
		FROM i, jobs j WHERE j.id = ?1`},
	{name: "ledger", do: func(t *testing.T, w *world, p *promise) {
		write(t, w.jobsLedger(), "span "+w.book.all[0].id.String()+" 1 1 x 2\n")
	}},
	{name: "live_left", job: task, sql: `UPDATE jobs SET live = 1 WHERE id = ?1`},
	{name: "live_left", job: task, sql: `UPDATE jobs SET wish = 'cancel' WHERE id = ?1`},
	{name: "database", do: corrupt},

	{name: "file_left", do: put("ends", "x")},
	{name: "file_left", do: put("work/.archiving", "x")},
	{name: "file_left", do: put("work/default", "x")},
	{name: "file_left", do: put("archive", ".pawl-put-ABC")},
	{name: "file_left", job: program, do: func(t *testing.T, w *world, p *promise) {
		write(t,
			w.in("archive", p, ".pawl-x-1"), "")
	}},
	{name: "work_left", job: program, do: func(t *testing.T, w *world, p *promise) {
		write(t, w.in("work", p, "x"),
			"")
	}},
	{name: "work_left", job: deleted, do: func(t *testing.T, w *world, p *promise) {
		write(t, w.in("work", p, "x"),
			"")
	}},
	{
		name: "archive_left", job: deleted,
		do: func(t *testing.T, w *world, p *promise) { write(t, w.in("archive", p, "x"), "") },
	},
	{name: "lock_left", do: func(t *testing.T, w *world, _ *promise) {
		f, err := folder.Take(w.folder("m0"))
		must(t, err)
		t.Cleanup(func() { f.Close() })
	}},
}

// TestTheCheckSeesWhatIsBroken breaks one thing after the other in a sound world. What is broken
// must be named, and the story of its job told.
func TestTheCheckSeesWhatIsBroken(t *testing.T) {
	sound := sound(t)
	t.Run("nothing", func(t *testing.T) {
		w := sound.copied(t)
		if must(t, w.judge(t.Context())); len(w.sum.Broken) > 0 {
			t.Fatalf("the copy of a sound world is found broken: %q\n%s", w.sum.Broken, w.said)
		}
	})
	for _, sp := range spoils {
		t.Run(strings.TrimSpace(sp.name+" "+sp.sql), func(t *testing.T) {
			w := sound.copied(t)
			var p *promise
			var args []any
			if sp.job != "" {
				p = w.promise(sp.job)
				args = append(args, p.id[:])
			}
			if sp.do != nil {
				sp.do(t, w, p)
			} else {
				w.execute(t, sp.sql, args...)
			}
			must(t, w.judge(t.Context()))
			w.says(t, sp.name, p)
		})
	}
	for name, do := range looks {
		t.Run(name, func(t *testing.T) { do(t, sound.copied(t)) })
	}
}

// says fails the test unless something of a name was found broken, of a job where p is not nil, and
// its story told.
func (w *world) says(t *testing.T, name string, p *promise) {
	t.Helper()
	named := slices.ContainsFunc(w.sum.Broken, func(b string) bool {
		id, found := idIn(b)
		return strings.HasPrefix(b, name+": ") && (p == nil || found && id == p.id)
	})
	if !named {
		t.Errorf("%s is not said: %q", name, w.sum.Broken)
	}
	if p != nil && !strings.Contains(w.said.String(), "the story of job "+p.id.String()) {
		t.Errorf("the story is not told:\n%s", w.said)
	}
}

// looks are those that are taken while processes run, or in the moment when they have ended.
var looks = map[string]func(*testing.T, *world){
	"a tenant that sees others": func(t *testing.T, w *world) {
		p := w.promise(task)
		open := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"id": %q, "jobs": [{"id": %[1]q, "name": %q}]}`, p.id, p.name)
		}))
		defer open.Close()
		c, err := client.Dial(open.URL, client.Options{Tries: 1})
		must(t, err)
		w.strangers.lists(t.Context(), c, "a stranger", func(name string) bool { return name != p.name })
		w.says(t, "tenant", nil)
		w.strangers.keepsOut(t.Context(), "see", c, "a stranger", p.id)
		w.says(t, "tenant", p)
	},
	"numbers of what was deleted": func(t *testing.T, w *world) { // the newest of all, and nothing came after it
		w.execute(t, `INSERT INTO jobs (seq, id, tenant, owner, kind, name, queue, machine, priority, max_attempts, created, state, custody, epoch, n, lane, attempt, since, hidden)
			VALUES (1000, zeroblob(16), '', '', '', '', '', '', 0, 0, 1, '', 'none', 0, 0, '', 0, 0, 2)`)
		w.execute(t, `INSERT INTO events (seq, job, n, epoch, state, custody, at, cause) VALUES (100000, 0, 0, 0, '', 'none', 0, '')`)
		if must(t, w.judge(t.Context())); len(w.sum.Broken) > 0 {
			t.Errorf("a job and an event that were deleted are found broken: %q", w.sum.Broken)
		}
	},
	"another one that is not like it": func(t *testing.T, w *world) {
		p := w.promise(task)
		w.met(order{name: "storm-x", unique: "u", begun: time.Now()}, &service.View{Job: job.Job{ID: p.id, Name: p.name}})
		w.says(t, "unique", p)
	},
	"another one that had ended": func(t *testing.T, w *world) {
		must(t, w.trouble.open())
		defer w.trouble.close()
		i := 0
		for ; w.order(i).unique == ""; i++ {
		}
		v := service.View{Job: job.Job{ID: job.NewID(), Name: w.order(i).name, Ended: time.Now().Add(-3 * time.Second)}}
		w.began = v.Ended
		if w.met(order{name: "storm-x", unique: w.order(i).unique, begun: v.Ended}, &v); len(w.sum.Broken) > 0 {
			t.Errorf("one that ended after the submission had begun is found broken: %q", w.sum.Broken)
		}
		w.met(order{name: "storm-x", unique: w.order(i).unique, begun: time.Now()}, &v)
		w.says(t, "unique", nil)
	},
	"idle_place": func(t *testing.T, w *world) {
		w.execute(t, `INSERT INTO limits (tenant, key, doc) VALUES ('default', 'gpu', '{"key": "gpu", "most": 1}')`)
		w.execute(t, `UPDATE jobs SET state = 'WAITING', custody = 'gate', line = 'gpu' WHERE name = '`+task+`'`)
		st, err := w.open(t.Context())
		must(t, err)
		defer st.Close()
		i := &idler{s: w.storm}
		if must(t, i.look(t.Context(), st)); len(w.sum.Broken) > 0 {
			t.Errorf("a place that has just become free is found broken: %q", w.sum.Broken)
		}
		i.last, i.since["gpu"] = i.last.Add(-mostIdle), i.since["gpu"].Add(-2*mostIdle)
		if must(t, i.look(t.Context(), st)); len(w.sum.Broken) > 0 {
			t.Errorf("a place that was free at two looks long apart is found broken: %q", w.sum.Broken)
		}
		i.since["gpu"] = i.since["gpu"].Add(-2 * mostIdle)
		must(t, i.look(t.Context(), st))
		w.says(t, "idle_place", nil)
	},
	"stuck": func(t *testing.T, w *world) {
		p := w.promise(task)
		w.execute(t, `UPDATE jobs SET state = 'PENDING', custody = 'ready' WHERE id = ?1`, p.id[:])
		must(t, w.drain(t.Context()))
		w.says(t, "stuck", p)
	},
	"place": func(t *testing.T, w *world) {
		w.execute(t, `UPDATE jobs SET custody = 'monitor'`)
		w.places(t.Context())
		w.says(t, "place", nil)
	},
	"side_by_side": func(t *testing.T, w *world) {
		p := w.promise(program)
		sleeper(t, w, "PAWL_JOB_ID="+p.id.String(), "PAWL_ATTEMPT=1")
		w.attempts()
		if len(w.sum.Broken) > 0 {
			t.Errorf("one attempt is found broken: %q", w.sum.Broken)
		}
		sleeper(t, w, "PAWL_JOB_ID="+p.id.String(), "PAWL_ATTEMPT=2")
		w.attempts()
		w.says(t, "side_by_side", p)
	},
	"cancel_unconfirmed": func(t *testing.T, w *world) {
		p := w.promise(lasting)
		w.confirmed(p.id, job.Canceled)
		if len(w.sum.Broken) > 0 {
			t.Errorf("a program that is gone is found broken: %q", w.sum.Broken)
		}
		sleeper(t, w, "PAWL_JOB_ID="+p.id.String())
		w.confirmed(p.id, job.Canceled)
		w.says(t, "cancel_unconfirmed", p)
	},
	"process_left": func(t *testing.T, w *world) {
		must(t, w.end(t.Context()))
		if len(w.sum.Broken) > 0 {
			t.Errorf("where nothing is left something is found broken: %q", w.sum.Broken)
		}
		sleeper(t, w)
		must(t, w.end(t.Context()))
		w.says(t, "process_left", nil)
	},
	"exit with an error":        ends("exit", "exit 3", true, nil),
	"exit by itself":            ends("exit", "exit 0", true, nil),
	"exit by a signal":          ends("exit", "kill -SEGV $$", true, nil),
	"exit in a panic":           ends("exit", "echo panic: no; exit 2", false, nil),
	"exit in a fatal error":     ends("exit", "echo fatal error: no; exit 2", false, nil),
	"exit of one that was told": ends("exit", "exit 3", true, func(p *victims.Process) { p.Told.Store(true) }),
	"a sweep that finds turns": ends("repaired",
		`echo 'found what no wake-up told of what="a free place beside a line"'; exit 0`, true,
		func(p *victims.Process) { p.Told.Store(true) }),
	"a sound exit":            ends("", "exit 0", true, func(p *victims.Process) { p.Told.Store(true) }),
	"a sound kill":            ends("", "kill -KILL $$", true, func(p *victims.Process) { p.Killed.Store(true) }),
	"a kill by somebody else": ends("exit", "kill -KILL $$", true, nil),
	"one that does not stop": func(t *testing.T, w *world) {
		p := process(t, w, "trap '' TERM QUIT; echo pawl works on the jobs; while :; do sleep 0.01; done")
		until(t, "it began", func() bool { return began(p) })
		w.nodes[0].stop(t.Context(), p)
		<-p.Ended
		w.says(t, "stuck", nil)
	},
}

// TestTheCheckSeesWhatIsBrokenOnAServer looks at what there is on a server alone.
func TestTheCheckSeesWhatIsBrokenOnAServer(t *testing.T) {
	testenv.Aside(t)
	server := testenv.Postgres(t)
	sound := func(t *testing.T) *world {
		w := &world{said: nil}
		s := newStorm(options{db: "postgres", out: logged{t}}, t.TempDir())
		s.patience = patience{gone: testenv.Patience, idling: time.Second}
		s.server, s.dsn = server, server.Database(t)
		s.nodes = []*node{{s: s, name: "m0.0", machine: "m0", role: "worker"}}
		w.storm = s
		m, err := postgres.NewMigrator(s.dsn, "")
		must(t, err)
		must(t, m.Up(t.Context()))
		must(t, m.Close())
		return w
	}
	t.Run("nothing", func(t *testing.T) {
		w := sound(t)
		must(t, w.idle(t.Context()))
		must(t, w.left(t.Context()))
		if len(w.sum.Broken) > 0 {
			t.Errorf("a sound world is found broken: %q", w.sum.Broken)
		}
	})
	t.Run("connection_left", func(t *testing.T) {
		w := sound(t)
		w.gone = 50 * time.Millisecond
		connect(t, w)
		must(t, w.left(t.Context()))
		w.says(t, "connection_left", nil)
	})
	t.Run("idle", func(t *testing.T) {
		w := sound(t)
		db, err := w.query()
		must(t, err)
		defer db.Close()
		ctx, stop := context.WithCancel(t.Context())
		busy := make(chan struct{})
		go func() {
			defer close(busy)
			for ctx.Err() == nil {
				db.ExecContext(ctx, "SELECT FROM pawl.jobs") // an error is that of the last one, which ctx ends
			}
		}()
		must(t, w.idle(t.Context()))
		stop()
		<-busy
		w.says(t, "idle", nil)
	})
	t.Run("deadlock", func(t *testing.T) {
		w := sound(t)
		deadlock(t, connect(t, w), connect(t, w))
		must(t, w.left(t.Context()))
		w.says(t, "deadlock", nil)
	})
}

func connect(t *testing.T, w *world) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), w.dsn)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// deadlock has two transactions wait for each other.
func deadlock(t *testing.T, one, two *pgx.Conn) {
	ctx := t.Context()
	_, err := one.Exec(ctx, "SELECT pg_advisory_lock(1)")
	must(t, err)
	_, err = two.Exec(ctx, "SELECT pg_advisory_lock(2)")
	must(t, err)
	crossed := make(chan error, 1)
	go func() {
		_, err := one.Exec(ctx, "SELECT pg_advisory_lock(2)")
		one.Close(ctx)
		crossed <- err
	}()
	_, err = two.Exec(ctx, "SELECT pg_advisory_lock(1)")
	two.Close(ctx)
	if other := <-crossed; err == nil && other == nil {
		t.Fatal("no transaction was chosen to give way")
	}
}

// in is a name below the folder of a job.
func (w *world) in(what string, p *promise, name string) string {
	return filepath.Join(w.folder("m0"), what, tenant, p.id.String(), name)
}

// write adds to a file, which it makes where there is none.
func write(t *testing.T, name, text string) {
	must(t, os.MkdirAll(filepath.Dir(name), 0o700))
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

// put makes a file in the folder of the machine.
func put(dir, name string) func(*testing.T, *world, *promise) {
	return func(t *testing.T, w *world, _ *promise) { write(t, filepath.Join(w.folder("m0"), dir, name), "") }
}

// forget has nobody know of a job any more.
func forget(name string) func(*testing.T, *world, *promise) {
	return func(_ *testing.T, w *world, _ *promise) {
		gone := func(p *promise) bool { return p.name == name }
		w.book.all = slices.DeleteFunc(w.book.all, gone)
		maps.DeleteFunc(w.book.byID, func(_ job.ID, p *promise) bool { return gone(p) })
	}
}

// sideBySide has two tasks have run at the same time, under a key of which one may.
func sideBySide(key string) func(*testing.T, *world, *promise) {
	return func(t *testing.T, w *world, _ *promise) {
		w.limits.said = []saying{{"lab/*", 5, 0, 1, true, false}, {"lab/x", 1, 1, 2, true, false}}
		for _, name := range []string{task, twice} {
			p := w.promise(name)
			p.since = 3
			w.execute(t, `UPDATE jobs SET limit_keys = ?2 WHERE id = ?1`, p.id[:], `["`+key+`"]`)
		}
		overlap(t, w, task, twice)
	}
}

// overlap has tasks run at the same time.
func overlap(t *testing.T, w *world, names ...string) {
	for _, name := range names {
		edit("span", func(line string) string {
			return strings.Join(append(strings.Fields(line)[:4], "1000", "2000\n"), " ")
		})(t, w, w.promise(name))
	}
}

// note adds a line to what jobs wrote, as of a job.
func note(word, rest string) func(*testing.T, *world, *promise) {
	return func(t *testing.T, w *world, p *promise) {
		write(t, w.jobsLedger(), fmt.Sprintf("%s %s %s\n", word, p.id, rest))
	}
}

func twoNotes(line string) func(*testing.T, *world, *promise) {
	word, rest, _ := strings.Cut(line, " ")
	return func(t *testing.T, w *world, p *promise) {
		note(word, rest)(t, w, p)
		note(word, rest)(t, w, p)
	}
}

// again repeats what a job wrote, and without takes it out.
func again(word string) func(*testing.T, *world, *promise) {
	return edit(word, func(line string) string { return line + line })
}

func without(word string) func(*testing.T, *world, *promise) {
	return edit(word, func(string) string { return "" })
}

func edit(word string, change func(line string) string) func(*testing.T, *world, *promise) {
	return func(t *testing.T, w *world, p *promise) {
		text, err := os.ReadFile(w.jobsLedger())
		must(t, err)
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, word+" "+p.id.String()+" ") {
				line = change(line)
			}
			b.WriteString(line)
		}
		if b.String() == string(text) {
			t.Fatalf("the ledger has no %s of %s", word, p.name)
		}
		must(t, os.WriteFile(w.jobsLedger(), []byte(b.String()), 0o600))
	}
}

// ears changes what one of the followers has heard of a job.
func ears(change func([]job.Event) []job.Event) func(*testing.T, *world, *promise) {
	return func(_ *testing.T, w *world, p *promise) { w.ears[0].jobs[p.id] = change(w.ears[0].jobs[p.id]) }
}

// hears lets a follower hear events of a job in an order.
func hears(order ...int) func(*testing.T, *world, *promise) {
	return func(t *testing.T, w *world, p *promise) {
		e := w.ears[0]
		was := e.jobs[p.id]
		e.jobs[p.id] = nil
		for _, n := range order {
			event := was[min(n, len(was))-1]
			event.N = int64(n)
			e.hear(store.Event{Event: event})
		}
		w.says(t, "events", p)
	}
}

// corrupt has rows be other than their table says.
func corrupt(t *testing.T, w *world, _ *promise) {
	db := w.database(t)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err := db.Exec(`PRAGMA writable_schema = ON`)
	must(t, err)
	_, err = db.Exec(`UPDATE sqlite_schema SET sql = replace(sql, 'due          INTEGER', 'due          INTEGER NOT NULL') WHERE name = 'jobs'`)
	must(t, err)
}

// sleeper is a process with an environment, which has to do with the folder of the storm, until the
// test ends.
func sleeper(t *testing.T, w *world, env ...string) {
	c := exec.Command("/bin/sleep", "1000")
	c.Dir, c.Env = w.dir, append(env, "OF="+w.dir+"/")
	must(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill() // it may be gone
		c.Wait()         // it was killed
	})
}

// process starts a shell in place of a process of the service.
func process(t *testing.T, w *world, script string) *victims.Process {
	p, err := victims.Start(exec.Command("/bin/sh", "-c", script), filepath.Join(w.dir, "said.shell"), "")
	must(t, err)
	return p
}

// ends has a process end, one that had begun perhaps, and wants that said; empty: nothing.
func ends(want, script string, began bool, before func(*victims.Process)) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		if began {
			script = "echo pawl works on the jobs; " + script
		}
		p := process(t, w, script)
		if before != nil {
			before(p)
		}
		<-p.Ended
		w.nodes[0].judge(p)
		if want != "" {
			w.says(t, want, nil)
		} else if len(w.sum.Broken) > 0 {
			t.Errorf("a sound end is found broken: %q", w.sum.Broken)
		}
	}
}
