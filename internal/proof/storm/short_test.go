package main

import (
	"testing"
	"time"
)

// TestShortStorm is TestStorm for as long as a change can wait: a process on a folder, some faults,
// and every promise is looked at. On a server it takes a minute until the last lease is over: `make
// chaos` does that.
func TestShortStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes")
	}
	bin, err := build(t.Context(), t.TempDir(), "", false)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := run(t.Context(), options{
		db: "sqlite", duration: 5 * time.Second, jobs: 200, seed: seedOf(t), sweep: true, faults: true,
		binaries: bin, out: logged{t},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range sum.Broken {
		t.Error(b)
	}
	if sum.Kills+len(sum.Faults) == 0 || sum.Jobs+sum.Met < 200 || sum.Spans == 0 {
		t.Errorf("it was no storm: %+v", sum)
	}
}
