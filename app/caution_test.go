package app_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// noting is a host that notes what the watcher has said when somebody reads a room or a message of
// an end.
type noting struct {
	host.Host
	spool string
	said  atomic.Pointer[string]
}

func (n *noting) Files() files.FS { return notingFiles{n.Host.Files(), n} }

type notingFiles struct {
	files.FS
	n *noting
}

func (f notingFiles) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if base := filepath.Base(name); strings.HasPrefix(name, f.n.spool) && !strings.HasPrefix(base, ".") {
		said := base
		all, _ := os.ReadDir(f.n.spool + "/.watching")
		for _, note := range all {
			said += " " + note.Name()
		}
		f.n.said.Store(&said)
	}
	return f.FS.Open(ctx, name)
}

// note is what a watch notes before it reads, for the nth time, what the first launch of a job
// left.
func (h *house) note(id job.ID, n int) string {
	return filepath.Join(h.spool(), ".watching", runner.EndName(runner.Key{Job: id, Attempt: 1, Launch: 1}, n))
}

// A look at what a program left that kills its process counts against the job, as a run does.
func TestLooksThatKill(t *testing.T) {
	// killed leaves a program that ended while nobody watched, after a watch that was killed in so
	// many looks at it.
	killed := func(h *house, deaths int) job.ID {
		h.Helper()
		gate := h.gate()
		id := h.submit(scripted(`read line < "$0"; exit 3`, gate))
		h.until(id, state(job.Running))
		h.stop()
		if exists(h.spool(), ".watching") {
			h.Error("a watch that ended in good order is remembered")
		}
		h.pass(gate)
		h.poll("the end", func() bool {
			text, err := os.ReadFile(filepath.Join(h.spool(), filepath.Base(h.note(id, 0))))
			return err == nil && strings.HasSuffix(string(text), "\nend\n") // it is read once
		})
		if err := os.MkdirAll(h.note(id, deaths), 0o700); err != nil {
			h.Fatal(err)
		}
		return id
	}
	t.Run("who looks says beforehand at which job", func(t *testing.T) {
		h := open(t)
		id := killed(h, 1)
		n := &noting{spool: h.spool()}
		h.start(func(p *parts) { n.Host = p.Local.Host; p.on(n) })
		if j := h.end(id); j.Code != job.ProgramFailed {
			t.Errorf("%s %s", j.Code, j.Message)
		}
		if got := n.said.Load(); got == nil || !strings.HasSuffix(*got, " "+filepath.Base(h.note(id, 2))) {
			t.Errorf("read, and said: %v", got)
		}
		if exists(h.note(id, 2)) {
			t.Error("the note stays")
		}
	})
	t.Run("three deaths are enough", func(t *testing.T) {
		h := open(t)
		id := killed(h, 3)
		n := &noting{spool: h.spool()}
		h.start(deaf, func(p *parts) { n.Host = p.Local.Host; p.on(n) })
		j := h.end(id)
		if j.Code != job.ProgramLost || !strings.Contains(j.Message,
			"3 looks at what the program left have killed the process") {
			t.Errorf("%s %s", j.Code, j.Message)
		}
		if got := n.said.Load(); got != nil {
			t.Errorf("somebody looked: %s", *got)
		}
	})
	t.Run("what runs is ended before the job goes on", func(t *testing.T) {
		h := open(t)
		id := h.submit(scripted(`exec sleep 1000`))
		h.until(id, state(job.Running))
		pid := h.pid(id)
		h.stop()
		if err := os.MkdirAll(h.note(id, 3), 0o700); err != nil {
			t.Fatal(err)
		}
		h.start()
		if j := h.end(id); j.Code != job.ProgramLost ||
			!strings.Contains(j.Message, "3 looks at what the program left") {
			t.Errorf("%s %s", j.Code, j.Message)
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Error("its program runs on")
		}
	})
}

// The list of what was staged lies where the program can write. What it makes of that costs
// no more than a list of Pawl's own, and everything counts as made by the program then.
func TestAListThatAProgramWrote(t *testing.T) {
	testenv.Aside(t)
	for name, script := range map[string]string{
		"longer than any": `truncate -s 8G .pawl/job.json`,
		"no JSON":         `echo x > .pawl/job.json`,
		"numbers":         `(printf '{"staged":['; yes 0, | head -c 9000000; echo '0]}') > .pawl/job.json`,
		"too many files": `sed 's/]}$/,/' .pawl/job.json > j
			(cat j; seq -f '{"name":"%.0f"},' 300000; echo '{"name":"x"}]}') > .pawl/job.json`,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			s := shell(script)
			h.write("before", h.dir, "in")
			s.Inputs = []job.Input{{From: filepath.Join(h.dir, "in")}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			j := h.end(h.submit(s))
			runtime.ReadMemStats(&after)
			_, results := app.Places(&j)
			if j.State != job.Finished || h.read(results, "in") != "before" {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 512<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
		})
	}
}
