package processes_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/crashstore"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

const beat = `{"name": "beat", "every": "1s", "catch_up": "all", "overlap": "allow", "jobs": [{"kind": "tick", "args": {}}]}`

// tick is the handler of the jobs of a schedule.
func tick(context.Context, *service.Task[none]) (none, error) { return none{}, nil }

// TestScheduleSideBySide: two processes submit the jobs of a schedule. Again and again one dies
// when it is about to submit, or when that is committed and it has not heard of it. Each due time
// has its job, and one.
func TestScheduleSideBySide(t *testing.T) {
	if dsn := os.Getenv(processVariable); dsn != "" {
		p := join(t, dsn, service.Config{Options: engine.Options{Lease: time.Second}}, crashstore.Wrap)
		service.Handle(p.Service, "tick", tick)
		p.start(t)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends with whoever started the processes
			t.Error(err)
		}
		return
	}
	t.Parallel()
	dsn := shared(t)
	desk := join(t, dsn, service.Config{}, nil) // it runs nothing
	first, _, err := desk.Schedules().Apply(t.Context(), []byte(beat), 0)
	if err != nil {
		t.Fatal(err)
	}
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	points := []string{"store.submit.after:2", "store.submit.before:2"}
	var deaths, over atomic.Int64
	var seats sync.WaitGroup
	for range 2 {
		seats.Go(func() {
			for over.Load() == 0 {
				c := exec.Command(os.Args[0], "-test.run=^TestScheduleSideBySide$")
				c.Env, c.Stdin = append(os.Environ(), processVariable+"="+dsn), stdin
				if n := deaths.Load(); n < 4 {
					c.Env = append(c.Env, crash.Variable+"="+points[n%2])
				}
				out, err := c.CombinedOutput()
				if err == nil {
					return
				}
				if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Errorf("a process: %v\n%s", err, out)
					return
				}
				deaths.Add(1)
			}
		})
	}
	leave := sync.OnceFunc(func() {
		over.Store(1)
		end.Close()
		seats.Wait()
		stdin.Close()
	})
	t.Cleanup(leave)
	var due []string
	until(t, "four deaths and ten due times", func() (bool, error) {
		due, err = dueTimes(t, desk, "beat")
		return deaths.Load() >= 4 && len(due) >= 10, err
	})
	if _, err := desk.Schedules().Disable(t.Context(), "beat", true); err != nil {
		t.Fatal(err)
	}
	if due, err = dueTimes(t, desk, "beat"); err != nil {
		t.Fatal(err)
	}
	for i, at := range due {
		if want := first.Next.Add(time.Duration(i) * time.Second).Format(time.RFC3339); at != want {
			t.Fatalf("due time %d is %s, want %s: %v", i, at, want, due)
		}
	}
	until(t, "the end of all jobs", func() (bool, error) {
		page, err := desk.List(t.Context(), store.Query{Filter: job.Unended()})
		return len(page.Jobs) == 0, err
	})
	leave()
	storetest.Check(t, desk.store, "default")
}

// dueTimes returns when the jobs of a schedule were due, oldest first.
func dueTimes(t *testing.T, p *process, name string) (due []string, err error) {
	t.Helper()
	page, err := p.List(t.Context(), store.Query{Limit: 1000, Filter: job.Where("label."+job.LabelSchedule, name)})
	for _, j := range page.Jobs {
		due = append(due, j.Labels[job.LabelDue])
	}
	slices.Sort(due)
	return due, err
}
