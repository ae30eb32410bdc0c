package remote

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// Who may use no more of the file system there gets no more by waiting: the job fails, says so, and
// leaves nothing there. What its program is told is the program's to tell.
func TestQuota(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	work, data := w.work("lab", s), filepath.Join(s.Work, "data")
	for _, dir := range []string{work, data} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, s.UID, s.GID)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Disk(t, work, 4<<20)
	testenv.Disk(t, data, 1<<20)
	w.document(fmt.Sprintf(`{"name": "lab", "work": %q, "files": [%q], "host": {"kind": "ssh", "address": "127.0.0.1",
		"port": %d, "user": %q, "identities": [%q], "host_keys": [%q], "keys": "everywhere"}}`,
		work, data, s.Port, s.User, s.Key, s.HostKey))
	w.finished(w.submit(w.program("lab", ""))...)

	// refused runs a job, which fails because of the quota at its first attempt.
	refused := func(what string, spec job.Spec) {
		t.Helper()
		spec.Retry = &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{Base: 1}}
		id := w.submit(spec)[0]
		j, err := w.Wait(t.Context(), id)
		if err != nil || j.State != job.Failed || j.Code != job.DiskQuotaExceeded || j.Attempt != 1 ||
			!strings.Contains(j.Message, "quota") {
			t.Errorf("%s: %s %s in attempt %d: %s, %v\n%s", what, j.State, j.Code, j.Attempt, j.Message, err, w.history(id))
		}
	}
	large := filepath.Join(w.dir, "large")
	if err := os.WriteFile(large, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	input := w.program("lab", "")
	input.Inputs[0].From = large
	refused("an input", input)

	results := w.program("lab", "")
	results.Script = "head -c 2000000 /dev/urandom >result"
	results.Archive.To = "system://lab" + data + "/results"
	refused("results", results)
	if left, err := os.ReadDir(filepath.Join(data, "results")); err == nil && len(left) > 0 {
		t.Errorf("results: left behind: %v", left)
	}

	// The file system never writes over what is on the disk: also to tell the end takes room.
	program := w.program("lab", "")
	program.Script = "head -c 8000000 /dev/zero >result || exit 7"
	id := w.submit(program)[0]
	if j, err := w.Wait(t.Context(), id); err != nil || j.State != job.Failed || !strings.Contains(j.Message, "7") {
		t.Errorf("a program: %s %s: %s, %v\n%s", j.State, j.Code, j.Message, err, w.history(id))
	}
	if errs, err := w.Delete(t.Context(), id); err != nil || errs[0] != nil { // its folder stays until then
		t.Error(errs, err)
	}

	fill, little := filepath.Join(work, "fill"), filepath.Join(work, "little")
	if err := os.WriteFile(little, make([]byte, 384<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.EDQUOT) {
		t.Fatal(err)
	}
	refused("no room at all", w.program("lab", ""))
	// remove makes room. What is removed counts until it is on the disk.
	remove := func(name string) {
		t.Helper()
		if err := errors.Join(os.Remove(name), exec.Command("sync", "-f", work).Run()); err != nil {
			t.Fatal(err)
		}
	}
	remove(little)
	launched := w.program("lab", "")
	launched.Inputs = nil
	refused("room for its folder, and not for the end", launched)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	remove(fill)
	w.finished(w.submit(w.program("lab", ""))...)
}
