// Package pythonworker_test runs the worker of this folder.
package pythonworker_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// args are those of tasks of the kind sum.
type args struct {
	Numbers []int   `json:"numbers"`
	Pause   float64 `json:"pause"`
}

// serve serves jobs of a new folder at a URL.
func serve(t *testing.T) (*embedded.Service, string) {
	svc := embedded.Open(t)
	svc.Start(t)
	server := httptest.NewServer(api.New(api.Config{Service: svc.Service}))
	t.Cleanup(server.Close)
	return svc, server.URL
}

// TestKilledInTheMiddle kills the worker in the middle of a task. Another one goes on from its
// checkpoint.
func TestKilledInTheMiddle(t *testing.T) {
	svc, url := serve(t)
	task := args{Pause: 0.05}
	sum := 0
	for n := range 40 {
		task.Numbers, sum = append(task.Numbers, n), sum+n
	}
	answers, err := svc.Submit(t.Context(), service.Request{Spec: service.NewTask("sum", task)})
	if err != nil {
		t.Fatal(err)
	}
	first := start(t, url)
	if !testenv.Until(t.Context(), func() bool {
		v, err := svc.View(t.Context(), answers[0].ID)
		return err == nil && v.Progress != nil && v.Progress.Done >= 3
	}) {
		t.Fatal("the worker does not begin")
	}
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	start(t, url)
	j, err := svc.Wait(t.Context(), answers[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Sum, Began int }
	if err := json.Unmarshal(j.Result, &result); err != nil || result.Sum != sum || result.Began < 3 {
		t.Errorf("%s: %s, %v", j.State, j.Result, err)
	}
	if j.State != job.Finished || j.Attempt != 1 || j.Recoveries != 1 {
		t.Errorf("%s in attempt %d after %d recoveries", j.State, j.Attempt, j.Recoveries)
	}
}

// TestException has a task with wrong arguments. It fails with what Python says, and the worker
// goes on.
func TestException(t *testing.T) {
	svc, url := serve(t)
	var all []service.Request
	for _, numbers := range []any{
		"1, 2", []float64{1e308, 1e308}, []string{strings.Repeat("\x00é", 9000)}, []int{1, 2},
	} {
		task := service.NewTask("sum", map[string]any{"numbers": numbers})
		task.Retry = &job.RetryPolicy{MaxAttempts: 1}
		all = append(all, service.Request{Spec: task})
	}
	answers, err := svc.Submit(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	start(t, url)
	for i, want := range []string{"TypeError", "ValueError", "TypeError", ""} {
		j, err := svc.Wait(t.Context(), answers[i].ID)
		if err != nil {
			t.Fatal(err)
		}
		if (j.State == job.Finished) != (want == "") || !strings.Contains(j.Message, want) {
			t.Errorf("job %d is %s: %s", i, j.State, j.Message)
		}
	}
}

func start(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	testenv.Program(t, "python3")
	c := exec.Command("python3", "worker.py")
	c.Env = append(os.Environ(), "PAWL_URL="+url, "LEASE=2")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c
}
