package postgres_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func BenchmarkGroup(b *testing.B) {
	dsn := testenv.Postgres(b).Database(b)
	migrate(b, dsn, "")
	s, err := postgres.Open(b.Context(), dsn, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	storetest.BenchGroup(b, s)
}
