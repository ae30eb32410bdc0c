package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestNobodyIsToldWhereTheDatabaseIs: whoever asks without login learns that it does not answer, and the owner why.
func TestNobodyIsToldWhereTheDatabaseIs(t *testing.T) {
	n, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Store.Close()
	var told bytes.Buffer
	s := &serving{node: n, log: slog.New(slog.NewTextHandler(&told, nil))}
	const why = "is closed"
	for _, check := range []func(names bool) error{
		func(names bool) error { return s.database(t.Context(), names).Err },
		func(names bool) error { return s.unattended(t.Context(), names)[0].Err },
		func(names bool) error { return s.unattended(t.Context(), names)[1].Err },
	} {
		told.Reset()
		if err := check(false); err == nil || strings.Contains(err.Error(), why) || !strings.Contains(told.String(), why) {
			t.Errorf("everybody is told %v; the log has %q", err, &told)
		}
		if err := check(true); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("the owner is told %v", err)
		}
	}
}
