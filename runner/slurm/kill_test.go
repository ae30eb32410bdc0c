package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

// stays is a program that ignores SIGTERM, with a part in another session, where Slurm does not
// find it.
const stays = `trap '' TERM; setsid -f sh -c ': >up.$SLURM_PROCID; exec sleep 1000'; while :; do sleep 1000; done`

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// All nodes of a launch are looked at: a kill returns when nothing of it is alive on any of them.
func TestKillOnSeveralNodes(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.ApartSlurm(t, ""))
	k, p := b.newJob(t, `trap '' TERM; srun --overlap sh -c "$PROGRAM"; sleep 1000`)
	p.Env = map[string]string{"PROGRAM": stays}
	p.Resources = job.Resources{Partition: "pair", Nodes: 2, Tasks: 2}
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir+"/up.0") && exists(p.Dir+"/up.1") })
	if err := b.runner.Kill(t.Context(), h, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if b.Lives(t, h) {
		t.Error("something of it is alive")
	}
	if e := b.status(t, h).End; e == nil || !e.Asked {
		t.Errorf("its end: %+v", e)
	}
}

// Where Slurm keeps the processes of a job in a control group, it ends them by force. The script
// has nothing beside the program, and looks for what that left only if the group has something.
func TestControlGroup(t *testing.T) {
	testenv.Aside(t)
	looks := filepath.Join(t.TempDir(), "looks")
	b := newBench(t, testenv.GroupedSlurm(t), wrapped(t, "grep", `echo >>`+looks+`; exec %s "$@"`))
	k, p := b.newJob(t, "exit 3")
	if e := b.settled(t, b.launch(t, k, p)).End; e == nil || e.Code != 3 || read(looks) != "" {
		t.Errorf("it left nothing: %+v, looked for %q", e, read(looks))
	}
	k, p = b.newJob(t, "setsid -f sh -c ': >up; exec sleep 1000'; until [ -e up ]; do :; done")
	h := b.launch(t, k, p)
	if e := b.settled(t, h).End; e == nil || e.Code != 0 || b.Lives(t, h) || read(looks) == "" {
		t.Errorf("it left a program, which is alive: %v; %+v, looked for %q", b.Lives(t, h), e, read(looks))
	}
	k, p = b.newJob(t, stays+" & while :; do setsid -f true; done")
	h = b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/up.0") })
	if err := b.runner.Kill(t.Context(), h, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if e := b.status(t, h).End; b.Lives(t, h) || e == nil || e.Signal != 9 || !e.Asked {
		t.Errorf("it was killed, and is alive: %v; its end: %+v", b.Lives(t, h), e)
	}
}

// One launch a minute looks for what is to be known of a node, and the others find it: all tell
// when they ran by the same clock.
func TestFactsOfANode(t *testing.T) {
	testenv.Aside(t)
	looks := filepath.Join(t.TempDir(), "looks")
	b := newBench(t, testenv.Slurm(t), wrapped(t, "date", `echo look >>`+looks+`; exec %s "$@"`))
	before := time.Now().Add(-2 * time.Second)
	for range 3 {
		k, p := b.newJob(t, "exit 3")
		e := b.settled(t, b.launch(t, k, p)).End
		if e == nil || e.Code != 3 || e.Began().Before(before) || e.Ended.After(time.Now().Add(2*time.Second)) {
			t.Errorf("its end: %+v", e)
		}
	}
	if n := strings.Count(read(looks), "look\n"); n != 1 && n != 2 { // a minute may be over
		t.Errorf("%d looks at the node for three launches", n)
	}
}

func TestSuiteInControlGroups(t *testing.T) {
	testenv.Aside(t)
	s := testenv.GroupedSlurm(t)
	runnertest.Run(t, func(t *testing.T) runnertest.Bench { return newBench(t, s).Bench })
}

// children returns the processes that a process has started.
func children(pid int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		before, rest, _ := strings.Cut(read(name), ") ")
		var state string
		var child, parent int
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == pid {
			fmt.Sscan(before, &child)
			pids = append(pids, child)
		}
	}
	return pids
}

// script returns the process of the script of a launch.
func (b bench) script(t *testing.T, k runner.Key) host.Process {
	t.Helper()
	taken, _, err := b.runner.Room(t.Context(), k, 0)
	if err != nil {
		t.Fatal(err)
	}
	by, _ := taken.Taker()
	return by.Process
}

// A script that is not able to end its program is ended with it, by Slurm.
func TestKillBySlurm(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	b.runner.cfg.Patience = 500 * time.Millisecond // that of the client is what it was
	k, p := b.newJob(t, "trap '' TERM; : >up; while :; do sleep 1000; done")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/up") })
	script := b.script(t, k)
	for _, pid := range children(script.PID) {
		if !strings.Contains(read(fmt.Sprintf("/proc/%d/environ", pid)), h.Token) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // what would end it
		}
	}
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if e := b.status(t, h).End; e == nil || e.Signal != 9 || len(children(script.PID)) > 0 {
		t.Errorf("its end: %+v", e)
	}
}

// scancel ends with an error for a job that is just ending.
func TestScancelOfWhatIsEnding(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t), wrapped(t, "scancel", `%s "$@"; exit 229`))
	k, p := b.newJob(t, "trap '' TERM; : >up; while :; do sleep 1000; done")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/up") })
	if err := b.runner.Kill(t.Context(), h, time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

// A job that somebody has suspended in Slurm takes no signal. It is ended all the same.
func TestKillOfASuspendedJob(t *testing.T) {
	testenv.Aside(t)
	for _, grace := range []time.Duration{0, time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			b := newBench(t, testenv.Slurm(t))
			k, p := b.newJob(t, "echo $$ >pid; exec sleep 600")
			h := b.launch(t, k, p)
			until(t, "it runs", func() bool { return !b.status(t, h).Started.IsZero() && read(p.Dir+"/pid") != "" })
			pid, err := strconv.Atoi(strings.TrimSpace(read(p.Dir + "/pid")))
			if err != nil {
				t.Fatal(err)
			}
			b.do(t, "scontrol", "suspend", idOf(t, b, h))
			until(t, "it is suspended", func() bool { return strings.Contains(b.status(t, h).Reason, "suspended") })
			if err := b.runner.Kill(t.Context(), h, grace); err != nil {
				t.Fatal(err)
			}
			until(t, "its program is gone", func() bool { return syscall.Kill(pid, 0) != nil })
			until(t, "it is over", func() bool { return b.status(t, h).State == runner.Ended })
		})
	}
}

// A job that Slurm is to run again has told an end. It is taken out of the queue.
func TestKillOfARerunThatWaits(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, ": >up; sleep 600")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return !b.status(t, h).Started.IsZero() && exists(p.Dir+"/up") })
	b.do(t, "scontrol", "requeuehold", idOf(t, b, h))
	until(t, "it waits", func() bool { return b.status(t, h).State == runner.Queued })
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	l, err := b.runner.find(h)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is out of the queue", func() bool { return b.do(t, "squeue", "-h", "-n", l.Name) == "" })
}

// Those who cancel many jobs at once share what they ask squeue: one look each [Config.Soon], and
// one question for the ids of all that are canceled together.
func TestCancelsShareTheirQuestions(t *testing.T) {
	testenv.Aside(t)
	asked := filepath.Join(t.TempDir(), "asked")
	b := newBench(t, testenv.Slurm(t), wrapped(t, "squeue", `echo "$*" >>`+asked+`; exec %s "$@"`))
	b.runner.cfg.Soon = 5 * time.Second
	const n = 20
	all := b.array(t, job.Resources{}, slices.Repeat([]string{": >up; exec sleep 1000"}, n)...)
	until(t, "all run", func() bool {
		return !slices.ContainsFunc(all, func(o task) bool { return !exists(o.plan.Dir + "/up") })
	})
	before := len(strings.Split(read(asked), "\n"))
	begin := time.Now()
	var kills errgroup.Group
	for _, o := range all {
		kills.Go(func() error { return b.runner.Kill(t.Context(), o.handle, 0) })
	}
	if err := kills.Wait(); err != nil {
		t.Fatal(err)
	}
	looks, lookups := 0, 0
	for _, words := range strings.Split(read(asked), "\n")[before-1:] {
		switch {
		case strings.Contains(words, " -n "):
			lookups++
		case words != "":
			looks++
		}
	}
	t.Logf("%d looks and %d questions for ids in %s", looks, lookups, time.Since(begin))
	if most := 1 + int(time.Since(begin)/b.runner.cfg.Soon) + 1; looks > most || lookups > n/4 {
		t.Errorf("%d cancels: %d looks, %d at most in that time, and %d questions for ids", n, looks, most, lookups)
	}
}
