package service_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// The document of a system sets the limits of its partitions. Jobs that name no partition are under
// those of the one that the system chooses.
func TestPartitions(t *testing.T) {
	svc := onDisk(t)
	ctx := t.Context()
	apply := func(doc string) {
		t.Helper()
		if _, _, err := svc.Systems().Apply(ctx, []byte(doc), service.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	limits := func(want ...job.Limit) {
		t.Helper()
		all, err := svc.Limits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got []job.Limit
		for _, l := range all {
			if l.Set != nil {
				got = append(got, *l.Set)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
	}
	const short, long = "system/cluster/partition/short", "system/cluster/partition/long"
	apply(`{"name":"cluster","runner":"slurm","partitions":[{"name":"short","jobs":2,"most":{"minutes":30}},{"name":"long","jobs_per_user":3}]}`)
	limits(job.Limit{Key: long + "/user/*", Most: 3}, job.Limit{Key: short, Most: 2})
	if err := svc.SetLimit(ctx, job.Limit{Key: short, Most: 7, Weights: map[string]int{"ada": 2}}); err != nil {
		t.Fatal(err)
	}
	apply(`{"name":"cluster","runner":"slurm","partitions":[{"name":"short","jobs":1},{"name":"long"}]}`)
	limits(job.Limit{Key: short, Most: 1, Weights: map[string]int{"ada": 2}})

	on := func(partition string) service.Request {
		return service.Request{Spec: job.Spec{
			Command: []string{"true"}, System: "cluster", Owner: "ada", Resources: &job.Resources{Partition: partition},
		}}
	}
	for partition, want := range map[string][]string{"": {short, short + "/user/ada"}, "short": {short}, "long": nil} {
		j, err := svc.Job(ctx, submit(t, svc, on(partition))[0].ID)
		if err != nil || !slices.Equal(j.Limits, want) {
			t.Errorf("partition %q: %v, %v; want %v", partition, j.Limits, err, want)
		}
	}
	none := on("")
	none.Spec.Resources = nil
	if j, err := svc.Job(ctx, submit(t, svc, none)[0].ID); err != nil || !slices.Contains(j.Limits, short) {
		t.Errorf("without resources: %v, %v", j.Limits, err)
	}
	if _, err := svc.Submit(ctx, on("lang")); err == nil || err.Error() !=
		"resources.partition (lang): is no partition of system cluster: give short or long" {
		t.Errorf("an unknown partition: %v", err)
	}
	list, err := svc.List(ctx, store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Jobs {
		if _, err := svc.Cancel(ctx, list.Jobs[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := svc.Systems().Delete(ctx, "cluster", service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	limits()
}
