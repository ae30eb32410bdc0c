package sqlite

import (
	"database/sql"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestMigrationOfGroups: to a Pawl that knows no groups who is blocked goes on where it was, or waits for its turn; no line is closed; and a limit
// that takes in the jobs which are there goes on with it, on the way up, too.
func TestMigrationOfGroups(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pay := func() {
		t.Helper()
		_, _, err := s.Pay(ctx, 100)
		must(err)
	}
	session := job.NewID()
	must(s.Begin(ctx, store.Session{ID: session, Lease: time.Hour}))
	_, err := s.SetLimit(ctx, "t", job.Limit{Key: "gpu", Most: 1})
	must(err)
	jobs := make([]store.New, 5)
	for i := range jobs {
		if jobs[i] = newTask(1); i > 0 {
			jobs[i].Job.Kind = job.KindApp
		}
	}
	jobs[3].Job.Limits = []string{"gpu"}
	must(submit(ctx, s, jobs...))
	pay()
	claim := func(i int) job.Job {
		t.Helper()
		held, err := s.Claim(ctx, store.Claim{
			ID: job.NewID(), Session: session, Queues: []string{"q"}, Kinds: []string{"k", job.KindApp}, Jobs: []job.ID{jobs[i].Job.ID},
			Slots: map[job.Lane]int{job.LaneTask: 1, job.LanePrepare: 1, job.LaneLaunch: 1},
		})
		if err != nil || len(held) != 1 {
			t.Fatalf("%d jobs, %v", len(held), err)
		}
		return held[0]
	}
	apply := func(c job.Change) {
		t.Helper()
		a, _, err := s.Apply(ctx, []job.Change{c})
		if err != nil || a[0].Outcome != store.OK {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	for i, state := range []job.State{"", job.ProcessingInputs, job.StagingInputs, job.SubmittingJob, job.Archiving} {
		j := claim(i)
		c := blocking(&j, session, "a", "a")
		var path []job.Entry
		for _, next := range []job.State{job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Archiving} {
			if state == "" || j.State == state {
				break
			}
			path = append(path, job.Entry{State: next})
			j.State, c.Set.Resume = next, next
		}
		c.Path = append(path, c.Path...)
		apply(c)
	}
	pay() // which closes the line
	waits := newTask(1)
	waits.Job.Limits = []string{"line/a"}
	must(submit(ctx, s, waits))
	pay()
	if j, err := s.Job(ctx, "t", waits.Job.ID); err != nil || j.Line != "line/a" {
		t.Fatalf("it stands in line %q, %v", j.Line, err)
	}
	_, err = s.SetLimit(ctx, "t", job.Limit{Key: "tenant", Most: 100}) // which owes a walk
	must(err)
	downTo(t, s, 13, func(db *sql.DB) {
		none(t, `SELECT count(*) FROM jobs WHERE state = 'BLOCKED' OR custody = 'recovery' OR resume <> ''`,
			`SELECT count(*) FROM limits WHERE (walked IS NOT NULL) <> (key = 'tenant')`,
			`SELECT count(*) FROM jobs WHERE line <> '' AND (tenant, line) NOT IN (SELECT tenant, key FROM followups WHERE key IS NOT NULL)`,
			`SELECT count(*) FROM jobs WHERE custody = 'gate' AND due IS NULL AND line = ''`)(db)
	})
	s = openAt(t, dir)
	_, err = s.SetLimit(ctx, "t", job.Limit{Key: "gpu", Most: 0})
	must(err)
	_, _, err = s.Due(ctx, 100)
	must(err)
	for range 3 {
		pay()
	}
	for i, want := range []job.Place{
		{State: job.Pending, Custody: job.Ready},
		{State: job.ProcessingInputs, Custody: job.Ready},
		{State: job.StagingInputs, Custody: job.Ready},
		{State: job.SubmittingJob, Custody: job.Gate},
		{State: job.Archiving, Custody: job.Ready},
		{State: job.Pending, Custody: job.Ready},
	} {
		id := waits.Job.ID
		if i < len(jobs) {
			id = jobs[i].Job.ID
		}
		j, err := s.Job(ctx, "t", id)
		if err != nil || j.Place != want || j.Group != "" || !j.Until.IsZero() || (j.Recoveries == 1) != (i < len(jobs)) || j.Lane != job.LaneOf(j.State, j.Program(), 0) {
			t.Errorf("job %d: %+v, %v; want it at %s", i, j, err, want)
		}
	}
	if n, _, err := s.Recount(ctx, 100); n != (store.Recounted{}) || err != nil {
		t.Errorf("recounted %+v, %v", n, err)
	}
	all, err := s.Turns(ctx, store.TurnQuery{Tenant: "t", Key: "tenant"})
	if err != nil || len(all) != 1 || len(all[0].Owners) != 1 || all[0].Owners[0].Held == 0 {
		t.Errorf("turns of a limit that has taken in who was there: %+v, %v", all, err)
	}
	storetest.Check(t, s, "t")
}
