package library

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMeasurements(t *testing.T) {
	t.Parallel()
	for name, bench := range map[string]func(*testing.T) *Bench{
		"sqlite": func(*testing.T) *Bench { return &Bench{} },
		"pgx": func(t *testing.T) *Bench {
			dsn := testenv.Postgres(t).Database(t)
			return &Bench{DB: dsn, Schema: func(ctx context.Context) (string, func() error, error) {
				m, err := postgres.NewMigrator(dsn, "measured")
				if err != nil {
					return "", nil, err
				}
				return "measured", func() error {
					defer m.Close()
					return m.Drop(context.WithoutCancel(ctx))
				}, m.Up(ctx)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Dir, b.Log = t.TempDir(), slog.New(slog.DiscardHandler)
			tx, err := b.Transactions(t.Context(), 40, 4)
			if err != nil || tx.Driver != name || tx.Commits == 0 || tx.Quiet == 0 {
				t.Errorf("transactions: %+v, %v", tx, err)
			}
			if ratio, err := b.Typed(t.Context(), 50, 1); err != nil || ratio == 0 {
				t.Errorf("typed handlers: %v, %v", ratio, err)
			}
			s, err := b.Schedules(t.Context(), 200, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			// 200 of them would be planned, if they were not; what is due is asked at the beginning.
			if most := 100 * float64(time.Minute/(100*time.Millisecond)); s.Each > most {
				t.Errorf("schedules: %+v", s)
			}
		})
	}
}
