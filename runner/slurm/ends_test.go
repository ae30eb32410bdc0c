package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// running waits until a launch runs, and returns its id.
func (b bench) running(t *testing.T, h runner.Handle) string {
	t.Helper()
	id := idOf(t, b, h)
	until(t, "it runs", func() bool { return b.do(t, "squeue", "-h", "-j", id, "-o", "%T") == "RUNNING\n" })
	return id
}

// What Slurm does to a job is told by the condition that people know it by, whether the program had
// begun or not.
func TestEndsBySlurm(t *testing.T) {
	s := testenv.OwnSlurm(t, "PreemptType=preempt/partition_prio", "PreemptMode=CANCEL",
		"PartitionName=low Nodes=pawl-second PriorityTier=1 MaxTime=60 State=UP",
		"PartitionName=high Nodes=pawl-second PriorityTier=2 MaxTime=60 State=UP")
	b := newBench(t, s)
	launch := func(ask job.Resources) runner.Handle {
		k, p := b.newJob(t, "exec sleep 1000")
		p.Once, p.Resources = true, ask
		p.Resources.Partition, p.Resources.Tasks = "low", 4 // all that its node has
		return b.launch(t, k, p)
	}

	first := launch(job.Resources{Minutes: 30})
	b.running(t, first)
	next := launch(job.Resources{Minutes: 1})
	until(t, "it is known when it begins", func() bool { return !b.status(t, next).Expected.IsZero() })
	switch begins := b.status(t, next).Expected.Sub(b.status(t, first).Started); {
	case begins < 29*time.Minute, begins > 31*time.Minute:
		t.Errorf("it is expected %s after one that has 30 minutes", begins)
	}
	if err := b.runner.Kill(t.Context(), next, 0); err != nil {
		t.Fatal(err)
	}
	// Less than a minute before its deadline it can no longer begin.
	late := launch(job.Resources{Minutes: 1, Options: []string{"--deadline=now+65"}})
	b.endsBy(t, late, job.SchedulerDeadline, "DEADLINE (DeadLine)")

	b.do(t, "sbatch", "--partition=high", "--ntasks=4", "--output=/dev/null", "--wrap=sleep 1")
	b.endsBy(t, first, job.SchedulerPreempted, "PREEMPTED, exit code 143")

	last := launch(job.Resources{})
	b.running(t, last)
	b.do(t, "scontrol", "update", "NodeName=pawl-second", "State=DOWN", "Reason=test")
	b.endsBy(t, last, job.SchedulerNodeFail, "NODE_FAIL")
}

// The shortest time that Slurm gives to a job is a minute.
func TestEndsOfTime(t *testing.T) {
	if !testenv.Long() {
		t.Skip("it takes two minutes: make test-long runs it")
	}
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "exec sleep 1000")
	p.Resources.Minutes = 1
	b.endsBy(t, b.launch(t, k, p), job.SchedulerTimeout, "TIMEOUT (TimeLimit), exit code 143")
}

// endsBy waits until a launch is over, and sees what Slurm is said to have done.
func (b bench) endsBy(t *testing.T, h runner.Handle, cause job.Code, said string) {
	t.Helper()
	st := b.settled(t, h)
	said = "Slurm job " + idOf(t, b, h) + " is " + said
	if st.Cause != cause || !strings.HasPrefix(st.Said, said) {
		t.Errorf("it is %s by %s, %q; not by %s, %q", st.State, st.Cause, st.Said, cause, said)
	}
}

// Where Slurm gives a job no more memory than it asks for, an end that came for lack of memory is
// told as such, also if the kernel ended only a child of the program.
func TestEndsForLackOfMemory(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.GroupedSlurm(t))
	for name, c := range map[string]struct {
		script string
		code   int
		cause  job.Code
	}{
		"the program":               {"exec tail /dev/zero", 137, job.SchedulerOutOfMemory},
		"a child":                   {"tail /dev/zero; exit 3", 3, job.SchedulerOutOfMemory},
		"a child it can do without": {"tail /dev/zero; exit 0", 0, ""},
		"another reason":            {"exit 137", 137, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, c.script)
			p.Resources.Memory = 64 << 20
			st := b.settled(t, b.launch(t, k, p))
			if st.End == nil || st.End.Code != c.code || st.Cause != c.cause {
				t.Errorf("it ended with %+v, by %q: %q", st.End, st.Cause, st.Said)
			}
			if c.cause != "" && !strings.Contains(st.Said, "ask for more by resources.memory") {
				t.Errorf("it says %q", st.Said)
			}
		})
	}
}

// A node that does not see the folder of a job cannot say so: nobody reads what it says.
func TestANodeThatDoesNotSeeTheFolder(t *testing.T) {
	testenv.Aside(t)
	hidden := t.TempDir()
	b := newBench(t, testenv.ApartSlurm(t, hidden))
	b.Work = hidden
	k, p := b.newJob(t, "exit 3")
	h := b.launch(t, k, p)
	st := b.settled(t, h)
	if st.End == nil || !strings.Contains(st.End.NotStarted, "its node may not see "+p.Dir) {
		t.Errorf("it is %+v, with the end %+v", st, st.End)
	}
	if why := runner.Why(t.Context(), b.runner, h); !strings.HasPrefix(why, runner.Over+runner.GaveUp+"Slurm job ") {
		t.Errorf("it did not begin%s", why)
	}
}
