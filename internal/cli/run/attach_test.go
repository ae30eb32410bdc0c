package run

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// TestOthers counts what pawl run runs besides its job: programs, and not tasks; it
// handles none.
func TestOthers(t *testing.T) {
	n, err := node.Open(t.Context(), t.TempDir(), node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if !node.Occupied(t.Context(), n.Dir) {
		t.Error("a folder that this process has locked counts as free")
	}
	program := service.Request{Spec: job.Spec{Command: []string{"true"}}}
	jobs, err := n.Submit(t.Context(), program, program, program, service.Request{Spec: service.NewTask("mail", nil)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Cancel(t.Context(), jobs[1].ID); err != nil {
		t.Fatal(err)
	}
	r := &run{jobs: map[job.ID]*runJob{jobs[0].ID: {}}}
	others, err := r.strangers(t.Context(), &attachment{Target: target.OfNode(n)})
	if want := []job.ID{jobs[2].ID}; err != nil || !slices.Equal(others, want) {
		t.Errorf("%v, %v; want %v", others, err, want)
	}
}

// A program that handles tasks has a folder's lock, and no socket.
func TestFolderThatAProgramWithoutASocketHas(t *testing.T) {
	dir := t.TempDir()
	n, err := node.Open(t.Context(), dir, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	view := live.NewView(live.Config{Out: io.Discard}, &live.Board{})
	defer view.Close()
	r := &run{dir: dir, view: view}
	_, err = r.attach(t.Context(), nil)
	for _, want := range []string{
		dir + " is in use by process ",
		"which does not answer; nothing was submitted: wait for its end, or stop it",
	} {
		if job.KindOf(err) != job.Locked || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
