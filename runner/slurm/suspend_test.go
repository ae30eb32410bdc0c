package slurm

import (
	"context"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A launch that waits is held: it does not begin when there is room, until it is let go on. Others
// of its array are not.
func TestSuspendOfALaunchThatWaits(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	for _, n := range []int{1, 3} {
		ask := job.Resources{Options: []string{"--begin=now+1hour"}}
		all := b.submit(t, ask, []string{": >ran", ": >ran", ": >ran"}[:n]...)
		h := all[n/2].handle
		until(t, "it waits", func() bool { return b.status(t, h).State == runner.Queued })
		for range 2 {
			if err := b.runner.Suspend(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		begin := func(o task) { b.do(t, "scontrol", "update", "JobId="+idOf(t, b, o.handle), "StartTime=now") }
		for i, o := range all {
			if begin(o); i != n/2 {
				b.ended(t, o)
			}
		}
		s := b.status(t, h)
		if s.State != runner.Queued || !strings.Contains(s.Reason, "is held") || !s.Expected.IsZero() ||
			exists(all[n/2].plan.Dir+"/ran") {
			t.Errorf("of %d: %+v", n, s)
		}
		for range 2 {
			if err := b.runner.Resume(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		if e := b.ended(t, all[n/2]).End; e == nil || e.Code != 0 || !exists(all[n/2].plan.Dir+"/ran") {
			t.Errorf("of %d: its end: %+v", n, e)
		}
		if err := b.runner.Suspend(t.Context(), h); err != nil {
			t.Errorf("of %d, it is over: %v", n, err)
		}
	}
}

// All steps of a launch are stopped, on all its nodes, and go on.
func TestSuspendOfSteps(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, `srun --overlap sh -c "$PROGRAM"`)
	p.Env = map[string]string{"PROGRAM": `echo $$ >pid.$SLURM_PROCID; until [ -e go ]; do :; done; : >done.$SLURM_PROCID`}
	p.Resources = job.Resources{Partition: "pair", Nodes: 2, Tasks: 2}
	h := b.launch(t, k, p)
	pids := []string{p.Dir + "/pid.0", p.Dir + "/pid.1"}
	until(t, "it runs", func() bool { return read(pids[0]) != "" && read(pids[1]) != "" })
	if err := b.runner.Suspend(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	stopped := func(name string) bool {
		_, rest, _ := strings.Cut(read("/proc/"+strings.TrimSpace(read(name))+"/stat"), ") ")
		return strings.HasPrefix(rest, "T")
	}
	until(t, "both stand still", func() bool { return stopped(pids[0]) && stopped(pids[1]) })
	if s := b.status(t, h); s.State != runner.Active || !strings.Contains(s.Reason, " is suspended in partition pair ") {
		t.Errorf("%+v", s)
	}
	if err := os.WriteFile(path.Join(p.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !stopped(pids[0]) || !stopped(pids[1]) {
		t.Error("it went on by itself")
	}
	if err := b.runner.Resume(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if s := b.settled(t, h); s.End == nil || s.End.Code != 0 || !exists(p.Dir+"/done.0") || !exists(p.Dir+"/done.1") {
		t.Errorf("its end: %+v", s)
	}
}

// A job that Slurm itself has suspended takes no signal. That is an error that says so.
func TestSuspendOfASuspendedJob(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, ": >up; exec sleep 600")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return !b.status(t, h).Started.IsZero() && exists(p.Dir+"/up") })
	b.do(t, "scontrol", "suspend", idOf(t, b, h))
	for _, call := range []func(context.Context, runner.Handle) error{b.runner.Suspend, b.runner.Resume} {
		err := call(t.Context(), h)
		if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), " is suspended in partition debug on ") {
			t.Errorf("it does that: %v", err)
		}
	}
	if err := b.runner.Kill(t.Context(), h, time.Second); err != nil {
		t.Error(err)
	}
}
