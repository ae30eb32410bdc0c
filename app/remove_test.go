package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestRetention: with a job that is kept no longer go its folder and its results in the service's
// own archive. Results in a folder of the user's stay, and so do jobs that are kept.
func TestRetention(t *testing.T) {
	t.Parallel()
	h := open(t)
	to := filepath.Join(h.dir, "mine")
	program := func(script, to string) *job.Job {
		spec := shell(script)
		spec.Archive = &job.Archive{To: to}
		j := h.end(h.submit(spec))
		return &j
	}
	finished, named, failed := program("echo x > out.txt", ""), program("echo y > out.txt", "file://"+to), program("echo z > out.txt; exit 1", "")
	_, results := app.Places(finished)
	folder, _ := app.Places(failed)
	there := func(want bool, name string) {
		t.Helper()
		if _, err := os.Stat(name); want != (err == nil) {
			t.Errorf("%s is there: %v, want %t", name, err, want)
		}
	}
	for _, name := range []string{results, to, folder} {
		there(true, name)
	}

	keep := func(doc string) {
		t.Helper()
		if _, _, err := h.svc.Retentions().Apply(h.ctx, []byte(doc), service.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	keep(`{"name":"default","keep":{"FINISHED":"2h"}}`)
	h.stop()
	h.ahead.Store(int64(3 * time.Hour))
	h.start()
	h.poll("finished jobs are removed", func() bool { return h.svc.Removed(job.Finished) == 2 })
	there(false, results)
	there(true, filepath.Join(to, "out.txt"))
	there(true, folder)

	keep(`{"name":"default","keep":{"FAILED":"2h"}}`)
	h.poll("the failed job is removed", func() bool { return h.svc.Removed(job.Failed) == 1 })
	there(false, folder)
	for _, j := range []*job.Job{finished, named, failed} {
		if _, err := h.svc.Job(h.ctx, j.ID); job.KindOf(err) != job.NotFound {
			t.Errorf("job %s: %v", j.ID, err)
		}
	}
}

// TestRemoveWhatTheRowDoesNotTell: a job was canceled after its folder was made and before its row
// told of it, or while its results were copied.
func TestRemoveWhatTheRowDoesNotTell(t *testing.T) {
	h := open(t)
	j := job.Job{ID: job.NewID(), Tenant: "default", Request: json.RawMessage(`{"command":["true"]}`)}
	id := j.ID.String()
	left := []string{"work/default/" + id, "work/.archiving/" + id, "archive/.staging/.pawl-" + id + "-5"}
	for _, name := range left {
		if err := os.MkdirAll(filepath.Join(h.dir, name, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.kind.Remove(h.ctx, &j); err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if exists(h.dir, name) {
			t.Errorf("%s is left", name)
		}
	}
}

// TestRemoveWhatStays: a job whose files cannot be removed is named with the reason, and holds up
// no other.
func TestRemoveWhatStays(t *testing.T) {
	h := open(t)
	var all []job.Job
	for range 3 {
		all = append(all, h.end(h.submit(shell("mkdir -p sub/mnt; touch sub/file; chmod 0 sub; exit 1"))))
	}
	held := all[1]
	folder, _ := app.Places(&held)
	at := filepath.Join(folder, "sub", "mnt")
	if err := syscall.Mount(h.T.TempDir(), at, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mount a folder: %v (it takes root)", err)
	}
	unmount := func() error { return syscall.Unmount(at, syscall.MNT_DETACH) }
	t.Cleanup(func() { unmount() }) // it was done
	for range 2 {
		errs, err := h.svc.Delete(h.ctx, held.ID)
		if err != nil || job.KindOf(errs[0]) != job.Conflict || !strings.Contains(errs[0].Error(), at+" cannot be removed: something is mounted there") {
			t.Fatalf("%v %v", errs, err)
		}
	}
	if _, _, err := h.svc.Retentions().Apply(h.ctx, []byte(`{"name":"default","keep":{"FAILED":"2h"}}`), service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.ahead.Store(int64(3 * time.Hour))
	h.start()
	h.poll("the others are removed", func() bool { return h.svc.Removed(job.Failed) == 2 })
	if _, err := h.svc.Job(h.ctx, held.ID); err != nil {
		t.Errorf("the job that stays: %v", err)
	}
	if err := unmount(); err != nil {
		t.Fatal(err)
	}
	if errs, err := h.svc.Delete(h.ctx, held.ID); err != nil || errs[0] != nil {
		t.Errorf("%v %v", errs, err)
	}
	if exists(folder) {
		t.Error("its folder is left")
	}
}
