package slurm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// A partition that is drained takes no job for now. The test says when it does.
func TestDrainedPartition(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "true")
	p.Resources.Partition = "drained"
	_, err := b.runner.Launch(t.Context(), k, p)
	tr, ok := errors.AsType[*host.Trouble](err)
	if !ok || tr.Code != job.SchedulerPartitionUnavailable || tr.Ask == nil {
		t.Fatalf("%v", err)
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
	if err := b.runner.Test(t.Context(), tr.Ask); err == nil || !strings.Contains(err.Error(), "not available") {
		t.Errorf("while it is drained: %v", err)
	}
	b.do(t, "scontrol", "update", "PartitionName=drained", "State=UP")
	defer func() {
		_, _ = b.slurm.Do(context.Background(), "scontrol", "update", "PartitionName=drained", "State=DRAIN")
	}()
	if err := b.runner.Test(t.Context(), tr.Ask); err != nil {
		t.Errorf("when it is up: %v", err)
	}
	// What is wrong with a job is for whoever submits it.
	if err := b.runner.Test(t.Context(), map[string]string{"partition": "nosuch"}); err != nil {
		t.Errorf("an unknown partition: %v", err)
	}
}

// A controller that has as many jobs as it takes lets sbatch try again and again.
func TestTooManyJobs(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying' >&2\nexec sleep 60\n"
	if err := os.WriteFile(dir+"/sbatch", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, testenv.Slurm(t), "PATH="+dir+":"+os.Getenv("PATH"))
	b.runner.cfg.Patience = 5 * time.Second // in which it begins, on a busy machine, too
	k, p := b.newJob(t, "true")
	_, err := b.runner.Launch(t.Context(), k, p)
	if tr, ok := errors.AsType[*host.Trouble](err); !ok || tr.Code != job.SchedulerQuota || tr.Ask == nil {
		t.Fatalf("%v", err)
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}

// While Slurm does not answer, a launch that waits says so, and what was known before.
func TestReasonWhileSlurmIsAway(t *testing.T) {
	testenv.Aside(t)
	dir := t.TempDir()
	squeue, err := exec.LookPath("squeue")
	if err != nil {
		t.Skip(err)
	}
	script := "#!/bin/sh\n[ ! -e " + dir + "/away ] || { echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }\n" +
		"exec " + squeue + " \"$@\"\n"
	if err := os.WriteFile(dir+"/squeue", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, testenv.Slurm(t), "PATH="+dir+":"+os.Getenv("PATH"))
	k, p := b.newJob(t, "true")
	p.Resources.Options = []string{"--hold"}
	h := b.launch(t, k, p)
	const held = "waits because it is held: scontrol release lets it go on"
	until(t, "it says why", func() bool { return strings.HasSuffix(b.status(t, h).Reason, held) })
	if err := os.WriteFile(dir+"/away", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const away = "Slurm does not answer; when it last did: Slurm job "
	until(t, "it says that Slurm is away", func() bool {
		s := b.status(t, h)
		return s.State == runner.Queued && strings.HasPrefix(s.Reason, away) && strings.HasSuffix(s.Reason, held)
	})
	if err := os.Remove(dir + "/away"); err != nil {
		t.Fatal(err)
	}
	until(t, "it says why again", func() bool { return strings.HasPrefix(b.status(t, h).Reason, "Slurm job ") })
}

// Somebody who comes back while Slurm is away does not know whether an end that Slurm may have
// caused is that of the job: it may run again.
func TestAnEndWhileSlurmIsAway(t *testing.T) {
	testenv.Aside(t)
	away := t.TempDir() + "/away"
	b := newBench(t, testenv.Slurm(t), wrapped(t, "squeue", "[ ! -e "+away+` ] || exit 1; exec %s "$@"`))
	k, p := b.newJob(t, ": >up; sleep 600")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/up") }) // sooner Slurm kills a script that tells nothing yet
	b.do(t, "scontrol", "requeuehold", idOf(t, b, h))
	until(t, "it waits", func() bool { return b.status(t, h).State == runner.Queued })
	if err := os.WriteFile(away, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), b.runner.cfg) // another process
	if err != nil {
		t.Fatal(err)
	}
	b.runner = r
	b.Runner = r
	until(t, "the script has told its end", func() bool {
		s := b.status(t, h)
		if s.State != runner.Active && s.State != runner.Queued {
			t.Fatalf("%+v", s)
		}
		return strings.HasPrefix(s.Reason, "Slurm does not answer whether it has ended Slurm job ")
	})
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	until(t, "it is known to wait", func() bool { return b.status(t, h).State == runner.Queued })
}

// However long ago an end was, what Slurm has said before tells nothing of it.
func TestEarly(t *testing.T) {
	now := time.Now()
	end := &runner.End{Asked: true, Ended: now.Add(-time.Hour)}
	for name, c := range map[string]struct {
		s    squeue.Snapshot
		end  *runner.End
		want bool
	}{
		"never asked":             {squeue.Snapshot{}, end, true},
		"asked before":            {squeue.Snapshot{At: now.Add(-2 * time.Hour)}, end, true},
		"asked since":             {squeue.Snapshot{At: now}, end, false},
		"it ended by itself":      {squeue.Snapshot{}, &runner.End{Ended: now}, false},
		"asked since, and is new": {squeue.Snapshot{At: now.Add(time.Second)}, &runner.End{Asked: true, Ended: now}, false},
	} {
		if got := (&Runner{doubt: maxDoubt}).early(&c.s, c.end, "NONE"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A Slurm that has as many jobs as it may takes no more, until it has forgotten one that is over.
// The test finds out when.
func TestAFullQueue(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.OwnSlurm(t, "MaxJobCount=2", "MinJobAge=2")) // and one of them is its own
	k, p := b.newJob(t, "sleep 1000")
	first := b.launch(t, k, p)
	k, p = b.newJob(t, "exit 3")
	patience := b.runner.client.Patience
	b.runner.client.Patience = 2 * time.Second // sbatch tries again for minutes
	_, err := b.runner.Launch(t.Context(), k, p)
	b.runner.client.Patience = patience
	full, ok := errors.AsType[*host.Trouble](err)
	if !ok || full.Code != job.SchedulerQuota {
		t.Fatal(err)
	}
	err = b.runner.Test(t.Context(), full.Ask)
	if still, ok := errors.AsType[*host.Trouble](err); !ok || still.Code != job.SchedulerQuota {
		t.Error("while it is full: ", err)
	}
	if err := b.runner.Kill(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "it takes jobs again", func() bool { return b.runner.Test(t.Context(), full.Ask) == nil })
	if st := b.again(t, k, p); st.State != runner.Ended || st.End.Code != 3 {
		t.Errorf("%+v, %+v", st, st.End)
	}
}

// What a site has in front of Slurm's commands may greet people, on both outputs. That is not taken
// for an answer.
func TestNoisyCommands(t *testing.T) {
	testenv.Aside(t)
	const noise = `echo "Welcome! 1 2 3"; echo "Maintenance on Monday" >&2; %s "$@"; code=$?
		echo Goodbye 99 >&2; echo Goodbye 98; exit $code`
	dirs := ""
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		dirs += strings.TrimSuffix(strings.TrimPrefix(wrapped(t, name, noise), "PATH="), os.Getenv("PATH"))
	}
	b := newBench(t, testenv.Slurm(t), "PATH="+dirs+os.Getenv("PATH"))
	k, p := b.newJob(t, "exit 3")
	if st := b.settled(t, b.launch(t, k, p)); st.End == nil || st.End.Code != 3 {
		t.Errorf("%+v", st)
	}
	k, p = b.newJob(t, ": >up; exec sleep 1000")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir+"/up") && b.status(t, h).State == runner.Active })
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if st := b.status(t, h); st.End == nil || st.End.Signal != 9 || b.Lives(t, h) {
		t.Errorf("it was canceled: %+v, %+v", st, st.End)
	}
}

// An sbatch that submits, and ends as if it had not, starts nothing that Pawl does not know of.
func TestAnSbatchThatLies(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t), wrapped(t, "sbatch", `%s --begin=now+2 "$@" >&2; echo "something odd" >&2; exit 1`))
	k, p := b.newJob(t, "echo ran >>ran")
	h, err := b.runner.Launch(t.Context(), k, p)
	if refused, ok := errors.AsType[*runner.Refused](err); !ok || refused.Code != job.SchedulerRejected {
		t.Fatalf("%+v, %v", h, err)
	}
	name := spool.NamesOf(k, p.Dir, "").Arming()
	words := strings.Fields(read(name))
	until(t, "its job is over", func() bool {
		return b.do(t, "squeue", "-h", "-n", words[len(words)-1], "-t", "PENDING,RUNNING,COMPLETING") == ""
	})
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started || exists(p.Dir+"/ran") {
		t.Errorf("%+v, %v; it ran: %v", f, err, exists(p.Dir+"/ran"))
	}
}

// An sbatch that submits and loses the answer has submitted: the launch is found by its name.
func TestTheAnswerIsLost(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t), wrapped(t, "sbatch", `%s "$@" >/dev/null
		echo "sbatch: error: Batch job submission failed: Message receive failure" >&2; exit 1`))
	k, p := b.newJob(t, "echo ran >>ran")
	_, err := b.runner.Launch(t.Context(), k, p)
	if tr, ok := errors.AsType[*host.Trouble](err); !ok || tr.Code != job.SchedulerUnavailable {
		t.Fatal(err)
	}
	f, err := b.runner.Settle(t.Context(), k, p.Dir)
	if err != nil || !f.Started {
		t.Fatalf("Settle: %+v, %v", f, err)
	}
	if s := b.settled(t, f.Handle); s.End == nil || s.End.Code != 0 || read(p.Dir+"/ran") != "ran\n" {
		t.Errorf("%+v, %+v; it ran: %q", s, s.End, read(p.Dir+"/ran"))
	}
}
