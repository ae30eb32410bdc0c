package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// Whatever a database has for defaults of transactions, the calls of a store look again after they
// have waited for a lock, and write.
func TestDefaults(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := testenv.Postgres(t).Database(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', current_database(), 'repeatable read');
		EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
	END $$`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMigrator(dsn, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	lend := func(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
		other, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer other.Close(context.WithoutCancel(ctx))
		return f(ctx, other)
	}
	for name, o := range map[string]Options{"direct": {}, "pooled": {Pooled: true}, "renewals on a connection of others": {Renewals: lend}} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), dsn, o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for call, f := range map[string]func(func(*tx) error) error{
				"call":    func(f func(*tx) error) error { return s.call(t.Context(), "acme", f) },
				"write":   func(f func(*tx) error) error { return s.write(t.Context(), "acme", f) },
				"look":    func(f func(*tx) error) error { return s.look(t.Context(), "acme", f) },
				"renewal": func(f func(*tx) error) error { return s.renewing(t.Context(), f) },
			} {
				for _, pieces := range []int{1, 2} {
					isolation, readOnly := "", ""
					show := read("SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')", func(r *reader) error {
						isolation, readOnly = r.text(), r.text()
						return nil
					})
					err := f(func(t *tx) error {
						if pieces == 2 {
							if err := t.send(show); err != nil {
								return err
							}
						}
						return t.commit(show)
					})
					if err != nil || isolation != "read committed" || readOnly != "off" {
						t.Errorf("%s in %d pieces: %s, read only: %s, %v", call, pieces, isolation, readOnly, err)
					}
				}
				if err := f(func(t *tx) error { return t.commit(do("SELECT 1 / 0")) }); codeOf(err) != "22012" {
					t.Errorf("%s that divides by zero: %v", call, err)
				}
				if err := f(func(t *tx) error { return t.commit(do("SELECT 1")) }); err != nil {
					t.Errorf("%s after that: %v", call, err)
				}
			}
		})
	}
}
