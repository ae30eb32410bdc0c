package survey

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A real Slurm with accounts says what its partitions give, and who pays.
func TestOf(t *testing.T) {
	s := testenv.Accounted(t)
	for _, words := range []string{
		"add account lab", "add account astro", "add user root account=lab,astro defaultaccount=lab",
		"modify user root where account=lab set maxsubmitjobs=500", "add qos few set maxsubmitjobsperuser=20",
	} {
		if out, err := s.Do(t.Context(), "sacctmgr", append([]string{"-i"}, strings.Fields(words)...)...); err != nil {
			t.Fatalf("sacctmgr %s: %v: %s", words, err, out)
		}
	}
	for _, words := range []string{
		"PartitionName=pair AllowAccounts=chemistry", "PartitionName=short QoS=few MaxNodes=1 MaxTime=1-02:30:00",
	} {
		if out, err := s.Do(t.Context(), "scontrol", append([]string{"update"}, strings.Fields(words)...)...); err != nil {
			t.Fatalf("scontrol update %s: %v: %s", words, err, out)
		}
	}
	h, err := local.Open(local.Config{ID: "here", Env: slices.Concat(local.Environ(), s.Env())})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	got, err := Of(t.Context(), h, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	node := job.Resources{Nodes: 1, Tasks: 64, Cores: 64, Memory: 20000 << 20}
	short, drained := node, node
	short.Minutes, drained.Minutes = 26*60+30, 60
	want := &Survey{
		Version: got.Version, Cluster: "pawl-test", MinJobAge: "300 sec", Accounting: true,
		Partitions: []job.Partition{
			{Name: "debug", Most: &node}, {Name: "short", Most: &short, Jobs: 20}, {Name: "drained", Most: &drained},
		},
		Partition: "debug", Closed: []string{"pair: only these accounts may use it: chemistry"},
		Accounts: []string{"astro", "lab", "root"}, Account: "lab", Submit: 500,
	}
	slices.Sort(got.Accounts)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	doc := job.System{Name: "cluster", Runner: job.RunnerSlurm}
	got.Complete(&doc)
	if doc.Account != "lab" || doc.Partition != "debug" || len(doc.Partitions) != 3 {
		t.Errorf("%+v", doc)
	}
	if s := strings.Join(got.Lines(), "\n"); !strings.Contains(s, "sacct tells") || !strings.Contains(s, "at most 500 jobs") {
		t.Error(s)
	}
}

// Where there is no Slurm, that is said.
func TestNoSlurm(t *testing.T) {
	h, err := local.Open(local.Config{ID: "here", Env: []string{"PATH=" + t.TempDir() + ":/usr/sbin:/sbin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := Of(t.Context(), h, t.TempDir()); err == nil {
		t.Error("it was found")
	}
}

// What many sites have: GPUs, nodes that differ, and no accounts.
func TestRead(t *testing.T) {
	s := read([]string{
		"SLURM_VERSION = 24.05.1\nClusterName = big\nAccountingStorageType = (null)\nAccountingStorageEnforce = none\n",
		"PartitionName=gpu AllowGroups=gpuusers,ops Default=NO MaxNodes=8 MaxTime=2-00:00:00 RootOnly=NO State=UP TotalNodes=4\n" +
			"PartitionName=admin RootOnly=YES State=UP\nPartitionName=old AllowGroups=ALL State=INACTIVE\n" +
			"PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP TotalCPUs=12800 TotalNodes=100\n" +
			"PartitionName=part MaxNodes=2 MaxCPUsPerNode=40 TotalCPUs=12800 TotalNodes=100 MaxMemPerNode=500\n" +
			"PartitionName=huge TotalCPUs=1200000 MaxMemPerNode=UNLIMITED\n" +
			"PartitionName=other DenyAccounts=lab,root\nPartitionName=mine DenyAccounts=root\n",
		"gpu|64|512000|gpu:a100:4(S:0-1),gpu:v100:2\ngpu|48+|256000+|(null)\nmain|128|1000|(null)\n" +
			"part|128|1000|(null)\nhuge|128|1000|(null)\n",
		"users gpuusers\n", "lab||\n", "", "",
	})
	want := &Survey{
		Version: "24.05.1", Cluster: "big", Partition: "main",
		Partitions: []job.Partition{
			{Name: "main", Most: &job.Resources{Nodes: 100, Tasks: 12800, Cores: 128, Memory: 1000 << 20}},
			{Name: "gpu", Most: &job.Resources{Nodes: 4, Tasks: 256, Cores: 64, GPUs: 6, Memory: 512000 << 20, Minutes: 2880}},
			{Name: "part", Most: &job.Resources{Nodes: 2, Tasks: 80, Cores: 40, Memory: 500 << 20}},
			{Name: "huge", Most: &job.Resources{Cores: 128, Memory: 1000 << 20}},
			{Name: "mine"},
		},
		Closed: []string{
			"admin: only root may use it", "old: it is inactive", "other: these accounts may not use it: lab,root",
		},
		Accounts: []string{"lab"},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever Slurm prints, the document stays one.
func FuzzRead(f *testing.F) {
	f.Add("SLURM_VERSION = 1", "PartitionName=a MaxNodes=99999999 MaxTime=9-9:9:9\nPartitionName=a", "a|1|2|gpu:3", "lab||9\nlab|a|8", "lab\n")
	f.Fuzz(func(t *testing.T, config, partitions, nodes, accounts, account string) {
		doc := job.System{Name: "cluster", Runner: job.RunnerSlurm}
		s := read([]string{config, partitions, nodes, "users", accounts, account, "few|3"})
		s.Complete(&doc)
		b, err := job.Encode(doc)
		if err == nil {
			_, err = job.ParseSystem(b)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, b)
		}
		_ = s.Lines()
	})
}
