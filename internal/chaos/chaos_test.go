package main

import (
	"database/sql"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// logged writes to a test's log.
type logged struct{ t *testing.T }

func (l logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// open builds the binary, under the race detector if this test runs under it.
func open(t *testing.T) *harness {
	if testing.Short() {
		t.Skip("it kills processes for a minute")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{bin: filepath.Join(dir, "pawl"), dir: dir, out: logged{t}, limit: 90 * time.Second}
	if err := build(t.Context(), h.bin, buildFlags...); err != nil {
		t.Fatal(err)
	}
	return h
}

// seeds is how many tours through all points there are, each in an order of its own.
const seeds = 3

// TestCrashes is a short form of what "make chaos" does.
func TestCrashes(t *testing.T) {
	seed := rand.Uint64N(1 << 32)
	if v := os.Getenv("PAWL_TEST_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PAWL_TEST_SEED=%d", seed)
	h := open(t)
	t.Run("side by side", func(t *testing.T) {
		t.Run("at random moments", func(t *testing.T) {
			t.Parallel()
			h.storms(t.Context(), seed, 500, stormKills)
		})
		t.Run("at every named point", func(t *testing.T) {
			t.Parallel()
			for seed, last := seed, seed+seeds; seed < last; seed++ {
				points := newTour(seed, 1)
				for round := seed << 8; points.must(); round++ {
					points.round(h.points(t.Context(), round, 30, points.next()))
				}
				for _, b := range points.report(h.out) {
					t.Errorf("seed %d: %s", seed, b)
				}
			}
		})
	})
	for _, b := range h.sum.Broken {
		t.Error(b)
	}
	h.sum.Seed = seed
	t.Logf("%+v", h.sum)
}

// TestTheCheckSeesWhatIsBroken breaks one thing after the other in what a sound round has left.
func TestTheCheckSeesWhatIsBroken(t *testing.T) {
	h := open(t)
	h.keep = true
	h.points(t.Context(), 1, 30, nil)
	if len(h.sum.Broken) > 0 {
		t.Fatal(h.sum.Broken)
	}
	sound := filepath.Join(h.dir, "1-points")

	statement := func(s string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			db, err := sql.Open("sqlite", filepath.Join(dir, "data", "pawl.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			r, err := db.Exec(s)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := r.RowsAffected(); n == 0 || err != nil {
				t.Fatalf("%s: %d rows, %v", s, n, err)
			}
		}
	}
	again := func(pattern string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			name := filepath.Join(dir, "ledger")
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			line := regexp.MustCompile(`(?m)^` + pattern + `.*\n`).Find(b)
			if line == nil {
				t.Fatalf("no line %s", pattern)
			}
			if err := os.WriteFile(name, append(b, line...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(pattern, name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			found, err := filepath.Glob(filepath.Join(dir, "data", pattern))
			if err != nil || len(found) == 0 {
				t.Fatalf("%s: %v", pattern, err)
			}
			name := filepath.Join(found[0], name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte("other"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// archive spoils a file in the archive of a job that finished.
	archive := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			st, err := sqlite.Open(t.Context(), filepath.Join(dir, "data"), sqlite.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			page, err := st.List(t.Context(), store.Query{Tenant: tenant, Filter: job.WhereState(job.Finished).And("kind", job.Is, job.KindApp)})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				own := filepath.Join("data", "archive", tenant, j.ID.String())
				if _, err := os.Stat(filepath.Join(dir, own)); err == nil {
					write(strings.TrimPrefix(own, "data/"), name)(t, dir)
					return
				}
			}
			t.Fatal("no job has finished")
		}
	}
	const finished = `FROM jobs WHERE kind = 'app' AND state = 'FINISHED'`
	for _, test := range []struct {
		name  string // of what the check must say
		spoil func(t *testing.T, dir string)
	}{
		{"lost", statement(`DELETE FROM jobs WHERE seq = (SELECT max(seq) FROM jobs)`)},
		{"lost", statement(`UPDATE jobs SET state = 'PENDING', custody = 'ready' WHERE seq = (SELECT max(seq) ` + finished + `)`)},
		{"stranger", statement(`INSERT INTO jobs SELECT (SELECT max(seq) + 1 FROM jobs), randomblob(16), tenant, owner, kind, name, queue, machine,
			priority, max_attempts, created, 'other', parent, limit_keys, state, custody, epoch, n, lane, session, claim, attempt, recoveries,
			suspect, launch, live, since, due, ended, needs, ties, wish, wished_by, resume, code, message, work, result, app, hidden, trace, told, stem FROM jobs WHERE seq = 1`)},
		{"launched_twice", again(`launch`)},
		{"ran_twice", again(`task`)},
		{"wrong_end", statement(`UPDATE jobs SET state = 'FAILED' WHERE seq = (SELECT max(seq) ` + finished + `)`)},
		{"poison", statement(`UPDATE jobs SET state = 'FAILED', code = 'POISON' WHERE seq = (SELECT max(seq) ` + finished + `)`)},
		{"wrong_attempts", statement(`UPDATE jobs SET attempt = attempt + 1 WHERE seq = (SELECT max(seq) ` + finished + `)`)},
		{"wrong_code", statement(`UPDATE jobs SET code = 'PROGRAM_FAILED' WHERE code = 'TIME_LIMIT'`)},
		{"not_run", statement(`UPDATE jobs SET attempt = attempt + 1 WHERE seq = (SELECT max(seq) ` + finished + `)`)},
		{"not_run", statement(`UPDATE jobs SET attempt = attempt + 1 WHERE code = 'TIME_LIMIT'`)},
		{"cancel_forgotten", statement(`UPDATE jobs SET state = 'FINISHED' WHERE code = 'CANCELED_BY_USER'`)},
		{"history", statement(`UPDATE events SET n = 99 WHERE n = 2 AND job = 1`)},
		{"history", statement(`UPDATE jobs SET epoch = epoch + 1 WHERE seq = 1`)},
		{"history", statement(`UPDATE events SET custody = 'monitor' WHERE n = 1 AND job = 1`)},
		{"session_left", statement(`UPDATE sessions SET ended = NULL`)},
		{"followup_left", statement(`INSERT INTO followups (debt, job, at) VALUES ('dependants', 1, 1)`)},
		{"prerequisite_left", statement(`INSERT INTO prerequisites (needs, job, need) VALUES (1, 2, 'ended')`)},
		{"unique_key_left", statement(`INSERT INTO unique_keys (tenant, kind, mode, key, job) VALUES ('default', 'app', 'done', 'k', 1)`)},
		{"live_left", statement(`UPDATE jobs SET live = 1 WHERE seq = 1`)},
		{"end_left", write("ends", "some")},
		{"note_left", write("work/.archiving", "some")},
		{"temporary_left", write("archive/default/*", ".pawl-put-ABC")},
		{"staging_left", write("archive/default/*", ".pawl-x-1/stdout")},
		{"archive", archive("stdout")},
		{"archive", archive("core")},
		{"manifest", archive("pawl-manifest.json")},
		{"process_left", func(t *testing.T, dir string) {
			c := exec.Command("/bin/sleep", "1000")
			c.Dir = filepath.Join(dir, "data")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				c.Process.Kill()
				c.Wait()
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "round")
			if err := os.CopyFS(dir, os.DirFS(sound)); err != nil {
				t.Fatal(err)
			}
			r := &round{h: h, name: test.name, dir: dir, seed: 1, jobs: 30}
			c := &checker{round: r, patience: 50 * time.Millisecond}
			test.spoil(t, dir)
			c.check(t.Context())
			says := func(name string) bool {
				return slices.ContainsFunc(r.broken, func(b string) bool { return strings.HasPrefix(b, name+": ") })
			}
			if !says(test.name) || says("database") {
				t.Errorf("it says: %q", r.broken)
			}
		})
	}
}

func TestTheTourGoesToEveryPoint(t *testing.T) {
	for p := range plans {
		if !slices.Contains(crash.Points(), p) {
			t.Errorf("there is a plan for %s, which is no point", p)
		}
		for _, b := range plans[p].before {
			if name, _, _ := strings.Cut(b, ":"); !slices.Contains(crash.Points(), name) {
				t.Errorf("the plan for %s begins with %s, which is no point", p, b)
			}
		}
	}
	tour := newTour(1, 2)
	seen := map[entry]int{}
	for entries := tour.next(); entries != nil; entries = tour.next() {
		for i, e := range entries {
			if e.plan().last && i != len(entries)-1 {
				t.Errorf("%s is not the last of %v", e, entries)
			}
		}
		tried := entries[:max(1, len(entries)/2)]
		for _, e := range tried {
			seen[e]++
		}
		tour.round(tried, entries[:len(entries)/3])
	}
	for _, p := range crash.Points() {
		if n := seen[entry{p, 1}]; n == 0 || n > tries {
			t.Errorf("%s was tried %d times", p, n)
		}
	}
}
