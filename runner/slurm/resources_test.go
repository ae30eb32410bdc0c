package slurm

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// All that a job asks for reaches Slurm.
func TestResources(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	b.do(t, "scontrol", "create", "reservation", "ReservationName=ours", "StartTime=now", "Duration=60", "Users=root",
		"PartitionName=pair", "CoreCnt=4", "NodeCnt=2", "Flags=OVERLAP,IGNORE_JOBS") // of tests before it
	t.Cleanup(func() {
		if out, err := b.slurm.Do(context.Background(), "scontrol", "delete", "ReservationName=ours"); err != nil {
			t.Error(out, err)
		}
	})
	k, p := b.newJob(t, "true")
	p.Resources = job.Resources{
		Nodes: 2, Tasks: 4, Cores: 2, Memory: 100<<20 + 1, Minutes: 7.5, Account: "physics", Partition: "pair", QOS: "high",
		Constraint: "fast", Reservation: "ours", Exclusive: true,
		Options: []string{"--comment=a,b:c&d|(e);f", "--nice=7", "--hold"},
	}
	h := b.launch(t, k, p)
	shown := strings.Fields(b.do(t, "scontrol", "show", "job", idOf(t, b, h)))
	for _, want := range []string{
		"JobName=" + h.Token, "NumNodes=2", "NumTasks=4", "CPUs/Task=2", "MinMemoryNode=101M", "TimeLimit=00:08:00",
		"Account=physics", "Partition=pair", "Features=fast", "Reservation=ours", "OverSubscribe=NO",
		"Comment=a,b:c&d|(e);f", "Nice=7", "Reason=JobHeldUser", "Requeue=1",
	} {
		if !slices.ContainsFunc(shown, func(s string) bool { return s == want || strings.HasPrefix(s, want+"-") }) {
			t.Errorf("%s is not there", want)
		}
	}
	m := spool.NamesOf(k, p.Dir, h.Token)
	if batch := read(m.Own("batch")); !strings.Contains(batch, "\n#SBATCH --qos=high\n") { // unknown without accounting
		t.Errorf("no qos in %s", batch)
	}
	if t.Failed() {
		t.Log(strings.Join(shown, "\n"))
	}
}

// Nothing that a job says makes a further directive.
func TestNoDirectiveIsMade(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	for _, text := range []string{
		"debug\n#SBATCH --uid=0", "debug --uid=0", "debug\t--hold", "a\r", "'a", `"a b"`, `a\`, "a#b", "$HOME", "`id`", "é", "a\x00",
	} {
		for name, r := range map[string]job.Resources{
			"account": {Account: text}, "partition": {Partition: text}, "qos": {QOS: text}, "constraint": {Constraint: text},
			"reservation": {Reservation: text}, "options": {Options: []string{"--comment=" + text}},
		} {
			k, p := b.newJob(t, "true")
			p.Resources = r
			if _, err := b.runner.Launch(t.Context(), k, p); job.KindOf(err) != job.Invalid {
				t.Errorf("%s %q: %v", name, text, err)
			}
			if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
				t.Errorf("%s %q was launched: %+v, %v", name, text, f, err)
			}
		}
	}
}

// With srun in front a program runs once for each task, on all nodes.
func TestTasksOnSeveralNodes(t *testing.T) {
	testenv.Aside(t)
	s := testenv.Slurm(t)
	b := newBench(t, s, "SBATCH_EXPORT=NONE", "SBATCH_PARTITION=short", "SLURM_EXPORT_ENV=NONE", "SLURM_NTASKS=1",
		"SBATCH_NO_REQUEUE=1", "SLURM_NNODES=1", "SBATCH_EXCLUSIVE=user")
	k, p := b.newJob(t, "")
	p.Argv = []string{"srun", "/bin/sh", "-c", `echo "rank $SLURM_PROCID $WORD on $SLURMD_NODENAME with $SLURM_CPUS_PER_TASK"`}
	p.Env = map[string]string{"WORD": "of it"}
	p.Resources = job.Resources{Nodes: 2, Tasks: 4, Cores: 2, Partition: "pair", Minutes: 5}
	h := b.launch(t, k, p)
	var last runner.Status
	until(t, "it ends", func() bool {
		last = b.status(t, h)
		return last.State == runner.Ended || last.State == runner.Lost
	})
	if last.End == nil || last.End.Code != 0 {
		t.Fatalf("%+v\n%s%s", last, read(p.Dir+"/stdout"), read(p.Dir+"/stderr"))
	}
	lines := strings.Split(strings.TrimSpace(read(p.Dir+"/stdout")), "\n")
	slices.Sort(lines)
	nodes := map[string]bool{}
	for i, l := range lines {
		rank, node, _ := strings.Cut(l, " on ")
		nodes[node] = true
		if want := "rank " + string(rune('0'+i)) + " of it"; rank != want || !strings.HasSuffix(node, " with 2") {
			t.Errorf("%q, not %q", l, want)
		}
	}
	if len(lines) != 4 || len(nodes) != 2 {
		t.Errorf("%q", lines)
	}
}

// mpirun finds the tasks of a job in its environment, and needs nothing else.
func TestMpirun(t *testing.T) {
	testenv.Aside(t)
	testenv.Need(t, "mpirun", "openmpi-bin")
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "")
	p.Argv = []string{
		"mpirun", "--allow-run-as-root", "/bin/sh", "-c",
		`echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE $WORD"; [ "$OMPI_COMM_WORLD_RANK" != 2 ] || exit 3`,
	}
	p.Env = map[string]string{"WORD": "of it"}
	p.Resources = job.Resources{Tasks: 3, Cores: 2}
	st := b.settled(t, b.launch(t, k, p))
	ranks := strings.Split(strings.TrimSpace(read(p.Dir+"/stdout")), "\n")
	slices.Sort(ranks)
	want := []string{"rank 0 of 3 of it", "rank 1 of 3 of it", "rank 2 of 3 of it"}
	if st.End == nil || st.End.Code != 3 || !slices.Equal(ranks, want) {
		t.Errorf("%+v, %+v: %q\n%s", st, st.End, ranks, read(p.Dir+"/stderr"))
	}
}
