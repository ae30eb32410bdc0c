package pawl

// KeepEvents makes the feed of s keep so many events.
func (s *Service) KeepEvents(n int) { s.feed.keep = n }
