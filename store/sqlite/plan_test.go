package sqlite

import (
	"database/sql/driver"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Every statement that the writer has prepared finds its rows by an index, also after somebody took
// statistics of tables that were nearly empty.
func TestPlans(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open := func() *Store {
		s, err := Open(t.Context(), dir, Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	exercise(t, s, func(d time.Duration) { now = now.Add(d) })
	check(t, s, slices.Sorted(maps.Keys(s.write.stmts)))
	if err := s.do(t.Context(), func(t *tx) error { _, err := t.exec(`ANALYZE`); return err }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, open(), slices.Sorted(maps.Keys(s.write.stmts)))
}

// SQLite would prepare a statement anew at each call to plan for a LIMIT that is a plain parameter.
func TestLimitsAreExpressions(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	parameter, expression := regexp.MustCompile(`LIMIT \?[0-9]*`), regexp.MustCompile(`LIMIT \?[0-9]* \+ 0`)
	all := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := len(parameter.FindAll(text, -1))
		if all += n; n != len(expression.FindAll(text, -1)) && name != "plan_test.go" {
			t.Errorf("%s: write LIMIT ? + 0", name)
		}
	}
	if all < 25 {
		t.Errorf("there are only %d statements with LIMIT", all)
	}
}

// The watcher of a machine asks again and again, and most of its programs have no news.
func TestPlanOfWatched(t *testing.T) {
	s := openAt(t, t.TempDir())
	var plan string
	err := s.do(t.Context(), func(tx *tx) error {
		return tx.query("EXPLAIN QUERY PLAN SELECT j.seq FROM jobs j WHERE "+watched, func(v []driver.Value) error {
			plan += text(v[3]) + "\n"
			return nil
		}, "m", int64(0), "m")
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"jobs_monitor (watch=? AND since>?)", "jobs_wished (watch=?)"} {
		if !strings.Contains(plan, want) {
			t.Errorf("no %s in\n%s", want, plan)
		}
	}
}

// Lines that nobody serves are looked for along the ready index, and what sessions hold along
// theirs.
func TestPlanOfSessions(t *testing.T) {
	s := openAt(t, t.TempDir())
	for q, want := range map[string]string{
		nextReady:     "jobs_ready ((queue,kind,machine)>(?,?,?))",
		notServed:     "jobs_ready (queue=? AND kind=? AND machine=?)",
		sessionsThere: "jobs_session (session>?)",
		unwatched:     "jobs_monitor (watch>?)",
	} {
		var plan string
		err := s.do(t.Context(), func(tx *tx) error {
			return tx.query("EXPLAIN QUERY PLAN "+q, func(v []driver.Value) error {
				plan += text(v[3]) + "\n"
				return nil
			}, make([]any, strings.Count(q, "?"))...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, want) || strings.Contains(plan, "TEMP B-TREE") && q != sessionsThere {
			t.Errorf("no %s in\n%s\nof %s", want, plan, q)
		}
	}
}

// check looks at the plans of statements as the writer's connection would carry them out.
func check(t *testing.T, s *Store, statements []string) {
	t.Helper()
	tried := 0
	for _, q := range statements {
		if word, _, _ := strings.Cut(q, " "); !slices.Contains([]string{
			"SELECT", "UPDATE", "DELETE", "INSERT",
			"WITH",
		}, word) {
			continue
		}
		tried++
		err := s.do(t.Context(), func(tx *tx) error {
			return tx.query("EXPLAIN QUERY PLAN "+q, func(v []driver.Value) error {
				step := text(v[3])
				if whole(step) || strings.Contains(step, "TEMP B-TREE") && strings.Contains(q, "LIMIT") {
					t.Errorf("%s\n%s", step, q)
				}
				return nil
			}, make([]any, parameters(q))...)
		})
		if err != nil {
			t.Errorf("%v\n%s", err, q)
		}
	}
	if tried < 25 {
		t.Errorf("only %d statements were tried", tried)
	}
}

// parameters counts those of a statement, which have numbers or none.
func parameters(q string) int {
	for n := 9; n > 0; n-- {
		if strings.Contains(q, "?"+strconv.Itoa(n)) {
			return n
		}
	}
	return strings.Count(q, "?")
}

// whole reports whether a step of a plan reads a whole table that may be large. Sessions and duties
// are few, as are groups, and limits that take in jobs; the others in this list are read up to a
// LIMIT or are arguments.
func whole(step string) bool {
	table, ok := strings.CutPrefix(step, "SCAN ")
	small := []string{
		"sessions", "o", "duties", "d", "followups", "CONSTANT ROW", "json_each", "e", "q", "k",
		"groups", "g", "walks",
	}
	return ok && !strings.Contains(table, " USING INDEX jobs_session") &&
		!slices.ContainsFunc(small, func(s string) bool { return strings.HasPrefix(table+" ", s+" ") })
}

// exercise makes the writer prepare what it has for jobs.
func exercise(t *testing.T, s *Store, sleep func(time.Duration)) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := job.NewID()
	task := func(f func(*store.New)) store.New {
		n := store.New{Job: job.Job{
			ID: job.NewID(), Owner: "o", Kind: "k", Name: "n", Queue: "q", Priority: 5,
			MaxAttempts: 3, Request: []byte(`{}`),
		}}
		f(&n)
		return n
	}
	_, _, err := s.Submit(ctx, store.Submission{Tenant: "t", Key: "key", Jobs: []store.New{
		task(func(n *store.New) { n.Job.ID = a }),
		task(func(n *store.New) { n.Job.ExternalID = "x" }),
		task(func(n *store.New) { n.Delay = time.Second }),
		task(func(n *store.New) { n.After = []store.After{{Job: a, Need: job.NeedEnded}} }),
		task(func(n *store.New) { n.Unique = []store.Unique{{Mode: job.UntilDone, Key: "u"}} }),
	}})
	must(err)
	begin := func() job.ID {
		t.Helper()
		id := job.NewID()
		must(s.Begin(ctx, store.Session{ID: id, Process: store.Process{Host: "p"}, Lease: time.Minute}))
		return id
	}
	one, two := begin(), begin()
	_, err = s.Renew(ctx, store.Renew{
		Session: one, Lease: time.Minute, Queues: []string{"q"}, Kinds: []string{"k"},
		Duties: []string{"d"},
	})
	must(err)
	claim := func(session job.ID, n int) []job.Job {
		t.Helper()
		jobs, err := s.Claim(ctx, store.Claim{
			ID: job.NewID(), Session: session, Queues: []string{"q"},
			Kinds: []string{"k"}, Slots: map[job.Lane]int{job.LaneTask: n},
		})
		must(err)
		if len(jobs) == 0 {
			t.Fatal("nothing was claimed")
		}
		return jobs
	}
	mine := claim(one, 2)
	mine = append(mine, claim(one, 1)...)
	var ends []job.Change
	for _, j := range mine {
		ends = append(ends, job.Change{
			Job: j.ID, From: j.Guard(job.Fence{Session: one}), To: job.None,
			Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}},
		})
	}
	for range 2 { // the second time they are looked up
		_, _, _, err = s.Apply(ctx, ends, nil)
		must(err)
	}
	for range 2 {
		_, _, err = s.Pay(ctx, 100)
		must(err)
	}
	sleep(2 * time.Second)
	_, _, err = s.Due(ctx, 100)
	must(err)
	_, _, err = s.Wish(ctx, store.Wish{Tenant: "t", Jobs: []job.ID{claim(two, 1)[0].ID}, Wish: job.WishPause, By: "o"})
	must(err)
	_, err = s.End(ctx, two)
	must(err)
	lost := claim(begin(), 1)[0]
	sleep(2 * time.Minute)
	_, _, err = s.Expire(ctx, 100)
	must(err)
	_, err = s.Clear(ctx, []store.Lost{{Job: lost.ID, Epoch: lost.Epoch}})
	must(err)
	limited(t, s, begin())
	blocked(t, s, begin(), sleep)
}

// limited makes the writer prepare what it has for jobs under limits, those included that move to
// another line.
func limited(t *testing.T, s *Store, session job.ID) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pay := func() {
		t.Helper()
		_, _, err := s.Pay(ctx, 1000)
		must(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		_, err := store.SetLimit(ctx, s, "t", job.Limit{Key: key, Most: 1})
		must(err)
	}
	_, err := store.RemoveLimit(ctx, s, "t", "c")
	must(err)
	must(submit(ctx, s, newTask(1)))
	_, err = store.SetLimit(ctx, s, "t", job.Limit{Key: "tenant", Most: 100}) // which takes in those that are there
	must(err)
	_, _, err = s.Pay(ctx, 2)
	must(err)
	var jobs []store.New
	for _, keys := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"a"}} {
		n := newTask(1)
		n.Job.Owner, n.Job.Limits = keys[0], keys
		n.Job.Queue, n.Job.Kind, n.Optional = "limited", "limited", []string{"c"}
		jobs = append(jobs, n)
	}
	jobs[2].Job.Owner = "third" // the one that needs both: it is looked at first when a is free
	jobs[3].Job.Owner, jobs[3].Job.Priority = "other", 5
	must(submit(ctx, s, jobs...))
	pay()
	late := newTask(1)
	late.Job.Limits, late.After = []string{"a"}, []store.After{{Job: jobs[0].Job.ID, Need: job.NeedEnded}}
	late.Job.Queue, late.Job.Kind, late.Job.Priority = "limited", "limited", 5
	must(submit(ctx, s, late))
	var first job.ID
	for i := range 2 {
		n := newTask(1)
		n.Job.Order, n.Job.Ties = "order/k", job.TieLimited
		must(submit(ctx, s, n))
		if i == 1 {
			_, _, err := s.Wish(ctx, store.Wish{Tenant: "t", Jobs: []job.ID{first}, Wish: job.WishCancel, By: "o"})
			must(err)
			pay() // this one goes
		}
		first = n.Job.ID
	}
	for range jobs {
		held, err := s.Claim(ctx, store.Claim{
			ID: job.NewID(), Session: session, Queues: []string{"limited"},
			Kinds: []string{"limited"}, Slots: map[job.Lane]int{job.LaneTask: 1},
		})
		must(err)
		for _, j := range held {
			_, _, _, err = s.Apply(ctx, []job.Change{{
				Job: j.ID, From: j.Guard(job.Fence{Session: session}), To: job.None,
				Path: []job.Entry{{State: job.Finished, Code: job.NormalCompletion}},
			}}, nil)
			must(err)
		}
		pay()
	}
	for _, part := range []string{
		"UPDATE jobs SET line = ?, passed", "UPDATE jobs SET line = ?, since = ? WHERE",
		"INSERT OR FAIL INTO turns", "DELETE FROM turns", "INSERT INTO served", "DELETE FROM served",
		"UPDATE jobs SET limit_keys", "UPDATE walks SET walked = max",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.write.stmts)),
			func(q string) bool { return strings.HasPrefix(q, part) }) {
			t.Errorf("nothing was prepared that begins with %q", part)
		}
	}
}

// blocked makes the writer prepare what it has for jobs that are blocked, and for lines that are
// closed.
func blocked(t *testing.T, s *Store, session job.ID, sleep func(time.Duration)) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// block has tasks of two owners blocked by a condition each, of which the first closes a line
	// where others wait.
	block := func(conditions ...string) {
		t.Helper()
		for _, what := range conditions {
			jobs := []store.New{newTask(1), newTask(1), newTask(1)}
			for i := range jobs {
				jobs[i].Job.Owner, jobs[i].Job.Kind, jobs[i].Job.Queue = []string{"o", "p"}[i%2], "blocked", "blocked"
			}
			must(submit(ctx, s, jobs...))
			held, err := s.Claim(ctx, store.Claim{
				ID: job.NewID(), Session: session, Queues: []string{"blocked"},
				Kinds: []string{"blocked"}, Slots: map[job.Lane]int{job.LaneTask: 3},
			})
			must(err)
			var changes []job.Change
			for i := range held {
				changes = append(changes, blocking(&held[i], session, what, conditions[0]))
			}
			_, _, _, err = s.Apply(ctx, changes, nil)
			must(err)
		}
		_, _, err := s.Pay(ctx, 100)
		must(err)
		late := newTask(1)
		late.Job.Limits = []string{"line/" + conditions[0]}
		must(submit(ctx, s, late))
	}
	turn := func() {
		t.Helper()
		_, _, err := s.Due(ctx, 100)
		must(err)
		_, _, err = s.Pay(ctx, 100)
		must(err)
	}
	fence := func() job.Fence {
		t.Helper()
		a, err := s.Renew(ctx, store.Renew{
			Session: session, Lease: 10 * time.Hour,
			Duties: []string{groups.RecoveryDuty},
		})
		must(err)
		return job.Fence{Duty: groups.RecoveryDuty, Term: a.Duties[0].Term}
	}
	fence()
	_, err := store.SetLimit(ctx, s, "t", job.Limit{Key: "releases/*", Most: 2, Per: job.Duration(time.Second)})
	must(err)
	block("a", "b", "c", "d")
	turn()
	sleep(time.Minute)
	due, err := s.Tests(ctx, groups.RecoveryDuty, 100)
	must(err)
	for _, g := range due.Due {
		_, err = s.Tested(ctx, fence(), []groups.Test{{
			Tenant: g.Tenant, Key: g.Key, Began: due.Now,
			Clear: g.Block.Params["what"] < "c",
		}})
		must(err)
		if g.Block.Params["what"] == "c" {
			_, _, err = s.Steer(ctx, store.Steer{Tenant: "t", Want: groups.GiveUp, Group: g.Key})
			must(err)
		}
	}
	for range 10 {
		turn()
		sleep(500 * time.Millisecond)
	}
	sleep(time.Hour)
	turn() // who is left fails
	sleep(time.Hour)
	_, _, err = s.Recount(ctx, 100)
	must(err)
	all, err := s.Groups(ctx, store.GroupQuery{Tenant: "t"})
	must(err)
	if len(due.Due) != 4 || len(all) != 0 {
		t.Errorf("%d groups are tested, and %d are left", len(due.Due), len(all))
	}
	for _, part := range []string{
		"INSERT INTO groups", "DELETE FROM groups", "INSERT INTO lines", "UPDATE lines",
		"DELETE FROM lines", "INSERT INTO walks", "DELETE FROM walks",
		"SELECT tenant, key, doc FROM groups INDEXED BY groups_line",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.write.stmts)),
			func(q string) bool { return strings.HasPrefix(q, part) }) {
			t.Errorf("nothing was prepared that begins with %q", part)
		}
	}
}

// blocking is the change by which a task that a session holds is blocked by something, which may
// close a line.
func blocking(j *job.Job, session job.ID, what, line string) job.Change {
	b := &job.Block{
		Code: job.TaskBlocked, Tester: "x", Params: map[string]string{"what": what},
		Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Minute), Times: 3}}},
	}
	if what == line {
		b.Line = "line/" + what
	}
	c := job.Change{
		Job: j.ID, From: j.Guard(job.Fence{Session: session}), To: job.Recovery,
		Path: []job.Entry{{State: job.Blocked, Code: b.Code, Message: what}},
	}
	c.Set.Block, c.Set.Resume = b, job.Pending
	if j.Program() {
		c.Set.Resume = j.State
	}
	return c
}

// What is known of groups is read along their rows, and of each no more than its own jobs.
func TestPlanOfGroups(t *testing.T) {
	s := openAt(t, t.TempDir())
	for q, wants := range map[string][]string{
		testsDue: {
			"g USING INDEX groups_next (duty=? AND next>? AND next<?)",
			"g USING INDEX groups_probe (duty=? AND probe=?)", "g USING INDEX groups_next (duty=? AND next>?)",
			"j USING COVERING INDEX jobs_group (tenant=? AND grp=?)",
		},
		groupsThere("") + ` ORDER BY g.key LIMIT ?3 + 0`: {
			"g USING PRIMARY KEY (tenant=? AND key>?)", "j USING COVERING INDEX jobs_group (tenant=? AND grp=?)",
			"j USING COVERING INDEX jobs_line (tenant=? AND line=?)",
		},
		groupsThere("") + ` AND g.key = ?4 ORDER BY g.key LIMIT ?3 + 0`: {"g USING PRIMARY KEY (tenant=? AND key=?)"},
		inLineOf + ` ORDER BY g.key LIMIT ?3 + 0`: {"g USING INDEX groups_line (tenant=? AND " +
			"line=? AND places>?)"},
		firstFail: {"j USING INDEX jobs_until (tenant=? AND grp=? AND until>?)"},
	} {
		var plan string
		err := s.do(t.Context(), func(tx *tx) error {
			return tx.query("EXPLAIN QUERY PLAN "+q, func(v []driver.Value) error {
				plan += text(v[3]) + "\n"
				return nil
			}, make([]any, parameters(q))...)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(plan, want) {
				t.Errorf("no %s in\n%s\nof %s", want, plan, q)
			}
		}
		if strings.Contains(plan, "FOR ORDER BY") && !strings.HasPrefix(q, inLineOf) { // a line is closed by few
			t.Errorf("it sorts:\n%s\nin %s", plan, q)
		}
	}
}

// What turns are in use is read along the turns and along the lines, a step for each key.
func TestPlanOfTurns(t *testing.T) {
	s := openAt(t, t.TempDir())
	for _, q := range []string{keysInUse + usesOf, keyInUse + usesOf} {
		var plan string
		err := s.do(t.Context(), func(tx *tx) error {
			return tx.query("EXPLAIN QUERY PLAN "+q, func(v []driver.Value) error {
				if step := text(v[3]); whole(step) {
					t.Errorf("%s\n%s", step, q)
				}
				plan += text(v[3]) + "\n"
				return nil
			}, make([]any, parameters(q))...)
		})
		if err != nil {
			t.Fatal(err)
		}
		wants := []string{
			"t USING PRIMARY KEY (tenant=? AND key=?)",
			"j USING COVERING INDEX jobs_line (tenant=? AND line=?)",
		}
		if strings.HasPrefix(q, keysInUse) {
			wants = append(wants, "turns USING PRIMARY KEY (tenant=? AND key>?)",
				"t USING PRIMARY KEY (tenant=? AND key>?)", "j USING COVERING INDEX jobs_line (tenant=? AND line>?)")
		}
		for _, want := range wants {
			if !strings.Contains(plan, want) {
				t.Errorf("no %s in\n%s", want, plan)
			}
		}
	}
}

// Who goes next of an order, and who stands before a job there or where it waits otherwise, is read
// along an index, whatever the planner knows.
func TestPlanOfOrders(t *testing.T) {
	s := openAt(t, t.TempDir())
	for q, want := range map[string]string{
		firstInOrder:  "SEARCH j USING INDEX jobs_order (tenant=? AND line=?)",
		ownersInLine:  "SEARCH j USING COVERING INDEX jobs_line (tenant=? AND line=? AND owner>?)",
		firstOfOwners: "SEARCH h USING COVERING INDEX jobs_line (tenant=? AND line=? AND owner=?)",
		behindInOrder: "SEARCH jobs USING COVERING INDEX jobs_order (tenant=? AND line=? AND " +
			"(rank,priority,created)<(?,?,?))",
		behind: "SEARCH jobs USING COVERING INDEX jobs_line (tenant=? AND line=? AND owner=? AND " +
			"(priority,created)<(?,?))",
		behindReady: "SEARCH jobs USING INDEX jobs_ready (queue=? AND kind=? AND machine=? AND lane=? AND " +
			"(priority,created)<(?,?))",
		behindInGroup: "SEARCH jobs USING COVERING INDEX jobs_group (tenant=? AND grp=? AND since<?)",
	} {
		var plan string
		err := s.do(t.Context(), func(tx *tx) error {
			return tx.query("EXPLAIN QUERY PLAN "+q, func(v []driver.Value) error {
				plan += text(v[3]) + "\n"
				return nil
			}, make([]any, parameters(q))...)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("no %s in\n%s\nof %s", want, plan, q)
		}
	}
}

// What is wrong is looked for along the lines, a step for each key, and along all turns: these are
// of jobs that run.
func TestPlanOfRecount(t *testing.T) {
	s := openAt(t, t.TempDir())
	var plan string
	err := s.do(t.Context(), func(tx *tx) error {
		return tx.query("EXPLAIN QUERY PLAN "+lookForWrong, func(v []driver.Value) error {
			if step := text(v[3]); whole(step) && step != "SCAN t" &&
				!strings.Contains(step, "USING INDEX jobs_needs") && !strings.HasPrefix(step, "SCAN (subquery") {
				t.Errorf("%s\n%s", step, lookForWrong)
			}
			plan += text(v[3]) + "\n"
			return nil
		}, int64(10))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"j USING COVERING INDEX jobs_line (tenant>?)", "j USING COVERING INDEX jobs_line (tenant=? AND line>?)",
		"j USING INTEGER PRIMARY KEY (rowid=?)",
		"f USING COVERING INDEX followups_key (tenant=? AND key=?)",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("no %s in\n%s", want, plan)
		}
	}
	if strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("it sorts:\n%s", plan)
	}
}

// Jobs that are kept no longer are read in the order of their ends, up to the limit, and no others.
func TestPlanOfOverdue(t *testing.T) {
	s := openAt(t, t.TempDir())
	var plan string
	err := s.do(t.Context(), func(tx *tx) error {
		return tx.query("EXPLAIN QUERY PLAN "+overdue, func(v []driver.Value) error {
			plan += text(v[3]) + "\n"
			return nil
		}, "t", "FINISHED", int64(0), int64(0), int64(0), int64(1), "", nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"jobs_ended (tenant=? AND state=? AND ended>? AND ended<?)",
		"jobs_hidden_ended (tenant=? AND state=? AND ended>? AND ended<?)",
		"followups_job (job=?)", "MERGE (UNION ALL)",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("no %s in\n%s", want, plan)
		}
	}
	if strings.Contains(plan, "TEMP B-TREE") {
		t.Errorf("it sorts:\n%s", plan)
	}
}
