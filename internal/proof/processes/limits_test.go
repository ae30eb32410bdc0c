package processes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// limitedVariable names the database in the environment of a process that [TestLimitsSideBySide]
// starts, and limitedSlots are those that it has.
const (
	limitedVariable = "PAWL_TEST_LIMITED"
	limitedSlots    = 6
)

// A limited task says under which keys it runs.
type limited struct{ Keys []string }

// The ledger of who runs is a table that handlers write when they begin and when they end. Who
// begins looks who runs beside it: of two that overlap the later one sees both.
const (
	ledgerTables = `CREATE UNLOGGED TABLE running (job uuid, key text); CREATE INDEX ON running (key); CREATE UNLOGGED TABLE beside (job uuid, key text, n int, at timestamptz)`
	ledgerBegin  = `INSERT INTO running (job, key) SELECT $1, unnest($2::text[])`
	ledgerBeside = `INSERT INTO beside SELECT $1, k, (SELECT count(*) FROM running r WHERE r.key = k), clock_timestamp() FROM unnest($2::text[]) k, pg_sleep($3)`
	ledgerEnd    = `DELETE FROM running WHERE job = $1`

	// ledgerOwed returns, in one snapshot, the turns that are owed; and the keys that somebody
	// waits for and that have a free place, with who has turns of them; each with how many turns
	// have been used.
	ledgerOwed = `
WITH RECURSIVE lines AS (
	(SELECT j.line FROM pawl.jobs j WHERE j.tenant = 'default' AND j.line IS NOT NULL ORDER BY j.line LIMIT 1)
	UNION ALL
	SELECT (SELECT j.line FROM pawl.jobs j WHERE j.tenant = 'default' AND j.line > l.line ORDER BY j.line LIMIT 1) FROM lines l WHERE l.line IS NOT NULL
)
SELECT o.seq::text, NULL::uuid[], (SELECT count(*) FROM beside) FROM pawl.turns_owed o
UNION ALL
SELECT l.line, held.jobs, (SELECT count(*) FROM beside) FROM lines l
	CROSS JOIN LATERAL (SELECT array_agg(t.job) AS jobs, count(*) AS n FROM pawl.turns t WHERE t.tenant = 'default' AND t.key = l.line OFFSET 0) held
	CROSS JOIN LATERAL (SELECT m.most FROM pawl.limits m WHERE m.tenant = 'default' AND m.key = ANY (ARRAY[l.line, regexp_replace(l.line, '/[^/]*$', '/*')])
		ORDER BY m.key = l.line DESC LIMIT 1) may
WHERE l.line IS NOT NULL AND held.n < may.most`
)

// TestLimitsSideBySide: many processes run tasks under a thousand keys, while limits are changed.
// No key ever has more of them than it may, by their own account; nobody ever waits beside a free
// place of which nobody knows, or that is not handed on while others run; and no two wait for each
// other.
func TestLimitsSideBySide(t *testing.T) {
	if dsn := os.Getenv(limitedVariable); dsn != "" {
		beLimited(t, dsn)
		return
	}
	t.Parallel()
	const keys, places, whole, most = 1000, 2, 40, 5
	processes, jobs := 8, 1000
	if testenv.Long() {
		processes, jobs = 16, 2000
	}
	dsn := shared(t)
	admin, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.Background()) })
	if _, err := admin.Exec(t.Context(), ledgerTables); err != nil {
		t.Fatal(err)
	}
	var desks []*process // submit, and run nothing
	for _, owner := range []string{"ann", "bob"} {
		desks = append(desks, join(t, dsn, service.Config{Principal: owner}, nil))
	}
	desk := desks[0]
	limit := func(l job.Limit) {
		t.Helper()
		if err := desk.SetLimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	limit(job.Limit{Key: "lab/*", Most: places})
	limit(job.Limit{Key: "whole", Most: whole, Weights: map[string]int{"bob": 2}})
	leave := seats(t, processes, "^TestLimitsSideBySide$", limitedVariable+"="+dsn)
	until(t, "all processes", func() (bool, error) {
		n, err := counted(t, desk, service.WorkerLive)
		return n == processes, err
	})

	r := rand.New(rand.NewPCG(1, 1))
	answers := make([][]store.Submitted, len(desks))
	var submitting sync.WaitGroup
	for i, d := range desks {
		reqs := make([]service.Request, jobs/len(desks))
		for n := range reqs {
			// Few keys have many jobs, and many have few.
			under := []string{fmt.Sprintf("lab/%d", r.IntN(1+r.IntN(keys)))}
			if other := fmt.Sprintf("lab/%d", r.IntN(keys)); r.IntN(4) == 0 && other != under[0] {
				under = append(under, other)
			}
			if r.IntN(3) == 0 {
				under = append(under, "whole")
			}
			reqs[n] = task("limited", limited{under})
			reqs[n].Spec.Limits = under
		}
		submitting.Go(func() {
			for len(reqs) > 0 {
				n := min(len(reqs), 100)
				got, err := d.Submit(context.Background(), reqs[:n]...)
				if err != nil {
					t.Error(err)
					return
				}
				answers[i], reqs = append(answers[i], got...), reqs[n:]
			}
		})
	}
	changing, enough := context.WithCancel(t.Context())
	defer enough()
	var around sync.WaitGroup
	said := map[string][]changedLimit{} // by key, in order; read when around has ended
	say := func(key string, most int, call func() error) {
		began := time.Now()
		if err := call(); err != nil && changing.Err() == nil {
			t.Errorf("limit of %s: %v", key, err)
		} else if err != nil {
			said[key] = append(said[key], changedLimit{most, began, time.Time{}})
		} else {
			said[key] = append(said[key], changedLimit{most, began, time.Now()})
		}
	}
	around.Go(func() {
		for n := 0; changing.Err() == nil; n++ {
			key := fmt.Sprintf("lab/%d", n%10)
			l := job.Limit{Key: key, Most: []int{0, 1, most}[n/10%3]}
			say(key, l.Most, func() error { return desk.SetLimit(changing, l) })
			if n/10%4 == 3 {
				say(key, places, func() error { return desk.RemoveLimit(changing, key) })
			}
		}
		for n := range 10 {
			key, began := fmt.Sprintf("lab/%d", n), time.Now()
			if err := desk.RemoveLimit(t.Context(), key); err != nil && job.KindOf(err) != job.NotFound {
				t.Error(err)
			}
			said[key] = append(said[key], changedLimit{places, began, time.Now()})
		}
	})
	var stood delays
	looks, last := 0, make(chan none)
	around.Go(func() {
		for more := true; more; looks++ {
			select {
			case <-last:
				more = false
			default:
			}
			if n, _, err := desk.store.Recount(t.Context(), 100); err != nil || n != (store.Recounted{}) {
				t.Errorf("look %d: %+v, %v", looks, n, err)
			}
			if err := stood.look(t.Context(), admin); err != nil {
				t.Errorf("look %d: %v", looks, err)
			}
		}
	})
	submitting.Wait()
	until(t, "half of the jobs have ended", func() (bool, error) {
		n, err := desk.store.Count(t.Context(), "default", nil)
		return n.States[job.Finished] >= jobs/2, err
	})
	enough()
	for i, d := range desks {
		d.finished(t, answers[i])
	}
	close(last)
	around.Wait()
	until(t, "all is paid", func() (bool, error) {
		var owed bool
		err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pawl.turns_owed) OR EXISTS (SELECT FROM pawl.turns)`).Scan(&owed)
		return !owed, err
	})
	leave()

	granted := grants(t, desk.store)
	rows, err := admin.Query(t.Context(), `SELECT job, key, n, at, count(*) OVER (PARTITION BY job) FROM beside`)
	if err != nil {
		t.Fatal(err)
	}
	var id [16]byte
	var key string
	var at time.Time
	var n, under, seen, lowered int
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &n, &at, &under}, func() error {
		may := places
		switch {
		case key == "whole":
			may = whole
		case len(key) == len("lab/0"): // of which the limit was changed
			since, got := granted[id]
			if !got || under > 1 { // it had its turn at once, or may have kept this one while it stood in line for another
				since = job.ID(id).Made()
			}
			if may = mostBetween(said[key], places, since, at); may < places {
				lowered++
			}
		}
		if n > may {
			t.Errorf("%s: %d ran side by side, and %d may", key, n, may)
		}
		seen = max(seen, n)
		return nil
	})
	var ran, deadlocks int
	err = errors.Join(err, admin.QueryRow(t.Context(), `SELECT count(*) FROM beside`).Scan(&ran),
		admin.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks))
	if err != nil || ran < jobs || seen < places || lowered == 0 || deadlocks != 0 {
		t.Errorf("%d ran, %d of a key side by side, %d under a lowered limit, %d deadlocks, %v", ran, seen, lowered, deadlocks, err)
	}
	// Who pays takes the oldest debts first. It sends some statements for that, and waits for the
	// one before it, while each slot goes on: a job has four statements, and takes one to three
	// places. So a slot takes some places meanwhile: 4 were seen with ten processes to a core, and
	// 10 is room for a slower machine. A debt that nobody pays sees almost all of them taken, 60 by
	// each slot. A place is idle for no longer than what is owed for it: whoever owes it anew is to
	// have handed some on.
	longest := 10 * processes * limitedSlots
	if stood.debt > longest {
		t.Errorf("a free place was not handed on while %d others were taken, and no more than %d may be", stood.debt, longest)
	}
	if stood.idle > longest {
		t.Errorf("a place of %s was idle, and somebody waited for it, while %d others were taken, and no more than %d may be", stood.key, stood.idle, longest)
	}
	t.Logf("%d of a key ran side by side at most, and %d under a lowered limit; looked %d times; %d places were taken while one was to be handed on, and %d while one of %s was idle",
		seen, lowered, looks, stood.debt, stood.idle, stood.key)
	storetest.Check(t, desk.store, "default")
}

// Delays are for how long debts of turns have stood, and keys have had an idle place, by how many
// turns were used meanwhile.
type delays struct {
	first      map[string]delay // of those that stood when last looked at: debts, and keys that somebody waits for
	debt, idle int              // the most that were used while one stood
	key        string           // that was idle for so long
}

// A delay is how many turns had been used when a debt was first seen, or a key of which no place
// was handed on since; and who has turns of it.
type delay struct {
	used int
	held [][16]byte
}

// look looks at all debts and at all keys.
func (s *delays) look(ctx context.Context, ledger *pgx.Conn) error {
	rows, err := ledger.Query(ctx, ledgerOwed)
	if err != nil {
		return err
	}
	now := map[string]delay{}
	var what string
	var held [][16]byte
	var used int
	_, err = pgx.ForEachRow(rows, []any{&what, &held, &used}, func() error {
		since, stood := s.first[what]
		handed := slices.ContainsFunc(held, func(id [16]byte) bool { return !slices.Contains(since.held, id) })
		if !stood || handed {
			since.used = used
		}
		since.held = slices.Clone(held)
		now[what] = since
		switch n := used - since.used; {
		case what[0] <= '9': // a debt
			s.debt = max(s.debt, n)
		case n > s.idle:
			s.idle, s.key = n, what
		}
		return nil
	})
	s.first = now
	return err
}

// A changedLimit is how many may have turns of a key, from a moment between these on; with no end,
// it is not known whether it was set.
type changedLimit struct {
	most         int
	began, ended time.Time
}

// mostBetween returns the highest of the limits of a key that may have been in force between two
// moments: one that was there before, or any other up to the end of the change that took its place.
func mostBetween(changes []changedLimit, before int, from, to time.Time) int {
	most := before
	for _, c := range changes {
		switch {
		case c.began.After(to):
			return most
		case !c.ended.IsZero() && c.ended.Before(from): // and all before it are past
			most = c.most
		default:
			most = max(most, c.most)
		}
	}
	return most
}

// grants returns since when jobs have their turns, at the earliest: a limit that was changed before
// has decided on them. Who ran beside it later had a turn by then, or got it after that.
func grants(t *testing.T, s store.Store) map[job.ID]time.Time {
	t.Helper()
	at := map[job.ID]time.Time{}
	for q := (store.EventQuery{Tenant: "default", Limit: 10_000}); ; {
		es, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es.Events {
			if e.Cause == job.CauseTurn {
				at[e.Job] = e.At
			}
		}
		if q.Cursor = es.Cursor; len(es.Events) == 0 {
			return at
		}
	}
}

// beLimited is a process that runs limited tasks until its input ends.
func beLimited(t *testing.T, dsn string) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.ConnConfig.RuntimeParams["synchronous_commit"] = limitedSlots, "off"
	ledger, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ledger.Close)
	p := join(t, dsn, service.Config{
		Options: engine.Options{Lease: time.Minute, Slots: map[job.Lane]int{job.LaneTask: limitedSlots}},
	}, nil)
	service.Handle(p.Service, "limited", func(ctx context.Context, t *service.Task[limited]) (none, error) {
		ctx = context.WithoutCancel(ctx)
		_, err := ledger.Exec(ctx, ledgerBegin, [16]byte(t.Job.ID), t.Args.Keys)
		if err == nil {
			_, err = ledger.Exec(ctx, ledgerBeside, [16]byte(t.Job.ID), t.Args.Keys, rand.Float64()/200)
		}
		_, end := ledger.Exec(ctx, ledgerEnd, [16]byte(t.Job.ID))
		return none{}, errors.Join(err, end)
	})
	p.start(t)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends with whoever started it
		t.Error(err)
	}
}

// seats starts this test binary so many times for one test, and returns what ends these processes
// in good order.
func seats(t *testing.T, n int, run, variable string) (leave func()) {
	t.Helper()
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			c := exec.Command(os.Args[0], "-test.run="+run)
			c.Env, c.Stdin = append(os.Environ(), variable), stdin
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("a process: %v\n%s", err, out)
			}
		})
	}
	leave = sync.OnceFunc(func() {
		end.Close()
		all.Wait()
		stdin.Close()
	})
	t.Cleanup(leave)
	return leave
}
