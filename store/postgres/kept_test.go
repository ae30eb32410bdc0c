package postgres_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// A layout is one way to have jobs that live and jobs that have ended.
type layout struct {
	name string
	make []string // its tables, beside those of the schema
	// keep fills in $1 jobs that have ended in the last ten days, end ends the jobs $1 that are held,
	// and table is where jobs live.
	keep, end, table string
	all              []string // tables that are written
}

const (
	livingColumns = `id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, attempt, since`
	livingOptions = `fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0`
	oneTable      = `CREATE TABLE pawl.%s (LIKE pawl.jobs INCLUDING DEFAULTS, ended timestamptz, hidden boolean NOT NULL DEFAULT false) `
	keepOne       = `INSERT INTO pawl.%s (` + livingColumns + `, code, ended)
		SELECT gen_random_uuid(), 'acme', 'send', 'default', '', 5, x.at, 'FINISHED', 'none', 3, 3, 3, 'task', 1, x.at, 'NORMAL_COMPLETION', x.at
		FROM generate_series(1, $1::int) i, LATERAL (SELECT now() - i * interval '10 days' / $1::int AS at) x`
	endOne = `UPDATE pawl.%s SET state = 'FINISHED', custody = 'none', epoch = epoch + 1, n = n + 1, session = NULL, claim = NULL, since = now(), ended = now(),
		code = 'NORMAL_COMPLETION' WHERE id = ANY ($1) AND epoch = 2`
)

// indexesOf are those of a single table: the ones of the living with their conditions, and the
// order of ends.
func indexesOf(table, key string) []string {
	list := []string{fmt.Sprintf("ALTER TABLE pawl.%s ADD PRIMARY KEY (%s)", table, key)}
	for _, index := range []string{
		"(queue, kind, machine, lane, priority, created, id) WHERE custody = 'ready'", "(session, claim) WHERE session IS NOT NULL",
		"(due) WHERE custody = 'gate' AND due IS NOT NULL", "(tenant, queue) WHERE custody || '' = 'gate'",
		"(machine, since) WHERE custody = 'monitor'", "(machine) WHERE custody = 'monitor' AND wish <> ''",
		"(state, tenant, created, id) WHERE coalesce(custody, '') <> 'worker' AND NOT hidden",
		"(tenant, state, ended, created, id) WHERE ended IS NOT NULL AND NOT hidden",
	} {
		list = append(list, fmt.Sprintf("CREATE INDEX ON pawl.%s %s", table, index))
	}
	return list
}

func layouts() []layout {
	history := layout{
		name: "history table", table: "jobs", all: []string{"jobs", "ended"},
		keep: `INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created, since, ended, needs, ties, told, wished_by, code, message)
			SELECT gen_random_uuid(), 'acme', 'FINISHED', 3, 3, 3, 1, 0, 0, 0, x.at, x.at, x.at, 0, 0, 0, '', 'NORMAL_COMPLETION', ''
			FROM generate_series(1, $1::int) i, LATERAL (SELECT now() - i * interval '10 days' / $1::int AS at) x`,
		end: `WITH gone AS (DELETE FROM pawl.jobs WHERE id = ANY ($1) AND epoch = 2 RETURNING *)
			INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created, since, ended, needs, ties, told, wished_by, code, message)
			SELECT id, tenant, 'FINISHED', 3, 3, ord, 1, 0, 0, 0, created, now(), now(), 0, 0, 0, '', 'NORMAL_COMPLETION', '' FROM gone`,
	}
	one := layout{
		name: "one table", table: "one", all: []string{"one"}, keep: fmt.Sprintf(keepOne, "one"), end: fmt.Sprintf(endOne, "one"),
		make: append([]string{fmt.Sprintf(oneTable, "one") + "WITH (" + livingOptions + ")"}, indexesOf("one", "id")...),
	}
	byTime := layout{
		name: "partitions by day", table: "days", keep: fmt.Sprintf(keepOne, "days"), end: fmt.Sprintf(endOne, "days"),
		make: append([]string{fmt.Sprintf(oneTable, "days") + "PARTITION BY RANGE (created)"}, indexesOf("days", "id, created")...),
	}
	for i := range 12 {
		name := fmt.Sprintf("day%d", i)
		byTime.all = append(byTime.all, name)
		byTime.make = append(byTime.make, fmt.Sprintf("DO $$ BEGIN EXECUTE format('CREATE TABLE pawl.%s PARTITION OF pawl.days FOR VALUES FROM (%%L) TO (%%L) WITH (%s)', "+
			"date_trunc('day', now()) - interval '%d days', date_trunc('day', now()) - interval '%d days'); END $$", name, livingOptions, i, i-1))
	}
	return []layout{history, one, byTime}
}

// BenchmarkKept measures what the rows of jobs themselves cost, from submit over claim to end, in
// the layout that the schema has and in others, beside as many jobs that have ended as
// $PAWL_BENCH_KEPT says (0 and 200,000 by default), and how long a vacuum takes after that. Specs
// and history are left out: they are the same in all.
//
//	PAWL_BENCH_KEPT=0,2000000 go test -run '^$' -bench Kept -benchtime 100000x ./store/postgres
func BenchmarkKept(b *testing.B) {
	counts := os.Getenv("PAWL_BENCH_KEPT")
	if counts == "" {
		counts = "0,200000"
	}
	for count := range strings.SplitSeq(counts, ",") {
		kept, err := strconv.Atoi(count)
		if err != nil {
			b.Fatal(err)
		}
		for _, l := range layouts() {
			b.Run(fmt.Sprintf("%s/%d", l.name, kept), func(b *testing.B) { l.measure(b, kept) })
		}
	}
}

func (l *layout) measure(b *testing.B, kept int) {
	dsn := testenv.Postgres(b).Database(b)
	migrate(b, dsn, "")
	conn := connect(b, dsn)
	must(b, conn, "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off; SET synchronous_commit = on")
	for _, text := range l.make {
		must(b, conn, text)
	}
	if kept > 0 {
		must(b, conn, l.keep, kept)
		must(b, conn, "CHECKPOINT")
	}
	for _, table := range l.all {
		must(b, conn, "VACUUM ANALYZE pawl."+table)
	}
	b.ResetTimer()
	for from := 0; from < b.N; from += 2000 {
		l.live(b, conn, min(2000, b.N-from))
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	begin := time.Now()
	for _, table := range l.all {
		must(b, conn, "VACUUM pawl."+table)
	}
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "vacuum-ms")
}

// live submits, claims and ends n jobs, each in one statement.
func (l *layout) live(b *testing.B, conn *pgx.Conn, n int) {
	ids := make([][16]byte, n)
	for i := range ids {
		ids[i] = job.NewID()
	}
	must(b, conn, `INSERT INTO pawl.`+l.table+` (`+livingColumns+`)
		SELECT id, 'acme', 'send', 'default', '', 5, now(), 'PENDING', 'ready', 1, 1, 3, 'task', 1, now() FROM unnest($1::uuid[]) id`, ids)
	must(b, conn, `UPDATE pawl.`+l.table+` SET state = 'RUNNING', custody = 'worker', epoch = epoch + 1, n = n + 1, session = $1, claim = $1, since = now()
		WHERE id = ANY (ARRAY(SELECT id FROM pawl.`+l.table+` WHERE custody = 'ready' AND queue = 'default' AND kind = 'send' AND machine = '' AND lane = 'task'
			ORDER BY priority, created, id LIMIT $2 FOR UPDATE SKIP LOCKED))`, [16]byte(job.NewID()), n)
	tag, err := conn.Exec(b.Context(), l.end, ids)
	if err != nil || tag.RowsAffected() != int64(n) {
		b.Fatalf("%d of %d jobs have ended: %v", tag.RowsAffected(), n, err)
	}
}
