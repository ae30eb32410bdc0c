package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestUpgrade lets processes of this version and of a next one work side by side; see
// testdata/upgrade. They are called "dev" and "next", in the list of workers as well.
func TestUpgrade(t *testing.T) {
	testenv.Aside(t)
	server := testenv.Postgres(t)
	next := filepath.Join(t.TempDir(), "pawl")
	if err := testenv.BuildNext(t.Context(), filepath.Join("..", ".."), "cmd/pawl", next, nil); err != nil {
		t.Fatal(err)
	}
	runScripts(t, "testdata/upgrade", func(env *testscript.Env) {
		env.Setenv("NEXT", next)
		env.Setenv("PAWL_DB", server.Database(env.T().(testing.TB)))
	})
}

// tenant is whose jobs the scripts are about.
const tenant = "default"

// A verdict collects what is wrong with the jobs of a script.
type verdict struct {
	*testscript.TestScript
	wrong int
}

func (v *verdict) Helper() {}

func (v *verdict) Errorf(format string, args ...any) {
	v.wrong++
	v.Logf(format, args...)
}

// open opens the database of a script.
func (v *verdict) open() *postgres.Store {
	s, err := postgres.Open(context.Background(), v.Getenv("PAWL_DB"), postgres.Options{})
	v.Check(err)
	return s
}

// soundJobs checks every job of the database: sound LEDGER STATE=N…. So many are in each state; the
// history of each is a path; and each that was launched has written its id to the ledger, once.
func soundJobs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sound LEDGER STATE=N...")
	}
	v := &verdict{TestScript: ts}
	s := v.open()
	defer s.Close()
	storetest.Check(v, s, tenant)
	launches := map[string]int{}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		launches[strings.TrimSpace(line)]++
	}
	page, err := s.List(context.Background(), store.Query{Tenant: tenant, Limit: 1000})
	ts.Check(err)
	count := map[job.State]int{}
	for i := range page.Jobs {
		j := &page.Jobs[i]
		count[j.State]++
		if n := launches[j.ID.String()]; n != j.Launch || n > 1 {
			v.Errorf("job %s (%s, %s) has launched %d programs, and %d have written to the ledger", j.ID, j.Name,
				j.State, j.Launch, n)
		}
		delete(launches, j.ID.String())
	}
	for id := range launches {
		v.Errorf("job %q is in the ledger, and in no list", id)
	}
	want := map[job.State]int{}
	for _, arg := range args[1:] {
		var n int
		state, number, _ := strings.Cut(arg, "=")
		if _, err := fmt.Sscan(number, &n); err != nil {
			ts.Fatalf("%s: %v", arg, err)
		}
		want[job.State(state)] = n
	}
	for _, state := range job.States {
		if count[state] != want[state] {
			v.Errorf("%d jobs are %s, want %d", count[state], state, want[state])
		}
	}
	if v.wrong > 0 {
		ts.Fatalf("the jobs are not sound")
	}
}

// ranBy checks which versions have claimed a job, one after the other: ranby JOB VERSION....
func ranBy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: ranby JOB VERSION...")
	}
	v := &verdict{TestScript: ts}
	s := v.open()
	defer s.Close()
	f, err := job.ParseFilter("name="+args[0], time.Now())
	ts.Check(err)
	page, err := s.List(context.Background(), store.Query{Tenant: tenant, Filter: f})
	ts.Check(err)
	if len(page.Jobs) != 1 {
		ts.Fatalf("%d jobs are called %s", len(page.Jobs), args[0])
	}
	es, err := s.Events(context.Background(), store.EventQuery{Tenant: tenant, Job: page.Jobs[0].ID})
	ts.Check(err)
	sessions, err := s.Sessions(context.Background())
	ts.Check(err)
	var by []string
	for _, e := range es.Events {
		if e.Cause != job.CauseClaim {
			continue
		}
		i := slices.IndexFunc(sessions, func(i store.SessionInfo) bool { return i.ID.String() == e.Actor })
		if i < 0 {
			ts.Fatalf("job %s was claimed by session %s, which nobody knows", args[0], e.Actor)
		}
		by = append(by, sessions[i].Process.Version)
	}
	if by = slices.Compact(by); !slices.Equal(by, args[1:]) {
		ts.Fatalf("job %s was claimed by %q, want %q", args[0], by, args[1:])
	}
}
