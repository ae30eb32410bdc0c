package target

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// A command that asks a process about jobs has its answers although that process stops between two
// calls.
func TestProcessThatStopsMeanwhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pawl")
	n, err := node.Open(t.Context(), dir, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	hangUp, err := n.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	Flags(cmd)
	if err := cmd.ParseFlags([]string{"--dir", dir}); err != nil {
		t.Fatal(err)
	}
	at, err := Open(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	answers, err := at.Submit(t.Context(), "", []byte(`{"command":["true"],"delay":"1h"}`))
	if err != nil {
		t.Fatal(err)
	}
	id := answers[0].ID
	if !at.process || !at.Served(t.Context()) {
		t.Fatal("no process answers")
	}
	hangUp()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	if v, err := at.Job(t.Context(), id); err != nil || v.ID != id {
		t.Errorf("%s, %v", v.ID, err)
	}
	seen := 0
	for e, err := range at.Events(t.Context(), client.EventQuery{Job: id, Follow: true}) {
		if err != nil || e.Job != id {
			t.Errorf("%+v, %v", e, err)
		}
		seen++
	}
	if seen == 0 {
		t.Error("no event")
	}
	if _, _, err := at.Cancel(t.Context(), id, time.Minute); job.KindOf(err) != job.Unavailable {
		t.Errorf("nobody is there to carry out a wish: %v", err)
	}
	if at.Served(t.Context()) {
		t.Error("it is served")
	}
	if answers, err := at.Submit(t.Context(), "again", []byte(`{"command":["true"]}`)); err != nil || len(answers) != 1 ||
		at.Node == nil {
		t.Errorf("a submission, without a process that takes it: %+v, %v", answers, err)
	}
}
