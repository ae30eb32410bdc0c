package feed

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TestBoundInBytes holds what the feed keeps for all.
func TestBoundInBytes(t *testing.T) {
	f := New(nil, nil, "", nil)
	f.grown = make(chan struct{})
	for range 100 {
		events := make([]store.Event, 10)
		for i := range events {
			events[i].Event = job.Event{Data: make([]byte, 64<<10)}
		}
		f.add(&Batch{Events: events})
		if f.bytes > keptBytes {
			t.Fatalf("%d bytes are kept", f.bytes)
		}
	}
	if f.count != 100 || f.events != 10*len(f.batches) || len(f.batches) < 40 {
		t.Errorf("%d batches with %d events of %d are kept", len(f.batches), f.events, f.count)
	}
	if b, _, err := f.After(99); b == nil || err != nil {
		t.Error("the newest is not kept")
	}
}
