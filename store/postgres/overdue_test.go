package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store/postgres"
)

var readOfEnded = regexp.MustCompile(`using ended_.* rows=(\d+)[.\d]* loops=(\d+)\)`)

// TestOverdueReads counts the entries of indexes that a look for overdue jobs reads: as many as
// there are of these, up to the limit, however many are kept.
func TestOverdueReads(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	admin := connect(t, dsn)
	for _, table := range []string{"specs", "ended", "followups"} {
		must(t, admin, "ALTER TABLE pawl."+table+" SET (autovacuum_enabled = false)")
	}
	for name, v := range postgres.Settings {
		must(t, admin, "SET "+name+" = "+v)
	}
	must(t, admin, "PREPARE overdue AS "+postgres.Statements["overdue"])
	fill(t, admin, 20_000, 0, 0, 0)
	must(t, admin, `UPDATE pawl.ended SET ended = now() - interval '100 h', hidden = i % 2 = 0
		FROM (SELECT id AS due, row_number() OVER () AS i FROM pawl.ended LIMIT 300) d WHERE id = due`)

	looked := func(hours, limit int) (read int) {
		t.Helper()
		rows, err := admin.Query(t.Context(), fmt.Sprintf(`EXPLAIN (ANALYZE) EXECUTE overdue ('{acme,acme,b}', '{FINISHED,FAILED,FINISHED}', '{%d h,1h,1h}',
			'{-infinity,-infinity,-infinity}', '{-infinity,-infinity,-infinity}', array_fill('00000000-0000-0000-0000-000000000000'::uuid, '{3}'), %d, '{"","",""}', '{"","",""}')`, hours, limit),
			pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if m := readOfEnded.FindStringSubmatch(line); m != nil {
				n, _ := strconv.Atoi(m[1])
				loops, _ := strconv.Atoi(m[2])
				read += n * loops
			}
		}
		return read
	}
	for _, when := range []string{"no statistics", "fresh statistics"} {
		for _, look := range []struct{ hours, limit, least, most int }{
			{200, 500, 0, 0},
			{50, 500, 300, 300},
			{50, 10, 10, 20}, // of each index no more than the limit
			{0, 10, 10, 20},
		} {
			if n := looked(look.hours, look.limit); n < look.least || n > look.most {
				t.Errorf("%s: kept for %d hours, limit %d: %d entries were read, want %d to %d", when, look.hours, look.limit, n, look.least, look.most)
			}
		}
		must(t, admin, "ANALYZE")
	}
}
