package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// A task is a launch that was submitted with others.
type task struct {
	*order
	plan   runner.Plan
	handle runner.Handle
}

// submit submits launches together.
func (b bench) submit(t *testing.T, ask job.Resources, scripts ...string) []task {
	t.Helper()
	list, orders := make([]task, len(scripts)), make([]*order, len(scripts))
	for i, script := range scripts {
		k, p := b.newJob(t, script)
		p.Resources = ask
		o, err := b.runner.prepare(t.Context(), k, p)
		if err != nil {
			t.Fatal(err)
		}
		list[i], orders[i] = task{order: o, plan: p}, o
	}
	b.runner.submit(t.Context(), orders)
	for i, o := range orders {
		list[i].handle = b.runner.Handle(o.key, o.Token, o.place)
		t.Cleanup(func() { _ = b.runner.Kill(context.Background(), list[i].handle, 0) })
	}
	return list
}

// array submits launches that are to be accepted as one array.
func (b bench) array(t *testing.T, ask job.Resources, scripts ...string) []task {
	t.Helper()
	list := b.submit(t, ask, scripts...)
	array, _, _ := strings.Cut(list[0].ID, "_")
	for i, o := range list {
		if o.err != nil || o.ID != fmt.Sprintf("%s_%d", array, i) {
			t.Fatalf("task %d is %s: %v", i, o.ID, o.err)
		}
	}
	return list
}

func (b bench) ended(t *testing.T, o task) runner.Status {
	t.Helper()
	var s runner.Status
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if !testenv.Until(ctx, func() bool {
		s = b.status(t, o.handle)
		if strings.Contains(s.Reason, "launch failed requeued held") { // Slurm does so where a node is too busy
			_, _ = b.slurm.Do(t.Context(), "scontrol", "release", idOf(t, b, o.handle))
			b.slurm.Resume(t.Context())
		}
		return s.State == runner.Ended || s.State == runner.Lost
	}) {
		queue, _ := b.slurm.Do(context.Background(), "squeue")
		nodes, _ := b.slurm.Do(context.Background(), "sinfo", "-R")
		t.Fatalf("it is not over: %+v\n%s\n%s", s, queue, nodes)
	}
	return s
}

// Each task of an array runs its own program, which sees nothing of the array, and tells its own
// end.
func TestTasksOfAnArray(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	const script = `env | grep ^SLURM_ARRAY_ >array; echo ran >>ran; exit `
	list := b.array(t, job.Resources{}, script+"0", script+"3", script+"7", `kill -9 $$`)
	for i, code := range []int{0, 3, 7, 137} {
		s := b.ended(t, list[i])
		if s.State != runner.Ended || s.End.Code != code || s.End.Key != list[i].key {
			t.Errorf("task %d: %+v %+v", i, s, s.End)
		}
		if f, err := b.runner.Settle(t.Context(), list[i].key, list[i].Dir); err != nil || f.Handle != list[i].handle {
			t.Errorf("task %d: Settle: %+v, %v, want %+v", i, f, err, list[i].handle)
		}
		if got := read(list[i].Dir + "/ran"); code != 137 && got != "ran\n" {
			t.Errorf("task %d ran: %q", i, got)
		}
		if got := read(list[i].Dir + "/array"); got != "" {
			t.Errorf("task %d sees %s", i, got)
		}
	}
}

// Launches that ask for the same are one array, and others are not. Nothing of it is left to wait
// for.
func TestLaunchesAtOnce(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	var all sync.WaitGroup
	handles, keys, plans := make([]runner.Handle, 40), make([]runner.Key, 40), make([]runner.Plan, 40)
	for i := range handles {
		k, p := b.newJob(t, "exit 4")
		p.Resources.Cores = 1 + i%2
		keys[i], plans[i] = k, p
		all.Go(func() {
			var err error
			if handles[i], err = b.runner.Launch(t.Context(), k, p); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	arrays := map[string]int{}
	for i, h := range handles {
		l, err := b.runner.find(h)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(l.Name, "_")
		if arrays[name] += 1 + i%2*1000; arrays[name] > 1000 && i%2 == 0 {
			t.Errorf("%s has launches that differ", name)
		}
		s := b.ended(t, task{handle: h})
		if s.End != nil && strings.Contains(s.End.NotStarted, notRun) { // a node that is too busy may fail to
			s = b.again(t, keys[i], plans[i])
		}
		if s.State != runner.Ended || s.End.Code != 4 {
			t.Errorf("launch %d: %+v, %+v", i, s, s.End)
		}
	}
	if len(arrays) > 20 {
		t.Errorf("%d submissions of %d launches", len(arrays), len(handles))
	}
}

// One task of an array that waits can be canceled, held and released; the others go on.
func TestOneTaskThatWaits(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.OwnSlurm(t))
	b.submit(t, job.Resources{Cores: 64}, "exec sleep 1000")
	list := b.array(t, job.Resources{Cores: 64}, "true", "true", "true", "true")
	waiting := func(i int) bool { return b.status(t, list[i].handle).State == runner.Queued }
	for i := range list {
		until(t, "it waits", func() bool { return waiting(i) && b.status(t, list[i].handle).Reason != "" })
	}
	b.do(t, "scontrol", "uhold", list[0].ID)
	until(t, "it is held", func() bool { return strings.Contains(b.status(t, list[0].handle).Reason, "it is held") })
	b.do(t, "scontrol", "release", list[0].ID)
	until(t, "it is released", func() bool { return !strings.Contains(b.status(t, list[0].handle).Reason, "it is held") })
	if err := b.runner.Kill(t.Context(), list[1].handle, time.Hour); err != nil {
		t.Fatal(err)
	}
	b.do(t, "scancel", list[2].ID)
	for i := 1; i < 3; i++ {
		if s := b.ended(t, list[i]); s.State != runner.Lost || (s.Cause == job.SchedulerCanceled) != (i == 2) {
			t.Errorf("task %d: %+v", i, s)
		}
		if f, err := b.runner.Settle(t.Context(), list[i].key, list[i].Dir); err != nil || f.Started {
			t.Errorf("task %d: %+v, %v", i, f, err)
		}
	}
	array, _, _ := strings.Cut(list[0].Name, "_")
	if out := b.do(t, "squeue", "-h", "-r", "-n", array, "-o", "%i"); len(strings.Fields(out)) != 2 || !waiting(0) || !waiting(3) {
		t.Errorf("in the queue is %q", out)
	}
}

// What waits of an array that somebody cancels is canceled.
func TestAnArrayIsCanceledInSlurm(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	list := b.array(t, job.Resources{Cores: 65}, "touch ran", "touch ran")
	array, _, _ := strings.Cut(list[0].ID, "_")
	b.do(t, "scancel", array)
	for i, o := range list {
		if s := b.ended(t, o); s.State != runner.Lost || s.Cause != job.SchedulerCanceled {
			t.Errorf("task %d: %+v", i, s)
		}
	}
}

// Of tasks that run one is ended, and the others run on.
func TestOneTaskIsKilled(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	const script = ": >up; trap 'exit 5' TERM; while :; do sleep 0.1; done"
	list := b.array(t, job.Resources{}, script, script, script)
	for _, o := range list {
		until(t, "it runs", func() bool { _, err := os.Stat(o.Dir + "/up"); return err == nil })
	}
	if err := b.runner.Kill(t.Context(), list[1].handle, time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := b.ended(t, list[1]); s.State != runner.Ended || s.End.Code != 5 {
		t.Errorf("%+v %+v", s, s.End)
	}
	for _, i := range []int{0, 2} {
		if s := b.status(t, list[i].handle); s.State != runner.Active {
			t.Errorf("task %d: %+v", i, s)
		}
	}
	b.do(t, "scancel", list[0].ID)
	if s := b.ended(t, list[0]); s.State != runner.Ended || s.Cause != job.SchedulerCanceled {
		t.Errorf("%+v %+v", s, s.End)
	}
	if s := b.status(t, list[2].handle); s.State != runner.Active {
		t.Errorf("%+v", s)
	}
}

// One task runs again: another run of its own launch.
func TestOneTaskRunsAgain(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	const script = `echo ran >>ran; [ "$(wc -l <ran)" -gt 1 ] && exit 3; exec sleep 1000`
	list := b.array(t, job.Resources{}, script, script)
	for _, o := range list {
		until(t, "it runs", func() bool { return read(o.Dir+"/ran") != "" })
	}
	b.requeue(t, list[1].ID)
	var s runner.Status
	until(t, "it ends", func() bool { s = b.status(t, list[1].handle); return s.State == runner.Ended && s.End.Run == 1 })
	if s.End.Code != 3 || read(list[1].Dir+"/ran") != "ran\nran\n" {
		t.Errorf("%+v", s.End)
	}
	if s := b.status(t, list[0].handle); s.State != runner.Active || read(list[0].Dir+"/ran") != "ran\n" {
		t.Errorf("%+v", s)
	}
}

// What Slurm refuses as an array is revoked, and then refused alone, in Slurm's words.
func TestAnArrayIsRefused(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	ask := job.Resources{Partition: "nosuch"}
	for _, o := range b.submit(t, ask, "true", "true") {
		if job.KindOf(o.err) != job.Unavailable || !strings.Contains(o.err.Error(), "Invalid partition name specified") {
			t.Errorf("%v", o.err)
		}
		if f, err := b.runner.Settle(t.Context(), o.key, o.Dir); err != nil || f.Started {
			t.Errorf("Settle: %+v, %v", f, err)
		}
	}
	for _, o := range b.submit(t, ask, "true", "true") {
		if _, refused := errors.AsType[*runner.Refused](o.err); !refused {
			t.Errorf("%v", o.err)
		}
	}
}

// impatient submits by a runner that gives sbatch a second. Later calls have their time again.
func (b bench) impatient(t *testing.T, scripts ...string) []task {
	t.Helper()
	was := b.runner.client.Patience
	b.runner.client.Patience = time.Second
	defer func() { b.runner.client.Patience = was }()
	return b.submit(t, job.Resources{}, scripts...)
}

// wrapped returns the PATH of a host on which sbatch is a script. Its %s is the real one.
func wrapped(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	real, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\n" + strings.ReplaceAll(script, "%s", real)
	if err := os.WriteFile(path.Join(dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

// An sbatch that submits and does not answer has submitted: each task is found by its name.
func TestSbatchDoesNotAnswer(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t), wrapped(t, "sbatch", `%s "$@" >/dev/null; exec sleep 100`))
	for _, o := range b.impatient(t, "echo ran >>ran", "echo ran >>ran") {
		if job.KindOf(o.err) != job.Unavailable {
			t.Fatal(o.err)
		}
		f, err := b.runner.Settle(t.Context(), o.key, o.Dir)
		if err != nil || !f.Started {
			t.Fatalf("Settle: %+v, %v", f, err)
		}
		o.handle = f.Handle
		if s := b.ended(t, o); s.State != runner.Ended || s.End.Code != 0 || read(o.Dir+"/ran") != "ran\n" {
			t.Errorf("%+v, %q", s, read(o.Dir+"/ran"))
		}
	}
}

// An sbatch that submits only after its launches were given up starts nothing.
func TestSbatchIsLate(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t), wrapped(t, "sbatch", `exec sleep 100`))
	list := b.impatient(t, "echo ran >>ran", "echo ran >>ran")
	for _, o := range list {
		if job.KindOf(o.err) != job.Unavailable {
			t.Fatal(o.err)
		}
		if f, err := b.runner.Settle(t.Context(), o.key, o.Dir); err != nil || f.Started {
			t.Fatalf("Settle: %+v, %v", f, err)
		}
	}
	id := strings.TrimSpace(b.do(t, "sbatch", "--parsable", list[0].Own("batch")))
	until(t, "Slurm is done with it", func() bool {
		out := b.do(t, "squeue", "-h", "-r", "-t", "all", "-j", id, "-o", "%T")
		return len(strings.Fields(out)) == 2 && !strings.Contains(out, "ING")
	})
	for i, o := range list {
		if _, err := os.Stat(o.Dir + "/ran"); err == nil {
			t.Errorf("task %d ran", i)
		}
		if got := read(o.Own("log")); !strings.Contains(got, "revoked") {
			t.Errorf("task %d says %q", i, got)
		}
	}
}

// A controller that is killed after it has accepted an array may forget it, or run tasks again.
// Each task is accounted for, and what ran more than once says so.
func TestTheControllerForgetsAnArray(t *testing.T) {
	testenv.Aside(t)
	s := testenv.OwnSlurm(t) // others would not find theirs
	b := newBench(t, s)
	const script = `echo ran >>ran; while ! [ -e ../go ]; do sleep 0.1; done; exit 3`
	list := b.array(t, job.Resources{Cores: 30}, script, script, script, script) // two of them wait
	until(t, "two run", func() bool {
		n := 0
		for _, o := range list {
			n += strings.Count(read(o.Dir+"/ran"), "ran")
		}
		return n >= 2
	})
	s.KillController()
	s.StartController(t)
	if err := os.WriteFile(b.Work+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, o := range list {
		b.accounted(t, i, o)
	}
}

// A script that fails before its first word has started nothing: what Slurm says of it is told.
func TestAScriptThatCannotBegin(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "echo ran >>ran")
	p.Resources.Options = []string{"--hold"}
	h := b.launch(t, k, p)
	if err := os.MkdirAll(spool.NamesOf(k, p.Dir, h.Token).Own("log"), 0o755); err != nil { // it logs there
		t.Fatal(err)
	}
	b.do(t, "scontrol", "release", idOf(t, b, h))
	s := b.ended(t, task{handle: h})
	if s.State != runner.Ended || !strings.Contains(s.End.NotStarted, notRun) {
		t.Errorf("%+v, %+v", s, s.End)
	}
	if _, err := os.Stat(p.Dir + "/ran"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ran: %v", err)
	}
	p.Resources.Options = nil
	if s := b.again(t, k, p); s.State != runner.Ended || s.End.Code != 0 || read(p.Dir+"/ran") != "ran\n" {
		t.Errorf("%+v, %+v", s, s.End)
	}
}

// notRun is what Slurm says of a script that failed without a word.
const notRun = "is FAILED (NonZeroExitCode), exit code 2"

// again launches once more what was not started, and returns its end.
func (b bench) again(t *testing.T, k runner.Key, p runner.Plan) runner.Status {
	t.Helper()
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Fatalf("%+v, %v", f, err)
	}
	k.Launch++
	return b.ended(t, task{handle: b.launch(t, k, p)})
}
