package postgres

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/job"
)

var update = flag.Bool("update", false, "write the statement of insert_jobs into the migration")

// The function that inserts jobs in a transaction of others has the text of the statement that
// Submit has.
func TestInsertJobsIsTheStatementOfSubmit(t *testing.T) {
	const file, mark = "migrations/00001_init.sql", "$insert$"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), mark)
	if len(parts) != 3 {
		t.Fatalf("%d parts at %s in %s, want 3", len(parts), mark, file)
	}
	want := "\n#variable_conflict use_column\nBEGIN RETURN QUERY" + strings.TrimRight(inserting(true, "$36::bigint"), "\n") +
		";\nEND "
	if *update {
		parts[1] = want
		if err := os.WriteFile(file, []byte(strings.Join(parts, mark)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if parts[1] != want {
		t.Error("insert_jobs is not the statement of Submit: go test ./store/postgres -run TestInsertJobs -update")
	}
}

// A job that waits for nothing is inserted by statements of its own. They leave the rows that the
// whole one leaves.
func TestEnqueueOfPlainJobs(t *testing.T) {
	t.Parallel()
	l := newListed(t)
	const tasks = `{"tenant": "t", "by": "ann", "jobs": [
		{"kind": "mail", "args": {"to": "bob"}},
		{"kind": "mail", "args": {"to": "eve"}, "name": "letter", "owner": "bob", "priority": 3, "labels": {"a": "1", "b": "2"},
			"notes": {"n": 1}, "external_id": "x", "unique": {"key": "k"}, "retry": {"max_attempts": 2}},
		{"kind": "mail", "args": {}, "unique": {"key": "k", "until": "start"}}]}`
	l.must(t, `INSERT INTO pawl.resources VALUES ('t', 'kind', 'mail', 1, now(),
		'{"name": "mail", "index": ["to", "user.id"]}')`)
	var whole string
	err := l.conn.QueryRow(t.Context(), "SELECT pg_get_functiondef('pawl.enqueue'::regproc)").Scan(&whole)
	if err != nil {
		t.Fatal(err)
	}
	const plain = "IF held IS NULL AND NOT s ?|"
	if !strings.Contains(whole, plain) {
		t.Fatalf("enqueue has no %q", plain)
	}
	rows := func() (rows []string) {
		tx, err := l.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(t.Context()))
		if _, err := tx.Exec(t.Context(), "SELECT pawl.enqueue($1)", tasks); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"specs", "jobs", "events", "labels", "turns", "unique_keys"} {
			all, err := tx.Query(t.Context(), "SELECT to_jsonb(r)::text FROM pawl."+table+" r")
			if err != nil {
				t.Fatal(err)
			}
			found, err := pgx.CollectRows(all, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range found {
				rows = append(rows, table+" "+varies.ReplaceAllString(row, "…"))
			}
		}
		slices.Sort(rows)
		return rows
	}
	got := rows()
	for _, to := range []string{"bob", "eve"} {
		if key := job.Where("args.to", to)[0].ArgsKeys()[0]; !strings.Contains(strings.Join(got, " "), key) {
			t.Errorf("no index has the argument %s", to)
		}
	}
	l.must(t, strings.Replace(whole, plain, "IF false AND NOT s ?|", 1))
	if diff := cmp.Diff(rows(), got); diff != "" || len(got) < 18 {
		t.Errorf("%d rows (-whole statement +plain ones):\n%s", len(got), diff)
	}
}

// varies is what differs between two jobs: ids, ends of ids, times, and numbers of transactions.
var varies = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|mail-[0-9a-f]{8}|"20[0-9-]+T[^"]*"|"ord": [0-9]+`)

// Calls that take the same unique keys and external ids, each in an order of its own, wait for each
// other and do not deadlock: that would fail the transaction of a caller.
func TestEnqueueTakesKeysInOneOrder(t *testing.T) {
	t.Parallel()
	l := newListed(t)
	var all errgroup.Group
	for p := range 8 {
		conn, err := pgx.Connect(t.Context(), l.conn.Config().ConnString())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		r := rand.New(rand.NewPCG(uint64(p), 7))
		all.Go(func() error {
			for round := range 20 {
				var tasks []string
				for _, i := range r.Perm(6) {
					key := fmt.Sprintf(`"unique": {"key": "%d-%d"}`, round, i)
					if i%3 == 0 {
						key = fmt.Sprintf(`"external_id": "%d-%d"`, round, i)
					}
					tasks = append(tasks, `{"kind": "mail", "args": {}, "name": "n", `+key+`}`)
				}
				doc := `{"tenant": "t", "jobs": [` + strings.Join(tasks, ", ") + `]}`
				if _, err := conn.Exec(t.Context(), "SELECT pawl.enqueue($1)", doc); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}
