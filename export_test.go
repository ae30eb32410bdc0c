package pawl

import "github.com/pawl-jobs/pawl/store"

// KeepEvents makes the feed of s keep so many events.
func (s *Service) KeepEvents(n int) { s.feed.keep = n }

// Store is what s keeps its jobs in.
func (s *Service) Store() store.Store { return s.cfg.Store }
