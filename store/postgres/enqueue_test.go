package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
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
		return rowsOfJobs(t, tx)
	}
	got := rows()
	for _, to := range []string{"bob", "eve"} {
		if key := job.Where("args.to", job.Is, to)[0].ArgsKeys()[0]; !strings.Contains(strings.Join(got, " "), key) {
			t.Errorf("no index has the argument %s", to)
		}
	}
	l.must(t, strings.Replace(whole, plain, "IF false AND NOT s ?|", 1))
	if diff := cmp.Diff(rows(), got); diff != "" || len(got) < 18 {
		t.Errorf("%d rows (-whole statement +plain ones):\n%s", len(got), diff)
	}
}

// rowsOfJobs returns all rows of all jobs, without what varies.
func rowsOfJobs(t *testing.T, tx pgx.Tx) (rows []string) {
	t.Helper()
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

// One task that waits for nothing is inserted by a statement of its own, where it can be. It leaves
// the rows that the function leaves, and where it is refused, the function does the same work.
func TestEnqueueOfOnePlainTask(t *testing.T) {
	t.Parallel()
	l := newListed(t)
	l.must(t, "CREATE ROLE enqueuer_of_one; GRANT USAGE ON SCHEMA pawl TO enqueuer_of_one; "+
		"GRANT ALL ON ALL TABLES IN SCHEMA pawl TO enqueuer_of_one; "+
		"GRANT ALL ON ALL SEQUENCES IN SCHEMA pawl TO enqueuer_of_one")
	t.Cleanup(func() {
		_, err := l.conn.Exec(context.Background(), "DROP OWNED BY enqueuer_of_one; DROP ROLE enqueuer_of_one")
		if err != nil {
			t.Error(err)
		}
	})
	task := job.Job{
		Owner: "ann", Kind: "mail", Queue: "letters", Priority: 3, MaxAttempts: 2, Trace: "00-1", Ties: job.TieDependants,
		Notes: json.RawMessage(`{"n": 1}`), Request: json.RawMessage(`{"kind": "mail"}`),
	}
	// enqueue returns the rows, and how often the plain statement was sent, and the function called.
	enqueue := func(before string, optional ...string) (rows []string, plain, whole int) {
		t.Helper()
		tx, err := l.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.WithoutCancel(t.Context()))
		if _, err := tx.Exec(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		query := func(ctx context.Context, sql string, args ...any) (text string, err error) {
			if sql == enqueuePlain {
				plain++
			} else {
				whole++
			}
			return text, tx.QueryRow(ctx, sql, args...).Scan(&text)
		}
		j := task
		j.ID = job.NewID()
		j.Name = "mail-" + j.ID.String()[:8]
		made, err := l.Enqueue(t.Context(), query, store.Submission{
			Tenant: "t", By: "bob", Jobs: []store.New{{Job: j, Optional: optional}},
		})
		want := []store.Submitted{{ID: j.ID, Place: job.Place{State: job.Pending, Custody: job.Ready}}}
		if diff := cmp.Diff(want, made); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		if value := func() (v string) {
			if err := tx.QueryRow(t.Context(), "SELECT coalesce(current_setting('job.tenant', true), '')").Scan(&v); err != nil {
				t.Fatal(err)
			}
			return v
		}(); value != "" {
			t.Errorf("job.tenant stays %q in the transaction", value)
		}
		if _, err := tx.Exec(t.Context(), "RESET ROLE"); err != nil {
			t.Fatal(err)
		}
		return rowsOfJobs(t, tx), plain, whole
	}
	forget := func() { l.refusedPlain.Delete("t") }
	const nothing, role = "SELECT", "SET LOCAL ROLE enqueuer_of_one"
	got, plain, whole := enqueue(nothing)
	if plain != 1 || whole != 0 || len(got) != 3 {
		t.Errorf("%d plain statements, %d calls of the function, %d rows", plain, whole, len(got))
	}
	const limit = "INSERT INTO pawl.limits (tenant, key, most) VALUES ('t', 'kind/other', 1)"
	for _, c := range []struct {
		before string
		plain  int // a refusal is known for a while
	}{{role, 1}, {role, 0}, {limit, 1}} {
		before := c.before
		if before == limit {
			forget()
		}
		rows, plain, whole := enqueue(before)
		if plain != c.plain || whole != 1 {
			t.Errorf("%s: %d plain statements, %d calls of the function; want %d and 1", before, plain, whole, c.plain)
		}
		if diff := cmp.Diff(rows, got); diff != "" {
			t.Errorf("%s (-function +plain statement):\n%s", before, diff)
		}
	}
	forget()
	l.must(t, "INSERT INTO pawl.limits (tenant, key, most) VALUES ('t', 'kind/mail', 1)")
	rows, _, _ := enqueue(nothing, "kind/mail")
	if !strings.Contains(strings.Join(rows, " "), `"limits": ["kind/mail"]`) {
		t.Errorf("the task is not under its limit: %s", rows)
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

// What enqueue takes of a task that was written in SQL, package job takes, and the other way round:
// each field gets values of all kinds. What is refused says so with the code that docs/go.md names.
func TestEnqueueTakesWhatPackageJobTakes(t *testing.T) {
	testenv.Aside(t)
	if testing.Short() {
		t.Skip("it enqueues some thousand tasks")
	}
	t.Parallel()
	l := newListed(t)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	list := func(n int) string {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"k%d"`, i))
		}
		return "[" + strings.Join(keys, ",") + "]"
	}
	values := []string{
		`null`, `""`, `"x"`, `"a b"`, `"a\u0001"`, text(64), text(65), text(128), text(129), text(255), text(256),
		`true`, `"true"`,
		`0`, `1`, `9`, `10`, `-1`, `1.5`, `1000`, `1001`, `1000000`, `1000001`, `12345678901234567890`, `"1"`,
		`"0"`, `"90s"`, `"1h30m"`, `"1.5d"`, `"2w"`, `"5ns"`, `"7µs"`, `"5 minutes"`, `"87600h"`, `"87601h"`,
		`"99999999999999h"`,
		`"2030-01-02T15:04:05Z"`, `"2030-01-02T15:04:05.5+02:00"`, `"2030-13-02T15:04:05Z"`, `"1969-12-31T23:59:59Z"`,
		`"2200-01-01T00:00:01Z"`, `"2030-01-02"`,
		`[]`, `["n"]`, `["n","n"]`, `[""]`, `[null]`, `[1]`, list(16), list(17), `{}`, `{"x":"y"}`, `{"x":1}`, `{"x":null}`,
		deep(64), deep(65), `{"x":` + deep(63) + `}`, `{"x":` + deep(64) + `}`,
		`"start"`, `"done"`, `"running"`, `"created"`, `"due"`, `"args.n"`, `"args."`, `"block"`, `"pass"`,
		`"constant"`, `"linear"`,
		`"exponential"`,
	}
	// What stands beside the field: SQL has no part of a document but the whole.
	const task = `"kind":"mail","args":{"n":1}`
	places := map[string]string{}
	for _, field := range []string{
		"args_version", "name", "owner", "priority", "delay", "not_before", "limits", "order",
		"unique", "labels", "notes", "external_id", "retry", "none",
	} {
		places[field] = `{` + task + `,"` + field + `":%s}`
	}
	places["kind"], places["args"] = `{"kind":%s,"args":{"n":1}}`, `{"kind":"mail","args":%s}`
	places["labels.x"], places["labels.a b"] = `{`+task+`,"labels":{"x":%s}}`, `{`+task+`,"labels":{"a b":%s}}`
	places["delay, not_before"] = `{` + task + `,"not_before":"2030-01-02T15:04:05Z","delay":%s}`
	for _, field := range []string{"key", "args", "until", "alone", "none"} {
		places["unique."+field] = `{` + task + `,"unique":{"` + field + `":%s}}`
	}
	places["unique.key, args"] = `{` + task + `,"unique":{"key":"k","args":%s}}`
	places["unique.until, alone"] = `{` + task + `,"unique":{"until":"start","alone":%s}}`
	for _, field := range []string{"args", "by", "failing", "none"} {
		places["order."+field] = `{` + task + `,"order":{"key":"k","` + field + `":%s}}`
	}
	places["order.key"], places["order.args alone"] = `{`+task+`,"order":{"key":%s}}`, `{`+task+`,"order":{"args":%s}}`
	for _, field := range []string{"max_attempts", "backoff", "none"} {
		places["retry."+field] = `{` + task + `,"retry":{"` + field + `":%s}}`
	}
	for _, field := range []string{"kind", "base", "max", "jitter", "none"} {
		places["retry.backoff."+field] = `{` + task + `,"retry":{"backoff":{"` + field + `":%s}}}`
	}
	places["retry.backoff.max, base"] = `{` + task + `,"retry":{"backoff":{"base":"2h","max":%s}}}`
	check := func(s *job.Spec) error {
		if s.Kind == "" || s.Kind == job.KindApp {
			return job.Errorf(job.Invalid, "it is no task")
		}
		return s.Validate()
	}
	both := 0
	for _, place := range slices.Sorted(maps.Keys(places)) {
		for _, value := range values {
			doc := fmt.Sprintf(places[place], value)
			_, want := job.ReadSpec([]byte(doc), check)
			request, got := l.request(t, doc)
			var wrong *pgconn.PgError
			switch {
			case (got == nil) != (want == nil):
				t.Errorf("%s, %.80s:\n  SQL: %v\n  Go: %v", place, doc, got, want)
			case got != nil && (!errors.As(got, &wrong) || wrong.Code != "PW004"):
				t.Errorf("%s, %.80s: %v", place, doc, got)
			case got == nil:
				both++
				if _, err := job.ReadSpec([]byte(request), check); err != nil {
					t.Errorf("%s, %.80s: the request cannot be read: %v", place, doc, err)
				}
			}
		}
	}
	if both < 300 {
		t.Errorf("only %d tasks were taken", both)
	}
}

// request enqueues a task, returns the request of its job, and takes it back.
func (l *listed) request(t *testing.T, task string) (request string, err error) {
	t.Helper()
	tx, err := l.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SELECT pawl.enqueue($1)", `{"tenant": "t", "jobs": [`+task+`]}`)
	if err == nil {
		err = tx.QueryRow(t.Context(), "SELECT request FROM pawl.specs").Scan(&request)
	}
	return request, err
}
