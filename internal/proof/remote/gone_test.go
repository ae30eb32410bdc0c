package remote

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// restored is a store whose system lab is not there for a while, as in a database that was restored
// from before it was made.
type restored struct {
	store.Store
	gone *atomic.Bool
}

func (s restored) Resources(ctx context.Context, q store.ResourceQuery) ([]store.Resource, error) {
	rs, err := s.Store.Resources(ctx, q)
	return slices.DeleteFunc(rs, func(r store.Resource) bool {
		return s.gone.Load() && r.Kind == job.KindSystem && r.Name == "lab"
	}), err
}

// A system is there no more, while jobs need it. They wait for it by that name, and go on when it
// is made again. A program that runs there runs on.
func TestSystemGone(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	var gone atomic.Bool
	hides := func(o *node.Options) {
		o.Store = func(st store.Store) store.Store { return restored{st, &gone} }
	}
	w := open(t, hides)
	data := filepath.Join(s.Work, "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil { // whatever the mask
		t.Fatal(err)
	}
	system := func(name string) {
		w.document(strings.Replace(w.text(name, s, s.Port), `{`, `{"files": ["`+data+`"], `, 1))
	}
	system("lab")
	system("other")

	gate := filepath.Join(w.dir, "gate")
	sends := w.program("", gate) // its results go to another system
	sends.Archive.To = "system://other" + data + "/results"
	runs := w.submit(w.program("lab", gate), w.program("", gate), sends)
	for _, id := range runs {
		w.runs(id)
	}
	if err := w.Systems().Delete(t.Context(), "lab", service.AnyVersion); job.KindOf(err) != job.Conflict {
		t.Errorf("system lab has a job, and is deleted: %v", err)
	}
	if err := w.Systems().Delete(t.Context(), "other", service.AnyVersion); err != nil {
		t.Errorf("system other has none: %v", err)
	}
	later := service.Request{Spec: w.program("lab", ""), After: []store.After{{Job: runs[1]}}}
	answers, err := w.Submit(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	waits := answers[0].ID

	w.stop() // else it may have the systems for a while
	gone.Store(true)
	w.start(hides)
	w.write(gate, "")
	for id, name := range map[job.ID]string{waits: "lab", runs[2]: "other"} {
		w.until("it waits for system "+name, id, func(j *job.Job) bool {
			if j.State.Terminal() {
				t.Fatalf("%s: %s (%s: %s)\n%s", name, j.State, j.Code, j.Message, w.history(id))
			}
			return j.Code == job.SystemDisabled && strings.Contains(j.Message, "there is no system "+name)
		})
	}
	w.finished(runs[1])
	if j, err := w.Job(t.Context(), runs[0]); err != nil || j.State != job.Running {
		t.Errorf("the program that runs on it: %s, %v", j.State, err)
	}
	if v, err := w.View(t.Context(), runs[0]); err != nil || !strings.Contains(v.Why, "there is no system lab any more") {
		t.Errorf("its system is gone, and it says %q, %v", v.Why, err)
	}
	gone.Store(false)
	system("lab")
	system("other")
	w.finished(runs[0], waits)
	if j, err := w.Wait(t.Context(), runs[2]); err != nil || j.State != job.Finished {
		t.Errorf("%s (%s: %s), %v", j.State, j.Code, j.Message, err)
	}
}
