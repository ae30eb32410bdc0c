package postgres_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
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
		must(t, other, "SELECT FROM pawl.sessions WHERE id = $1 FOR KEY SHARE", [16]byte(session)) // the claim's first lock
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
		must(t, other, "UPDATE pawl.jobs SET state = 'RUNNING', custody = 'worker', epoch = 2, n = 2, session = $1, claim = $1 WHERE id = $2", [16]byte(session), [16]byte(id))
		must(t, other, "INSERT INTO pawl.events (job, n, tenant, ord, epoch, state, custody, at, cause) VALUES ($1, 2, 'acme', pg_current_xact_id()::text::bigint, 1, 'RUNNING', 'worker', pawl.clock(), 'claim')", [16]byte(id))
		must(t, other, "COMMIT")
		if n := <-taken; n != 1 {
			t.Errorf("%d jobs were taken", n)
		}
		storetest.Check(t, s, acme)
	})
	t.Run("a follow-up that another is paying is passed over, and told of", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		first := submit(t, s, newTask())[0]
		waits := newTask()
		waits.After = []store.After{{Job: first, Need: job.NeedEnded}}
		submit(t, s, waits)
		if _, _, err := s.Wish(t.Context(), store.Wish{Tenant: acme, By: "ann", Wish: job.WishCancel, Jobs: []job.ID{first}}); err != nil {
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
		must(t, other, "INSERT INTO pawl.followups (job, debt, at) SELECT gen_random_uuid(), 'dependants', pawl.clock() FROM generate_series(1, 15)") // of jobs that nobody waits for
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
			_, eff, err := s.AddEvent(context.Background(), store.NewEvent{Tenant: acme, Job: id, By: "ann", Cause: job.CauseUser, Note: job.Note{Name: "seen"}})
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
		if diff := cmp.Diff([]job.Line{{Queue: job.DefaultQueue, Kind: task}}, (<-told).Ready); diff != "" {
			t.Error(diff)
		}
		_, eff, err := s.AddEvent(t.Context(), store.NewEvent{Tenant: acme, Job: id, By: "ann", Cause: job.CauseJob, Launch: 7, Note: job.Note{Name: "late"}})
		if job.KindOf(err) != job.Conflict || len(eff.Ready) != 1 {
			t.Errorf("an event that is refused tells of %v, %v", eff.Ready, err)
		}
		if n := len(claim(t, s, session, 10)); n != 1 {
			t.Errorf("claimed %d jobs", n)
		}
		_, eff, err = s.AddEvent(t.Context(), store.NewEvent{Tenant: acme, Job: id, By: "ann", Cause: job.CauseUser, Note: job.Note{Name: "seen"}})
		if err != nil || len(eff.Ready) != 0 {
			t.Errorf("an event of a job that is held tells of %v, %v", eff.Ready, err)
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
}

// TestDeadlocks has 16 processes change overlapping jobs, in every way at once.
func TestDeadlocks(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	const processes, rounds, size = 16, 12, 40
	first := open(t, dsn, postgres.Options{})
	ids := submit(t, first, newTasks(400)...)
	var wg sync.WaitGroup
	for p := range processes {
		s := open(t, dsn, postgres.Options{Conns: 2, Readers: 1})
		session := begin(t, s, time.Hour)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 7))
			for range rounds {
				if err := stir(t.Context(), s, session, r, ids, size); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	noDeadlock(t, connect(t, dsn))
	storetest.Check(t, first, acme)
}

// stir makes one call of each kind on jobs in any order.
func stir(ctx context.Context, s *postgres.Store, session job.ID, r *rand.Rand, ids []job.ID, size int) error {
	pick := func() []job.ID {
		list := make([]job.ID, size)
		for i, k := range r.Perm(len(ids))[:size] {
			list[i] = ids[k]
		}
		return list
	}
	jobs, err := s.Claim(ctx, asking(session, size/4))
	if err != nil {
		return err
	}
	var cs []job.Change
	for i := range jobs {
		j := &jobs[i]
		c := job.Change{Job: j.ID, From: j.Guard(job.Fence{Session: session}), To: job.Worker, Path: []job.Entry{{State: job.Running}}}
		if r.IntN(2) == 0 {
			c.To, c.Path[0].State = job.Ready, job.Pending
		}
		cs = append(cs, c)
	}
	others, err := s.Find(ctx, pick())
	if err != nil {
		return err
	}
	for i := range others { // those of other sessions: locked, and refused
		j := &others[i]
		if j.Custody == job.Worker && !slices.ContainsFunc(cs, func(c job.Change) bool { return c.Job == j.ID }) {
			cs = append(cs, finish(j, session))
		}
	}
	r.Shuffle(len(cs), func(i, k int) { cs[i], cs[k] = cs[k], cs[i] })
	if _, _, err := s.Apply(ctx, cs); err != nil {
		return err
	}
	for _, w := range []job.Wish{job.WishPause, job.WishResume} {
		if _, _, err := s.Wish(ctx, store.Wish{Tenant: acme, By: "ann", Wish: w, Jobs: pick()[:size/4]}); err != nil {
			return err
		}
	}
	n := newTask()
	for _, id := range pick()[:5] {
		n.After = append(n.After, store.After{Job: id, Need: job.NeedEnded})
	}
	for _, key := range []string{"c", "a", "b"} {
		n.Unique = append(n.Unique, store.Unique{Mode: job.UntilDone, Key: key})
	}
	if _, _, err := s.Submit(ctx, store.Submission{Tenant: acme, By: "ann", Jobs: []store.New{n}}); err != nil {
		return err
	}
	if _, _, err := s.Due(ctx, size); err != nil {
		return err
	}
	if _, _, err := s.Pay(ctx, size); err != nil {
		return err
	}
	_, _, err = s.Expire(ctx, size)
	return err
}
