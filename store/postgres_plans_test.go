package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// TestPostgresPlans pins the indexes that the statements use, with statistics that are fresh, and with some that were
// taken when the tables looked different.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session, gone := w.session(), job.NewID()
	const fill = `INSERT INTO jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, session, claim, attempt, max_attempts, since, ended)
		SELECT gen_random_uuid(), 'acme', 'send', CASE WHEN i %% 2 = 0 THEN 'default' ELSE 'other' END, '', 5, now() - i * interval '1 s', %s, %s, 1, 3, '3', 'task', %s, gen_random_uuid(), 1, 1, now(), now()
		FROM generate_series(1, %d) i`
	some := func(state, custody, session string, n int) {
		w.db.must(fmt.Sprintf(fill, str(state), str(custody), session, n))
	}
	stats := func(name string) {
		w.db.must("INSERT INTO specs (id, tenant, owner, name, created, request) SELECT id, tenant, 'ann', 'n', created, '{}' FROM jobs ON CONFLICT DO NOTHING")
		w.db.must("INSERT INTO events (job, n, ord, epoch, state, custody, at, cause) SELECT id, k, '3', 1, state, custody, since, 'work' FROM jobs CROSS JOIN generate_series(3, 3) k ON CONFLICT DO NOTHING")
		if name != "" {
			w.db.must("ANALYZE")
		}
	}
	w.db.must("ALTER TABLE jobs SET (autovacuum_enabled = false); ALTER TABLE specs SET (autovacuum_enabled = false); ALTER TABLE events SET (autovacuum_enabled = false)")
	grow := func() {
		some("FINISHED", "none", "NULL", 180_000)
		some("PENDING", "ready", "NULL", 18_000)
		some("RUNNING", "worker", uuid(session), 1_000)
		some("RUNNING", "worker", uuid(gone), 1_000)
		stats("")
	}
	check := func(t *testing.T, when string) {
		jobs := scanAll(w.db.must("SELECT * FROM jobs WHERE custody = 'worker' LIMIT 200"))
		b := &batch{cause: job.CauseWork}
		for _, j := range jobs {
			b.changes = append(b.changes, done(j, by(session)))
		}
		c := claim{id: job.NewID(), session: session, slots: 100, queues: []string{"default", "other"}}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			w.db.must("SET plan_cache_mode = " + mode)
			for _, s := range []struct {
				name, sql string
				uses      []string // the indexes on jobs
			}{
				{"claim", c.parts()[1], []string{"jobs_pkey", "jobs_ready", "jobs_session"}},
				{"apply_lock", b.lock(), []string{"jobs_pkey"}},
				{"apply", b.apply(), []string{"jobs_pkey"}},
				{"write", written(jobs, b.changes, time.Now(), job.CauseExpired), []string{"jobs_pkey"}},
				{"expire_take", "EXECUTE expire_take(1000)", []string{"jobs_session", "jobs_pkey"}},
				{"renew", execute("renew", uuid(session), "1000000", "'{default}'", "'{send}'", "''", "'{}'"), []string{"jobs_ready", "jobs_session"}},
				{"pay", "EXECUTE pay(1000)", []string{"jobs_pkey"}},
				{"events", execute("events_after", str(acme), "'0', '00000000-0000-0000-0000-000000000000', 0", "1000"), []string{"jobs_pkey"}},
				{"submit_answer", (&submission{jobs: newTasks(100)}).parts()[1], []string{"jobs_pkey"}},
			} {
				w.db.must("BEGIN")
				plan := ""
				for _, r := range w.db.must("EXPLAIN (ANALYZE, TIMING OFF) " + s.sql) {
					plan += r["QUERY PLAN"] + "\n"
				}
				w.db.must("ROLLBACK")
				used := map[string]bool{}
				for line := range strings.Lines(plan) {
					if _, name, ok := strings.Cut(line, "using jobs_"); ok {
						used["jobs_"+strings.Fields(name)[0]] = true
					}
					if _, name, ok := strings.Cut(line, "Bitmap Index Scan on jobs_"); ok {
						used["jobs_"+strings.Fields(name)[0]] = true
					}
					for _, table := range []string{"jobs", "specs", "events"} {
						if strings.Contains(line, "Seq Scan on "+table) {
							t.Errorf("%s, %s, %s reads all of %s:\n%s", when, mode, s.name, table, plan)
						}
					}
				}
				for name := range used {
					if !slices.Contains(s.uses, name) {
						t.Errorf("%s, %s, %s uses %s:\n%s", when, mode, s.name, name, plan)
					}
				}
				lines := strings.Split(strings.TrimSpace(plan), "\n")
				t.Logf("%-12s %-19s %-14s %s", when, mode, s.name, lines[len(lines)-1])
			}
		}
	}
	stats("empty")
	grow()
	check(t, "never seen")
	w.db.must("ANALYZE")
	check(t, "fresh")
	// Statistics of a moment at which every job was ready, or held.
	for _, at := range []string{"ready", "worker"} {
		w.db.must("TRUNCATE jobs, specs, events")
		state := map[string]string{"ready": "PENDING", "worker": "RUNNING"}[at]
		some(state, at, uuid(session), 20_000)
		stats("all " + at)
		w.db.must("UPDATE jobs SET state = 'FINISHED', custody = 'none', session = NULL")
		grow()
		check(t, "all "+at)
	}
}
