package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
)

// A command that asks a process about jobs has its answers although that process stops between two calls.
func TestProcessThatStopsMeanwhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pawl")
	n, err := openNode(t.Context(), dir, nodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	hangUp, err := n.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := rootCommand()
	if err := cmd.ParseFlags([]string{"--dir", dir}); err != nil {
		t.Fatal(err)
	}
	d, err := openDesk(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	answers, err := d.Submit(t.Context(), "", []byte(`{"command":["true"],"delay":"1h"}`))
	if err != nil {
		t.Fatal(err)
	}
	id := answers[0].ID
	if !d.process || !d.served(t.Context()) {
		t.Fatal("no process answers")
	}
	hangUp()
	if err := n.close(); err != nil {
		t.Fatal(err)
	}

	if v, err := d.Job(t.Context(), id); err != nil || v.ID != id {
		t.Errorf("%s, %v", v.ID, err)
	}
	seen := 0
	for e, err := range d.Events(t.Context(), client.EventQuery{Job: id, Follow: true}) {
		if err != nil || e.Job != id {
			t.Errorf("%+v, %v", e, err)
		}
		seen++
	}
	if seen == 0 {
		t.Error("no event")
	}
	if _, _, err := d.Cancel(t.Context(), id, time.Minute); job.KindOf(err) != job.Unavailable {
		t.Errorf("nobody is there to carry out a wish: %v", err)
	}
	if d.served(t.Context()) {
		t.Error("it is served")
	}
}
