package postgres

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the statement of insert_jobs into the migration")

// The function that inserts jobs in a transaction of others has the text of the statement that
// Submit has.
func TestInsertJobsIsTheStatementOfSubmit(t *testing.T) {
	const file, mark = "migrations/00001_init.sql", "$insert$"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), mark)
	if len(parts) != 3 {
		t.Fatalf("%d parts at %s in %s, want 3", len(parts), mark, file)
	}
	want := strings.TrimRight(inserting(true, "$36::bigint"), "\n") + "\n"
	if *update {
		parts[1] = want
		if err := os.WriteFile(file, []byte(strings.Join(parts, mark)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if parts[1] != want {
		t.Error("insert_jobs is not the statement of Submit: go test ./store/postgres -run TestInsertJobs -update")
	}
}
