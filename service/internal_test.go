package service

import (
	"context"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// KeepEvents makes the feed of s keep so many events.
func (s *Service) KeepEvents(n int) { s.feed.Keep = n }

// Store is what s keeps its jobs in.
func (s *Service) Store() store.Store { return s.cfg.Store }

// Blocks says what keeps a job from being made ready or launched.
func (s *Service) Blocks(ctx context.Context, j *job.Job) *job.Block { return s.blocks(ctx, j) }

// TestPagesHaveABoundInBytes holds what a reader of the past has in memory.
func TestPagesHaveABoundInBytes(t *testing.T) {
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
}
