package node

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestRequestsOfAJob: what a job costs over SSH is how often somebody waits for an answer. So the
// requests are counted of jobs with a small input that is staged and a small output that is
// archived, from their submission to their end.
func TestRequestsOfAJob(t *testing.T) {
	const jobs, most = 32, 12
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dir := t.TempDir()
	input := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(input, []byte("a small input\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), filepath.Join(dir, "pawl"), Options{Unlimited: true, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	text, err := job.Encode(&job.System{
		Name: "far", Work: filepath.Join(s.Work, "pawl"),
		Host: job.Host{
			Kind: job.HostSSH, Address: s.Host, Port: s.Port, User: s.User, Identities: []string{s.Key},
			Keys: job.KeysEverywhere, HostKeys: []string{s.HostKey},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Systems().Apply(t.Context(), text, service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	run := func(jobs int) {
		t.Helper()
		reqs := make([]service.Request, jobs)
		for i := range reqs {
			reqs[i].Spec = job.Spec{
				System: "far", Command: []string{"sh", "-c", "cat in.txt >out"}, Inputs: []job.Input{{From: input}},
				Archive: &job.Archive{Include: []string{"out"}, Required: []string{"out"}},
			}
		}
		answers, err := n.Submit(t.Context(), reqs...)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			j, err := n.Wait(t.Context(), a.ID)
			if err != nil || j.State != job.Finished {
				t.Fatalf("%s %s, %v", j.State, j.Message, err)
			}
		}
	}
	run(1) // what is asked once
	requests := func() int64 {
		y, err := n.far.System(t.Context(), "default", "far/"+s.User)
		if err != nil {
			t.Fatal(err)
		}
		return y.Host.(interface{ Requests() int64 }).Requests()
	}
	before := requests()
	run(1)
	t.Logf("one job alone: %d requests", requests()-before)
	before = requests()
	run(jobs)
	each := float64(requests()-before) / jobs
	t.Logf("%d jobs at once: %.1f requests each", jobs, each)
	if each > most {
		t.Errorf("a job takes %.1f requests, more than %d", each, most)
	}
}
