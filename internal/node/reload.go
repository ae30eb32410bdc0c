package node

// reload reads the configuration again and takes over what needs no restart. One that is wrong
// changes nothing.
func (s *serving) reload() {
	next, err := s.reread()
	if err != nil {
		s.log.Error("configuration not reloaded: nothing has changed", "error", err)
		return
	}
	old := s.config.Load()
	now, later := old.Changes(next)
	if len(now) > 0 {
		cfg := old.Reloaded(next)
		s.config.Store(cfg)
		s.level.Set(cfg.Log.Level)
		s.observe.SetSlow(cfg.Log.Slow)
		s.open()
	}
	if s.pair != nil {
		s.pair.Check() //nolint:errcheck // it is told of
	}
	s.log.Info("configuration reloaded", "changed", now, "needs a restart", later)
}

// tellPair says what became of files of the certificate that have changed.
func (s *serving) tellPair(err error) {
	if err != nil {
		s.log.Error("the certificate has changed and cannot be used; the one before stays in use", "error", err)
		return
	}
	s.log.Info("the certificate has changed and is in use")
}
