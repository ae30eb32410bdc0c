package remote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// The machine is started anew while programs run there. They are lost, and never a success. What is
// not launched yet goes on.
func TestReboot(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{Boots: true})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	goOn := w.dir + "/go"
	ran := w.submit(w.program("lab", goOn), w.program("lab", goOn))
	for _, id := range ran {
		w.runs(id)
	}
	p.Hold(testenv.Up)
	staged := w.submit(w.program("lab", ""), w.program("lab", ""))
	for _, id := range staged {
		w.until("it is under way", id, func(j *job.Job) bool { return j.Custody == job.Worker })
	}
	s.PowerOff(t)
	if err := os.WriteFile(goOn, nil, 0o644); err != nil { // what still ran there would end well
		t.Fatal(err)
	}
	p.Hold()
	w.silent(ran[0], "lab")
	s.Start(t)
	for _, id := range ran {
		if j, err := w.Wait(t.Context(), id); err != nil || j.State != job.Failed || j.Code != job.ProgramLost {
			t.Errorf("%s (%s: %s), %v\n%s", j.State, j.Code, j.Message, err, w.history(id))
		}
	}
	w.finished(staged...)
	l, err := ledger.Read(w.ledger)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ran {
		if len(l.Launches[id]) != 1 || l.Launches[id][1] != 1 {
			t.Errorf("job %s was launched %v times", id, l.Launches[id])
		}
	}
}

// The machine is started anew at any byte of a job. The job finishes, or it is lost: it is never
// launched twice in one attempt, and never a success without its result.
func TestRebootAnywhere(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{Boots: true})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	program := w.program("lab", "")
	program.Inputs[0].From = w.small // most bytes are not of files
	w.finished(w.submit(program)...)
	before := p.Passed(testenv.Up)
	w.finished(w.submit(program)...)
	passed := p.Passed(testenv.Up) - before
	rnd, times := seed(t), 6
	if testenv.Long() {
		times = 60
	}
	moment, lost := rnd.Float64(), 0
	for n := range times {
		p.CutAfter(testenv.Up, int64((float64(n)+moment)*float64(passed)/float64(times)))
		id := w.submit(program)[0]
		w.eventually("the cut", func() bool {
			if p.IsCut(testenv.Up) {
				return true
			}
			j, err := w.Job(t.Context(), id)
			return err == nil && j.State.Terminal()
		})
		s.Reboot(t)
		p.Uncut(testenv.Up)
		switch j, err := w.Wait(t.Context(), id); {
		case err == nil && j.State == job.Failed && j.Code == job.ProgramLost:
			lost++
			l, err := ledger.Read(w.ledger)
			if err != nil || l.Launches[id][1] > 1 {
				t.Errorf("launched %v times, %v", l.Launches[id], err)
			}
		default:
			w.finished(id)
		}
	}
	t.Logf("%d of %d were lost", lost, times)
}

// mount makes a small file system of the machine's memory in a folder that the account of a server
// owns. It is gone with the test.
func mount(t *testing.T, s *testenv.SSH, name, options string) string {
	t.Helper()
	dir := filepath.Join(s.Work, name)
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	if err := os.Chown(dir, s.UID, s.GID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The file system there is full. Jobs wait until there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	full := mount(t, s, "lab", "size=4m")
	fill := filepath.Join(full, "fill")
	w.system("lab", s, s.Port)
	w.finished(w.submit(w.program("lab", ""))...)
	if err := os.WriteFile(fill, make([]byte, 4<<20-inputSize/2), 0o644); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	ids := w.submit(w.program("lab", ""), w.program("lab", ""))
	w.until("it is blocked", ids[0], func(j *job.Job) bool { return blocked(j) && j.Code == job.FilesystemFull })
	w.eventually("it is tested there", func() bool {
		all, err := w.Blocked(t.Context())
		return err == nil && len(all) > 0 && strings.Contains(all[0].Result, "of lab/"+s.User+", and 1048576 are needed")
	})
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.finished(ids...)
	w.empty(full)
}

// The file system there can only be read, and then be written again.
func TestReadOnly(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	dir := mount(t, s, "lab", "size=8m")
	w.system("lab", s, s.Port)
	w.finished(w.submit(w.program("lab", ""))...)
	remount := func(how string) {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "remount,"+how, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	remount("ro")
	id := w.submit(w.program("lab", ""))[0]
	w.until("it is blocked", id, func(j *job.Job) bool { return blocked(j) && j.Code == job.FilesystemReadOnly })
	w.eventually("it is tested there", func() bool {
		all, err := w.Blocked(t.Context())
		return err == nil && len(all) == 1 && strings.HasSuffix(all[0].Result, "pawl-test-sh is read-only")
	})
	remount("rw")
	w.finished(id)
	w.empty(dir)
}

// The work folder there is removed, while nothing runs and while a program does. It is made anew.
// The end of the program is taken in, and is no success: what it was to leave is gone.
func TestWorkFolderGone(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	w.finished(w.submit(w.program("lab", ""))...)
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(w.work("lab", s)); err != nil {
			t.Fatal(err)
		}
		w.eventually("it is there again", func() bool {
			_, err := os.Stat(filepath.Join(w.work("lab", s), "ends", ".rooms"))
			return err == nil
		})
	}
	remove()
	w.finished(w.submit(w.program("lab", ""))...)
	goOn := w.dir + "/go"
	id := w.submit(w.program("lab", goOn))[0]
	w.runs(id)
	remove()
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j, err := w.Wait(t.Context(), id); err != nil || j.State != job.Failed || j.Code != job.ArchiveFailed {
		t.Errorf("%s (%s: %s), %v\n%s", j.State, j.Code, j.Message, err, w.history(id))
	}
	w.finished(w.submit(w.program("lab", ""))...)
}

// The document names another work folder while programs run. They tell their ends in the old one,
// and are looked at each minute, and by who takes over. Their results count, and nothing of them
// stays.
func TestWorkFolderMoves(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	goOn := w.dir + "/go"
	id := w.submit(w.program("lab", goOn))[0]
	w.runs(id)
	w.document(strings.Replace(w.text("lab", s, s.Port), `/lab", "host"`, `/moved", "host"`, 1))
	w.finished(w.submit(w.program("lab", ""))...)
	w.stop()
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.finished(id)
	left, err := filepath.Glob(filepath.Join(s.Work, "*", "work", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left there: %q, %v", left, err)
	}
}
