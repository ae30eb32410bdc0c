package postgres

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// listed is a store with many jobs for lists.
type listed struct {
	*Store
	conn *pgx.Conn
}

func newListed(t testing.TB) *listed {
	t.Helper()
	dsn := testenv.Postgres(t).Database(t)
	m, err := NewMigrator(dsn, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &listed{s, conn}
}

func (l *listed) must(t testing.TB, sql string) {
	t.Helper()
	if _, err := l.conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

// fill makes jobs: about nine of ten have ended, and the others stand at each place. kind is an SQL
// expression of a large number r. Their ids are the same in each run, so that plans are, too.
func (l *listed) fill(t testing.TB, n int, kind string) {
	t.Helper()
	l.must(t, fmt.Sprintf(`
		INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, app, queue, priority, max_attempts, created, external_id, hidden, labels, request)
		SELECT md5('%[2]d ' || i)::uuid, 't', CASE WHEN r / 7 %% 3 = 0 THEN 'p' ELSE 'o' END, %[1]s, 'n' || r / 11 %% 7, 'n' || r / 11 %% 7, 'a' || r / 13 %% 4,
			CASE WHEN r / 17 %% 2 = 0 THEN 'default' ELSE 'q' END, r / 19 %% 10, 1, now() - (%[2]d - i) * interval '1 minute', 'x' || i,
			r %% 97 = 0 AND r / 19 %% 10 <> 0, json_build_object('a', (r / 23 %% 5)::text), '{}'
		FROM (SELECT i, abs(hashint8(i)::bigint) AS r FROM generate_series(1, %[2]d) i) g;
		INSERT INTO pawl.labels SELECT s.tenant, e.key, e.value, s.created, s.id FROM pawl.specs s, json_each_text(s.labels) e WHERE NOT s.hidden;
		INSERT INTO pawl.ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created, since, ended, hidden, needs, ties, told, wished_by, code, message)
		SELECT s.id, s.tenant, (ARRAY['FINISHED', 'FINISHED', 'FAILED', 'CANCELED'])[1 + s.priority %% 4], 1, 1, 1, 1, 0, 0, 0, s.created, s.created, s.created + '1 hour', s.hidden,
			0, 0, 0, '', 'c', '' FROM pawl.specs s WHERE s.priority > 0;
		INSERT INTO pawl.jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n, ord, lane, session, attempt, since)
		SELECT s.id, s.tenant, s.kind, s.queue, '', s.priority, s.created, p.state, p.custody, 1, 1, 1, 'task', CASE WHEN p.custody = 'worker' THEN s.id END, 1, s.created
		FROM (SELECT *, row_number() OVER (ORDER BY id) AS r FROM pawl.specs WHERE priority = 0) s
		JOIN (VALUES (0, 'PENDING', 'ready'), (1, 'PENDING', 'ready'), (2, 'WAITING', 'gate'), (3, 'RUNNING', 'worker'), (4, 'QUEUED', 'monitor'), (5, 'BLOCKED', 'recovery'), (6, 'PAUSED', 'user'))
			p(i, state, custody) ON p.i = s.r %% 7`, kind, n))
}

// A page, what chooses its lead, and a count read what they need by an index in its order, whatever
// the statistics say: never taken, taken of an empty database, of one in which all jobs were of one
// kind and owner, or fresh. A page that follows does not read the one before. Row security changes
// nothing of that.
func TestPlansOfLists(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	const off = "ALTER TABLE pawl.%[1]s SET (autovacuum_enabled = false);"
	n := 6_000
	if testenv.Long() {
		n = 20_000
	}
	for i, at := range []struct {
		name    string
		prepare func(t *testing.T, l *listed)
	}{
		{"never taken", func(t *testing.T, l *listed) { l.fill(t, n, "'k' || r % 6") }},
		{"of nothing", func(t *testing.T, l *listed) { l.must(t, "ANALYZE"); l.fill(t, n, "'k' || r % 6") }},
		{"of others", func(t *testing.T, l *listed) {
			l.fill(t, 3000, "'k1'")
			l.must(t, "UPDATE pawl.specs SET owner = 'o', queue = 'q', app = 'a1', stem = 'n1', name = 'n1'; "+
				"ANALYZE; TRUNCATE pawl.specs, pawl.labels, pawl.ended, pawl.jobs")
			l.fill(t, n, "'k' || r % 6")
		}},
		{"fresh", func(t *testing.T, l *listed) { l.fill(t, n, "'k' || r % 6"); l.must(t, "VACUUM ANALYZE") }},
	} {
		t.Run(at.name, func(t *testing.T) {
			if strings.HasPrefix(at.name, "of ") {
				testenv.Aside(t)
			}
			t.Parallel()
			l := newListed(t)
			for _, table := range []string{"specs", "labels", "ended", "jobs"} {
				l.must(t, fmt.Sprintf(off, table))
			}
			at.prepare(t, l)
			all, some := 1, 1
			if !testenv.Long() {
				some = 3
			}
			if at.name != "fresh" || !testenv.Every() {
				all = some
			}
			t.Run("as the owner", func(t *testing.T) { l.checkPlans(t, all, i) })
			if testenv.Long() || at.name == "fresh" {
				t.Run("as a role of the service", func(t *testing.T) { l.asMember(t).checkPlans(t, some, i) })
			}
		})
	}
}

// Of a group that has few of the blocked jobs those of the group are read, of one that has many
// only as far as a page reaches, in any order that leads there.
func TestPlansOfGroups(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	l := newListed(t)
	l.fill(t, 20_000, "'k' || r % 6")
	rare, common := (&job.Block{Code: job.FilesystemFull}).Group("t"), (&job.Block{Code: job.SystemDisabled}).Group("t")
	l.must(t, fmt.Sprintf(`UPDATE pawl.jobs SET state = 'BLOCKED', custody = 'recovery', session = NULL,
		grp = CASE WHEN hashtext(id::text) %% 20 = 0 THEN '%s' ELSE '%s' END`, rare, common))
	for text, reads := range map[string]int{
		"group=" + rare: 350, "group=" + common: 400, "group=" + rare + "," + common: 400, "group=" + rare +
			" kind=k1": 500, "group=" + rare + " created>30d": 350,
	} {
		f, err := job.ParseFilter(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range bySubmission {
			t.Run(text+" by "+string(by), func(t *testing.T) { l.checkPages(t, f, by, reads) })
		}
		t.Run(text+" by name", func(t *testing.T) { l.checkPages(t, f, store.ByName, 5*few) })
		t.Run("count "+text, func(t *testing.T) { l.checkCount(t, f) })
	}
}

// By an argument that the kind has an index of, only the jobs that have it are read.
func TestPlansOfArguments(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	l := newListed(t)
	l.fill(t, 6_000, "'k' || r % 6")
	seven := job.Where("args.n", job.Is, "7")[0].ArgsKeys()[0]
	l.must(t, `INSERT INTO pawl.labels (tenant, key, value, created, job)
		SELECT tenant, 'args:n', CASE WHEN hashtext(id::text) % 20 = 0 THEN '`+seven+`' ELSE 'x' END, created, id
		FROM pawl.specs WHERE kind = 'k1'`)
	f := job.Where("kind", job.Is, "k1").And("args.n", job.Is, "7")
	f[1].From = time.Unix(1, 0)
	counts, err := l.Count(t.Context(), "t", f)
	if err != nil || len(counts.States) == 0 {
		t.Fatalf("%v, %v", counts, err) // only the index says that these jobs have it
	}
	for _, by := range store.Sorts {
		t.Run(string(by), func(t *testing.T) { l.checkPages(t, f, by, 350) })
	}
}

// asMember is the same with a store whose role is no superuser and owns no table, so that row
// security holds for it.
func (l *listed) asMember(t *testing.T) *listed {
	t.Helper()
	role := "lists_" + strings.ToLower(job.NewID().Short())
	l.must(t, strings.ReplaceAll(Grants(""), "pawl_service", role))
	t.Cleanup(func() {
		if _, err := l.conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(t.Context(), l.conn.Config().ConnString()+"&role="+role, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	secured := false
	err = s.look(t.Context(), "t", func(tx *tx) error {
		return tx.commit(read("SELECT row_security_active('pawl.specs')",
			func(r *reader) error { secured = r.bool(); return nil }))
	})
	if err != nil || !secured {
		t.Fatalf("row security: %t, %v", secured, err)
	}
	return &listed{s, l.conn}
}

// checkPlans looks at each filter in each order, or at one of so many such pairs.
func (l *listed) checkPlans(t *testing.T, every, first int) {
	n := first
	for _, shape := range listShapes {
		f, err := job.ParseFilter(shape.filter, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range shape.by {
			if n++; n%every != 0 {
				continue
			}
			t.Run(shape.filter+" by "+string(by), func(t *testing.T) { l.checkPages(t, f, by, shape.reads) })
		}
		t.Run("count "+shape.filter, func(t *testing.T) { l.checkCount(t, f) })
	}
}

var (
	bySubmission = []store.Sort{store.Newest, store.Oldest}
	anyOrder     = store.Sorts
)

// listShapes are filters, and about how many rows a page of 50 may read in an order by which it is
// found: those that it has, as many for each further source, the sample that leads there, and all
// jobs of a worker.
var listShapes = []struct {
	filter string
	by     []store.Sort
	reads  int
}{
	{"", anyOrder, 400},
	{"state=PENDING", bySubmission, 400},
	{"state=FAILED,CANCELED", []store.Sort{store.Newest, store.LastEnded, store.FirstEnd}, 500},
	{"state=RUNNING", bySubmission, 1500},
	{"custody!=none", bySubmission, 1800},
	{"kind=k1", bySubmission, 400},
	{"kind=k1,k2,k9", bySubmission, 500},
	{"owner=o", anyOrder, 400 + 5*few},
	{"queue=q", bySubmission, 400},
	{"app=a1", bySubmission, 400},
	{"name=n1", []store.Sort{store.Newest, store.Oldest, store.ByName, store.ByNameRev}, 400},
	{"name=n1,n2,n5", []store.Sort{store.Newest, store.ByName, store.ByNameRev}, 500},
	{"label.a=1", bySubmission, 400},
	{"label.a=1,2", bySubmission, 400},
	{"kind=k1 state=FAILED", bySubmission, 3500},
	{"owner=o label.a=1 created>30d", bySubmission, 2500},
	{"hidden=true,false kind=k1", bySubmission, 600},
	{"code=c", bySubmission, 500},
	{"name~n* priority>3", bySubmission, 500},
	{"id=01a165be-5824-7fa1-8ffc-58105bf6f8a9", anyOrder, 10},
	{"external_id=x77", anyOrder, 20},
}

// checkPages looks at the first page of a list and at one that is deep in it.
func (l *listed) checkPages(t *testing.T, f job.Filter, by store.Sort, reads int) {
	page := func(from *mark) {
		l.explain(t, reads, func(tx *tx) (string, []any, error) {
			sr := newSearch("t", f, time.Time{}, by, from)
			sr.limit = 51
			lead, err := tx.choose(sr)
			sql, args := sr.page(lead)
			return sql, args, err
		})
	}
	page(nil)
	p, err := l.List(t.Context(), store.Query{Tenant: "t", Filter: f, Sort: by, Limit: 350})
	if err != nil {
		t.Fatal(err)
	}
	if p.Next == "" {
		return
	}
	deep, err := readMark(p.Next, by)
	if err != nil {
		t.Fatal(err)
	}
	page(deep)
}

func (l *listed) checkCount(t *testing.T, f job.Filter) {
	l.explain(t, 1<<30, func(tx *tx) (string, []any, error) {
		sr := newSearch("t", f, time.Time{}, store.Newest, nil)
		lead, err := tx.choose(sr)
		sql, args := sr.tally(lead)
		return sql, args, err
	})
}

// explain looks at the plan of a statement that lists, and at how many rows it reads.
func (l *listed) explain(t *testing.T, reads int, statement func(tx *tx) (string, []any, error)) {
	t.Helper()
	var plan []byte
	var sql string
	err := l.look(t.Context(), "t", func(tx *tx) (err error) {
		var args []any
		if sql, args, err = statement(tx); err != nil {
			return err
		}
		return tx.commit(read("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+sql,
			func(r *reader) error { plan = r.json(); return nil }, args...))
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	var steps []struct{ Plan planned }
	if err := json.Unmarshal(plan, &steps); err != nil {
		t.Fatal(err)
	}
	n, seen := 0, ""
	steps[0].Plan.walk(func(s *planned) {
		if s.Relation == "" {
			return
		}
		seen += fmt.Sprintf("%s %s %s: %.0f rows\n", s.Type, s.Relation, s.Index, (s.Rows+s.Filtered)*s.Loops)
		n += int((s.Rows + s.Filtered) * s.Loops)
		if s.Type == "Seq Scan" {
			t.Errorf("it reads all of %s:\n%s", s.Relation, sql)
		}
	})
	if n > reads {
		t.Errorf("it reads %d rows, not %d:\n%s\n%s", n, reads, sql, seen)
	}
}

// A planned step is one of a plan.
type planned struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Plans    []planned
}

func (s *planned) walk(f func(*planned)) {
	f(s)
	for i := range s.Plans {
		s.Plans[i].walk(f)
	}
}

// Values that no text of a database can be are chosen by no filter, and are refused by none.
func TestFilterOfImpossibleValues(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	l := newListed(t)
	l.fill(t, 50, "'k'")
	for _, bad := range []string{"\x00", "a\x00", "\xff", "*\x00*"} {
		for _, field := range []string{"name", "owner", "external_id", "message", "label.a"} {
			for op, want := range map[job.Op]int{job.Is: 0, job.Like: 0, job.IsNot: 50} {
				f := job.Filter{
					{Field: field, Op: op, Values: []string{bad}},
					{Field: "hidden", Op: job.Is, Values: []string{"true", "false"}},
				}
				p, err := l.List(t.Context(), store.Query{Tenant: "t", Filter: f})
				if err != nil || len(p.Jobs) != want {
					t.Errorf("%s%s%q: %d jobs, %v; want %d", field, op, bad, len(p.Jobs), err, want)
				}
			}
		}
	}
}

// A list works behind a pooler, where nothing outlasts a transaction.
func TestListPooled(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	l := newListed(t)
	l.fill(t, 100, "'k'")
	pooled, err := Open(t.Context(), l.conn.Config().ConnString(), Options{Pooled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Close()
	var sort string
	err = pooled.look(t.Context(), "t", func(tx *tx) error {
		if err := tx.prepare(); err != nil {
			return err
		}
		return tx.commit(read(`SHOW enable_sort`, func(r *reader) error { sort = r.text(); return nil }))
	})
	if err != nil || sort != "off" {
		t.Errorf("enable_sort is %q, %v", sort, err)
	}
	p, err := pooled.List(t.Context(), store.Query{Tenant: "t", Limit: 10})
	if err != nil || len(p.Jobs) != 10 {
		t.Errorf("%d jobs, %v", len(p.Jobs), err)
	}
}

// Whatever somebody passes for a cursor is refused, or leads to a page.
func FuzzCursor(f *testing.F) {
	l := newListed(f)
	l.fill(f, 30, "'k'")
	for i, by := range store.Sorts {
		page, err := l.List(f.Context(), store.Query{Tenant: "t", Sort: by, Limit: 10})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(page.Next, i)
	}
	for i, m := range []string{
		"-created\n\n\n-zzzzzzzzzzzz\n01a165be-5824-7fa1-8ffc-58105bf6f8a9\n",
		"name\n\n\n1\n01a165be-5824-7fa1-8ffc-58105bf6f8a9\n\x00", "ended\nx",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(m)), i)
	}
	f.Fuzz(func(t *testing.T, cursor string, i int) {
		const limit = 7
		by := store.Sorts[uint(i)%uint(len(store.Sorts))]
		page, err := l.List(t.Context(), store.Query{Tenant: "t", Sort: by, Limit: limit, Cursor: cursor})
		if err != nil && job.KindOf(err) != job.Invalid || len(page.Jobs) > limit {
			t.Errorf("%d jobs, %v", len(page.Jobs), err)
		}
	})
}
