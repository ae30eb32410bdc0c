package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
)

// TestNobodyIsToldWhereTheDatabaseIs: whoever asks without login learns that it does not answer,
// and the owner why.
func TestNobodyIsToldWhereTheDatabaseIs(t *testing.T) {
	n, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Store.Close()
	var told bytes.Buffer
	s := &serving{node: n, log: slog.New(slog.NewTextHandler(&told, nil))}
	const why = "the service was closed"
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

// Steps that wait for file systems are told: how many to all, which they are to the owner. While
// others can still be left behind, the service is well enough.
func TestStepsThatStandStillAreTold(t *testing.T) {
	if c := stalled(nil, true); c != nil {
		t.Errorf("of no step is said %+v", c)
	}
	all := []app.StalledStep{{Job: job.NewID(), State: job.Archiving, Path: "/lab/poem.txt", Left: true}}
	for _, names := range []bool{false, true} {
		c := stalled(all, names)
		if !c.Degraded || !strings.Contains(c.Err.Error(), "do not answer 1 step for minutes") ||
			strings.Contains(c.Err.Error(), "/lab/poem.txt") != names {
			t.Errorf("names %t: %+v", names, c)
		}
	}
	for len(all) < app.MaxLeftBehind {
		all = append(all, all[0])
	}
	if c := stalled(all, false); c.Degraded {
		t.Errorf("no further step can be left behind, and the check is only degraded: %v", c.Err)
	}
}
