package remote

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	if err := w.Systems().Delete(t.Context(), "lab", service.AnyVersion); err != nil {
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
	testenv.Aside(t)
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

// output reads a file of a job, as people do.
func (w *world) output(id job.ID, name string) (string, error) {
	_, r, err := w.OpenOutput(w.t.Context(), id, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// The files of a job that runs are read, and those that it leaves where it ran.
func TestOutputThere(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	goOn := w.dir + "/go"
	program := w.program("lab", goOn)
	program.Inputs[0].From = w.small
	program.Script = "echo begun; mkdir sub; echo half >sub/part; ln -s /etc/passwd link; " + program.Script
	program.Archive = &job.Archive{On: job.ArchiveNever}
	id := w.submit(program)[0]
	w.runs(id)
	small, err := os.ReadFile(w.small)
	if err != nil {
		t.Fatal(err)
	}
	has := func(want map[string]string) {
		t.Helper()
		list, err := w.Output(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range list {
			names = append(names, f.Path)
			if f.Problem != "" || f.Size != int64(len(want[f.Path])) {
				t.Errorf("%+v, want %d bytes", f, len(want[f.Path]))
			}
		}
		if all := slices.Sorted(maps.Keys(want)); !slices.Equal(names, all) {
			t.Errorf("its files are %q, want %q", names, all)
		}
		for name, text := range want {
			if got, err := w.output(id, name); got != text || err != nil {
				t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(text))
			}
		}
		if _, err := w.output(id, "nothing"); job.KindOf(err) != job.NotFound {
			t.Errorf("a file that is not there: %v", err)
		}
		for _, name := range []string{"link", "../x"} { // they lead out of the folder
			if _, err := w.output(id, name); job.KindOf(err) != job.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	want := map[string]string{"stdout": "begun\n", "stderr": "", "sub/part": "half\n", "in/input": string(small)}
	has(want)
	w.write(goOn, "")
	if j, err := w.Wait(t.Context(), id); err != nil || j.State != job.Finished {
		t.Fatalf("%s (%s: %s), %v\n%s", j.State, j.Code, j.Message, err, w.history(id))
	}
	want["result"] = string(small)
	has(want)
	w.stop() // another process finds them, too
	w.start()
	has(want)
}
