package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestForget has idempotency keys that are kept no longer.
func TestForget(t *testing.T) {
	t.Parallel()
	t.Run("each new key takes up to ten with it, of all tenants", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, admin := open(t, granted(t, dsn), postgres.Options{}), connect(t, dsn)
		keep(t, admin, "gone", 15, store.KeepKey+time.Hour) // of a tenant who does not come back
		keep(t, admin, acme, 10, store.KeepKey+time.Minute)
		keep(t, admin, acme, 3, store.KeepKey-time.Hour)
		for i, want := range []struct{ theirs, mine int }{{5, 14}, {0, 10}, {0, 6}, {0, 7}} {
			underKey(t, s, fmt.Sprint("new ", i))
			theirs := value[int](t, admin, "SELECT count(*) FROM pawl.idempotency WHERE tenant = 'gone'")
			mine := value[int](t, admin, "SELECT count(*) FROM pawl.idempotency WHERE tenant = 'acme'")
			if theirs != want.theirs || mine != want.mine {
				t.Errorf("after %d new keys: %d of the other tenant and %d of ours, want %+v", i+1, theirs, mine, want)
			}
		}
		underKey(t, s, "new 3")
		if n := value[int](t, admin, "SELECT count(*) FROM pawl.idempotency"); n != 7 {
			t.Errorf("after a repeat there are %d keys", n)
		}
	})
	t.Run("nobody is waited for", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		keep(t, other, acme, 3, store.KeepKey+time.Hour)
		must(t, other, "BEGIN; UPDATE pawl.idempotency SET at = pawl.clock() WHERE key = 'old 2'") // as a call that takes it anew
		underKey(t, s, "new")
		if n := value[int](t, other, "SELECT count(*) FROM pawl.idempotency"); n != 2 {
			t.Errorf("%d keys are left, want that of the other call and ours", n)
		}
		must(t, other, "COMMIT")
	})
	t.Run("one that is just being deleted is taken anew", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, other := open(t, dsn, postgres.Options{}), connect(t, dsn)
		keep(t, other, acme, 1, store.KeepKey+time.Hour)
		must(t, other, "BEGIN; DELETE FROM pawl.idempotency")
		answer := make(chan store.Submitted, 1)
		go func() { answer <- underKey(t, s, "old 1") }()
		untilWaiting(t, connect(t, dsn), 1)
		must(t, other, "COMMIT")
		first := <-answer
		if first.Existed {
			t.Errorf("%+v, want a new job", first)
		}
		if again := underKey(t, s, "old 1"); again.ID != first.ID || !again.Existed {
			t.Errorf("%+v, want job %s", again, first.ID)
		}
	})
	t.Run("calls that take anew what others delete do not lock each other out", func(t *testing.T) {
		t.Parallel()
		dsn := clocked(t)
		s, admin := open(t, dsn, postgres.Options{}), connect(t, dsn)
		for range 10 {
			const keys = 40
			must(t, admin, "DELETE FROM pawl.idempotency")
			keep(t, admin, acme, keys, store.KeepKey+time.Hour)
			var wg sync.WaitGroup
			for i := range keys {
				wg.Go(func() {
					if got := underKey(t, s, fmt.Sprint("old ", i+1)); got.Existed {
						t.Errorf("key %d answers %+v, want a new job", i+1, got)
					}
				})
			}
			wg.Wait()
			if n := value[int](t, admin, "SELECT count(*) FROM pawl.idempotency WHERE at > pawl.clock() - interval '1 h'"); n != keys {
				t.Errorf("%d keys were taken anew, want %d", n, keys)
			}
		}
		noDeadlock(t, admin)
	})
}

// keep makes the keys of calls that were made some time ago: "old 1" and so on, the first of them
// last.
func keep(t *testing.T, admin *pgx.Conn, tenant string, n int, ago time.Duration) {
	t.Helper()
	must(t, admin, `INSERT INTO pawl.idempotency (tenant, key, fingerprint, jobs, at)
		SELECT $1, 'old ' || i || CASE WHEN $3 < interval '1 day' THEN ' and kept' ELSE '' END, '', '{}', pawl.clock() - $3::interval - i * interval '1 s'
		FROM generate_series(1, $2::int) i`, tenant, n, ago)
}

// underKey submits a task under a key, the same for each call.
func underKey(t *testing.T, s *postgres.Store, key string) (answer store.Submitted) {
	t.Helper()
	answers, _, err := s.Submit(context.Background(), store.Submission{Tenant: acme, By: "ann", Key: key, Jobs: newTasks(1)})
	if err != nil || len(answers) != 1 {
		t.Errorf("under key %q: %d answers, %v", key, len(answers), err)
		return answer
	}
	return answers[0]
}
