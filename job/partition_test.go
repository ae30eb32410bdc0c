package job_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

// wrongIn returns what an error finds wrong, as texts.
func wrongIn(t *testing.T, err error) (all []string) {
	t.Helper()
	var wrong *job.SpecError
	if err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	if wrong != nil {
		for _, p := range wrong.Problems {
			all = append(all, p.String())
		}
	}
	return all
}

func TestResourcesOfASpec(t *testing.T) {
	t.Parallel()
	for resources, want := range map[string][]string{
		`{"qos":"high","constraint":"[rack1*2|rack2]&gpu","reservation":"day_1","exclusive":true,"options":["--licenses=a:1,b","--hold"]}`: nil,

		`{"account":"a\n#SBATCH --uid=0"}`: {
			`resources.account ("a\n#SBATCH --uid=0"): has control or invisible characters: use printable characters`,
		},
		`{"qos":"a b","constraint":"'x'"}`: {
			"resources.qos (a b): has characters that no name of a scheduler has: leave out spaces, quotes, backslashes, #, $ and letters that are not ASCII",
			"resources.constraint ('x'): has characters that no name of a scheduler has: leave out spaces, quotes, backslashes, #, $ and letters that are not ASCII",
		},
		`{"options":["--time=3","--part=x","--mem=5","--output=/x","-N2","--licenses=a b","--nice","--nice","--gpus=3"]}`: {
			"resources.options[0] (--time=3): has a field of its own: give resources.minutes",
			"resources.options[1] (--part=x): is for Pawl alone: remove it",
			"resources.options[2] (--mem=5): has a field of its own: give resources.memory",
			"resources.options[3] (--output=/x): is for Pawl alone: remove it",
			"resources.options[4] (-N2): is no option: give one such as --licenses=matlab:1, in its long form",
			"resources.options[5] (--licenses=a b): has characters that no directive takes: leave out spaces, quotes, backslashes, #, $ and letters that are not ASCII",
			"resources.options[7] (--nice): is given twice: give it once",
		},
	} {
		spec := job.Spec{Command: []string{"true"}}
		if err := json.Unmarshal([]byte(`{"resources":`+resources+`}`), &spec); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, wrongIn(t, spec.Validate())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resources, diff)
		}
	}
}

const cluster = `{"name":"cluster","runner":"slurm","account":"physics","options":["--licenses","--nice"],"partitions":[
	{"name":"short","most":{"nodes":1,"minutes":60,"memory":"4GiB"},"jobs":50,"jobs_per_user":5},
	{"name":"long","most":{"nodes":2,"minutes":1440}},
	{"name":"wide","most":{"nodes":64,"minutes":120},"jobs_per_user":1},
	{"name":"test","most":{"minutes":5}}]}`

func TestPartitionsOfASystem(t *testing.T) {
	t.Parallel()
	s, err := job.ParseSystem([]byte(cluster))
	if err != nil {
		t.Fatal(err)
	}
	if s.Partition != "short" {
		t.Errorf("the default partition is %q", s.Partition)
	}
	want := []job.Limit{
		{Key: "system/cluster/partition/short", Most: 50},
		{Key: "system/cluster/partition/short/user/*", Most: 5},
		{Key: "system/cluster/partition/wide/user/*", Most: 1},
	}
	if diff := cmp.Diff(want, s.Limits()); diff != "" {
		t.Error(diff)
	}
	for _, l := range s.Limits() {
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
	}
	var r job.Resources
	if s.Complete(&r); r.Account != "physics" || r.Partition != "short" {
		t.Errorf("filled in: %+v", r)
	}
	if (&job.System{Name: "lab", Account: "physics"}).Complete(&r); r.Partition != "short" {
		t.Errorf("filled in without a scheduler: %+v", r)
	}
	j := job.Job{Kind: job.KindApp, Owner: "ada"}
	keys := []string{"system/cluster/partition/short", "system/cluster/partition/short/user/ada"}
	if diff := cmp.Diff(keys, s.PartitionKeys(&j)); diff != "" {
		t.Error(diff)
	}
	for name, tt := range map[string]struct {
		asks job.Resources
		want []string
	}{
		"nothing":            {job.Resources{}, nil},
		"the default is big": {job.Resources{Nodes: 1, Minutes: 60}, nil},
		"another takes it": {job.Resources{Nodes: 2, Minutes: 90}, []string{
			"resources.nodes: is more than partition short of system cluster gives to one job: give up to 1, or resources.partition: wide, which takes it",
			"resources.minutes: is more than partition short of system cluster gives to one job: give up to 60, or resources.partition: wide, which takes it",
		}},
		"the nearest": {job.Resources{Minutes: 1000, Partition: "wide"}, []string{
			"resources.minutes: is more than partition wide of system cluster gives to one job: give up to 120, or resources.partition: long, which takes it",
		}},
		"none takes it": {job.Resources{Nodes: 64, Minutes: 1000, Partition: "long"}, []string{
			"resources.nodes: is more than partition long of system cluster gives to one job: give up to 2",
		}},
		"the default time is too long": {job.Resources{Partition: "test"}, []string{
			"resources.minutes: is more than partition test of system cluster gives to one job: give up to 5, or resources.partition: short, which takes it",
		}},
		"it is unknown": {job.Resources{Partition: "lang"}, []string{
			"resources.partition (lang): is no partition of system cluster: give short or long or wide or test",
		}},
		"options": {job.Resources{Options: []string{"--licenses=a", "--nice", "--nicer=1"}}, []string{
			"resources.options[2] (--nicer=1): is not among the options of system cluster: give one of --licenses, --nice",
		}},
	} {
		var got []string
		for _, p := range s.Refuse(&tt.asks) {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBadPartitions(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string][]string{
		`{"name":"lab","account":"a","partition":"b","partitions":[{"name":"b"}],"options":["--nice"]}`: {
			"account: belongs to a system with a scheduler: remove it, or give runner: slurm",
			"partition: belongs to a system with a scheduler: remove it, or give runner: slurm",
			"partitions: belongs to a system with a scheduler: remove it, or give runner: slurm",
			"options: belongs to a system with a scheduler: remove it, or give runner: slurm",
		},
		`{"name":"c","runner":"slurm","partition":"x","partitions":[{"name":"b","most":{"qos":"q","nodes":-1}},{"name":"b"},{},{"name":"a b","jobs":-1}]}`: {
			"partitions[0].most.nodes (-1): is out of range: give up to 1000000",
			"partitions[0].most.qos: is no amount, so it bounds nothing: remove it",
			"partitions[1].name (b): is given twice: give each partition once",
			"partitions[2].name: is missing: give the name of the partition in Slurm, as sinfo prints it",
			"partitions[3].name (a b): is not a name: use letters, digits, dot, dash and underscore, and begin with a letter or digit",
			"partitions[3].jobs (-1): is out of range: give 1 to 1000000",
			"partition (x): is none of partitions: give b or b or  or a b",
		},
		`{"name":"c","runner":"slurm","options":["--mem","--licenses=3","licenses","--out"],"most":{"partition":"b"}}`: {
			"most.partition: is no amount, so it bounds nothing: remove it",
			"options[0] (--mem): has a field of its own: give resources.memory",
			"options[1] (--licenses=3): has a value: give the name alone: --licenses",
			"options[2] (licenses): is no option: give one such as --licenses=matlab:1, in its long form",
			"options[3] (--out): is for Pawl alone: remove it",
		},
	} {
		_, err := job.ParseSystem([]byte(doc))
		if diff := cmp.Diff(want, wrongIn(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
}
