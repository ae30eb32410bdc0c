package api

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/job"
)

// Limits bound what callers may ask for. A zero value is replaced by the default.
type Limits struct {
	// Body is the most bytes in the body of a request. Default: 64 MiB.
	Body int64
	// Jobs is the most jobs in one submission. Default: 10,000.
	Jobs int
	// Depth is how deep lists and maps may be nested in JSON. Default: 64.
	Depth int
	// Rate is the most requests per second of one principal. Default: no bound.
	Rate float64
	// Burst is how many requests one principal may make at once. Default: Rate, rounded up.
	Burst int
	// Streams is the most streams that follow, and calls that wait, at the same time. Default:
	// 1,000.
	Streams int
	// Wait is the longest time that one call may wait. Default: 5 minutes.
	Wait time.Duration
}

func (l *Limits) fill() {
	if l.Body <= 0 {
		l.Body = 64 << 20
	}
	if l.Jobs <= 0 {
		l.Jobs = 10_000
	}
	if l.Depth <= 0 {
		l.Depth = 64
	}
	if l.Burst <= 0 {
		l.Burst = max(1, int(math.Ceil(l.Rate)))
	}
	if l.Streams <= 0 {
		l.Streams = 1000
	}
	if l.Wait <= 0 {
		l.Wait = 5 * time.Minute
	}
}

const (
	maxURI    = 16 << 10 // bytes of a request's path and query
	maxHeader = 64 << 10 // bytes of a request's header
)

// checkSize refuses a request whose path, query or header is larger than any that is of use.
func checkSize(r *http.Request) error {
	if n := len(r.URL.Path) + len(r.URL.RawQuery); n > maxURI {
		return withStatus(http.StatusRequestURITooLong,
			job.Errorf(job.Invalid, "path and query have %d bytes: keep them to %d", n, maxURI))
	}
	size := 0
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > maxHeader {
		return withStatus(http.StatusRequestHeaderFieldsTooLarge,
			job.Errorf(job.Invalid, "the header has %d bytes: keep it to %d", size, maxHeader))
	}
	return nil
}

// A limiter bounds the requests of each principal.
type limiter struct {
	rate  float64
	burst int

	mu    sync.Mutex
	of    map[string]*rate.Limiter // guarded by mu
	swept time.Time                // guarded by mu: when idle principals were last forgotten
}

// wait returns how long a principal has to wait; 0: it may go on.
func (l *limiter) wait(principal string, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > time.Minute {
		for name, one := range l.of {
			if one.TokensAt(now) >= float64(l.burst) { // as good as new
				delete(l.of, name)
			}
		}
		l.swept = now
	}
	one := l.of[principal]
	if one == nil {
		if l.of == nil {
			l.of = map[string]*rate.Limiter{}
		}
		one = rate.NewLimiter(rate.Limit(l.rate), l.burst)
		l.of[principal] = one
	}
	r := one.ReserveN(now, 1)
	d := r.DelayFrom(now)
	if d > 0 {
		r.CancelAt(now)
	}
	return d
}

// slow refuses the request of a principal that asks too often.
func (h *handler) slow(_ http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context())
	if c.op.public || c.caller.Peer != "" { // which was counted where it came in
		return nil
	}
	d := h.limiter.wait(c.caller.Principal, time.Now())
	if d == 0 {
		return nil
	}
	return &statusError{
		status: http.StatusTooManyRequests, after: d,
		err: job.Errorf(job.Exhausted, "there are too many requests: keep to %g each second, and try again in %s",
			h.Limits.Rate, d.Round(time.Millisecond)),
	}
}

// stream takes one of the places for streams and for calls that wait. The caller gives it back.
func (h *handler) stream() (release func(), err error) {
	select {
	case h.streams <- struct{}{}:
		return func() { <-h.streams }, nil
	default:
		return nil, job.Errorf(job.Exhausted,
			"%d streams are open, which is the most: close one, or try again later", h.Limits.Streams)
	}
}

// waiting returns a context for a call that waits: it ends after d, or when the service stops.
func (h *handler) waiting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, min(d, h.Limits.Wait))
	go func() {
		select {
		case <-h.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stops reports whether the service stops.
func (h *handler) stops() bool {
	select {
	case <-h.Stopping:
		return true
	default:
		return false
	}
}

// parseWait reads how long a call is to wait.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := job.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalid("wait", text, "is not a duration", "give one such as 30s")
	}
	return d, nil
}
