package node

import (
	"context"
	"log/slog"
)

// logOf returns the log for what a system has to say. Whoever runs this process may not care.
func (s *systems) logOf(name string) *slog.Logger {
	if s.concerns == nil {
		return s.log
	}
	return slog.New(concern{s.log.Handler(), func() bool { return s.concerns(name) }})
}

// A concern is a log that is silent while it concerns nobody.
type concern struct {
	slog.Handler
	holds func() bool
}

func (c concern) Enabled(ctx context.Context, l slog.Level) bool {
	return c.holds() && c.Handler.Enabled(ctx, l)
}

func (c concern) WithAttrs(all []slog.Attr) slog.Handler {
	return concern{c.Handler.WithAttrs(all), c.holds}
}

func (c concern) WithGroup(name string) slog.Handler {
	return concern{c.Handler.WithGroup(name), c.holds}
}
