package processes_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// TestPoison: one of 200 jobs kills every process that runs it. The test starts one after the
// other, until one comes to the end of all jobs.
func TestPoison(t *testing.T) {
	open := func(dir string) (*sqlite.Store, *service.Service) {
		st, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return st, service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
	}
	if dir := os.Getenv("PAWL_TEST_POISON"); dir != "" {
		st, svc := open(dir)
		defer st.Close()
		service.Handle(svc, "work", killing)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		page, err := svc.List(ctx, store.Query{Filter: job.Unended()})
		for err == nil && len(page.Jobs) > 0 {
			for _, j := range page.Jobs {
				if _, err := svc.Wait(ctx, j.ID); err != nil {
					t.Fatal(err)
				}
			}
			page, err = svc.List(ctx, store.Query{Filter: job.Unended()})
		}
		stop()
		if runs := <-ended; err != nil || runs != nil {
			t.Fatal(err, runs)
		}
		return
	}

	dir := t.TempDir()
	st, svc := open(dir)
	reqs := make([]service.Request, 200)
	for i := range reqs {
		reqs[i] = task("work", i)
	}
	answers := submit(t, svc, reqs...)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	deaths := 0
	for ; ; deaths++ {
		c := exec.Command(os.Args[0], "-test.run=^TestPoison$")
		c.Env = append(os.Environ(), "PAWL_TEST_POISON="+dir)
		out, err := c.CombinedOutput()
		if err == nil {
			break
		}
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || deaths > job.PoisonAt {
			t.Fatalf("process %d: %v\n%s", deaths+1, err, out)
		}
	}
	if deaths != job.PoisonAt {
		t.Errorf("%d processes died, want %d", deaths, job.PoisonAt)
	}
	st, svc = open(dir)
	defer st.Close()
	for i, a := range answers {
		j, err := svc.Job(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		judge(t, i, &j)
	}
	storetest.Check(t, st, "default")
}

// poison is the number of the task that kills the process that runs it.
const poison = 77

// killing is the handler of tasks of which poison is one.
func killing(_ context.Context, task *service.Task[int]) (none, error) {
	if task.Args == poison {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {}
	}
	time.Sleep(5 * time.Millisecond) // its work, so that others are at work when that one strikes
	return none{}, nil
}

// judge checks how task number i of those has ended.
func judge(t *testing.T, i int, j *job.Job) {
	t.Helper()
	if i == poison && (j.State != job.Failed || j.Code != job.Poison) {
		t.Errorf("the one that kills ended %s (%s)", j.State, j.Code)
	}
	if i != poison && j.State != job.Finished {
		t.Errorf("a neighbour ended %s (%s: %s)", j.State, j.Code, j.Message)
	}
}
