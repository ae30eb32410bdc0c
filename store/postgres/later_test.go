package postgres_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// later adds columns to every table that this version does not know, as a later version may do
// beside it: one of each name that any table has, so that none of the names in the statements says
// by itself which table is meant.
const later = `DO $$
DECLARE more record;
BEGIN
	FOR more IN
		SELECT t.relname, string_agg(format('ADD COLUMN %I text', n.attname), ', ') AS columns
		FROM pg_class t CROSS JOIN (
			SELECT DISTINCT a.attname FROM pg_attribute a JOIN pg_class o ON o.oid = a.attrelid
			WHERE o.relnamespace = 'pawl'::regnamespace AND o.relkind = 'r' AND a.attnum > 0
		) n
		WHERE t.relnamespace = 'pawl'::regnamespace AND t.relkind = 'r' AND t.relname <> 'migrations'
			AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = n.attname)
		GROUP BY t.relname
	LOOP
		EXECUTE format('ALTER TABLE pawl.%I %s', more.relname, more.columns);
	END LOOP;
END $$`

// TestLaterColumns adds columns while a store is open, whose connections have planned their
// statements before.
func TestLaterColumns(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	migrate(t, dsn, "")
	s := open(t, dsn, postgres.Options{Conns: 1, Readers: 1})
	work := func(jobs int) {
		t.Helper()
		through(t, s)
		for _, by := range store.Sorts {
			if page, err := s.List(t.Context(), store.Query{Tenant: acme, Sort: by}); err != nil || len(page.Jobs) != jobs {
				t.Errorf("in order %s a list has %d jobs, want %d; %v", by, len(page.Jobs), jobs, err)
			}
		}
		if es, err := s.Events(t.Context(), store.EventQuery{Tenant: acme}); err != nil || len(es.Events) != 3*jobs {
			t.Errorf("%d events, want %d; %v", len(es.Events), 3*jobs, err)
		}
	}
	work(1)
	execute(t, dsn, later)
	work(2)
}
