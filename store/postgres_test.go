package store_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	db     *conn // for what a test does on the side
}

func newWorld(t *testing.T) *world {
	server := testenv.Postgres(t)
	w := &world{T: t, server: server, dsn: server.Database(t)}
	server.Psql(t, w.dsn, "-f", filepath.Join("testdata", "postgres", "schema.sql"))
	w.db = w.connect()
	return w
}

// statements are the files of prepared statements.
var statements = []string{"claim", "apply", "write", "expire", "renew", "pay", "submit", "events"}

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
	bin := w.server.Psql(w.T, "postgres", "-c", "SELECT setting FROM pg_config WHERE name = 'BINDIR'")
	cmd := exec.Command(filepath.Join(bin, "psql"), "-X", "-q", "--csv", "-P", `null=\N`, "-d", w.dsn)
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
	deadline := time.Now().Add(30 * time.Second)
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

func same(s string) string { return s }

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

// A batch is one call of Apply. wish is the one that its changes have met.
type batch struct {
	changes []job.Change
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
	type step struct {
		job.Entry
		change, position int
	}
	var path []step
	for i, c := range b.changes {
		for k, e := range c.Path {
			path = append(path, step{e, i + 1, k + 1})
		}
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
		array("int", path, func(s step) string { return num(s.change) }),
		array("int", path, func(s step) string { return num(s.position) }),
		array("text", path, func(s step) string { return str(string(s.State)) }),
		array("text", path, func(s step) string { return str(string(s.Code)) }),
		array("text", path, func(s step) string { return str(s.Message) }),
		array("json", path, func(s step) string { return doc(s.Data) }))
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
		job.Custody
		change, position int
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
	var path []step
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
			path = append(path, step{e, custody, i + 1, k + 1})
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
		array("int", path, func(s step) string { return num(s.change) }), array("int", path, func(s step) string { return num(s.position) }),
		array("text", path, func(s step) string { return str(string(s.State)) }), array("text", path, func(s step) string { return str(string(s.Custody)) }),
		array("text", path, func(s step) string { return str(string(s.Code)) }), array("text", path, func(s step) string { return str(s.Message) }),
		array("json", path, func(s step) string { return doc(s.Data) }),
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
	t.Run("after the expiry has locked the session claims nothing", func(t *testing.T) {
		w := newWorld(t)
		session := w.session()
		w.submit(newTask())
		a, b := w.connect(), w.connect()
		w.lapse(session)
		a.must("BEGIN; EXECUTE expire_close")
		// The lease looks good again to whoever checks it without the lock.
		c := claim{id: job.NewID(), session: session, slots: 1}
		claimed := w.beside(b, func() ([]row, error) {
			if _, err := b.run("SET session_replication_role = DEFAULT"); err != nil {
				return nil, err
			}
			return b.tx(append([]string{"SELECT lapse_later()"}, c.parts()...)...)
		})
		a.must("COMMIT")
		if rows := w.got(claimed); rows[0]["alive"] != "f" || len(scanAll(rows)) != 0 {
			t.Errorf("a session that was ended claimed: %v", rows)
		}
	})
}
