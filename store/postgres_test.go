package store_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// The contract's calls, written for PostgreSQL in testdata/postgres, hold in the races that the contract is about. Each
// connection is a psql process. An order is forced by transactions that are left open and by waiting until the server
// says that a connection waits for a lock, never by time.

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	acme  = "acme"
	queue = "default"
	task  = "send"
)

// A world is one database with the schema.
type world struct {
	*testing.T
	server *testenv.Server
	dsn    string
	psql   string // the program
	db     *conn  // for what a test does on the side
}

func newWorld(t *testing.T) *world {
	server := testenv.Postgres(t)
	w := &world{T: t, server: server, dsn: server.Database(t)}
	schema := filepath.Join("testdata", "postgres", "schema.sql")
	w.psql = filepath.Join(server.Psql(t, w.dsn, "-f", schema, "-c", "SELECT setting FROM pg_config WHERE name = 'BINDIR'"), "psql")
	w.db = w.connect()
	return w
}

// statements are the files that each connection runs.
var statements = []string{"settings", "claim", "apply", "write", "expire", "renew", "pay", "submit", "events"}

// A conn is a psql process with every statement prepared. It is used by one goroutine at a time.
type conn struct {
	t    *testing.T
	in   io.Writer
	out  *bufio.Reader
	pid  string // of the server's process
	sent int
}

// A row is one line of an answer. NULL is missing.
type row map[string]string

func (w *world) connect() *conn {
	w.Helper()
	cmd := exec.Command(w.psql, "-X", "-q", "--csv", "-P", `null=\N`, "-d", w.dsn)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	// One pipe for answers and markers, so that they arrive in their order.
	r, out, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	out.Close()
	w.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill() // it may wait for a lock
		_ = cmd.Wait()         // it was killed
		r.Close()
	})
	c := &conn{t: w.T, in: stdin, out: bufio.NewReader(r)}
	c.must("SET TimeZone = 'UTC'")
	for _, name := range statements {
		text, err := os.ReadFile(filepath.Join("testdata", "postgres", name+".sql"))
		if err != nil {
			w.Fatal(err)
		}
		c.must(string(text))
	}
	c.must("SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0") // here waiting is what is tested
	c.pid = c.must("SELECT pg_backend_pid() AS pid")[0]["pid"]
	return c
}

// run runs one statement, or several of which one at most answers.
func (c *conn) run(sql string) ([]row, error) {
	c.sent++
	mark := fmt.Sprintf("done-%d ", c.sent)
	sql = strings.TrimSuffix(strings.TrimSpace(sql), ";")
	if _, err := fmt.Fprintf(c.in, "%s;\n\\warn %s:SQLSTATE :LAST_ERROR_MESSAGE\n", sql, mark); err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return nil, err
		}
		state, found := strings.CutPrefix(line, mark)
		if !found {
			answer.WriteString(line)
			continue
		}
		if !strings.HasPrefix(state, "00000") {
			return nil, errors.New(strings.TrimSpace(state) + ": " + answer.String())
		}
		break
	}
	lines, err := csv.NewReader(&answer).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	rows := make([]row, len(lines)-1)
	for i, line := range lines[1:] {
		rows[i] = row{}
		for k, v := range line {
			if v != `\N` {
				rows[i][lines[0][k]] = v
			}
		}
	}
	return rows, nil
}

func (c *conn) must(sql string) []row {
	c.t.Helper()
	rows, err := c.run(sql)
	if err != nil {
		c.t.Fatalf("%.300s\n%v", sql, err)
	}
	return rows
}

// value runs a query with one row and one column.
func (c *conn) value(sql string) string {
	c.t.Helper()
	for _, v := range c.must(sql)[0] {
		return v
	}
	return ""
}

// tx runs statements in one transaction and returns the answer of the last one.
func (c *conn) tx(sqls ...string) (rows []row, err error) {
	if _, err := c.run("BEGIN"); err != nil {
		return nil, err
	}
	for _, sql := range sqls {
		if rows, err = c.run(sql); err != nil {
			_, rollback := c.run("ROLLBACK")
			return nil, errors.Join(err, rollback)
		}
	}
	_, err = c.run("COMMIT")
	return rows, err
}

// A result is the answer of a call that runs beside the test.
type result struct {
	rows []row
	err  error
}

// beside runs f on another goroutine and returns once c waits there for a lock of another connection.
func (w *world) beside(c *conn, f func() ([]row, error)) <-chan result {
	w.Helper()
	done := make(chan result, 1)
	go func() {
		rows, err := f()
		done <- result{rows, err}
	}()
	w.untilWaiting(c)
	return done
}

func (w *world) untilWaiting(conns ...*conn) {
	w.Helper()
	pids := make([]string, len(conns))
	for i, c := range conns {
		pids[i] = c.pid
	}
	deadline := time.Now().Add(2 * time.Minute)
	for w.db.value("SELECT count(*) FROM unnest('{"+strings.Join(pids, ",")+"}'::int[]) p WHERE cardinality(pg_blocking_pids(p)) > 0") != strconv.Itoa(len(conns)) {
		if time.Now().After(deadline) {
			w.Fatal("a connection does not come to wait for a lock")
		}
	}
}

func (w *world) got(done <-chan result) []row {
	w.Helper()
	r := <-done
	if r.err != nil {
		w.Fatal(r.err)
	}
	return r.rows
}

// together runs f on n connections that are let go at the same moment.
func (w *world) together(n int, f func(i int, c *conn)) {
	w.Helper()
	w.db.must("SELECT pg_advisory_lock(1)")
	conns := make([]*conn, n)
	var wg sync.WaitGroup
	for i := range conns {
		conns[i] = w.connect()
		wg.Go(func() {
			if _, err := conns[i].run("SELECT pg_advisory_lock_shared(1)"); err != nil {
				w.Error(err)
				return
			}
			f(i, conns[i])
		})
	}
	w.untilWaiting(conns...)
	w.db.must("SELECT pg_advisory_unlock(1)")
	wg.Wait()
}

// noDeadlock fails when the database has seen one.
func (w *world) noDeadlock() {
	w.Helper()
	w.db.must("SELECT pg_stat_force_next_flush()")
	if n := w.db.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != "0" {
		w.Errorf("%s deadlocks", n)
	}
}

// Literals.

func str(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func opt(s string) string {
	if s == "" {
		return "NULL"
	}
	return str(s)
}

func uuid(id job.ID) string {
	if id.IsZero() {
		return "NULL"
	}
	return str(id.String())
}

func doc(d json.RawMessage) string { return opt(string(d)) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "NULL"
	}
	return str(t.Format(time.RFC3339Nano))
}

func num[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// array writes one column of s.
func array[T any](kind string, s []T, f func(T) string) string {
	lits := make([]string, len(s))
	for i, v := range s {
		lits[i] = f(v)
	}
	return "ARRAY[" + strings.Join(lits, ", ") + "]::" + kind + "[]"
}

func ids(s []job.ID) string { return array("uuid", s, uuid) }

func execute(name string, args ...string) string {
	return "EXECUTE " + name + "(" + strings.Join(args, ", ") + ")"
}

// scan reads a job as the database has it.
func scan(r row) job.Job {
	id := func(s string) (id job.ID) {
		_ = id.UnmarshalText([]byte(s)) // as the database wrote it
		return id
	}
	integer := func(s string) int { n, _ := strconv.Atoi(s); return n }
	instant := func(s string) time.Time {
		t, _ := time.Parse("2006-01-02 15:04:05.999999-07", s)
		return t.UTC()
	}
	raw := func(s string) json.RawMessage {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	return job.Job{
		ID: id(r["id"]), Tenant: r["tenant"], Kind: r["kind"], Queue: r["queue"], Machine: r["machine"],
		Priority: integer(r["priority"]), Created: instant(r["created"]),
		Place: job.Place{State: job.State(r["state"]), Custody: job.Custody(r["custody"])},
		Epoch: int64(integer(r["epoch"])), N: int64(integer(r["n"])), Lane: job.Lane(r["lane"]),
		Session: id(r["session"]), Claim: id(r["claim"]), Attempt: integer(r["attempt"]), MaxAttempts: integer(r["max_attempts"]),
		Recoveries: integer(r["recoveries"]), Suspect: integer(r["suspect"]), Launch: integer(r["launch"]), Live: r["live"] == "t",
		Since: instant(r["since"]), Due: instant(r["due"]), Ended: instant(r["ended"]), Needs: integer(r["needs"]),
		Ties: job.Ties(integer(r["ties"])), Wish: job.Wish(r["wish"]), WishedBy: r["wished_by"], Resume: job.State(r["resume"]),
		Code: job.Code(r["code"]), Message: r["message"], Work: raw(r["work"]), Result: raw(r["result"]),
	}
}

func scanAll(rows []row) (jobs []job.Job) {
	for _, r := range rows {
		if r["id"] != "" {
			jobs = append(jobs, scan(r))
		}
	}
	return jobs
}

func (w *world) job(id job.ID) job.Job {
	w.Helper()
	return scan(w.db.must("SELECT * FROM jobs WHERE id = " + uuid(id))[0])
}

// session begins a session with a lease.
func (w *world) session() job.ID {
	w.Helper()
	id := job.NewID()
	w.db.must("INSERT INTO sessions SELECT " + uuid(id) + ", 'test', now(), now(), now(), now() + interval '1 hour'")
	return id
}

// lapse lets the lease of a session run out.
func (w *world) lapse(session job.ID) {
	w.Helper()
	w.db.must("UPDATE sessions SET lease_until = now() WHERE id = " + uuid(session))
}

func (w *world) duty(session job.ID) job.Fence {
	w.Helper()
	w.db.must("INSERT INTO duties VALUES ('watch', 7, " + uuid(session) + ")")
	return job.Fence{Duty: "watch", Term: 7}
}

// A call of Submit, without ties.
type submission struct {
	key  string
	jobs []job.Job
	mark byte // of the request: its fingerprint
}

func newTask() job.Job {
	return job.Job{ID: job.NewID(), Owner: "ann", Kind: task, Name: "n", Queue: queue, Priority: 5, MaxAttempts: 10, Request: json.RawMessage(`{"kind":"send"}`)}
}

func newTasks(n int) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = newTask()
	}
	return jobs
}

func idsOf(jobs []job.Job) []job.ID {
	list := make([]job.ID, len(jobs))
	for i, j := range jobs {
		list[i] = j.ID
	}
	return list
}

func (s *submission) parts() []string {
	js, mark := s.jobs, fmt.Sprintf(`'\x%02x'::bytea`, s.mark)
	id := ids(idsOf(js))
	external := array("text", js, func(j job.Job) string { return opt(j.ExternalID) })
	marks := array("bytea", js, func(job.Job) string { return mark })
	col := func(kind string, f func(job.Job) string) string { return array(kind, js, f) }
	var parts []string
	if s.key != "" {
		parts = append(parts, execute("submit_key", str(acme), str(s.key), mark, id))
	}
	return append(parts,
		execute("submit", str(acme), "'ann'", str(s.key), id,
			col("text", func(j job.Job) string { return str(j.Owner) }), col("text", func(j job.Job) string { return str(j.Kind) }),
			col("text", func(j job.Job) string { return str(j.Name) }), col("text", func(j job.Job) string { return str(j.Queue) }),
			col("text", func(j job.Job) string { return str(j.Machine) }), col("smallint", func(j job.Job) string { return num(j.Priority) }),
			col("int", func(j job.Job) string { return num(j.MaxAttempts) }), external, marks,
			col("uuid", func(j job.Job) string { return uuid(j.Parent) }), col("jsonb", func(job.Job) string { return "NULL" }),
			col("json", func(j job.Job) string { return doc(j.Request) }), col("bigint", func(job.Job) string { return "0" }),
			col("timestamptz", func(j job.Job) string { return stamp(j.Due) }), col("int", func(j job.Job) string { return num(j.Needs) }),
			col("int", func(j job.Job) string { return num(int(j.Ties)) })),
		execute("submit_answer", str(acme), str(s.key), mark, id, external, marks))
}

func (w *world) submit(jobs ...job.Job) {
	w.Helper()
	if _, err := w.db.tx((&submission{jobs: jobs}).parts()...); err != nil {
		w.Fatal(err)
	}
}

// A claim of tasks.
type claim struct {
	id, session job.ID
	queues      []string
	slots       int
}

func (c *claim) parts() []string {
	queues := c.queues
	if queues == nil {
		queues = []string{queue}
	}
	return []string{
		execute("claim_once", uuid(c.id)),
		execute("claim", uuid(c.id), uuid(c.session), array("text", queues, str), "'{app,send}'", "'m1'", "'{finish,task}'", fmt.Sprintf("'{1,%d}'", c.slots)),
	}
}

func (w *world) claim(session job.ID, slots int) []job.Job {
	w.Helper()
	rows, err := w.db.tx((&claim{id: job.NewID(), session: session, slots: slots}).parts()...)
	if err != nil || rows[0]["alive"] != "t" {
		w.Fatal(rows, err)
	}
	return scanAll(rows)
}

func (w *world) claimed(session job.ID) job.Job {
	w.Helper()
	w.submit(newTask())
	return w.claim(session, 1)[0]
}

// A batch is one call of Apply. wish is the one that its changes have met, asked what they were before that.
type batch struct {
	changes []job.Change
	asked   []job.Change
	cause   job.Cause
	wish    job.Wish
}

func applying(changes ...job.Change) *batch { return &batch{changes: changes, cause: job.CauseWork} }

func (b *batch) fences() string {
	return execute("apply_fences",
		array("uuid", b.changes, func(c job.Change) string { return uuid(c.From.Fence.Session) }),
		array("text", b.changes, func(c job.Change) string { return opt(c.From.Fence.Duty) }))
}

func (b *batch) lock() string {
	return execute("apply_lock", array("uuid", b.changes, func(c job.Change) string { return uuid(c.Job) }))
}

func (b *batch) apply() string {
	col := func(kind string, f func(job.Change) string) string { return array(kind, b.changes, f) }
	last := func(f func(job.Entry) string) string {
		return col("text", func(c job.Change) string { return f(*c.Last()) })
	}
	return execute("apply",
		col("uuid", func(c job.Change) string { return uuid(c.Job) }),
		col("bigint", func(c job.Change) string { return num(c.From.Epoch) }),
		col("bigint", func(c job.Change) string { return num(c.From.N) }),
		col("text", func(c job.Change) string { return str(string(c.From.Place.State)) }),
		col("text", func(c job.Change) string { return str(string(c.From.Place.Custody)) }),
		col("uuid", func(c job.Change) string { return uuid(c.From.Fence.Session) }),
		col("text", func(c job.Change) string { return opt(c.From.Fence.Duty) }),
		col("bigint", func(c job.Change) string { return num(c.From.Fence.Term) }),
		col("text", func(job.Change) string { return str(string(b.wish)) }),
		col("int", func(c job.Change) string { return num(len(c.Path)) }),
		last(func(e job.Entry) string { return str(string(e.State)) }),
		col("text", func(c job.Change) string { return str(string(c.To)) }),
		last(func(e job.Entry) string { return str(string(job.LaneOf(e.State, true))) }),
		last(func(e job.Entry) string { return str(string(e.Code)) }),
		last(func(e job.Entry) string { return str(e.Message) }),
		col("text", func(c job.Change) string { return str(string(c.Set.Resume)) }),
		col("int", func(c job.Change) string { return num(flags(c.Set)) }),
		col("bigint", func(c job.Change) string { return num(c.Set.Delay.Microseconds()) }),
		col("json", func(c job.Change) string { return doc(c.Set.Resolved) }),
		col("json", func(c job.Change) string { return doc(c.Set.Result) }),
		col("json", func(c job.Change) string { return doc(c.Work) }),
		col("text", func(job.Change) string { return str(string(b.cause)) }),
		col("json", func(c job.Change) string { return encode(c.Path) }),
		array("bigint", slices.Concat(b.asked, b.changes)[:len(b.changes)], func(c job.Change) string { return num(digest(c)) }))
}

// digest tells changes apart.
func digest(c job.Change) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", c)
	return int64(h.Sum64())
}

// encode writes v as JSON. Text that is no JSON stays as it is, for the database to refuse.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return str(err.Error())
	}
	return str(string(text))
}

func flags(p job.Patch) (n int) {
	for i, set := range []bool{p.Intent, p.Over, p.Retry, p.Recovery, p.Crash, p.Clear} {
		if set {
			n |= 1 << i
		}
	}
	return n
}

func (b *batch) parts() []string { return []string{b.fences(), b.lock(), b.apply()} }

// outcomes runs a batch on c and returns what became of each change.
func (w *world) outcomes(c *conn, b *batch) ([]string, error) {
	rows, err := c.tx(b.parts()...)
	return outcomes(rows), err
}

func outcomes(rows []row) (list []string) {
	for _, r := range rows {
		list = append(list, r["outcome"])
	}
	return list
}

func (w *world) want(name string, rows []row, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, outcomes(rows)); diff != "" {
		w.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// step returns a change that stays with the worker; done one that ends the job.
func step(j job.Job, f job.Fence) job.Change {
	return job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: j.State}}, To: j.Custody}
}

func done(j job.Job, f job.Fence) job.Change {
	return job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}}, To: job.None}
}

func by(session job.ID) job.Fence { return job.Fence{Session: session} }

// written makes the statement that writes what package job makes of locked rows.
func written(before []job.Job, changes []job.Change, now time.Time, cause job.Cause) string {
	type step struct {
		job.Entry
		Custody job.Custody `json:"custody"`
	}
	type key struct {
		job.ID
		job.UniqueMode
	}
	type debt struct {
		job.ID
		job.Debt
	}
	after := make([]job.Job, len(before))
	paths := make([][]step, len(before))
	var freed []key
	var owed []debt
	for i, b := range before {
		a, entries := b.Apply(changes[i], now)
		after[i] = a
		for k, e := range entries {
			custody := b.Custody
			if k == len(entries)-1 {
				custody, e.State = a.Custody, a.State
			}
			paths[i] = append(paths[i], step{e, custody})
		}
		for _, m := range job.Releases(&b, &a) {
			freed = append(freed, key{a.ID, m})
		}
		for _, d := range job.Owes(&b, &a) {
			owed = append(owed, debt{a.ID, d})
		}
	}
	col := func(kind string, f func(job.Job) string) string { return array(kind, after, f) }
	text := func(f func(job.Job) string) string { return col("text", func(j job.Job) string { return str(f(j)) }) }
	return execute("write", ids(idsOf(before)),
		array("bigint", before, func(j job.Job) string { return num(j.Epoch) }), array("bigint", before, func(j job.Job) string { return num(j.N) }),
		text(func(j job.Job) string { return string(j.State) }), text(func(j job.Job) string { return string(j.Custody) }),
		col("bigint", func(j job.Job) string { return num(j.Epoch) }), col("bigint", func(j job.Job) string { return num(j.N) }),
		text(func(j job.Job) string { return string(j.Lane) }),
		col("uuid", func(j job.Job) string { return uuid(j.Session) }), col("uuid", func(j job.Job) string { return uuid(j.Claim) }),
		col("int", func(j job.Job) string { return num(j.Attempt) }), col("int", func(j job.Job) string { return num(j.Recoveries) }),
		col("int", func(j job.Job) string { return num(j.Suspect) }), col("int", func(j job.Job) string { return num(j.Launch) }),
		col("boolean", func(j job.Job) string { return strconv.FormatBool(j.Live) }),
		col("timestamptz", func(j job.Job) string { return stamp(j.Since) }), col("timestamptz", func(j job.Job) string { return stamp(j.Due) }),
		col("timestamptz", func(j job.Job) string { return stamp(j.Ended) }),
		text(func(j job.Job) string { return string(j.Wish) }), text(func(j job.Job) string { return j.WishedBy }),
		text(func(j job.Job) string { return string(j.Resume) }), text(func(j job.Job) string { return string(j.Code) }),
		text(func(j job.Job) string { return j.Message }),
		col("json", func(j job.Job) string { return doc(j.Work) }), col("json", func(j job.Job) string { return doc(j.Result) }),
		text(func(job.Job) string { return string(cause) }), col("text", func(job.Job) string { return "NULL" }),
		array("json", paths, func(p []step) string { return encode(p) }),
		array("uuid", freed, func(k key) string { return uuid(k.ID) }), array("text", freed, func(k key) string { return str(string(k.UniqueMode)) }),
		array("uuid", owed, func(d debt) string { return uuid(d.ID) }), array("text", owed, func(d debt) string { return str(string(d.Debt)) }))
}

// expire runs Expire on c and returns the jobs that it took.
func (w *world) expire(c *conn) ([]row, error) {
	if _, err := c.run("BEGIN; EXECUTE expire_close"); err != nil {
		return nil, err
	}
	rows, err := c.run("EXECUTE expire_take(1000)")
	if err != nil {
		return nil, err
	}
	before := scanAll(rows)
	changes := make([]job.Change, len(before))
	for i := range before {
		changes[i], _ = job.Turn(&before[i], job.Expired(&before[i], rows[i]["crashed"] == "t"))
	}
	if _, err := c.run(written(before, changes, time.Now(), job.CauseExpired)); err != nil {
		return nil, err
	}
	_, err = c.run("COMMIT")
	return rows, err
}

// checkHistories fails unless each job's history is numbered without gaps, ends where its row stands, and agrees with
// its epoch.
func (w *world) checkHistories() {
	w.Helper()
	broken := w.db.must(`SELECT j.id, j.state, j.custody, j.epoch, j.n, h.* FROM jobs j CROSS JOIN LATERAL (
			SELECT count(*) AS events, max(e.n) AS last, (array_agg(e.state || '/' || e.custody ORDER BY e.n DESC))[1] AS at,
				count(*) FILTER (WHERE e.moved) AS moves
			FROM (SELECT e.*, e.custody IS DISTINCT FROM lag(e.custody) OVER (ORDER BY e.n) AS moved FROM events e WHERE e.job = j.id) e) h
		WHERE h.events <> j.n OR h.last <> j.n OR h.at <> j.state || '/' || j.custody OR h.moves <> j.epoch`)
	for _, r := range broken {
		w.Errorf("the history does not agree with the row: %v", r)
	}
}

func TestPostgresClaim(t *testing.T) {
	t.Parallel()
	t.Run("before the expiry, which waits and then takes the job", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTask())
		a, b := w.connect(), w.connect()
		c := claim{id: job.NewID(), session: session, slots: 1}
		a.must("BEGIN")
		for _, sql := range c.parts() {
			a.must(sql)
		}
		w.lapse(session)
		expired := w.beside(b, func() ([]row, error) { return w.expire(b) })
		a.must("COMMIT")
		if n := len(w.got(expired)); n != 1 {
			t.Errorf("expiry took %d jobs, want 1", n)
		}
		if n := w.db.value("SELECT count(*) FROM jobs WHERE custody = 'ready' AND epoch = 3 AND recoveries = 1"); n != "1" {
			t.Error("the job did not go back to its line")
		}
		w.checkHistories()
	})
	t.Run("after the end has locked the session claims nothing", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTask())
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		a.must(execute("end_session", uuid(session)))
		c := claim{id: job.NewID(), session: session, slots: 1}
		claimed := w.beside(b, func() ([]row, error) { return b.tx(c.parts()...) }) // its lease is good
		a.must("COMMIT")
		if rows := w.got(claimed); rows[0]["alive"] != "f" || len(scanAll(rows)) != 0 {
			t.Errorf("a session that had ended claimed: %v", rows)
		}
		if rows, err := b.tx(c.parts()...); err != nil || rows[0]["alive"] != "f" {
			t.Errorf("claim of an ended session: %v, %v", rows, err)
		}
	})
	t.Run("jobs of a session that is gone are taken too", func(t *testing.T) {
		w := newWorld(t)
		session, live := w.session(), w.session()
		w.claimed(session)
		w.claimed(live)
		w.db.must("DELETE FROM sessions WHERE id = " + uuid(session))
		if rows, err := w.expire(w.db); err != nil || len(rows) != 1 || rows[0]["crashed"] != "t" {
			t.Errorf("expiry took %v, %v", rows, err)
		}
		w.checkHistories()
	})
	t.Run("two at once share nothing, and who passed over locked jobs is told", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.connect(), w.connect()
		w.submit(newTasks(3)...)
		first := claim{id: job.NewID(), session: w.session(), slots: 2}
		second := claim{id: job.NewID(), session: w.session(), slots: 3}
		a.must("BEGIN")
		var left, right []row
		for _, sql := range first.parts() {
			left = a.must(sql)
		}
		right, err := b.tx(second.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		if len(scanAll(left)) != 2 || len(scanAll(right)) != 1 || right[0]["more"] != "t" {
			t.Errorf("claimed %d and %d, more %q; want 2 and 1, and more", len(scanAll(left)), len(scanAll(right)), right[0]["more"])
		}
		// The first one is lost. Nobody announces its jobs: only the second knows that it has to come again.
		a.must("ROLLBACK")
		again := claim{id: job.NewID(), session: second.session, slots: 2}
		if right, err = b.tx(again.parts()...); err != nil || len(scanAll(right)) != 2 || right[0]["more"] != "f" {
			t.Errorf("claimed %d, %v", len(scanAll(right)), err)
		}
		w.checkHistories()
	})
	t.Run("a full lane locks heads of other lines, and who meets them is told", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.connect(), w.connect()
		one, other := newTask(), newTask()
		one.Queue, other.Queue, one.Priority = "one", "other", 1
		w.submit(one, other)
		first := claim{id: job.NewID(), session: w.session(), slots: 1, queues: []string{"one", "other"}}
		second := claim{id: job.NewID(), session: w.session(), slots: 1, queues: []string{"other"}}
		a.must("BEGIN")
		var left []row
		for _, sql := range first.parts() {
			left = a.must(sql)
		}
		right, err := b.tx(second.parts()...)
		if err != nil || len(scanAll(right)) != 0 || right[0]["more"] != "t" {
			t.Errorf("claimed %v, %v", right, err)
		}
		a.must("COMMIT")
		if jobs := scanAll(left); len(jobs) != 1 || jobs[0].ID != one.ID {
			t.Errorf("claimed %v, want the job of the higher priority", jobs)
		}
		if right, err = b.tx(second.parts()...); err != nil || len(scanAll(right)) != 1 || right[0]["more"] != "f" {
			t.Errorf("claimed %v, %v", right, err)
		}
	})
	t.Run("sixteen at once take every job once", func(t *testing.T) {
		w := newWorld(t)
		const jobs = 400
		w.submit(newTasks(jobs)...)
		var mu sync.Mutex
		taken := map[job.ID]int{}
		sessions := make([]job.ID, 16)
		for i := range sessions {
			sessions[i] = w.session()
		}
		w.together(16, func(i int, c *conn) {
			for {
				rows, err := c.tx((&claim{id: job.NewID(), session: sessions[i], slots: 7}).parts()...)
				if err != nil {
					t.Error(err)
					return
				}
				got := scanAll(rows)
				if len(got) == 0 && rows[0]["more"] == "f" {
					return
				}
				mu.Lock()
				for _, j := range got {
					taken[j.ID]++
				}
				mu.Unlock()
			}
		})
		if len(taken) != jobs {
			t.Errorf("%d jobs were claimed, want %d", len(taken), jobs)
		}
		for id, n := range taken {
			if n != 1 {
				t.Errorf("job %s was claimed %d times", id, n)
			}
		}
		w.checkHistories()
		w.noDeadlock()
	})
	t.Run("repeated answers the same jobs", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(5)...)
		c := claim{id: job.NewID(), session: session, slots: 3}
		first, err := w.db.tx(c.parts()...) // and the answer was lost
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.db.tx(c.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" || len(first) != 3 {
			t.Errorf("of %d jobs (-first +again):\n%s", len(first), diff)
		}
		w.want("an end", w.must(applying(done(scan(first[0]), by(session)))), "applied")
		if again, err = w.db.tx(c.parts()...); err != nil || len(again) != 2 {
			t.Errorf("after one has moved on: %d jobs, %v", len(again), err)
		}
	})
	t.Run("repeated while the first is under way", func(t *testing.T) {
		w := newWorld(t)
		w.submit(newTasks(5)...)
		c := claim{id: job.NewID(), session: w.session(), slots: 2}
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		var first []row
		for _, sql := range c.parts() {
			first = a.must(sql)
		}
		repeat := w.beside(b, func() ([]row, error) { return b.tx(c.parts()...) })
		a.must("COMMIT")
		if diff := cmp.Diff(first, w.got(repeat)); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
	t.Run("gives up the keys that are held until the start", func(t *testing.T) {
		w := newWorld(t)
		j := newTask()
		j.Ties = job.TieUniqueStart | job.TieUniqueDone
		w.submit(j)
		w.db.must("INSERT INTO unique_keys SELECT 'acme', 'send', mode, 'k', " + uuid(j.ID) + " FROM unnest('{start,done}'::text[]) mode")
		session := w.session()
		j = w.claim(session, 1)[0]
		if left := w.db.value("SELECT string_agg(mode, ',') FROM unique_keys"); left != "done" {
			t.Errorf("keys left after the start: %s", left)
		}
		w.must(applying(done(j, by(session))))
		if left := w.db.value("SELECT count(*) FROM unique_keys"); left != "0" {
			t.Errorf("%s keys left after the end", left)
		}
	})
}

// must runs a batch.
func (w *world) must(b *batch) []row {
	w.Helper()
	rows, err := w.db.tx(b.parts()...)
	if err != nil {
		w.Fatal(err)
	}
	return rows
}

func TestPostgresApply(t *testing.T) {
	t.Parallel()
	t.Run("makes what package job makes", applyParity)
	t.Run("of two at once one is applied", func(t *testing.T) {
		for name, second := range map[string]func(job.Job, job.Fence) job.Change{"conflict": step, "fenced": done} {
			w := newWorld(t)
			session := w.session()
			j := w.claimed(session)
			a, b := w.connect(), w.connect()
			one := applying(step(j, by(session)))
			if name == "fenced" {
				one = applying(done(j, by(session)))
			}
			two := applying(second(j, by(session)))
			two.changes[0].Path[0].Message = "another"
			a.must("BEGIN")
			for _, sql := range one.parts() {
				a.must(sql)
			}
			late := w.beside(b, func() ([]row, error) { return b.tx(two.parts()...) })
			a.must("COMMIT")
			w.want("the second", w.got(late), name)
			w.want("the first, repeated", w.must(one), "applied")
			w.checkHistories()
		}
	})
	t.Run("against the end of its session, which waits", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		a, b := w.connect(), w.connect()
		one := applying(done(j, by(session)))
		a.must("BEGIN")
		for _, sql := range one.parts() {
			w.lapse(session) // a renewal or the clock may change the row: the lock lets them
			w.db.must("UPDATE sessions SET lease_until = now() + interval '1 hour' WHERE id = " + uuid(session))
			a.must(sql)
		}
		w.lapse(session)
		expired := w.beside(b, func() ([]row, error) { return w.expire(b) })
		a.must("COMMIT")
		if rows := w.got(expired); len(rows) != 0 {
			t.Errorf("expiry took %v", rows)
		}
		w.want("after the expiry, repeated", w.must(one), "applied")
		w.checkHistories()
	})
	t.Run("after the end of its session, for which it waited", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		a, b := w.connect(), w.connect()
		w.lapse(session)
		a.must("BEGIN; EXECUTE expire_close")
		late := w.beside(b, func() ([]row, error) { return b.tx(applying(step(j, by(session))).parts()...) })
		a.must("COMMIT")
		w.want("a change of a session that was ended", w.got(late), "fenced")
	})
	t.Run("under a duty, which nobody takes over before the commit", func(t *testing.T) {
		w := newWorld(t)
		worker, old, next := w.session(), w.session(), w.session()
		j := w.claimed(worker)
		f := w.duty(old)
		w.want("into monitor", w.must(applying(job.Change{Job: j.ID, From: j.Guard(by(worker)), Path: []job.Entry{{State: job.Running}}, To: job.Monitor})), "applied")
		j = w.job(j.ID)
		renew := execute("renew", uuid(next), "1000000", "'{}'", "'{}'", "''", "'{watch}'")

		a := w.connect()
		b := applying(job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: job.Running}}, To: job.Monitor})
		a.must("BEGIN")
		a.must(b.fences())
		a.must(b.lock())
		rows := a.must(b.apply())
		w.want("by the duty", rows, "applied")
		w.lapse(old)
		if got := w.db.must(renew); got[0]["duties"] != "" {
			t.Errorf("the duty was taken over beside an open transaction under it: %v", got)
		}
		a.must("COMMIT")
		if got := w.db.must(renew); got[0]["duties"] != `[["watch", 8]]` {
			t.Errorf("the duty was not taken over: %v", got)
		}
		j = w.job(j.ID)
		b.changes[0].From = j.Guard(f)
		w.want("by the old term", w.must(b), "fenced")
		b.changes[0].From.Fence.Term = 8
		w.want("by the new term", w.must(b), "applied")
		w.checkHistories()
	})
	t.Run("one bad change fails the batch, the halves apply", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(64)...)
		jobs := w.claim(session, 64)
		changes := make([]job.Change, len(jobs))
		for i, j := range jobs {
			changes[i] = done(j, by(session))
			changes[i].Path[0].Data = json.RawMessage(`{"a":1}`)
		}
		changes[41].Set.Intent = true // an end with a launch whose end is not known
		changes[7].Path[0].Data = json.RawMessage(`{"a":`)
		calls, bad := 0, map[job.ID]bool{}
		var halve func([]job.Change)
		halve = func(part []job.Change) {
			calls++
			got, err := w.outcomes(w.db, applying(part...))
			switch {
			case err == nil && len(got) == len(part):
				for i, o := range got {
					if o != "applied" {
						t.Errorf("change %d: %s", i, o)
					}
				}
			case len(part) == 1:
				bad[part[0].Job] = true
			default:
				halve(part[:len(part)/2])
				halve(part[len(part)/2:])
			}
		}
		halve(changes)
		if len(bad) != 2 || !bad[jobs[41].ID] || !bad[jobs[7].ID] {
			t.Errorf("found to be bad: %v", bad)
		}
		if n := w.db.value("SELECT count(*) FROM jobs WHERE state = 'FINISHED'"); n != "62" {
			t.Errorf("%s jobs finished, want 62", n)
		}
		t.Logf("%d calls found 2 bad changes of 64", calls)
		w.checkHistories()
	})
	t.Run("repeated is answered as it was", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		j := w.claimed(session)
		c := step(j, by(session))
		c.Path = append(c.Path, job.Entry{State: job.Running, Message: "half way"})
		first := w.must(applying(c))
		w.want("first", first, "applied")
		again := w.must(applying(c))
		for _, k := range []string{"outcome", "state", "custody", "epoch", "n"} {
			if first[0][k] != again[0][k] {
				t.Errorf("%s: %s, and repeated %s", k, first[0][k], again[0][k])
			}
		}
		end := done(w.job(j.ID), by(session))
		first = w.must(applying(end))
		w.lapse(session)
		w.want("repeated after the end of the job and of the session", w.must(applying(c, done(newTask(), by(session)))), "applied", "fenced")
		again = w.must(applying(end))
		for _, k := range []string{"outcome", "state", "custody", "epoch", "n"} {
			if first[0][k] != again[0][k] {
				t.Errorf("%s: %s, and repeated %s", k, first[0][k], again[0][k])
			}
		}
		if n := w.job(j.ID).N; n != 5 {
			t.Errorf("n %d, want 5", n)
		}
		w.checkHistories()
	})
	t.Run("a wish hands the change back, to be turned", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(2)...)
		jobs := w.claim(session, 2)
		w.db.must("UPDATE jobs SET wish = 'cancel', wished_by = 'ann' WHERE id = " + uuid(jobs[1].ID))
		changes := []job.Change{done(jobs[0], by(session)), done(jobs[1], by(session))}
		rows := w.must(applying(changes...))
		w.want("with a wish", rows, "applied", "wish")

		seen := jobs[1]
		seen.Wish, seen.WishedBy, seen.Live = job.Wish(rows[1]["wish"]), rows[1]["wished_by"], rows[1]["live"] == "t"
		turned, bent := job.Turn(&seen, changes[1])
		if !bent {
			t.Fatal("it was not turned")
		}
		b := &batch{changes: []job.Change{turned}, asked: changes[1:], cause: job.CauseTurned, wish: seen.Wish}
		// The wish is another one by now: it comes back again.
		w.db.must("UPDATE jobs SET wish = 'pause' WHERE id = " + uuid(jobs[1].ID))
		w.want("with another wish", w.must(b), "wish")
		w.db.must("UPDATE jobs SET wish = 'cancel' WHERE id = " + uuid(jobs[1].ID))
		w.want("turned", w.must(b), "turned")
		w.want("the change as it was, repeated", w.must(applying(changes[1])), "turned")
		if j := w.job(jobs[1].ID); j.State != job.Canceled || j.Wish != "" {
			t.Errorf("job at %s with wish %q", j.Place, j.Wish)
		}
		w.checkHistories()
	})
	t.Run("owes for jobs with ties only", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		plain, tied := newTask(), newTask()
		tied.Ties = job.TieDependants
		w.submit(plain, tied)
		for _, j := range w.claim(session, 2) {
			w.must(applying(done(j, by(session))))
		}
		if got := w.db.value("SELECT string_agg(debt || ' ' || job, ',') FROM followups"); got != "dependants "+tied.ID.String() {
			t.Errorf("owed: %s", got)
		}
	})
	t.Run("sixteen at once with overlapping batches", applyStorm)
}

// applyParity compares the statement with job.Apply, for each edge of the table and each thing that a change records.
func applyParity(t *testing.T) {
	w := newWorld(t)
	session := w.session()
	duty := w.duty(session)
	type tried struct {
		before job.Job
		change job.Change
	}
	var all []tried
	sets := []job.Patch{
		{},
		{Intent: true},
		{Over: true},
		{Intent: true, Over: true},
		{Retry: true, Delay: time.Hour},
		{Recovery: true, Crash: true},
		{Clear: true, Crash: true},
		{Result: json.RawMessage(`[1]`), Resolved: json.RawMessage(`{"r":1}`)},
		{Delay: time.Minute},
	}
	for _, from := range job.States {
		for _, custody := range job.Places(from) {
			if custody == job.Gate || custody == job.Ready || custody == job.None {
				continue // left by rows and the clock, or never
			}
			for _, to := range job.Edges(from) {
				for _, target := range job.Places(to) {
					if target == job.Worker && custody != job.Worker {
						continue // a claim
					}
					for i, set := range sets {
						for _, due := range []time.Duration{0, -time.Hour, time.Hour} {
							j := newTask()
							if i%2 == 0 || to == job.ProcessingInputs {
								j.Kind = job.KindApp
							}
							f := duty
							if custody == job.Worker {
								f, j.Session, j.Claim = by(session), session, job.NewID()
							}
							j.Tenant, j.Place, j.Epoch, j.N, j.Lane = acme, job.Place{State: from, Custody: custody}, 4, 9, job.LaneOf(from, j.Program())
							j.Attempt, j.Recoveries, j.Suspect, j.Launch, j.Live = 2, 1, 1, 3, i == 2
							j.Created, j.Since = time.UnixMicro(1e15).UTC(), time.UnixMicro(2e15).UTC()
							j.Code, j.Message, j.Resume, j.Work = job.NormalCompletion, "before", job.Pending, json.RawMessage(`{"w":1}`)
							if due != 0 {
								j.Due, j.Needs = time.Now().Add(due).Truncate(time.Microsecond).UTC(), int(due/time.Hour)+1
							}
							set.Resume = job.Pending
							c := job.Change{Job: j.ID, From: j.Guard(f), To: target, Set: set}
							if job.Edge(from, from) {
								c.Path = append(c.Path, job.Entry{State: from, Message: "first", Data: json.RawMessage(`{"d":1}`)})
							}
							c.Path = append(c.Path, job.Entry{State: to, Code: job.NormalCompletion, Message: "it's done"})
							if c.Check() != nil {
								continue
							}
							if after, _ := j.Apply(c, time.Now()); after.Live && (after.State.Terminal() || after.Custody == job.User) {
								continue // refused
							}
							all = append(all, tried{j, c})
						}
					}
				}
			}
		}
	}
	const chunk = 500
	for len(all) > 0 {
		part := all[:min(chunk, len(all))]
		all = all[len(part):]
		jobs := make([]job.Job, len(part))
		b := &batch{cause: job.CauseWork}
		for i, p := range part {
			jobs[i] = p.before
			b.changes = append(b.changes, p.change)
		}
		w.insert(jobs)
		for i, r := range w.must(b) {
			if r["outcome"] != "applied" {
				t.Fatalf("%+v: %v", part[i].change, r)
			}
		}
		got := map[job.ID]job.Job{}
		for _, j := range scanAll(w.db.must("SELECT * FROM jobs WHERE id = ANY (" + ids(idsOf(jobs)) + ")")) {
			got[j.ID] = j
		}
		for _, p := range part {
			after := got[p.before.ID]
			now := after.Since
			if now.Equal(p.before.Since) { // it stayed: take the time from elsewhere
				now = time.Now()
			}
			want, _ := p.before.Apply(p.change, now)
			want.Resolved = nil // of the spec
			want.Owner, want.Name, want.Request = "", "", nil
			close := cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute/2 })
			if diff := cmp.Diff(want, after, close); diff != "" {
				t.Fatalf("%s: %+v (-package job +SQL):\n%s", p.before.Place, p.change, diff)
			}
			if target := after.Place; target != (job.Place{State: after.State, Custody: after.Custody}) || !target.Legal() {
				t.Fatalf("%s is no legal place", target)
			}
		}
		events := w.db.value("SELECT count(*) FROM events e JOIN jobs j ON j.id = e.job AND j.n = e.n AND j.state = e.state AND j.custody = e.custody AND j.message = e.message WHERE j.id = ANY (" + ids(idsOf(jobs)) + ")")
		if events != strconv.Itoa(len(part)) {
			t.Fatalf("%s last events that agree with the row, want %d", events, len(part))
		}
		t.Logf("%d changes", len(part))
	}
}

// insert puts jobs into the tables as they are.
func (w *world) insert(jobs []job.Job) {
	w.Helper()
	null := func(id job.ID) any {
		if id.IsZero() {
			return nil
		}
		return id
	}
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t
	}
	rows := make([]map[string]any, len(jobs))
	for i, j := range jobs {
		rows[i] = map[string]any{
			"id": j.ID, "tenant": j.Tenant, "kind": j.Kind, "queue": j.Queue, "machine": j.Machine, "priority": j.Priority, "created": j.Created,
			"state": j.State, "custody": j.Custody, "epoch": j.Epoch, "n": j.N, "ord": "3", "lane": j.Lane, "session": null(j.Session),
			"claim": null(j.Claim), "attempt": j.Attempt, "max_attempts": j.MaxAttempts, "recoveries": j.Recoveries, "suspect": j.Suspect,
			"launch": j.Launch, "live": j.Live, "since": j.Since, "due": at(j.Due), "ended": at(j.Ended), "needs": j.Needs, "ties": j.Ties,
			"wish": j.Wish, "wished_by": j.WishedBy, "resume": j.Resume, "code": j.Code, "message": j.Message, "work": j.Work, "result": j.Result,
			"owner": j.Owner, "name": j.Name, "request": j.Request,
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		w.Fatal(err)
	}
	lit := str(string(text))
	w.db.must("INSERT INTO jobs SELECT * FROM json_populate_recordset(NULL::jobs, " + lit + ")")
	w.db.must("INSERT INTO specs SELECT * FROM json_populate_recordset(NULL::specs, " + lit + ")")
}

func applyStorm(t *testing.T) {
	w := newWorld(t)
	session := w.session()
	const jobs, appliers, rounds, size = 120, 16, 12, 40
	w.submit(newTasks(jobs)...)
	held := w.claim(session, jobs)
	var mu sync.Mutex
	applied := map[job.ID]int64{}
	w.together(appliers, func(i int, c *conn) {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		known := map[job.ID]job.Job{}
		for _, j := range held {
			known[j.ID] = j
		}
		for range rounds {
			b := &batch{cause: job.CauseWork}
			for _, k := range r.Perm(jobs)[:size] {
				change := step(known[held[k].ID], by(session))
				change.Path[0].Message = fmt.Sprint("by ", i)
				b.changes = append(b.changes, change)
			}
			rows, err := c.tx(b.parts()...)
			if err != nil {
				t.Error(err)
				return
			}
			for k, r := range rows {
				j := known[b.changes[k].Job]
				j.N, _ = strconv.ParseInt(r["n"], 10, 64)
				known[j.ID] = j
				if r["outcome"] == "applied" {
					mu.Lock()
					applied[j.ID]++
					mu.Unlock()
				}
			}
		}
	})
	w.noDeadlock()
	w.checkHistories()
	sum := int64(0)
	for _, j := range scanAll(w.db.must("SELECT * FROM jobs")) {
		sum += j.N - 2
		if applied[j.ID] != j.N-2 {
			t.Errorf("job %s: %d changes were answered applied, %d were made", j.ID, applied[j.ID], j.N-2)
		}
	}
	t.Logf("%d changes made by %d transactions of %d", sum, appliers*rounds, size)
}

func TestPostgresExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lapsed, live := w.session(), w.session()
	w.submit(newTasks(5)...)
	w.claim(live, 1)
	jobs := w.claim(lapsed, 4)
	w.db.must("UPDATE jobs SET wish = 'cancel', wished_by = 'ann' WHERE id = " + uuid(jobs[1].ID))
	w.db.must("UPDATE jobs SET recoveries = " + num(job.MaxRecoveries) + " WHERE id = " + uuid(jobs[2].ID))
	w.lapse(lapsed)
	if rows, err := w.expire(w.db); err != nil || len(rows) != 4 {
		t.Fatalf("expiry took %d jobs, %v; want 4", len(rows), err)
	}
	for i, want := range []job.State{job.Pending, job.Canceled, job.Failed, job.Pending} {
		if j := w.job(jobs[i].ID); j.State != want {
			t.Errorf("job %d is at %s, want %s", i, j.Place, want)
		}
	}
	if rows, err := w.expire(w.db); err != nil || len(rows) != 0 {
		t.Errorf("a second expiry took %v, %v", rows, err)
	}
	w.checkHistories()
}

func TestPostgresRenew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session, other := w.session(), w.session()
	w.submit(newTasks(3)...)
	far := newTask()
	far.Queue, far.Machine = "far", "m1"
	w.submit(far)
	held := w.claim(session, 2)
	w.db.must("UPDATE jobs SET wish = 'pause' WHERE id = " + uuid(held[0].ID))
	renew := func(machine string) []row {
		t.Helper()
		return w.db.must(execute("renew", uuid(session), "15000000", "'{default,far,empty}'", "'{app,send}'", str(machine), "'{sweep,watch}'"))
	}
	got := renew("m2")[0]
	want := row{
		"held": "0", "wishes": fmt.Sprintf(`[[%q, %d, "pause"]]`, held[0].ID, held[0].Epoch), "ready": `[["default", "send"]]`,
		"duties": `[["sweep", 1], ["watch", 1]]`, "unpaid": "f",
	}
	check := func(got, want row) {
		t.Helper()
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s, want %s", k, got[k], v)
			}
		}
	}
	check(got, want)
	if end := w.db.value("SELECT lease_until FROM sessions WHERE id = " + uuid(other)); got["next_expiry"] != end {
		t.Errorf("next expiry %s, want %s", got["next_expiry"], end)
	}
	renew("m1")
	w.db.must("INSERT INTO followups (debt, job, at) SELECT 'dependants', " + uuid(far.ID) + ", now() - interval '16 s'")
	check(renew("m1")[0], row{
		"held": "2", "ready": `[["default", "send"], ["far", "send"]]`, "unpaid": "t",
		"duties": `[["sweep", 1], ["watch", 1]]`, // kept, not taken again
	})
	w.lapse(session)
	if rows := renew("m1"); len(rows) != 0 {
		t.Errorf("a session whose lease was over was renewed: %v", rows)
	}
	w.expire(w.db)
	w.noDeadlock()
}

func TestPostgresSubmit(t *testing.T) {
	t.Parallel()
	external := func(id string) job.Job {
		j := newTask()
		j.ExternalID = id
		return j
	}
	t.Run("64 at once with one external id make one job", func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		answers, existed := map[string]int{}, map[string]int{}
		w.together(64, func(_ int, c *conn) {
			rows, err := c.tx((&submission{jobs: []job.Job{external("x")}}).parts()...)
			if err != nil || len(rows) != 1 {
				t.Error(rows, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[rows[0]["id"]]++
			existed[rows[0]["existed"]]++
		})
		if len(answers) != 1 || existed["f"] != 1 || existed["t"] != 63 {
			t.Errorf("answered with %d jobs; existed: %v", len(answers), existed)
		}
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "1" {
			t.Errorf("%s jobs", n)
		}
		w.checkHistories()
	})
	t.Run("bulk calls at once whose external ids cross", func(t *testing.T) {
		w := newWorld(t)
		w.together(12, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for round := range 4 {
				var s submission
				for _, k := range r.Perm(60)[:30] {
					s.jobs = append(s.jobs, external(fmt.Sprint(round, "-", k)))
				}
				s.jobs = append(s.jobs, newTask())
				if rows, err := c.tx(s.parts()...); err != nil || len(rows) != 31 {
					t.Error(len(rows), err)
				}
			}
		})
		w.noDeadlock()
		w.checkHistories()
		if n := w.db.value("SELECT count(*) - count(DISTINCT external_id) FROM specs WHERE external_id IS NOT NULL"); n != "0" {
			t.Errorf("%s jobs too many", n)
		}
	})
	t.Run("repeated, and again with other ids under its key", func(t *testing.T) {
		w := newWorld(t)
		s := submission{key: "k", jobs: append(newTasks(2), external("x"))}
		first, err := w.db.tx(s.parts()...)
		if err != nil {
			t.Fatal(err)
		}
		other := submission{key: "k", jobs: append(newTasks(2), external("x"))}
		for name, s := range map[string]submission{"the same": s, "with other ids": other} {
			rows, err := w.db.tx(s.parts()...)
			if err != nil || len(rows) != 3 {
				t.Fatal(name, rows, err)
			}
			for i, r := range rows {
				if r["id"] != first[i]["id"] || r["existed"] != "t" {
					t.Errorf("%s: answer %d is %v, want job %s", name, i, r, first[i]["id"])
				}
			}
		}
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "3" {
			t.Errorf("%s jobs, want 3", n)
		}
	})
	t.Run("one that clashes leaves nothing behind", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.db.tx((&submission{key: "k", jobs: []job.Job{external("x")}}).parts()...); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]submission{
			"the key of another request":            {key: "k", jobs: newTasks(3), mark: 1},
			"the external id of another request":    {jobs: append(newTasks(3), external("x")), mark: 1},
			"the same with a new key":               {key: "l", jobs: append(newTasks(3), external("x")), mark: 1},
			"an external id twice, for other tasks": {jobs: append(newTasks(3), external("x"), external("y")), mark: 1},
		} {
			if rows, err := w.db.tx(s.parts()...); err == nil || !strings.Contains(err.Error(), "PW001") {
				t.Errorf("%s: %v, %v", name, rows, err)
			}
		}
		if n := w.db.value("SELECT count(*) FROM jobs") + w.db.value("SELECT count(*) FROM idempotency"); n != "11" {
			t.Errorf("jobs and keys left: %s", n)
		}
	})
	t.Run("16 at once under one key", func(t *testing.T) {
		w := newWorld(t)
		w.together(16, func(_ int, c *conn) {
			if rows, err := c.tx((&submission{key: "k", jobs: newTasks(2)}).parts()...); err != nil || len(rows) != 2 {
				t.Error(rows, err)
			}
		})
		if n := w.db.value("SELECT count(*) FROM jobs"); n != "2" {
			t.Errorf("%s jobs, want 2", n)
		}
	})
	t.Run("bulk calls at once whose unique keys cross", func(t *testing.T) {
		w := newWorld(t)
		w.together(12, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			for range 4 {
				var keys []string
				for _, k := range r.Perm(40)[:20] {
					keys = append(keys, fmt.Sprint("k", k))
				}
				jobs := newTasks(len(keys))
				kinds, modes := array("text", keys, func(string) string { return "'send'" }), array("text", keys, func(string) string { return "'done'" })
				_, err := c.tx(execute("submit_reserve", str(acme), kinds, modes, array("text", keys, str), ids(idsOf(jobs))),
					execute("submit_holders", str(acme), kinds, modes, array("text", keys, str)))
				if err != nil {
					t.Error(err)
				}
			}
		})
		w.noDeadlock()
		if n := w.db.value("SELECT count(*) FROM unique_keys"); n != "40" {
			t.Errorf("%s keys, want 40", n)
		}
	})
	t.Run("a prerequisite does not end unseen", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		first := w.claimed(session)
		waits := newTask()
		waits.Needs = 1
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		a.must(execute("submit_prerequisites", ids([]job.ID{first.ID})))
		ended := w.beside(b, func() ([]row, error) { return b.tx(applying(done(first, by(session))).parts()...) })
		for _, sql := range (&submission{jobs: []job.Job{waits}}).parts() {
			a.must(sql)
		}
		a.must(execute("submit_ties", ids([]job.ID{first.ID}), ids([]job.ID{waits.ID}), "'{finished}'", "'{}'", "'{}'"))
		a.must("COMMIT")
		if rows := w.got(ended); rows[0]["owed"] != "t" {
			t.Errorf("the end owes nothing: %v", rows)
		}
		w.pay(w.db)
		if j := w.job(waits.ID); j.State != job.Pending {
			t.Errorf("the job that waited is at %s", j.Place)
		}
	})
}

// pay runs Pay on c, and returns how many edges it paid.
func (w *world) pay(c *conn) (int, error) {
	if _, err := c.run("BEGIN"); err != nil {
		return 0, err
	}
	rows, err := c.run("EXECUTE pay(1000)")
	if err != nil {
		return 0, err
	}
	return w.paid(c, rows)
}

// paid writes what package job makes of the jobs that pay answered, and commits.
func (w *world) paid(c *conn, rows []row) (int, error) {
	var before []job.Job
	var changes []job.Change
	for _, r := range rows {
		if r["id"] == "" {
			continue
		}
		j := scan(r)
		change := job.Change{Job: j.ID, From: j.Guard(job.Fence{})}
		switch {
		case j.State.Terminal():
			continue
		case r["unmet"] != "":
			change.To = job.None
			change.Path = []job.Entry{{State: job.Canceled, Code: job.PrerequisiteFailed, Message: r["unmet_name"] + " ended " + r["unmet_state"]}}
		case j.State != job.Waiting:
			continue
		default:
			p := job.Next(&j, job.Pending, time.Now())
			if p == j.Place {
				continue
			}
			change.To, change.Path = p.Custody, []job.Entry{{State: p.State}}
		}
		before, changes = append(before, j), append(changes, change)
	}
	if len(before) > 0 {
		if _, err := c.run(written(before, changes, time.Now(), job.CausePaid)); err != nil {
			return 0, err
		}
	}
	n, _ := strconv.Atoi(rows[0]["paid"])
	_, err := c.run("COMMIT")
	return n, err
}

// payAll pays until nothing is owed.
func (w *world) payAll() {
	w.Helper()
	for w.db.value("EXECUTE owed") == "t" {
		if _, err := w.pay(w.db); err != nil {
			w.Fatal(err)
		}
	}
}

// waiting submits jobs that end, and jobs that each wait for all of them.
func (w *world) waiting(session job.ID, first, waits int) (ending, waiting []job.Job) {
	w.Helper()
	w.submit(newTasks(first)...)
	ending = w.claim(session, first)
	waiting = newTasks(waits)
	var needs, jobs []job.ID
	for i := range waiting {
		waiting[i].Needs = first
		for _, e := range ending {
			needs, jobs = append(needs, e.ID), append(jobs, waiting[i].ID)
		}
	}
	w.submit(waiting...)
	w.db.must(execute("submit_ties", ids(needs), ids(jobs), array("text", jobs, func(job.ID) string { return "'finished'" }), "'{}'", "'{}'"))
	return ending, waiting
}

func TestPostgresPay(t *testing.T) {
	t.Parallel()
	t.Run("two last prerequisites at once release once", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 2, 3)
		w.must(applying(done(ending[0], by(session))))
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		left := a.must("EXECUTE pay(1000)")
		w.must(applying(done(ending[1], by(session))))
		// The second payer has another follow-up, and waits for the rows of the same jobs.
		right := w.beside(b, func() ([]row, error) { n, err := w.pay(b); return make([]row, n), err })
		if n, err := w.paid(a, left); n != 3 || err != nil {
			t.Errorf("the first paid %d, %v", n, err)
		}
		if n := len(w.got(right)); n != 3 {
			t.Errorf("the second paid %d", n)
		}
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 || j.Needs != 0 {
				t.Errorf("at %s with %d events, needs %d", j.Place, j.N, j.Needs)
			}
		}
		if owed := w.db.value("EXECUTE owed"); owed != "f" {
			t.Error("something is still owed")
		}
		w.checkHistories()
	})
	t.Run("a page of a follow-up is counted once, also under an old snapshot", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 2, 10)
		w.must(applying(done(ending[0], by(session))))
		a, b := w.connect(), w.connect()
		text, err := os.ReadFile(filepath.Join("testdata", "postgres", "pay.sql"))
		if err != nil {
			t.Fatal(err)
		}
		// The same statement, held up between its snapshot and its first lock.
		pay, _, _ := strings.Cut(string(text[bytes.Index(text, []byte("PREPARE")):]), ";")
		b.must(strings.NewReplacer("PREPARE pay(", "PREPARE late(", "WITH debts", "WITH stop AS MATERIALIZED (SELECT pg_advisory_xact_lock(77)), debts",
			"FROM followups f ORDER BY", "FROM followups f WHERE (SELECT count(*) FROM stop) = 1 ORDER BY").Replace(pay))
		a.must("SELECT pg_advisory_lock(77)")
		b.must("BEGIN")
		held := w.beside(b, func() ([]row, error) { return b.run("EXECUTE late(4)") })
		a.must("BEGIN")
		if n, err := w.paid(a, a.must("EXECUTE pay(4)")); n != 4 || err != nil {
			t.Errorf("the first paid %d, %v", n, err)
		}
		a.must("SELECT pg_advisory_unlock(77)")
		if n, err := w.paid(b, w.got(held)); n != 0 || err != nil {
			t.Errorf("the second paid %d edges that were gone, %v", n, err)
		}
		if n := w.db.value("SELECT count(*) FROM jobs j WHERE j.needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = j.id)"); n != "0" {
			t.Errorf("%s jobs count other prerequisites than they have", n)
		}
		w.must(applying(done(ending[1], by(session))))
		w.payAll()
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 {
				t.Errorf("at %s with %d events", j.Place, j.N)
			}
		}
	})
	t.Run("storm", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		ending, waiting := w.waiting(session, 24, 20)
		w.together(8, func(i int, c *conn) {
			for k := i; k < len(ending); k += 8 {
				if _, err := c.tx(applying(done(ending[k], by(session))).parts()...); err != nil {
					t.Error(err)
				}
				if _, err := w.pay(c); err != nil {
					t.Error(err)
				}
			}
		})
		w.payAll()
		for _, j := range waiting {
			if j = w.job(j.ID); j.State != job.Pending || j.N != 2 || j.Needs != 0 {
				t.Errorf("at %s with %d events, needs %d", j.Place, j.N, j.Needs)
			}
		}
		w.noDeadlock()
		w.checkHistories()
	})
}

// It runs alone: a transaction that is open in any database of the server holds back every cursor.
func TestPostgresEvents(t *testing.T) {
	// follow reads from a cursor and returns "job n" of each event, and the cursor to go on from.
	follow := func(w *world, cursor string) (seen []string, next string) {
		for {
			rows := w.db.must(execute("events_after", str(acme), cursor, "2"))
			for _, r := range rows {
				seen = append(seen, r["job"]+" "+r["n"])
				cursor = fmt.Sprintf("'%s', '%s', %s", r["ord"], r["job"], r["n"])
			}
			if len(rows) < 2 {
				return seen, cursor
			}
		}
	}
	const first = "'0', '00000000-0000-0000-0000-000000000000', 0"
	all := func(w *world) int { n, _ := strconv.Atoi(w.db.value("SELECT count(*) FROM events")); return n }

	t.Run("commits out of order", func(t *testing.T) {
		w := newWorld(t)
		w.db.must("ALTER TABLE events ADD id bigint GENERATED ALWAYS AS IDENTITY") // for the way that is wrong
		w.db = w.connect()
		w.submit(newTask())
		seen, cursor := follow(w, first)
		if len(seen) != 1 {
			t.Fatalf("seen: %v", seen)
		}
		a, b := w.connect(), w.connect()
		a.must("BEGIN")
		for _, sql := range (&submission{jobs: newTasks(1)}).parts() {
			a.must(sql)
		}
		if _, err := b.tx((&submission{jobs: newTasks(1)}).parts()...); err != nil {
			t.Fatal(err)
		}
		byID := w.db.value("SELECT max(id) FROM events") // a follower of ids has seen this one
		more, cursor := follow(w, cursor)
		if len(more) != 0 {
			t.Errorf("the cursor passed a transaction that is open: %v", more)
		}
		a.must("COMMIT")
		more, _ = follow(w, cursor)
		if len(more) != 2 {
			t.Errorf("seen after the commits: %v, want 2 events", more)
		}
		if n := w.db.value("SELECT count(*) FROM events WHERE id > " + byID); n != "0" {
			t.Errorf("a follower of ids sees %s more events: nothing is shown here", n)
		}
	})
	t.Run("a job's own order", func(t *testing.T) {
		w := newWorld(t)
		session, early := w.session(), w.session()
		w.submit(newTasks(2)...)
		jobs := w.claim(session, 2)
		_, cursor := follow(w, first)
		a, b := w.connect(), w.connect()
		// a has its transaction's id before b, and then waits for the job that b has.
		a.must("BEGIN")
		a.must("SELECT FROM sessions WHERE id = " + uuid(early) + " FOR KEY SHARE")
		one := applying(step(jobs[0], by(session)))
		b.must("BEGIN")
		for _, sql := range one.parts() {
			b.must(sql)
		}
		c := step(jobs[0], by(session))
		c.From.N++
		two := applying(c)
		a.must(two.fences())
		locked := w.beside(a, func() ([]row, error) { return a.run(two.lock()) })
		b.must("COMMIT")
		w.got(locked)
		if rows := a.must(two.apply()); rows[0]["outcome"] != "applied" {
			t.Fatal(rows)
		}
		if seen, _ := follow(w, cursor); len(seen) != 0 {
			t.Errorf("seen beside the open transaction: %v", seen)
		}
		own := a.value("SELECT pg_current_xact_id()")
		a.must("COMMIT")
		id := jobs[0].ID.String()
		seen, _ := follow(w, cursor)
		if diff := cmp.Diff([]string{id + " 3", id + " 4"}, seen); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := w.db.value("SELECT count(*) FROM events WHERE job = " + str(id) + " AND n = 3 AND ord > " + str(own)); n != "1" {
			t.Error("the ids of the two transactions stand in the order of the events: nothing is shown here")
		}
	})
	t.Run("storm", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTasks(30)...)
		held := w.claim(session, 30)
		stop := make(chan struct{})
		var seen []string
		reader := w.connect()
		var wg sync.WaitGroup
		wg.Go(func() {
			side := *w
			side.db = reader
			cursor := first
			for last := false; ; {
				var more []string
				more, cursor = follow(&side, cursor)
				seen = append(seen, more...)
				if last {
					return
				}
				select {
				case <-stop:
					last = true
				default:
				}
			}
		})
		w.together(8, func(i int, c *conn) {
			r := rand.New(rand.NewPCG(4, uint64(i)))
			n := map[job.ID]int64{}
			for range 25 {
				b := &batch{cause: job.CauseWork}
				for _, k := range r.Perm(len(held))[:4] {
					change := step(held[k], by(session))
					change.From.N += n[held[k].ID]
					b.changes = append(b.changes, change)
				}
				rows, err := c.tx(b.parts()...)
				if err != nil {
					t.Error(err)
					return
				}
				for k, r := range rows {
					at, _ := strconv.ParseInt(r["n"], 10, 64)
					n[b.changes[k].Job] = at - 2
				}
			}
		})
		close(stop)
		wg.Wait()
		at := map[string]int{}
		for _, s := range seen {
			id, n, _ := strings.Cut(s, " ")
			if at[id]++; n != strconv.Itoa(at[id]) {
				t.Fatalf("event %s of job %s came as number %d", n, id, at[id])
			}
		}
		if len(seen) != all(w) {
			t.Errorf("seen %d events of %d", len(seen), all(w))
		}
	})
}

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
