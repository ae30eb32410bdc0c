package store_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
)

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

func (c *conn) must(sql string) []row {
	c.t.Helper()
	rows, err := c.run(sql)
	if err != nil {
		c.t.Fatalf("%.300s\n%v", sql, err)
	}
	return rows
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
		last(func(e job.Entry) string { return str(string(job.LaneOf(e.State, true, 0))) }),
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

// must runs a batch.
func (w *world) must(b *batch) []row {
	w.Helper()
	rows, err := w.db.tx(b.parts()...)
	if err != nil {
		w.Fatal(err)
	}
	return rows
}
