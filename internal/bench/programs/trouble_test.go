package programs

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// inTrouble is a service as pawl run wires it, on a database for many processes or that of its
// folder. It ends with the test.
func inTrouble(t *testing.T, postgres bool) *bed.Bed {
	if testing.Short() {
		t.Skip("-short")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	o := node.Options{Migrate: true}
	if postgres {
		o.DB.DSN = testenv.Postgres(t).Database(t)
	}
	p, err := bed.Open(ctx, filepath.Join(dir, "pawl"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), bed.EndPrograms(dir)); err != nil {
			t.Error(err)
		}
	})
	return p
}

// allJobs lists the jobs of a bed.
func allJobs(t *testing.T, p *bed.Bed) (all []job.Job) {
	t.Helper()
	for q := (store.Query{Limit: 1000}); ; {
		page, err := p.List(p.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

// gone is for how long something is away once all know of it.
func gone() time.Duration {
	if testenv.Long() {
		return time.Minute
	}
	return 2 * time.Second
}

// A web server answers 503 until all jobs that stage from it wait, and for a while after that. They
// wait together, for one test at a time, and all of them end well.
func TestWithoutTheServer(t *testing.T) {
	testenv.Aside(t)
	p := inTrouble(t, false)
	jobs := 100
	if testenv.Long() {
		jobs = 500
	}
	var back atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("it is here\n"))
	}))
	defer server.Close()
	doc, err := job.Encode(job.RecoveryPolicy{
		Name:   string(job.FilesUnavailable),
		Stages: []job.Stage{{Every: job.Duration(gone() / 6)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Policies().Apply(p.Context(), doc, service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if err := p.SetLimit(p.Context(), job.Limit{
		Key: job.RateReleases + "/*", Most: 100,
		Per: job.Duration(time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	ids, err := p.SubmitAll(jobs, func(int) job.Spec {
		return job.Spec{
			Command: []string{"grep", "-q", "it is here", "in"},
			Inputs:  []job.Input{{From: server.URL + "/in", To: "in"}},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Counted(func(n map[job.State]int) bool { return n[job.Blocked] == jobs }); err != nil {
		t.Fatal(err)
	}
	if err := bench.Wait(p.Context(), gone()); err != nil {
		t.Fatal(err)
	}
	groups, err := p.Blocked(p.Context())
	if err != nil || len(groups) != 1 || groups[0].Jobs != jobs {
		t.Fatalf("groups %+v, %v", groups, err)
	}
	back.Store(true)
	if _, err := p.Counted(func(n map[job.State]int) bool { return n[job.Finished] == jobs+bench.WarmJobs }); err != nil {
		t.Fatal(err)
	}
	for _, j := range allJobs(t, p) {
		if slices.Contains(ids, j.ID) && (j.Attempt != 1 || j.Recoveries == 0) {
			t.Errorf("job %s ended in attempt %d after %d recoveries", j.ID, j.Attempt, j.Recoveries)
		}
	}
}

// A system is disabled for a while as many jobs wait for it. What is under way is blocked, the
// others stay where they are, and all go on after that.
func TestWithoutTheSystem(t *testing.T) {
	testenv.Aside(t)
	p := inTrouble(t, true)
	const places, ahead = 20, 40
	jobs := 600
	if testenv.Long() {
		jobs = 10_000
	}
	if err := p.SetLimit(p.Context(), job.Limit{Key: job.SystemKey(job.SystemLocal), Most: places}); err != nil {
		t.Fatal(err)
	}
	ids, err := p.SubmitAll(jobs, func(int) job.Spec { return job.Spec{Command: []string{"sleep", "0.1"}} })
	if err != nil {
		t.Fatal(err)
	}
	finished := 0
	some := func(n map[job.State]int) bool {
		if n[job.Finished] < finished+50 {
			return false
		}
		finished = n[job.Finished]
		return true
	}
	if _, err := p.Counted(some); err != nil {
		t.Fatal(err)
	}
	disable := func(disabled bool) {
		t.Helper()
		if _, err := p.Systems().Disable(p.Context(), job.SystemLocal, disabled, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	disable(true)
	if _, err := p.Counted(func(n map[job.State]int) bool { return n[job.Blocked] > 0 }); err != nil {
		t.Fatal(err)
	}
	if err := bench.Wait(p.Context(), gone()); err != nil {
		t.Fatal(err)
	}
	groups, err := p.Blocked(p.Context())
	if err != nil || len(groups) != 1 || groups[0].Jobs == 0 || groups[0].Behind == 0 {
		t.Fatalf("groups %+v, %v", groups, err)
	}
	count, err := p.Count(p.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	finished = count.States[job.Finished]
	disable(false)
	if _, err := p.Counted(some); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Counted(func(n map[job.State]int) bool { return n[job.Blocked] == 0 }); err != nil {
		t.Fatal(err)
	}
	blocked := 0
	for _, j := range allJobs(t, p) {
		if j.Recoveries > 0 {
			blocked++
		}
	}
	if blocked == 0 || blocked > places+ahead {
		t.Errorf("%d jobs were blocked, with %d places and %d that are made ready", blocked, places, ahead)
	}
	t.Logf("%d of %d jobs were blocked", blocked, jobs)
	if _, err := p.Cancel(p.Context(), ids...); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Counted(func(n map[job.State]int) bool { return n[job.Finished]+n[job.Canceled] == jobs+bench.WarmJobs }); err != nil {
		t.Fatal(err)
	}
}
