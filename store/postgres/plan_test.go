package postgres_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// uses are the indexes of the tables that grow which each statement may use.
var uses = map[string][]string{
	"submit":           {},
	"claim":            {"jobs_pkey", "jobs_ready", "jobs_session", "specs_pkey", "unique_keys_job"},
	"claim told":       {"jobs_pkey", "jobs_ready", "jobs_session", "specs_pkey", "unique_keys_job"},
	"claim named":      {"jobs_pkey", "jobs_session", "specs_pkey", "unique_keys_job"},
	"claim named told": {"jobs_pkey", "jobs_session", "specs_pkey", "unique_keys_job"},
	"apply fences":     {},
	"apply lock":       {"jobs_pkey"},
	"apply specs":      {"specs_pkey"},
	"apply":            {"jobs_pkey", "ended_pkey", "events_pkey", "specs_pkey", "unique_keys_job"},
	"finish":           {"jobs_pkey", "turns_pkey"},
	"finish plain":     {"jobs_pkey"},
	"claim handed":     {"sessions_pkey", "jobs_pkey"},
	"pass on claimed": {
		"jobs_pkey", "jobs_line", "jobs_kept", "turns_key", "turns_owed_tenant", "specs_pkey",
		"unique_keys_job",
	},
	"apply judge":     {"jobs_pkey", "ended_pkey", "events_pkey"},
	"write":           {"jobs_pkey"},
	"write ends":      {"jobs_pkey"},
	"write free":      {"unique_keys_job"},
	"due":             {"jobs_pkey", "jobs_due", "specs_pkey"},
	"pay":             {"jobs_pkey", "ended_pkey", "specs_pkey", "prerequisites_pkey", "followups_pkey"},
	"apply limited":   {"jobs_pkey", "specs_pkey"},
	"lines of":        {"jobs_line"},
	"moments wake":    {"jobs_pkey", "jobs_due"},
	"hand on pick":    {"turns_owed_tenant"},
	"hand on owed":    {"turns_owed_tenant", "jobs_line"},
	"hand on held":    {"turns_key"},
	"hand on heads":   {"jobs_pkey", "jobs_line", "jobs_kept", "jobs_order", "specs_pkey"},
	"hand over heads": {"jobs_pkey", "jobs_line", "jobs_kept", "jobs_order", "specs_pkey"},
	"turns enter":     {"jobs_pkey"},
	"walk page":       {"jobs_pkey", "specs_pkey"},
	"walk take in":    {"jobs_pkey"},
	"turns return":    {"turns_pkey"},
	"expire close":    {},
	"expire":          {"jobs_pkey", "jobs_session", "specs_pkey"},
	"pairs ready":     {"jobs_ready"},
	"renew":           {"jobs_ready", "jobs_session", "jobs_due", "jobs_until", "followups_pkey", "turns_owed_pkey"},
	"events":          {"events_ord"},
	"newest event":    {"events_ord"},
	"events of one":   {"events_pkey"},
	"recount":         {"jobs_pkey", "jobs_needs", "prerequisites_job", "specs_pkey"},
	"recount look": {
		"jobs_pkey", "jobs_needs", "jobs_group", "jobs_blocked", "prerequisites_job", "jobs_line",
		"turns_pkey", "turns_key", "turns_owed_tenant",
	},
	"recount turns":  {"jobs_pkey", "turns_pkey", "turns_key"},
	"recount lines":  {"jobs_line", "turns_owed_tenant"},
	"note":           {"jobs_pkey", "events_pkey"},
	"forget keys":    {"idempotency_at"},
	"what is due":    {"jobs_due", "jobs_until"},
	"groups open":    {},
	"groups write":   {},
	"groups hold":    {"jobs_group", "jobs_blocked", "jobs_line", "jobs_until"},
	"groups wake":    {},
	"groups heads":   {"jobs_pkey", "jobs_group", "specs_pkey"},
	"groups left":    {"jobs_blocked", "jobs_group"}, // either by its group
	"groups lapsing": {"jobs_pkey", "jobs_until", "specs_pkey"},
	"groups empty":   {"jobs_group", "jobs_blocked", "jobs_line"},
	"groups remove":  {"jobs_group", "jobs_blocked", "jobs_line"},
	"tests due":      {"jobs_group", "jobs_blocked"},
	"lines groups":   {},
	"lines limits":   {"jobs_line"},
	"lines take":     {},
	"overdue":        {"ended_ended", "ended_hidden", "specs_pkey", "followups_job"},

	"demand sessions": {"jobs_session"},
	"demand parts":    {"jobs_ready"},
	"unwatched":       {"jobs_monitor"},
	"lock needs":      {"jobs_pkey"},
	"tie needs":       {"jobs_pkey"},
}

// TestPlans pins the indexes that the statements use: with statistics that are fresh, with none,
// and with some that were taken when the tables looked different. A plan that a connection made at
// one time stays with it for long. A role that is no superuser and owns no table has the same
// plans, though row security asks for the tenant of each row first.
func TestPlans(t *testing.T) { // before those that run side by side: it has many steps, and none waits
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	admin := connect(t, dsn)
	for _, table := range []string{
		"specs", "jobs", "ended", "events", "prerequisites", "followups", "unique_keys",
		"idempotency", "turns", "turns_owed", "moments", "groups", "lines_owed",
	} {
		must(t, admin, "ALTER TABLE pawl."+table+" SET (autovacuum_enabled = false)")
	}
	grant(t, dsn)
	member := parsed(t, dsn).Database
	statements := everySent(t)
	maps.Copy(statements, postgres.Statements)
	// connections of the member that have made their plans before: those of the superuser have the
	// same
	var early []*planner
	checks := 0
	verdicts := map[string]*verdict{}
	check := func(when string) {
		now := newPlanner(t, dsn, member, statements, verdicts)
		found := now.check(when)
		for _, old := range early {
			old.check(when + ", planned earlier")
		}
		if checks++; !testenv.Long() && checks%5 != 1 {
			return
		}
		early = append(early, now)
		if diff := cmp.Diff(newPlanner(t, dsn, "postgres", statements, verdicts).check(when), found); diff != "" {
			t.Errorf("%s: rows are found by other conditions under row security, superuser - member +:\n%s", when, diff)
		}
	}
	check("empty")
	must(t, admin, "ANALYZE")
	check("empty and analyzed")
	fill(t, admin, 50, 50, 50, 50)
	check("a few jobs")
	must(t, admin, "ANALYZE")
	check("a few jobs, analyzed")
	ended := 20_000
	if testenv.Long() {
		ended = 100_000
	}
	fill(t, admin, ended, 10_000, 500, 2_000)
	check("many jobs, never analyzed")
	must(t, admin, "ANALYZE")
	check("many jobs, analyzed")
	must(t, admin, "DELETE FROM pawl.jobs")
	must(t, admin, "VACUUM ANALYZE pawl.jobs")
	check("all have ended")
	fill(t, admin, 0, 20_000, 0, 0)
	must(t, admin, "ANALYZE")
	check("all living ones are ready, analyzed")
	must(t, admin, "UPDATE pawl.jobs SET state = 'RUNNING', custody = 'worker', session = md5(id::text)::uuid, "+
		"claim = id")
	check("all that were ready are held")
}

// fill adds jobs: those that have ended, are ready, are held, and wait. Each that has ended was
// made under a key. Their ids are the same in each run, so that plans are, too.
func fill(t *testing.T, admin *pgx.Conn, ended, ready, held, waiting int) {
	t.Helper()
	const specs = `WITH new AS (SELECT md5((SELECT count(*) FROM pawl.specs) || ' ' || i)::uuid AS id, i FROM generate_series(1, $1::int) i), spec AS (
		INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, queue, priority, max_attempts, created, request)
		SELECT id, 'acme', 'ann', 'send', 'n', 'n', CASE WHEN i % 2 = 0 THEN 'default' ELSE 'other' END, 5, 1, now() - i * interval '1 s', '{}' FROM new
	), event AS (
		INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause) SELECT id, k, 'acme', 3 + i / 100, k, '', '', now(), 'work' FROM new, generate_series(1, 3) k
	) `
	must(t, admin, specs+`INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created, since, ended, needs, ties, told, wished_by, code, message)
		SELECT id, 'acme', 'FINISHED', 3, 3, 3, 1, 0, 0, 0, now(), now(), now(), 0, 0, 0, '', '', '' FROM new`, ended)
	must(t, admin, `INSERT INTO pawl.idempotency (tenant, key, fingerprint, jobs, at)
		SELECT 'acme', md5((SELECT count(*) FROM pawl.specs) || ' ' || i), '', '{}', now() - i * interval '1 s' FROM generate_series(1, $1::int) i`, ended)
	for _, some := range []struct {
		n                       int
		state, custody, session string
		due                     string
	}{
		{ready, "PENDING", "ready", "NULL", "NULL"},
		{held, "RUNNING", "worker", "md5(id::text)::uuid", "NULL"},
		{waiting, "WAITING", "gate", "NULL", "now() + i * interval '1 s'"},
	} {
		must(t, admin, specs+fmt.Sprintf(`INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, attempt, since, session, claim, due, needs)
			SELECT id, 'acme', 'send', 'default', '', 5, now() - i * interval '1 s', '%s', '%s', 1, 1, 3, 'task', 1, now(), %s, %[3]s, %s, 0 FROM new`,
			some.state, some.custody, some.session, some.due), some.n)
	}
	// Half of those who wait stand in a line for those who are held.
	must(t, admin, `UPDATE pawl.jobs SET line = 'gpu', owner = 'owner ' || hashtext(id::text) % 10, due = NULL WHERE custody = 'gate' AND hashtext(id::text) % 2 = 0`)
	must(t, admin, `UPDATE pawl.jobs SET line = 'order/k', ordered = 'order/k', rank = id::text, owner = 'ann' WHERE line = 'gpu' AND hashtext(id::text) % 3 = 0`)
	must(t, admin, `INSERT INTO pawl.turns (job, key, tenant, owner) SELECT id, 'gpu', 'acme', 'ann' FROM pawl.jobs WHERE custody = 'worker' ON CONFLICT DO NOTHING`)
	// A tenth of those who are held are blocked, in groups of which some close lines.
	must(t, admin, `UPDATE pawl.jobs SET state = 'BLOCKED', custody = 'recovery', session = NULL, claim = NULL, owner = 'owner ' || hashtext(id::text) % 10,
		grp = 'group ' || hashtext(id::text) % 7, until = now() + hashtext(id::text) % 1000 * interval '1 s' WHERE custody = 'worker' AND hashtext(id::text) % 10 = 0`)
	must(t, admin, `INSERT INTO pawl.groups (tenant, key, duty, probe, line, places, next, wake, doc)
		SELECT 'acme', 'group ' || i, 'recovery', 'probe ' || i, CASE WHEN i % 10 = 0 THEN 'gpu' ELSE '' END, CASE WHEN i % 10 = 0 THEN i ELSE -1 END,
			CASE WHEN i % 2 = 0 THEN now() + i * interval '1 s' END, CASE WHEN i % 2 = 1 THEN now() + i * interval '1 s' END, '{}'
		FROM generate_series(1, $1::int) i ON CONFLICT DO NOTHING`, held)
	must(t, admin, `INSERT INTO pawl.turns_owed (tenant, key, at) SELECT 'acme', 'gpu', now() FROM generate_series(1, $1::int / 10)`, held)
}

// everySent returns the statements that calls of all kinds send, by how they begin. They are found
// by what is sent, so that none is forgotten; those that have a name are left out.
func everySent(t *testing.T) map[string]string {
	t.Helper()
	sent := map[string]string{}
	dsn := clocked(t)
	s, err := postgres.Recorded(dsn, func(sql string) {
		if words := strings.Fields(sql); slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"},
			words[0]) {
			sent[strings.Join(words, " ")] = sql
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	makeEveryCall(t, s, dsn)
	for name, text := range postgres.Statements {
		text = strings.Join(strings.Fields(text), " ")
		if sent[text] == "" {
			t.Errorf("no call has sent %s", name)
		}
		delete(sent, text)
	}
	// Of a queue that somebody deletes it is asked, once, whether any job is in it.
	maps.DeleteFunc(sent, func(text, _ string) bool {
		return strings.Contains(text, "UNION ALL SELECT 1 FROM pawl.jobs j WHERE j.tenant = $1 AND j.queue = $2")
	})
	return sent
}

// makeEveryCall makes calls of all kinds of a store on a database with a clock, so that each
// statement is sent.
func makeEveryCall(t *testing.T, s *postgres.Store, dsn string) {
	t.Helper()
	if _, err := s.Put(t.Context(), store.Resource{
		Tenant: acme, Kind: job.KindQueue, Name: job.DefaultQueue,
		Doc: json.RawMessage(`{}`),
	}); err != nil {
		t.Fatal(err)
	}
	newClock(t, dsn).Advance(2 * hour) // nobody expires within a lease of the start of a process
	m := &mixer{
		s: s, conn: connect(t, dsn), turn: new(atomic.Int64), r: rand.New(rand.NewPCG(1, 7)),
		session: begin(t, s, hour),
		ids:     submit(t, s, newTasks(100)...),
	}
	for range 10 {
		for i := range stirs {
			if _, err := m.stir(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, one := t.Context(), m.ids[0]
	for call, f := range map[string]func() error{
		"job":     func() error { _, err := store.FindJob(ctx, s, acme, one); return noError(err) },
		"events":  func() error { _, err := s.Events(ctx, store.EventQuery{Tenant: acme}); return err },
		"end":     func() error { _, err := s.Events(ctx, store.EventQuery{Tenant: acme, End: true}); return err },
		"history": func() error { _, err := s.Events(ctx, store.EventQuery{Tenant: acme, Job: one}); return err },
		"held":    func() error { _, err := s.Find(ctx, store.FindQuery{Session: m.session}); return err },
		"watched": func() error { _, err := s.Find(ctx, store.FindQuery{Watch: "m"}); return err },
		"bound": func() error {
			sub := store.Submission{
				Tenant: acme, Jobs: newTasks(1),
				Queues: map[string]store.QueueCheck{job.DefaultQueue: {Most: 100_000}},
			}
			_, _, err := s.Submit(ctx, sub)
			return err
		},
		"sessions":   func() error { _, err := s.Sessions(ctx); return err },
		"unattended": func() error { _, err := s.Unattended(ctx); return err },
		"demand":     func() error { _, err := s.Demand(ctx, asking(m.session, 1)); return err },
		"overdue": func() error {
			_, err := s.Overdue(ctx, store.OverdueQuery{Kept: []store.Kept{{
				Tenant: acme, State: job.Finished,
				For: hour,
			}}})
			return err
		},
		"another line": func() error {
			n := newTask()
			n.Job.Limits = []string{"full", "free"}
			if _, err := store.SetLimit(ctx, s, acme, job.Limit{Key: "full"}); err != nil {
				return err
			}
			submit(t, s, n)
			if _, _, err := s.Pay(ctx, 1000); err != nil {
				return err
			}
			return m.recount(ctx)
		},
		"many under a limit": func() error {
			many := make([]store.New, 50)
			for i := range many {
				many[i] = newTask()
				many[i].Job.Limits = []string{"many"}
			}
			submit(t, s, many...)
			return nil
		},
		"turns given back": func() error {
			c := asking(begin(t, s, hour), 1)
			for i := range 6 {
				n := newTask()
				n.Job.Limits = []string{"own"}
				c.ID, c.Jobs = job.NewID(), submit(t, s, n)
				held, err := s.Claim(ctx, c)
				if err != nil || len(held) != 1 {
					return fmt.Errorf("%d jobs, %w", len(held), err)
				}
				change := finish(&held[0], c.Session)
				if i > 0 && i < 4 {
					along := asking(c.Session, 1)
					along.Handed = i == 1
					if i == 2 {
						along.Jobs = []job.ID{job.NewID()}
					}
					if _, _, _, err := s.Apply(ctx, []job.Change{change}, &along); err != nil {
						return err
					}
					continue
				}
				if i == 5 {
					change.To, change.Path, change.Set.Retry = job.Ready, []job.Entry{{State: job.Pending}}, true
				}
				if _, _, _, err := s.Apply(ctx, []job.Change{change}, nil); err != nil {
					return err
				}
			}
			return nil
		},
		"a gate that another one has": func() error {
			for owed := true; owed; { // a walk would wait for it, and not who hands on
				_, eff, err := s.Pay(ctx, 1000)
				if err != nil {
					return err
				}
				owed = eff.Owed
			}
			conn := connect(t, dsn)
			must(t, conn, "BEGIN")
			must(t, conn, "SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/acme', 0))")
			n := newTask()
			n.Job.Limits = []string{"own"}
			submit(t, s, n)
			paid := make(chan error)
			go func() {
				_, _, err := s.Pay(ctx, 1000)
				paid <- err
			}()
			untilWaiting(t, connect(t, dsn), 1)
			must(t, conn, "COMMIT")
			return <-paid
		},
		"behind": func() error {
			for _, j := range []job.Job{
				{Tenant: acme, Line: "gpu"},
				{Tenant: acme, Place: job.Place{Custody: job.Ready}},
				{Tenant: acme, Place: job.Place{Custody: job.Recovery}},
			} {
				if _, err := s.Behind(ctx, &j, 10); err != nil {
					return err
				}
			}
			return nil
		},
		"taken-in": func() error {
			if _, _, err := s.Submit(ctx, store.Submission{Tenant: "taken-in", Jobs: newTasks(4)}); err != nil {
				return err
			}
			_, err := store.SetLimit(ctx, s, "taken-in", job.Limit{Key: "tenant", Most: 1})
			for more := true; more && err == nil; {
				var eff store.Effects
				_, eff, err = s.Pay(ctx, 3)
				more = eff.Owed
			}
			return err
		},
		"limits":  func() error { _, err := s.Limits(ctx, acme); return err },
		"blocked": func() error { return blocked(t, s, newClock(t, dsn)) },
		"moments": func() error {
			if _, err := store.SetLimit(ctx, s, acme,
				job.Limit{Key: "dials/lab", Most: 1, Per: job.Duration(time.Second)}); err != nil {
				return err
			}
			if _, err := s.Reserve(ctx, acme, []store.Ask{{Key: "dials/lab", N: 1}}); err != nil {
				return err
			}
			_, err := s.Moments(ctx, store.TurnQuery{Tenant: acme})
			return err
		},
		"a key given up": func() error {
			n := newTask()
			n.Unique = []store.Unique{{Mode: job.UntilDone, Key: "k"}}
			_, _, err := s.Wish(ctx, store.Wish{Tenant: acme, By: "ann", Wish: job.WishCancel, Jobs: submit(t, s, n)})
			return err
		},
		"force": func() error {
			_, _, err := s.Wish(ctx, store.Wish{
				Tenant: acme, By: "ann", Wish: job.WishCancel, Force: true,
				Jobs: m.some(5),
			})
			return err
		},
	} {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
	}
}

// A planner is a connection that has the statements prepared, as those of a store have.
type planner struct {
	t        *testing.T
	conn     *pgx.Conn
	role     string
	names    []string            // of the statements
	execs    string              // EXPLAIN EXECUTE of each
	leads    map[string]string   // the first column of each index
	verdicts map[string]*verdict // of plans that were seen before, by name and text; all planners have it
}

// A verdict is what is said of a plan.
type verdict struct {
	conds []string // by which it looks into indexes
	wrong []string
}

func newPlanner(
	t *testing.T, dsn, role string, statements map[string]string, verdicts map[string]*verdict,
) *planner {
	t.Helper()
	p := &planner{t: t, conn: connect(t, dsn), role: role, leads: map[string]string{}, verdicts: verdicts}
	rows, err := p.conn.Query(t.Context(), `SELECT i.indexrelid::regclass::text, coalesce(a.attname::text, '') FROM pg_index i
		LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indexrelid::regclass::text LIKE 'pawl.%'`)
	if err != nil {
		t.Fatal(err)
	}
	var index, column string
	_, err = pgx.ForEachRow(rows, []any{&index, &column}, func() error {
		p.leads[strings.TrimPrefix(index, "pawl.")] = column
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	must(t, p.conn, "SET ROLE "+role)
	if secured := value[bool](t, p.conn, "SELECT row_security_active('pawl.jobs')"); secured != (role != "postgres") {
		t.Fatalf("row security for %s: %t", role, secured)
	}
	for name, v := range postgres.Settings {
		must(t, p.conn, "SET "+name+" = "+v)
	}
	must(t, p.conn, "SET job.tenant = '*'; SET job.horizon = '9'")
	p.names = slices.Sorted(maps.Keys(statements))
	var prepare strings.Builder
	for i, name := range p.names {
		fmt.Fprintf(&prepare, "PREPARE statement_%d AS %s;\n", i, statements[name])
	}
	must(t, p.conn, prepare.String())
	p.execs = value[string](t, p.conn, `SELECT string_agg('EXPLAIN (COSTS OFF) EXECUTE ' || name ||
		coalesce('(' || (SELECT string_agg('NULL', ', ') FROM unnest(parameter_types)) || ')', ''), ';'
		ORDER BY substr(name, length('statement_') + 1)::int) FROM pg_prepared_statements WHERE name LIKE 'statement\_%'`)
	return p
}

var (
	grows   = regexp.MustCompile(`^(specs|jobs|ended|events|prerequisites|followups|unique_keys|idempotency|labels|turns|turns_owed)_`)
	sorts   = regexp.MustCompile(`^\s*(->  )?Sort$`)
	reads   = regexp.MustCompile(`(Index Scan|Index Only Scan|Index Scan Backward|Bitmap Index Scan)(?: using| on) (\w+)`)
	ordinal = regexp.MustCompile(`\$\d+`) // of a parameter or of a subquery
	readAll = regexp.MustCompile(`Seq Scan on (specs|jobs|ended|events|prerequisites|followups|unique_keys|idempotency|labels|turns|turns_owed)\b`)
)

var (
	// whole are reads that need no condition: they take the first entries of an index.
	whole = []string{
		"jobs_session", "jobs_due", "jobs_needs", "followups_pkey", "followups_job", "turns_pkey",
		"turns_owed_pkey", "turns_owed_tenant",
	}
	// lines are read from one end, and no further than needed: what sorts them has read all of
	// them.
	lines = []string{
		"jobs_ready", "jobs_due", "ended_ended", "ended_hidden", "events_ord", "followups_pkey",
		"idempotency_at", "jobs_line", "turns_owed_pkey", "jobs_group", "jobs_until",
	}
)

// needs are indexes which another one that is allowed, too, must not stand in for: it would be read
// to its end.
var needs = map[string]string{
	"pass on": "jobs_kept", "pass on claimed": "jobs_kept", "hand on heads": "jobs_kept",
	"hand over heads": "jobs_kept",
}

// check looks at every plan, and returns the conditions by which each looks into indexes.
func (p *planner) check(when string) map[string][]string {
	p.t.Helper()
	plans, err := p.conn.PgConn().Exec(p.t.Context(), p.execs).ReadAll()
	if err != nil {
		p.t.Fatal(err)
	}
	conds := map[string][]string{}
	for i, name := range p.names {
		var lines []string
		for _, row := range plans[i].Rows {
			lines = append(lines, string(row[0]))
		}
		plan := strings.Join(lines, "\n")
		v := p.verdicts[name+"\n"+plan]
		if v == nil {
			v = p.judge(name, lines)
			p.verdicts[name+"\n"+plan] = v
		}
		for _, what := range v.wrong {
			p.t.Errorf("%s, as %s: %s: %s\n%s", when, p.role, name, what, plan)
		}
		conds[name] = v.conds
	}
	return conds
}

// judge says what is wrong with a plan.
func (p *planner) judge(name string, plan []string) *verdict {
	v := &verdict{}
	wrong := func(what string) { v.wrong = append(v.wrong, what) }
	if line := again(plan); line != "" {
		wrong("does anew for each row what does not depend on it: " + line)
	}
	for i, line := range plan {
		if _, cond, ok := strings.Cut(line, "Index Cond: "); ok {
			v.conds = append(v.conds, ordinal.ReplaceAllString(cond, "$"))
		}
		if all := readAll.FindString(line); all != "" {
			wrong(all)
		}
		m := reads.FindStringSubmatch(line)
		if m == nil || !grows.MatchString(m[2]) {
			continue
		}
		index := m[2]
		if may, named := uses[name]; named && !slices.Contains(may, index) {
			wrong("uses " + index)
		}
		_, cond, found := strings.Cut(strings.Join(plan[i+1:min(i+2, len(plan))], ""), "Index Cond: ")
		switch {
		case !found && !slices.Contains(whole, index):
			wrong("reads all of " + index)
		case found && !regexp.MustCompile(`\b`+p.leads[index]+`\b`).MatchString(cond):
			wrong("reads all of " + index + ", for it has no condition on " + p.leads[index])
		}
		if i > 1 && sorts.MatchString(plan[i-2]) && slices.Contains(lines, index) &&
			!(name == "events" && strings.Contains(cond, "ord <= ")) {
			wrong("sorts what it has read from " + index)
		}
	}
	if index := needs[name]; !strings.Contains(strings.Join(plan, "\n"), index) {
		wrong("does without " + index)
	}
	if name == "submit" && strings.Contains(strings.Join(plan, "\n"), "CTE given") {
		wrong("keeps each row once more, which jobs without limits do not need")
	}
	slices.Sort(v.conds)
	return v
}

// again returns the line of a plan that counts what a part of the statement made, anew for each row
// of a nested loop: as many steps as the square of the rows, which no plan for a few rows is afraid
// of.
func again(plan []string) string {
	type node struct {
		line             string
		indent, children int
		// it is, or is below, the inner side of a nested loop, with nothing between that keeps its
		// rows
		repeated bool
	}
	path := []node{{indent: -1}}
	for i, line := range plan {
		step := i == 0 || strings.HasPrefix(strings.TrimSpace(line), "->")
		if !step && !strings.HasPrefix(strings.TrimSpace(line), "CTE ") && !strings.Contains(line, "Plan ") {
			continue
		}
		n := node{line: strings.TrimSpace(line), indent: len(line) - len(strings.TrimLeft(line, " "))}
		for n.indent <= path[len(path)-1].indent {
			path = path[:len(path)-1]
		}
		above := &path[len(path)-1]
		if step { // what has a name of its own is run once, or is no child
			above.children++
			inner := strings.Contains(above.line, "Nested Loop") && above.children == 2
			n.repeated = (above.repeated || inner) && !strings.Contains(n.line, "Materialize") &&
				!strings.Contains(n.line, "Memoize")
		}
		if n.repeated && strings.Contains(n.line, "CTE Scan") && strings.Contains(above.line, "Aggregate") {
			return above.line
		}
		path = append(path, n)
	}
	return ""
}
