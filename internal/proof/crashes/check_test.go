package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A spoil breaks one thing in what a sound round has left.
type spoil struct {
	name string // of what the check must say
	// A statement for each database; empty: there is nothing of the kind there.
	sqlite, postgres string
	do               func(t *testing.T, r *round) // in place of a statement
	only             bool                         // of many processes, which are on PostgreSQL
}

// What statements break: a program that has finished.
const (
	finished   = `(SELECT max(seq) FROM jobs WHERE kind = 'app' AND state = 'FINISHED')`
	finishedPG = `(SELECT e.id FROM pawl.ended e JOIN pawl.specs s USING (id) WHERE s.kind = 'app' AND e.state = 'FINISHED' ORDER BY e.id DESC LIMIT 1)`
	// alive makes it a job that has not ended.
	alive = `INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, attempt, since)
		SELECT id, s.tenant, s.kind, s.queue, s.machine, s.priority, s.created, 'PENDING', 'ready', e.epoch, e.n, e.ord, 'prepare', e.attempt, e.since
		FROM e JOIN pawl.specs s USING (id)`
)

var spoils = []spoil{
	{
		name: "lost", sqlite: `DELETE FROM jobs WHERE seq = (SELECT max(seq) FROM jobs)`,
		postgres: `DELETE FROM pawl.specs WHERE id = ` + finishedPG,
	},
	{
		name: "lost", sqlite: `UPDATE jobs SET state = 'PENDING', custody = 'ready' WHERE seq = ` + finished,
		postgres: `WITH e AS (DELETE FROM pawl.ended WHERE id = ` + finishedPG + ` RETURNING *) ` + alive,
	},
	{name: "twice", postgres: `WITH e AS (SELECT * FROM pawl.ended WHERE id = ` + finishedPG + `) ` + alive},
	{name: "stranger", do: without(`accepted`)},
	{
		name: "stranger", sqlite: `DELETE FROM specs WHERE seq = ` + finished,
		postgres: `DELETE FROM pawl.ended WHERE id = ` + finishedPG,
	},
	{
		name: "stranger", sqlite: `UPDATE jobs SET machine = 'other' WHERE seq = ` + finished,
		postgres: `UPDATE pawl.specs SET machine = 'other' WHERE id = ` + finishedPG,
	},
	{name: "stranger", do: elsewhere, only: true},
	{name: "launched_twice", do: again(`launch`)},
	{name: "ran_twice", do: again(`task`)},
	{name: "limit", do: ledgerLines(func(lines []string) []string { // nobody ends before all have begun
		return slices.SortedStableFunc(slices.Values(lines), func(a, b string) int {
			return cmp.Compare(strings.Count(a, "done "), strings.Count(b, "done "))
		})
	})},
	{name: "order", do: ledgerLines(func(lines []string) []string { slices.Reverse(lines); return lines })},
	{
		name: "limit", sqlite: `UPDATE jobs SET limit_keys = '[]' WHERE limit_keys <> ''`,
		postgres: `UPDATE pawl.ended SET limits = NULL WHERE limits IS NOT NULL`,
	},
	{
		name: "turn_left", sqlite: `INSERT INTO turns (job, key, tenant, owner) VALUES (1, 'lab/a', 'default', 'x')`,
		postgres: `INSERT INTO pawl.turns (job, key, tenant, owner) VALUES (` + finishedPG + `, 'lab/a', 'default', 'x')`,
	},
	{
		name: "wrong_end", sqlite: `UPDATE jobs SET state = 'FAILED' WHERE seq = ` + finished,
		postgres: `UPDATE pawl.ended SET state = 'FAILED' WHERE id = ` + finishedPG,
	},
	{
		name: "poison", sqlite: `UPDATE jobs SET state = 'FAILED', code = 'POISON' WHERE seq = ` + finished,
		postgres: `UPDATE pawl.ended SET state = 'FAILED', code = 'POISON' WHERE id = ` + finishedPG,
	},
	{
		name: "wrong_attempts", sqlite: `UPDATE jobs SET attempt = attempt + 1 WHERE seq = ` + finished,
		postgres: `UPDATE pawl.ended SET attempt = attempt + 1 WHERE id = ` + finishedPG,
	},
	{
		name: "wrong_code", sqlite: `UPDATE jobs SET code = 'PROGRAM_FAILED' WHERE code = 'TIME_LIMIT'`,
		postgres: `UPDATE pawl.ended SET code = 'PROGRAM_FAILED' WHERE code = 'TIME_LIMIT'`,
	},
	{
		name: "not_run", sqlite: `UPDATE jobs SET attempt = attempt + 1 WHERE seq = ` + finished,
		postgres: `UPDATE pawl.ended SET attempt = attempt + 1 WHERE id = ` + finishedPG,
	},
	{
		name: "not_run", sqlite: `UPDATE jobs SET attempt = attempt + 1 WHERE code = 'TIME_LIMIT'`,
		postgres: `UPDATE pawl.ended SET attempt = attempt + 1 WHERE code = 'TIME_LIMIT'`,
	},
	{
		name: "cancel_forgotten", sqlite: `UPDATE jobs SET state = 'FINISHED' WHERE code = 'CANCELED_BY_USER'`,
		postgres: `UPDATE pawl.ended SET state = 'FINISHED' WHERE code = 'CANCELED_BY_USER'`,
	},
	{
		name: "unblocked", sqlite: `UPDATE events SET cause = 'work' WHERE cause = 'clear'`,
		postgres: `UPDATE pawl.events SET cause = 'work' WHERE cause = 'clear'`,
	},
	{
		name: "unblocked", sqlite: `UPDATE events SET message = '' WHERE message LIKE '%released by%'`,
		postgres: `UPDATE pawl.events SET message = '' WHERE message LIKE '%released by%'`,
	},
	{
		name: "not_blocked", sqlite: `UPDATE jobs SET recoveries = 0; UPDATE events SET state = 'RUNNING' WHERE state = 'BLOCKED'`,
		postgres: `WITH j AS (UPDATE pawl.ended SET recoveries = 0) UPDATE pawl.events SET state = 'RUNNING' WHERE state = 'BLOCKED'`,
	},
	{
		name: "group_left", sqlite: `UPDATE jobs SET grp = 'g' WHERE seq = ` + finished,
		postgres: `INSERT INTO pawl.groups (tenant, key, duty, probe, line, places, next, wake, doc) SELECT tenant, 'g', duty, probe, line, 0, NULL, NULL, doc FROM pawl.groups LIMIT 1`,
	},
	{
		name: "history", sqlite: `UPDATE events SET n = 99 WHERE n = 2 AND job = 1`,
		postgres: `UPDATE pawl.events SET n = 99 WHERE n = 2 AND job = ` + finishedPG,
	},
	{
		name: "history", sqlite: `UPDATE jobs SET epoch = epoch + 1 WHERE seq = 1`,
		postgres: `UPDATE pawl.ended SET epoch = epoch + 1 WHERE id = ` + finishedPG,
	},
	{
		name: "history", sqlite: `UPDATE events SET custody = 'monitor' WHERE n = 1 AND job = 1`,
		postgres: `UPDATE pawl.events SET custody = 'monitor' WHERE n = 1 AND job = ` + finishedPG,
	},
	{name: "session_left", sqlite: `UPDATE sessions SET ended = NULL`, postgres: `UPDATE pawl.sessions SET ended = NULL`},
	{name: "duty_left", sqlite: `UPDATE sessions SET ended = NULL`, postgres: `UPDATE pawl.sessions SET ended = NULL`},
	{
		name: "followup_left", sqlite: `INSERT INTO followups (debt, job, at) VALUES ('dependants', 1, 1)`,
		postgres: `INSERT INTO pawl.followups (debt, job, at) VALUES ('dependants', ` + finishedPG + `, now())`,
	},
	{
		name: "prerequisite_left", sqlite: `INSERT INTO prerequisites (needs, job, need) VALUES (1, 2, 'ended')`,
		postgres: `INSERT INTO pawl.prerequisites (needs, job, need) VALUES (` + finishedPG + `, ` + finishedPG + `, 'ended')`,
	},
	{
		name: "prerequisite_left", sqlite: `UPDATE jobs SET needs = 1 WHERE seq = ` + finished,
		postgres: `UPDATE pawl.ended SET needs = 1 WHERE id = ` + finishedPG,
	},
	{
		name: "unique_key_left", sqlite: `INSERT INTO unique_keys (tenant, kind, mode, key, job) VALUES ('default', 'app', 'done', 'k', 1)`,
		postgres: `INSERT INTO pawl.unique_keys (tenant, kind, mode, key, job) VALUES ('default', 'app', 'done', 'k', ` + finishedPG + `)`,
	},
	{
		name: "live_left", sqlite: `UPDATE jobs SET live = 1 WHERE seq = 1`,
		postgres: `WITH e AS (DELETE FROM pawl.ended WHERE id = ` + finishedPG + ` RETURNING *) ` + alive,
	},
	{name: "session_left", do: crashed, only: true},
	{name: "deadlock", do: deadlock, only: true},
	{name: "connection_left", do: func(t *testing.T, r *round) { connect(t, r) }, only: true},
	{name: "file_left", do: write("data/ends", "some")},
	{name: "file_left", do: write("other/ends", "some"), only: true},
	{name: "file_left", do: write("data/work/.archiving", "some")},
	{name: "file_left", do: write("data/archive/default/*", ".pawl-put-ABC")},
	{name: "file_left", do: write("archive/*", ".pawl-put-ABC")},
	{name: "file_left", do: write("data/archive/default/*", ".pawl-x-1/stdout")},
	{name: "file_left", do: write("archive/*", ".pawl-x-1/stdout")},
	{name: "archive", do: archived("stdout")},
	{name: "archive", do: archived("core")},
	{name: "manifest", do: archived("pawl-manifest.json")},
	{name: "process_left", do: sleeping},
}

// TestTheCheckSeesWhatIsBroken breaks one thing after the other in what a sound round has left.
func TestTheCheckSeesWhatIsBroken(t *testing.T) {
	t.Run("on SQLite", func(t *testing.T) {
		t.Parallel()
		seesAll(t, open(t, onSQLite()))
	})
	t.Run("on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		seesAll(t, open(t, onPostgres(testenv.Postgres(t))))
	})
}

func seesAll(t *testing.T, h *harness) {
	h.keep = true
	h.die(t.Context(), 1, 30, nil)
	if len(h.sum.Broken) > 0 {
		t.Fatal(h.sum.Broken)
	}
	for _, test := range spoils {
		statement := test.sqlite
		if h.many() {
			statement = test.postgres
		}
		// Folders and ledger are looked at in the same way whatever the database is.
		if test.do == nil && statement == "" || test.do != nil && test.only != h.many() {
			continue
		}
		if h.many() && test.sqlite != "" && !testenv.Every() { // the check is the same
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := copied(t, h)
			if test.do != nil {
				test.do(t, r)
			} else {
				execute(t, r, statement)
			}
			c := &checker{round: r, patience: 50 * time.Millisecond}
			c.check(t.Context())
			says := func(name string) bool {
				return slices.ContainsFunc(r.broken, func(b string) bool { return strings.HasPrefix(b, name+": ") })
			}
			if !says(test.name) || says("database") {
				t.Errorf("it says: %q", r.broken)
			}
		})
	}
}

var copies atomic.Int64

// copied returns a copy of the only round of a harness.
func copied(t *testing.T, h *harness) *round {
	r := &round{h: h, name: t.Name(), dir: filepath.Join(t.TempDir(), "round"), seed: 1, jobs: 30}
	if err := os.CopyFS(r.dir, os.DirFS(filepath.Join(h.dir, "1-points"))); err != nil {
		t.Fatal(err)
	}
	if h.server != nil { // it goes with the server: to drop it takes longer than the test
		name := fmt.Sprintf("copy_%d", copies.Add(1))
		r.dsn = h.server.DSN(name)
		h.server.CreateDatabase(t, name, "round_1_1")
	}
	return r
}

func execute(t *testing.T, r *round, statement string) {
	db, err := r.query("rw")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	result, err := db.Exec(statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}

// again repeats a line of the ledger, and without takes one out.
func again(word string) func(*testing.T, *round) {
	return ledgerWith(word, func(line []byte) []byte { return bytes.Repeat(line, 2) })
}

func without(word string) func(*testing.T, *round) {
	return ledgerWith(word, func([]byte) []byte { return nil })
}

func ledgerWith(word string, edit func(line []byte) []byte) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		b, err := os.ReadFile(r.ledger())
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^` + word + ` (\S+).*\n`)
		at := line.FindSubmatchIndex(b)
		if at == nil {
			t.Fatalf("no line %s", word)
		}
		id := string(b[at[2]:at[3]])
		same := regexp.MustCompile(`(?m)^` + word + ` ` + id + ` .*\n`) // several processes may have written it
		if err := os.WriteFile(r.ledger(), same.ReplaceAllFunc(b, edit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// ledgerLines changes all lines of the ledger.
func ledgerLines(edit func(lines []string) []string) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		b, err := os.ReadFile(r.ledger())
		if err == nil {
			err = os.WriteFile(r.ledger(), []byte(strings.Join(edit(slices.Collect(strings.Lines(string(b)))), "")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// write writes a file into the first folder of a pattern.
func write(pattern, name string) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		found, err := filepath.Glob(filepath.Join(r.dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		name := filepath.Join(found[0], name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// archived spoils a file in the archive of a program that finished on the first machine.
func archived(name string) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		for _, j := range programs(t, r) {
			own := filepath.Join("data", "archive", tenant, j.ID.String())
			if _, err := os.Stat(filepath.Join(r.dir, own)); err == nil {
				write(own, name)(t, r)
				return
			}
		}
		t.Fatal("no job has finished")
	}
}

// elsewhere makes the folder of a program on a machine that is not its own.
func elsewhere(t *testing.T, r *round) {
	all := programs(t, r)
	if len(all) == 0 {
		t.Fatal("no program has finished")
	}
	for _, m := range r.h.machines() {
		id, err := os.ReadFile(filepath.Join(r.folder(m), "machine"))
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Machine != strings.TrimSpace(string(id)) {
			if err := os.MkdirAll(filepath.Join(r.folder(m), "work", tenant, all[0].ID.String()), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// programs returns those that have finished.
func programs(t *testing.T, r *round) []job.Job {
	st, err := r.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	page, err := st.List(t.Context(), store.Query{Tenant: tenant, Filter: job.WhereState(job.Finished).And("kind", job.Is, job.KindApp)})
	if err != nil {
		t.Fatal(err)
	}
	return page.Jobs
}

// connect opens a connection to the database, until the test ends.
func connect(t *testing.T, r *round) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// crashed has the sessions crash of a process that ended in good order, after it had renewed its
// session.
func crashed(t *testing.T, r *round) {
	execute(t, r, `UPDATE pawl.sessions SET crashed = true, renewed = started + interval '1 s'`)
	st, err := r.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	all, err := st.Sessions(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatalf("%d sessions, %v", len(all), err)
	}
	r.orderly = append(r.orderly, all[0].Process.PID)
}

// deadlock has two transactions wait for each other.
func deadlock(t *testing.T, r *round) {
	ctx := t.Context()
	one, two := connect(t, r), connect(t, r)
	lock := func(conn *pgx.Conn, statement string) {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	lock(one, "SELECT pg_advisory_lock(1)")
	lock(two, "SELECT pg_advisory_lock(2)")
	crossed := make(chan error, 1)
	go func() {
		_, err := one.Exec(ctx, "SELECT pg_advisory_lock(2)")
		one.Close(ctx)
		crossed <- err
	}()
	_, err := two.Exec(ctx, "SELECT pg_advisory_lock(1)")
	two.Close(ctx)
	if other := <-crossed; err == nil && other == nil {
		t.Fatal("no transaction was chosen to give way")
	}
}

// sleeping leaves a process behind, until the test ends.
func sleeping(t *testing.T, r *round) {
	c := exec.Command("/bin/sleep", "1000")
	c.Dir = r.folder("data")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
}
