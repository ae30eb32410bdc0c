package service

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// KeepEvents makes the feed of s keep so many events.
func (s *Service) KeepEvents(n int) { s.feed.keep = n }

// Store is what s keeps its jobs in.
func (s *Service) Store() store.Store { return s.cfg.Store }

// Blocks says what keeps a job from being made ready or launched.
func (s *Service) Blocks(ctx context.Context, j *job.Job) *job.Block { return s.blocks(ctx, j) }

// TestReadersHaveABoundInBytes holds what a reader of the past has in memory, and what the feed
// keeps for all.
func TestReadersHaveABoundInBytes(t *testing.T) {
	page := func(events, bytes int) []store.Event {
		list := make([]store.Event, events)
		for i := range list {
			list[i].Event = job.Event{Data: make([]byte, bytes)}
		}
		return list
	}
	if got := nextPage(page(16, 100), 16); got != 32 {
		t.Errorf("after a small page %d events are read", got)
	}
	if got := nextPage(page(256, 100), 256); got != 256 {
		t.Errorf("after a full page %d events are read", got)
	}
	if got := nextPage(page(256, 64<<10), 256); got > 4 || got < 1 {
		t.Errorf("after a page of much evidence %d events are read", got)
	}
	if got := nextPage(page(1, 20<<20), 16); got != 1 {
		t.Errorf("after an event as no door lets in %d events are read", got)
	}
	f := feed{keep: keptEvents, most: keptBytes, grown: make(chan struct{})}
	for range 100 {
		f.add(&batch{events: page(10, 64<<10)})
		if f.bytes > keptBytes {
			t.Fatalf("%d bytes are kept", f.bytes)
		}
	}
	if f.count != 100 || f.events != 10*len(f.batches) || len(f.batches) < 40 {
		t.Errorf("%d batches with %d events of %d are kept", len(f.batches), f.events, f.count)
	}
	if b, _, err := f.after(99); b == nil || err != nil {
		t.Error("the newest is not kept")
	}
}

// TestLastLinesHaveABound reads the end of logs with lines as long as programs like.
func TestLastLinesHaveABound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 1 << 36
	if err := f.Truncate(size); err != nil { // 64 GiB without a newline
		t.Fatal(err)
	}
	for _, lines := range []int{1, 2, 1000, 1 << 40} {
		start, cut, err := lastLines(f, size, lines)
		if want := int64(size - min(lines, 64)<<20); start != want || err != nil ||
			!strings.HasSuffix(cut, " bytes of the file are before this\n") {
			t.Errorf("%d lines: from %d, want %d; %q, %v", lines, start, want, cut, err)
		}
	}
	text := []byte(strings.Repeat("line\n", 300_000))
	for lines, want := range map[int]int{
		1: len(text) - 5, 3: len(text) - 15, 299_999: 5, 300_000: 0, 300_001: 0,
		0: 0,
	} {
		if start, cut, err := lastLines(bytes.NewReader(text), int64(len(text)), lines); start != int64(want) ||
			cut != "" || err != nil {
			t.Errorf("%d lines: from %d, want %d; %q, %v", lines, start, want, cut, err)
		}
	}
}
