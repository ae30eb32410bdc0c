package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// A system that could not be made ready is made ready by its next use.
func TestASystemThatIsNotReadyYet(t *testing.T) {
	work := t.TempDir()
	s := newSystems(nil, "here", t.TempDir(), slog.New(slog.DiscardHandler))
	doc := job.System{Name: "lab", Work: work, Runner: job.RunnerProcess}
	watch := doc.Watch("here")
	s.docs[watch] = doc
	inTheWay := filepath.Join(work, "ends")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if sys, err := s.System(t.Context(), "", watch); err == nil {
			t.Fatalf("it is ready: %+v", sys)
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	sys, err := s.System(t.Context(), "", watch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sys.Runner.Watch(t.Context()); err != nil {
		t.Error(err)
	}
}
