package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestOrder has two transactions meet in the middle.
func TestOrder(t *testing.T) {
	t.Parallel()
	t.Run("a claim waits for who ends its session, and claims nothing", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		session := begin(t, s, time.Minute)
		submit(t, s, newTask())
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.sessions WHERE id = $1 FOR UPDATE", [16]byte(session))
		answer := make(chan error, 1)
		go func() {
			_, err := s.Claim(context.Background(), asking(session, 1))
			answer <- err
		}()
		untilWaiting(t, connect(t, dsn), 1)
		must(t, other, "UPDATE pawl.sessions SET ended = pawl.clock(), crashed = true WHERE id = $1", [16]byte(session))
		must(t, other, "COMMIT")
		if err := <-answer; job.KindOf(err) != job.Fenced {
			t.Errorf("%v", err)
		}
		if n := value[int](t, other, "SELECT count(*) FROM pawl.jobs WHERE custody = 'ready'"); n != 1 {
			t.Error("the job is not in its line")
		}
	})
	t.Run("an expiry waits for a claim under way, and takes its jobs", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		session := begin(t, s, time.Minute)
		id := submit(t, s, newTask())[0]
		must(t, other, "BEGIN")
		// the claim's first lock
		must(t, other, "SELECT FROM pawl.sessions WHERE id = $1 FOR KEY SHARE", [16]byte(session))
		newClock(t, dsn).Advance(2 * time.Minute)
		taken := make(chan int, 1)
		go func() {
			n, _, err := s.Expire(context.Background(), 10)
			if err != nil {
				t.Error(err)
			}
			taken <- n
		}()
		untilWaiting(t, connect(t, dsn), 1)
		must(t, other, "UPDATE pawl.jobs SET state = 'RUNNING', custody = 'worker', epoch = 2, n = 2, session = "+
			"$1, claim = $1 WHERE id = $2", [16]byte(session), [16]byte(id))
		must(t, other, "INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause) VALUES "+
			"($1, 2, 'acme', pg_current_xact_id()::text::bigint, 1, 'RUNNING', 'worker', pawl.clock(), 'claim')",
			[16]byte(id))
		must(t, other, "COMMIT")
		if n := <-taken; n != 1 {
			t.Errorf("%d jobs were taken", n)
		}
		storetest.Check(t, s, acme)
	})
	t.Run("a claim that waited for a job does not come before what was done to it", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		c := asking(begin(t, s, time.Minute), 1)
		c.Jobs = submit(t, s, newTask())
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.jobs WHERE id = $1 FOR UPDATE", [16]byte(c.Jobs[0]))
		claimed := make(chan []job.Job, 1)
		go func() {
			jobs, err := s.Claim(context.Background(), c)
			if err != nil {
				t.Error(err)
			}
			claimed <- jobs
		}()
		untilWaiting(t, connect(t, dsn), 1)
		moved := value[time.Time](t, other,
			"UPDATE pawl.jobs SET since = pawl.clock() WHERE id = $1 RETURNING since", [16]byte(c.Jobs[0]))
		must(t, other, "COMMIT")
		if jobs := <-claimed; len(jobs) != 1 || jobs[0].Since.Before(moved) {
			t.Errorf("claimed %v; the job was moved at %v", jobs, moved)
		}
	})
	t.Run("the event of an apply does not stand before the one that its job had from a later transaction",
		func(t *testing.T) {
			t.Parallel()
			dsn := clocked(t)
			s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
			session := begin(t, s, time.Minute)
			submit(t, s, newTasks(3)...)
			cs := finishes(claim(t, s, session, 3), session)
			cs[1].Path[0] = job.Entry{State: job.Failed, Code: job.TaskFailed}
			cs[2].Path[0], cs[2].To = job.Entry{State: job.Pending}, job.Ready
			// as if that one had its number while these waited for a lock
			must(t, admin, "UPDATE pawl.jobs SET ord = ord + 1000")
			late := value[int64](t, admin, "SELECT min(ord) FROM pawl.jobs")
			if _, _, _, err := s.Apply(t.Context(), cs, nil); err != nil {
				t.Fatal(err)
			}
			if n := value[int](t, admin, "SELECT count(*) FROM pawl.events WHERE n = 3 AND ord >= $1", late); n != 3 {
				t.Errorf("%d events of 3 stand where they should", n)
			}
			if n := value[int](t, admin,
				"SELECT count(*) FROM (SELECT ord FROM pawl.jobs UNION ALL SELECT ord FROM pawl.ended) j WHERE "+
					"ord >= $1", late); n != 3 {
				t.Errorf("%d rows of 3 know where their last events stand", n)
			}
		})
	t.Run("an apply locks the specs that it resolves in their order", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		session := begin(t, s, time.Minute)
		tasks := newTasks(2)
		slices.Reverse(tasks) // so that the rows lie against their order
		last, first := [16]byte(tasks[0].Job.ID), [16]byte(tasks[1].Job.ID)
		submit(t, s, tasks...)
		cs := finishes(claim(t, s, session, 2), session)
		for i := range cs {
			cs[i].Set.Resolved = json.RawMessage(`{"kind":"send"}`)
		}
		must(t, other, "BEGIN")
		// as one that annotates both begins
		must(t, other, "SELECT FROM pawl.specs WHERE id = $1 FOR NO KEY UPDATE", first)
		answer := make(chan error, 1)
		go func() {
			_, _, _, err := s.Apply(context.Background(), cs, nil)
			answer <- err
		}()
		untilWaiting(t, connect(t, dsn), 1)
		must(t, other, "SELECT FROM pawl.specs WHERE id = $1 FOR NO KEY UPDATE NOWAIT", last)
		must(t, other, "COMMIT")
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
	t.Run("an apply holds no session that ended long ago", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other, watch := open(t, dsn, postgres.Options{}), connect(t, dsn), connect(t, dsn)
		clock := newClock(t, dsn)
		frozen := begin(t, s, time.Minute)
		submit(t, s, newTask())
		j := claim(t, s, frozen, 1)[0]
		clock.Advance(2 * time.Minute)
		if n, _, err := s.Expire(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("%d jobs were taken, %v", n, err)
		}
		clock.Advance(store.SessionKept)
		next := begin(t, s, time.Minute)
		claim(t, s, next, 1)
		clock.Advance(2 * time.Minute)
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.jobs WHERE id = $1 FOR UPDATE", [16]byte(j.ID))
		expired, applied := make(chan error, 1), make(chan error, 1)
		go func() { // takes the job of the second session, and removes the first
			_, _, err := s.Expire(context.Background(), 10)
			expired <- err
		}()
		untilWaiting(t, watch, 1)
		go func() {
			as, _, _, err := s.Apply(context.Background(), finishes([]job.Job{j}, frozen), nil)
			if err == nil && as[0].Outcome != store.Fenced {
				err = fmt.Errorf("the change was %s", as[0].Outcome)
			}
			applied <- err
		}()
		untilWaiting(t, watch, 2)
		must(t, other, "COMMIT")
		if err := errors.Join(<-expired, <-applied); err != nil {
			t.Error(err)
		}
		noDeadlock(t, watch)
		if n := value[int](t, watch, "SELECT count(*) FROM pawl.sessions WHERE id = $1", [16]byte(frozen)); n != 0 {
			t.Error("the first session is still there")
		}
	})
	t.Run("a transaction of somebody else holds up no events", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		must(t, other, "CREATE TEMP TABLE theirs (x int)")
		must(t, other, "BEGIN")
		must(t, other, "INSERT INTO theirs VALUES (1)")
		submit(t, s, newTasks(3)...)
		if es, err := s.Events(t.Context(), store.EventQuery{Tenant: acme}); err != nil || len(es.Events) != 3 {
			t.Errorf("%d events, %v", len(es.Events), err)
		}
		must(t, other, "COMMIT")
	})
	t.Run("a follow-up that another is paying is passed over, and told of", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		first := submit(t, s, newTask())[0]
		waits := newTask()
		waits.After = []store.After{{Job: first, Need: job.NeedEnded}}
		submit(t, s, waits)
		if _, _, err := s.Wish(t.Context(),
			store.Wish{Tenant: acme, By: "ann", Wish: job.WishCancel, Jobs: []job.ID{first}}); err != nil {
			t.Fatal(err)
		}
		pay := func(want int, owed bool) {
			t.Helper()
			n, eff, err := s.Pay(t.Context(), 10)
			if err != nil || n != want || eff.Owed != owed {
				t.Errorf("paid %d, owed %t, %v; want %d and %t", n, eff.Owed, err, want, owed)
			}
		}
		must(t, other, "BEGIN")
		must(t, other, "SELECT FROM pawl.followups FOR UPDATE")
		pay(0, true)
		must(t, other, "ROLLBACK")
		pay(1, false)
		pay(0, false)
		// of jobs that nobody waits for
		must(t, other, "INSERT INTO pawl.followups (job, debt, at) SELECT gen_random_uuid(), 'dependants', "+
			"pawl.clock() FROM generate_series(1, 15)")
		pay(1, true)
		pay(1, false)
	})
	t.Run("a claim passes over a job to which an event is added, and is told of it after", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		session := begin(t, s, time.Minute)
		id := submit(t, s, newTask())[0]
		must(t, other, `CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
			CREATE TRIGGER hold BEFORE INSERT ON pawl.events FOR EACH ROW WHEN (NEW.name = 'seen') EXECUTE FUNCTION public.hold()`)
		t.Cleanup(func() { execute(t, dsn, "DROP TRIGGER hold ON pawl.events; DROP FUNCTION public.hold") })
		must(t, other, "BEGIN; SELECT pg_advisory_xact_lock(7)")
		told := make(chan store.Effects, 1)
		go func() {
			_, eff, err := s.AddEvent(context.Background(),
				store.NewEvent{
					Tenant: acme, Job: id, By: "ann", Cause: job.CauseUser,
					CustomEvent: job.CustomEvent{Name: "seen"},
				})
			if err != nil {
				t.Error(err)
			}
			told <- eff
		}()
		untilWaiting(t, connect(t, dsn), 1) // the job is locked
		if n := len(claim(t, s, session, 10)); n != 0 {
			t.Errorf("claimed %d jobs", n)
		}
		must(t, other, "COMMIT")
		if diff := cmp.Diff([]job.QueueKind{{Queue: job.DefaultQueue, Kind: task}}, (<-told).Ready); diff != "" {
			t.Error(diff)
		}
		_, eff, err := s.AddEvent(t.Context(),
			store.NewEvent{
				Tenant: acme, Job: id, By: "ann", Cause: job.CauseJob, Launch: 7,
				CustomEvent: job.CustomEvent{Name: "late"},
			})
		if job.KindOf(err) != job.Conflict || len(eff.Ready) != 1 {
			t.Errorf("an event that is refused tells of %v, %v", eff.Ready, err)
		}
		if n := len(claim(t, s, session, 10)); n != 1 {
			t.Errorf("claimed %d jobs", n)
		}
		_, eff, err = s.AddEvent(t.Context(),
			store.NewEvent{
				Tenant: acme, Job: id, By: "ann", Cause: job.CauseUser,
				CustomEvent: job.CustomEvent{Name: "seen"},
			})
		if err != nil || len(eff.Ready) != 0 {
			t.Errorf("an event of a job that is held tells of %v, %v", eff.Ready, err)
		}
	})
}

// TestDeadlocks has many processes change overlapping jobs, in every way at once.
func TestDeadlocks(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := clocked(t)
	processes, rounds := 8, 2
	if testenv.Long() {
		processes, rounds = 16, 5
	}
	first := open(t, dsn, postgres.Options{})
	stores := make([]*postgres.Store, processes)
	for p := range stores {
		stores[p] = open(t, dsn, postgres.Options{Conns: 2, Readers: 1})
	}
	newClock(t, dsn).Advance(2 * hour) // nobody expires within a lease of the start of the server, or of a process
	if _, err := first.Put(t.Context(), store.Resource{
		Tenant: acme, Kind: job.KindQueue, Name: job.DefaultQueue,
		Doc: json.RawMessage(`{}`),
	}); err != nil {
		t.Fatal(err)
	}
	tasks := newTasks(400)
	// so that the rows lie in another order than that of ids
	rand.Shuffle(len(tasks), func(i, k int) { tasks[i], tasks[k] = tasks[k], tasks[i] })
	ids := submit(t, first, tasks...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var turn atomic.Int64
	made := map[string]int{} // guarded by mu: calls that were not refused
	for p := range processes {
		m := &mixer{
			s: stores[p], conn: connect(t, dsn), turn: &turn,
			r: rand.New(rand.NewPCG(uint64(p), 7)), ids: slices.Clone(ids), session: begin(t, first, hour),
		}
		wg.Go(func() {
			for range rounds {
				for _, i := range m.r.Perm(len(stirs)) {
					done, err := m.stir(t.Context(), i)
					if err != nil {
						t.Error(err)
						return
					}
					if done {
						mu.Lock()
						made[stirs[i].call]++
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	noDeadlock(t, connect(t, dsn))
	for _, c := range stirs {
		if made[c.call] == 0 {
			t.Errorf("no call was made of %s", c.call)
		}
	}
	storetest.Check(t, first, acme)
}

const hour = time.Hour

// A mixer is one process of [TestDeadlocks].
type mixer struct {
	s       *postgres.Store
	conn    *pgx.Conn
	r       *rand.Rand
	turn    *atomic.Int64 // of all processes: how often one has submitted
	ids     []job.ID
	session job.ID
	held    []job.Job    // that it has claimed
	lost    []store.Lost // that it had claimed in sessions which have run out
}

// stirs are calls of all kinds that write, on jobs in any order.
var stirs = []struct {
	call string
	do   func(m *mixer, ctx context.Context) error
}{
	{"submit", (*mixer).submit},
	{"claim", func(m *mixer, ctx context.Context) error { return m.claim(ctx) }},
	{"claim named", func(m *mixer, ctx context.Context) error { return m.claim(ctx, m.some(20)...) }},
	{"apply", (*mixer).apply},
	{"wish", (*mixer).wish},
	{"annotate", (*mixer).annotate},
	{"add event", (*mixer).addEvent},
	{"remove", func(m *mixer, ctx context.Context) error {
		_, err := m.s.Remove(ctx, acme, m.some(20))
		return err
	}},
	{"due", func(m *mixer, ctx context.Context) error {
		_, _, err := m.s.Due(ctx, 40)
		return err
	}},
	{"pay", func(m *mixer, ctx context.Context) error {
		_, _, err := m.s.Pay(ctx, 40)
		return err
	}},
	{"expire", func(m *mixer, ctx context.Context) error {
		_, _, err := m.s.Expire(ctx, 40)
		return err
	}},
	{"recount", (*mixer).recount},
	{"renew", (*mixer).renew},
	{"tell", func(m *mixer, ctx context.Context) error {
		_, err := m.s.SetMode(ctx, m.session, []store.Mode{store.Work, store.Work, store.Drain}[m.r.IntN(3)])
		return err
	}},
	{"end", func(m *mixer, ctx context.Context) error {
		if _, err := m.s.End(ctx, m.session); err != nil {
			return err
		}
		return m.begin(ctx)
	}},
	{"run out", (*mixer).runOut},
	{"clear", func(m *mixer, ctx context.Context) error {
		_, err := m.s.Clear(ctx, m.lost)
		return err
	}},
	{"limit", (*mixer).limit},
	{"steer", (*mixer).steer},
	{"test", (*mixer).test},
	{"delete", func(m *mixer, ctx context.Context) error {
		if err := m.s.Delete(ctx, acme, job.KindQueue, job.DefaultQueue, store.AnyVersion); job.KindOf(err) != job.Conflict {
			return fmt.Errorf("a queue that is in use was deleted: %w", err)
		}
		return nil
	}},
}

// stir makes a call. It is not done where it was refused, since another was there first.
func (m *mixer) stir(ctx context.Context, i int) (done bool, err error) {
	err = stirs[i].do(m, ctx)
	switch job.KindOf(err) {
	case job.NotFound, job.Conflict, job.Fenced, job.Invalid:
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", stirs[i].call, err)
	}
	return true, nil
}

// some returns n of the jobs that the process knows.
func (m *mixer) some(n int) []job.ID {
	list := make([]job.ID, n)
	for i, k := range m.r.Perm(len(m.ids))[:n] {
		list[i] = m.ids[k]
	}
	return list
}

// submit submits jobs with everything that ties them to others; some are there already.
func (m *mixer) submit(ctx context.Context) error {
	sub := store.Submission{
		Tenant: acme, By: "ann", Jobs: newTasks(4), Key: fmt.Sprint(m.r.IntN(200)),
		Queues: map[string]store.QueueCheck{job.DefaultQueue: {Document: true}},
	}
	if m.r.IntN(4) == 0 { // one after the other
		sub.Queues[job.DefaultQueue] = store.QueueCheck{Document: true, Most: 100_000}
	}
	// Those who submit now want the same unique keys, or the same external ids, which nobody has.
	fresh, unique, externals := m.turn.Add(1)/8, m.r.IntN(2) == 0, m.r.Perm(len(sub.Jobs))
	for i := range sub.Jobs {
		n := &sub.Jobs[i]
		n.Delay = time.Duration(m.r.IntN(100)) * time.Millisecond
		n.Job.Limits, n.Job.Owner = limited[:m.r.IntN(len(limited)+1)], []string{"ann", "bob"}[m.r.IntN(2)]
		if !unique {
			n.Job.ExternalID = fmt.Sprint(fresh, externals[i])
			continue
		}
		for _, k := range m.r.Perm(3) {
			mode := []job.UniqueMode{job.UntilDone, job.UntilStart}[m.r.IntN(2)]
			n.Unique = append(n.Unique, store.Unique{Mode: mode, Key: fmt.Sprint(fresh, k, m.r.IntN(2))})
		}
	}
	there, err := m.s.Find(ctx, store.FindQuery{IDs: m.some(5)}) // others have been removed
	if err != nil {
		return err
	}
	for _, k := range m.r.Perm(len(there)) {
		n := &sub.Jobs[m.r.IntN(2)]
		n.After = append(n.After, store.After{Job: there[k].ID, Need: job.NeedEnded})
	}
	answers, _, err := m.s.Submit(ctx, sub)
	for _, a := range answers {
		m.ids = append(m.ids, a.ID)
	}
	return err
}

// limited are keys of turns.
var limited = []string{"a", "b", "c"}

// limit sets limits, and takes them away.
func (m *mixer) limit(ctx context.Context) error {
	for _, i := range m.r.Perm(len(limited)) {
		if _, err := store.SetLimit(ctx, m.s, acme, job.Limit{Key: limited[i], Most: 1 + m.r.IntN(10)}); err != nil {
			return err
		}
	}
	_, err := store.RemoveLimit(ctx, m.s, acme, limited[m.r.IntN(len(limited))])
	return err
}

func (m *mixer) claim(ctx context.Context, named ...job.ID) error {
	c := asking(m.session, 10)
	c.Jobs = named
	jobs, err := m.s.Claim(ctx, c)
	m.held = append(m.held, jobs...)
	return err
}

// apply makes changes of jobs that it holds, and of others, where they are refused: by its session,
// and by a duty.
func (m *mixer) apply(ctx context.Context) error {
	var cs []job.Change
	for i := range m.held {
		j := &m.held[i]
		c := job.Change{
			Job: j.ID, From: j.Guard(job.Fence{Session: m.session}), To: job.Worker,
			Path: []job.Entry{{State: job.Running}},
		}
		switch m.r.IntN(5) {
		case 2:
			c = block(j, m.session, gone(limited[m.r.IntN(len(limited))]))
		case 0:
			c.To, c.Path[0].State = job.Ready, job.Pending
		case 1:
			c = finish(j, m.session)
		}
		cs = append(cs, c)
	}
	m.held = nil
	others, err := m.s.Find(ctx, store.FindQuery{IDs: m.some(30)})
	if err != nil {
		return err
	}
	for i := range others {
		j := &others[i]
		if j.Custody != job.Worker || slices.ContainsFunc(cs, func(c job.Change) bool { return c.Job == j.ID }) {
			continue
		}
		c := finish(j, m.session)
		if m.r.IntN(2) == 0 {
			c.From.Fence = job.Fence{Duty: duties[m.r.IntN(len(duties))], Term: 1}
		}
		cs = append(cs, c)
	}
	for i := range cs {
		if m.r.IntN(2) == 0 {
			cs[i].Set.Resolved = json.RawMessage(`{"kind":"send"}`)
		}
	}
	m.r.Shuffle(len(cs), func(i, k int) { cs[i], cs[k] = cs[k], cs[i] })
	_, _, _, err = m.s.Apply(ctx, cs, nil)
	return err
}

func (m *mixer) wish(ctx context.Context) error {
	for w, n := range map[job.Wish]int{job.WishPause: 10, job.WishResume: 10, job.WishCancel: 2} {
		if _, _, err := m.s.Wish(ctx, store.Wish{Tenant: acme, By: "ann", Wish: w, Jobs: m.some(n)}); err != nil {
			return err
		}
	}
	return nil
}

// annotate labels jobs, and hides those that have ended or shows them again.
func (m *mixer) annotate(ctx context.Context) error {
	value, hidden := fmt.Sprint(m.r.IntN(5)), m.r.IntN(2) == 0
	a := store.Annotation{Tenant: acme, Jobs: m.some(30), Annotation: job.Annotation{
		Labels: map[string]*string{"some": &value}, Notes: json.RawMessage(`{"some":"` + value + `"}`),
	}}
	if _, err := m.s.Annotate(ctx, a); err != nil {
		return err
	}
	_, err := m.s.Annotate(ctx, store.Annotation{Tenant: acme, Jobs: m.some(30), Hidden: &hidden})
	return err
}

func (m *mixer) addEvent(ctx context.Context) error {
	_, _, err := m.s.AddEvent(ctx, store.NewEvent{
		Tenant: acme, Job: m.some(1)[0], By: "ann", Cause: job.CauseUser,
		CustomEvent: job.CustomEvent{Name: "seen"},
	})
	return err
}

// recount corrects a counter that was made wrong, and takes away a turn that nobody has.
func (m *mixer) recount(ctx context.Context) error {
	_, err := m.conn.Exec(ctx, `INSERT INTO pawl.turns (job, key, tenant, owner) VALUES (gen_random_uuid(), 'gone', $1, 'ann')`, acme)
	if err != nil {
		return err
	}
	_, err = m.conn.Exec(ctx, `UPDATE pawl.jobs SET needs = needs + 1
		WHERE id = (SELECT id FROM pawl.jobs WHERE custody = 'gate' AND needs > 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)`)
	if err != nil {
		return err
	}
	_, _, err = m.s.Recount(ctx, 40)
	return err
}

var duties = []string{"watch", "test", "sweep", groups.RecoveryDuty}

func (m *mixer) renew(ctx context.Context) error {
	var wanted []string
	for _, i := range m.r.Perm(len(duties))[:m.r.IntN(len(duties)+1)] {
		wanted = append(wanted, duties[i])
	}
	_, err := m.s.Renew(ctx, store.Renew{
		Session: m.session, Lease: hour, Queues: []string{job.DefaultQueue},
		Kinds: []string{task}, Duties: wanted,
	})
	return err
}

func (m *mixer) begin(ctx context.Context) error {
	m.session, m.held = job.NewID(), nil
	return m.s.Begin(ctx, store.Session{ID: m.session, Lease: hour})
}

// runOut lets the lease end, for [store.Store.Expire] to find, or long ago, for it to be forgotten.
func (m *mixer) runOut(ctx context.Context) error {
	for i := range m.held {
		m.lost = append(m.lost, store.Lost{Job: m.held[i].ID, Epoch: m.held[i].Epoch})
	}
	_, err := m.conn.Exec(ctx, `UPDATE pawl.sessions SET lease_until = pawl.clock() - interval '2 h' WHERE id = $1`,
		[16]byte(m.session))
	if err != nil {
		return err
	}
	return m.begin(ctx)
}
