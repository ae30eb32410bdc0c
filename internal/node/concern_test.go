package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A process tells of the systems that concern whoever runs it, as soon as they do.
func TestConcerns(t *testing.T) {
	var told bytes.Buffer
	own := map[string]bool{"ours": true}
	s := newSystems(nil, "m", t.TempDir(), slog.New(slog.NewTextHandler(&told, nil)))
	s.concerns = func(name string) bool { return own[name] }
	other := s.logOf("other").With("a", "b")
	s.logOf("ours").Warn("first")
	other.WithGroup("g").Warn("second")
	own["other"] = true
	other.Warn("third")
	s.concerns = nil
	s.logOf("any").Warn("fourth")
	if got := told.String(); strings.Count(got, "\n") != 3 || strings.Contains(got, "second") {
		t.Errorf("it tells\n%s", got)
	}
}
