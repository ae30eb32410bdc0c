package app_test

import (
	"encoding/json"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
)

// TestResultOfAFailure sees that a job that failed keeps what is known of its program, as one that
// finished does.
func TestResultOfAFailure(t *testing.T) {
	for _, c := range []struct {
		name    string
		spec    func() job.Spec
		code    job.Code
		exit    any // nil: not known
		archive bool
	}{
		{"by its exit code", func() job.Spec { return shell(`exit 3`) }, job.ProgramFailed, 3.0, true},
		{"by a signal", func() job.Spec { return shell(`kill -9 $$`) }, job.ProgramKilled, 137.0, true},
		{"by what is missing", func() job.Spec {
			s := shell(`true`)
			s.Archive = &job.Archive{Required: []string{"nothing"}}
			return s
		}, job.OutputMissing, 0.0, true},
		{"without an archive", func() job.Spec {
			s := shell(`exit 4`)
			s.Archive = &job.Archive{On: job.ArchiveSuccess}
			return s
		}, job.ProgramFailed, 4.0, false},
		{"in its last attempt", func() job.Spec {
			s := shell(`exit 5`)
			s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
			return s
		}, job.ProgramFailed, 5.0, true},
		{"before it ran", func() job.Spec {
			s := shell(`true`)
			s.Inputs = []job.Input{{From: "/nowhere/at/all"}}
			return s
		}, job.InputMissing, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			j := h.end(h.submit(c.spec()))
			if j.State != job.Failed || j.Code != c.code {
				t.Fatalf("%s %s %s", j.State, j.Code, j.Message)
			}
			var r map[string]any
			if j.Result != nil {
				if err := json.Unmarshal(j.Result, &r); err != nil {
					t.Fatal(err)
				}
			}
			_, results := app.Places(&j)
			ran, _ := r["ran"].(string)
			archive, _ := r["archive"].(string)
			if r["exit_code"] != c.exit || (ran != "") != (c.exit != nil) || c.archive && archive != results || !c.archive && archive != "" {
				t.Errorf("result %s", j.Result)
			}
		})
	}
}

// TestResultOfACancel sees that a job that was canceled while it ran keeps how long that was, and
// with which exit code it ended.
func TestResultOfACancel(t *testing.T) {
	h := open(t)
	id := h.submit(shell(`trap 'exit 7' TERM; : >begun; while :; do sleep 0.01; done`))
	h.until(id, func(e job.Event) bool { return e.State == job.Running })
	j, err := h.svc.Job(h.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	folder, _ := app.Places(&j)
	h.poll("the program", func() bool { return exists(folder, "begun") })
	if _, err := h.svc.Cancel(h.ctx, id); err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if j = h.end(id); j.State != job.Canceled || json.Unmarshal(j.Result, &r) != nil {
		t.Fatalf("%s %s: result %s", j.State, j.Code, j.Result)
	}
	if ran, _ := r["ran"].(string); r["exit_code"] != 7.0 || ran == "" || r["archive"] != nil {
		t.Errorf("result %s", j.Result)
	}
}
