package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A trace is all that happened in a world, in order.
type trace struct {
	began time.Time

	mu    sync.Mutex
	lines []line // guarded by mu
}

// A line tells of one thing that happened.
type line struct {
	at   time.Duration // since the world began
	who  string
	what string
}

func (l line) String() string {
	return fmt.Sprintf("%12.6f %-8s %s", l.at.Seconds(), l.who, l.what)
}

// note adds a line. A job, a session or a claim stands in it with its whole id.
func (t *trace) note(who, format string, args ...any) {
	l := line{at: time.Since(t.began), who: who, what: fmt.Sprintf(format, args...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, l)
}

// about returns the lines that name an id; those of all for the zero one.
func (t *trace) about(id job.ID) (found []line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		if id.IsZero() || strings.Contains(l.what, id.String()) {
			found = append(found, l)
		}
	}
	return found
}

// digest is the same for two traces that tell the same, to the nanosecond and in the same order.
func (t *trace) digest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := fnv.New64a()
	for _, l := range t.lines {
		fmt.Fprintf(h, "%d %s %s\n", l.at, l.who, l.what)
	}
	return h.Sum64()
}

// logs are what a process logs: a dead one says nothing.
type logs struct{ p *process }

func (l logs) Enabled(context.Context, slog.Level) bool { return !l.p.dead() }
func (l logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logs) WithGroup(string) slog.Handler            { return l }

func (l logs) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.p.w.note(l.p.name, "says: %s%s", r.Message, &b)
	return nil
}
