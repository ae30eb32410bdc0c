package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Faketime returns the library of libfaketime, which has a program see another clock. It ends the
// test unless the machine has it. [StartPostgresWithClock] needs it, too.
func Faketime(tb testing.TB) (library string) {
	tb.Helper()
	library, err := faketime()
	if err != nil {
		missing(tb, err)
	}
	return library
}

// StartPostgresWithClock is [StartPostgres] for a server whose clock can be set. It needs
// libfaketime; without, the error has [ErrMissing] in its chain.
func StartPostgresWithClock(ctx context.Context) (*Server, error) {
	library, err := faketime()
	if err != nil {
		return nil, err
	}
	return startPostgres(ctx, &Server{faketime: library})
}

// SetClock has the clock of the server be wrong from now on, while it runs and when it is started
// again.
func (s *Server) SetClock(wrong time.Duration) error {
	text := fmt.Appendf(nil, "%+d\n", int64(wrong/time.Second))
	if err := os.WriteFile(s.clock()+".new", text, 0o644); err != nil { //nolint:gosec // it is the server's user who reads it
		return err
	}
	return os.Rename(s.clock()+".new", s.clock()) // somebody reads it with each look at the clock
}

func (s *Server) clock() string { return filepath.Join(s.dir, "clock") }

// faked is what the server is to have in its environment. The clock that it measures by goes on as
// ever.
func (s *Server) faked() []string {
	if s.faketime == "" {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + s.faketime, "FAKETIME_TIMESTAMP_FILE=" + s.clock(), "FAKETIME_DONT_FAKE_MONOTONIC=1",
		"FAKETIME_NO_CACHE=1",
	}
}

func faketime() (library string, err error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the pattern is well formed
			return found[0], nil
		}
	}
	return "", fmt.Errorf("libfaketime is %w: install it (Debian: faketime)", ErrMissing)
}
