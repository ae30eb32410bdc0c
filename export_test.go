package pawl

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// KeepEvents makes the feed of s keep so many events.
func (s *Service) KeepEvents(n int) { s.feed.keep = n }

// Store is what s keeps its jobs in.
func (s *Service) Store() store.Store { return s.cfg.Store }

// Blocks says what keeps a job from being made ready or launched.
func (s *Service) Blocks(ctx context.Context, j *job.Job) *job.Block { return s.blocks(ctx, j) }
