package store_test

import (
	"fmt"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestPostgresExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lapsed, live := w.session(), w.session()
	w.submit(newTasks(5)...)
	w.claim(live, 1)
	jobs := w.claim(lapsed, 4)
	w.db.must("UPDATE jobs SET wish = 'cancel', wished_by = 'ann' WHERE id = " + uuid(jobs[1].ID))
	w.db.must("UPDATE jobs SET recoveries = " + num(job.MaxRecoveries) + " WHERE id = " + uuid(jobs[2].ID))
	w.lapse(lapsed)
	if rows, err := w.expire(w.db); err != nil || len(rows) != 4 {
		t.Fatalf("expiry took %d jobs, %v; want 4", len(rows), err)
	}
	for i, want := range []job.State{job.Pending, job.Canceled, job.Failed, job.Pending} {
		if j := w.job(jobs[i].ID); j.State != want {
			t.Errorf("job %d is at %s, want %s", i, j.Place, want)
		}
	}
	if rows, err := w.expire(w.db); err != nil || len(rows) != 0 {
		t.Errorf("a second expiry took %v, %v", rows, err)
	}
	w.checkHistories()
}

func TestPostgresRenew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session, other := w.session(), w.session()
	w.submit(newTasks(3)...)
	far := newTask()
	far.Queue, far.Machine = "far", "m1"
	w.submit(far)
	held := w.claim(session, 2)
	w.db.must("UPDATE jobs SET wish = 'pause' WHERE id = " + uuid(held[0].ID))
	renew := func(machine string) []row {
		t.Helper()
		return w.db.must(execute("renew", uuid(session), "15000000", "'{default,far,empty}'", "'{app,send}'", str(machine), "'{sweep,watch}'"))
	}
	got := renew("m2")[0]
	want := row{
		"held": "0", "wishes": fmt.Sprintf(`[[%q, %d, "pause"]]`, held[0].ID, held[0].Epoch), "ready": `[["default", "send"]]`,
		"duties": `[["sweep", 1], ["watch", 1]]`, "unpaid": "f",
	}
	check := func(got, want row) {
		t.Helper()
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s, want %s", k, got[k], v)
			}
		}
	}
	check(got, want)
	if end := w.db.value("SELECT lease_until FROM sessions WHERE id = " + uuid(other)); got["next_expiry"] != end {
		t.Errorf("next expiry %s, want %s", got["next_expiry"], end)
	}
	renew("m1")
	w.db.must("INSERT INTO followups (debt, job, at) SELECT 'dependants', " + uuid(far.ID) + ", now() - interval '16 s'")
	check(renew("m1")[0], row{
		"held": "2", "ready": `[["default", "send"], ["far", "send"]]`, "unpaid": "t",
		"duties": `[["sweep", 1], ["watch", 1]]`, // kept, not taken again
	})
	w.lapse(session)
	if rows := renew("m1"); len(rows) != 0 {
		t.Errorf("a session whose lease was over was renewed: %v", rows)
	}
	w.expire(w.db)
	w.noDeadlock()
}
