package slurm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// A partition that is drained takes no job for now. The test says when it does.
func TestDrainedPartition(t *testing.T) {
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
	b.runner.cfg.Patience = time.Second
	k, p := b.newJob(t, "true")
	_, err := b.runner.Launch(t.Context(), k, p)
	if tr, ok := errors.AsType[*host.Trouble](err); !ok || tr.Code != job.SchedulerQuota || tr.Ask == nil {
		t.Fatalf("%v", err)
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}
