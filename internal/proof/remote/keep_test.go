package remote

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// folder is where a job has its folder on system lab.
func (w *world) folder(s *testenv.SSH, id job.ID) string {
	return filepath.Join(w.work("lab", s), "work", "default", id.String())
}

func there(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// kept runs jobs that leave their folders on system lab: one that has FINISHED, and one FAILED.
func (w *world) kept(s *testenv.SSH) []job.ID {
	w.t.Helper()
	good := w.program("lab", "")
	good.Archive = &job.Archive{On: job.ArchiveNever}
	bad := good
	bad.Script += "; exit 3"
	ids := w.submit(good, bad)
	for i, want := range []job.State{job.Finished, job.Failed} {
		if j, err := w.Wait(w.t.Context(), ids[i]); err != nil || j.State != want || !there(w.folder(s, ids[i])) {
			w.t.Fatalf("%s (%s: %s), %v\n%s", j.State, j.Code, j.Message, err, w.history(ids[i]))
		}
	}
	return ids
}

// gone waits until jobs are gone, and then until nothing of them is left there.
func (w *world) gone(s *testenv.SSH, back func(), ids ...job.ID) {
	w.t.Helper()
	for _, id := range ids {
		w.eventually("it is deleted", func() bool {
			_, err := w.Job(w.t.Context(), id)
			return job.KindOf(err) == job.NotFound
		})
		if !there(w.folder(s, id)) {
			w.t.Error("its folder is gone, and nobody reaches it")
		}
	}
	back()
	for _, id := range ids {
		w.eventually("its folder goes", func() bool { return !there(w.folder(s, id)) })
	}
	w.empty(w.work("lab", s))
	w.eventually("no note of it stays", func() bool {
		left, err := filepath.Glob(filepath.Join(w.Dir, "work", ".removals", "*", "*"))
		return err == nil && len(left) == 0
	})
}

// Jobs are deleted while their system is away. Their folders go when it is back, also if the
// service was stopped meanwhile.
func TestDeleteAway(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	for what, back := range map[string]func(){
		"it comes back": func() { s.Start(t) },
		"it comes back while nobody is there": func() {
			w.stop()
			s.Start(t)
			w.start()
		},
	} {
		ids := w.kept(s)
		s.Kill()
		errs, err := w.Delete(t.Context(), ids...)
		if err != nil || errs[0] != nil || errs[1] != nil {
			t.Fatalf("%s: %v, %v", what, errs, err)
		}
		w.gone(s, back, ids...)
	}
}

// The system of a job is deleted before the job is. The folder goes when there is the system again.
func TestDeleteAfterSystem(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	ids := w.kept(s)
	if err := w.Systems().Delete(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	w.stop() // else it may have the system for a while
	w.start()
	if errs, err := w.Delete(t.Context(), ids...); err != nil || errs[0] != nil || errs[1] != nil {
		t.Fatalf("%v, %v", errs, err)
	}
	w.gone(s, func() { w.system("lab", s, s.Port) }, ids...)
}

// impatient is a store for which no job is kept, once there is a retention.
type impatient struct{ store.Store }

func (s impatient) Overdue(ctx context.Context, q store.OverdueQuery) (store.Overdue, error) {
	for i := range q.Kept {
		q.Kept[i].For = 0
	}
	return s.Store.Overdue(ctx, q)
}

// Jobs are kept no longer, and their system is away.
func TestRetentionAway(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t, func(o *node.Options) { o.Store = func(s store.Store) store.Store { return impatient{s} } })
	w.system("lab", s, s.Port)
	ids := w.kept(s)
	s.Kill()
	if _, _, err := w.Retentions().Apply(t.Context(), []byte(`{"name": "default", "keep": {"FINISHED": "1h", "FAILED": "1h"}}`),
		service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.gone(s, func() { s.Start(t) }, ids...)
}
