package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-jobs/pawl/job"
)

// Limits bound what callers may ask for. Zero values stand for the defaults.
type Limits struct {
	Body    int64         // bytes of a request's body; 64 MiB by default
	Jobs    int           // of one submission; 10,000 by default
	Depth   int           // of JSON: how many lists and maps may stand in each other; 64 by default
	Rate    float64       // requests per second of one principal; 0: no bound
	Burst   int           // requests of one principal at once; Rate, rounded up, by default
	Streams int           // that follow, and calls that wait, at the same time; 1,000 by default
	Wait    time.Duration // for which one call may wait; 5 minutes by default
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
		return withStatus(http.StatusRequestURITooLong, job.Errorf(job.Invalid, "path and query have %d bytes: keep them to %d", n, maxURI))
	}
	size := 0
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > maxHeader {
		return withStatus(http.StatusRequestHeaderFieldsTooLarge, job.Errorf(job.Invalid, "the header has %d bytes: keep it to %d", size, maxHeader))
	}
	return nil
}

// A limiter bounds the requests of each principal.
type limiter struct {
	rate  float64
	burst int

	mu    sync.Mutex
	of    map[string]*rate.Limiter // guarded by mu
	swept time.Time                // guarded by mu: when those who rest were forgotten
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
	if c.op.public {
		return nil
	}
	d := h.limiter.wait(c.caller.Principal, time.Now())
	if d == 0 {
		return nil
	}
	return &statusError{
		status: http.StatusTooManyRequests, after: d,
		err: job.Errorf(job.Exhausted, "there are too many requests: keep to %g each second, and try again in %s", h.Limits.Rate, d.Round(time.Millisecond)),
	}
}

// stream takes one of the places for streams and for calls that wait. The caller gives it back.
func (h *handler) stream() (release func(), err error) {
	select {
	case h.streams <- struct{}{}:
		return func() { <-h.streams }, nil
	default:
		return nil, job.Errorf(job.Exhausted, "%d streams are open, which is the most: close one, or try again later", h.Limits.Streams)
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
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalid("wait", text, "is not a duration", "give one such as 30s")
	}
	return d, nil
}

const (
	readGrace   = 30 * time.Second // in which the first bytes of a body must come
	readSlowest = 8 << 10          // bytes in a second that come from then on
)

// readBody reads the body of a request for an operation that takes one, and refuses one that is too large, too slow, too
// deep, or no JSON at all.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context())
	if c.op.body == nil {
		return nil
	}
	if err := checkType(r); err != nil {
		return err
	}
	tooLarge := func() error {
		w.Header().Set("Connection", "close")
		return withStatus(http.StatusRequestEntityTooLarge, job.Errorf(job.Invalid, "the body has more than %d bytes: send less at once, and pass large data as input files", h.Limits.Body))
	}
	if r.ContentLength > h.Limits.Body {
		return tooLarge()
	}
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:errcheck // of the server's own "100 Continue"
	in := &steady{from: http.MaxBytesReader(w, r.Body, h.Limits.Body), control: control, begun: time.Now()}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead) // the length is only claimed
	_, err := body.ReadFrom(in)
	control.SetReadDeadline(time.Time{}) //nolint:errcheck // it has been set, or cannot be
	var large *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &large):
		return tooLarge()
	case errors.As(err, &timeout) && timeout.Timeout():
		w.Header().Set("Connection", "close")
		return withStatus(http.StatusRequestTimeout, job.Errorf(job.Unavailable, "the body comes too slowly: it must begin within %s and bring %d bytes a second", readGrace, readSlowest))
	case err != nil:
		return withStatus(http.StatusBadRequest, job.Errorf(job.Invalid, "the body is broken off: send it again"))
	case body.Len() == 0:
		return withStatus(http.StatusBadRequest, job.Errorf(job.Invalid, "the request body is required: send JSON"))
	}
	c.body = body.Bytes()
	if depth(c.body) > h.Limits.Depth {
		return invalid("(body)", "", "has lists and maps more than "+fmt.Sprint(h.Limits.Depth)+" deep in each other", "write it flatter")
	}
	return nil
}

// checkType refuses a body that says that it is something else than JSON.
func checkType(r *http.Request) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return withStatus(http.StatusUnsupportedMediaType, job.Errorf(job.Invalid, "Content-Encoding (%s): is not taken: send the body as it is", e))
	}
	text := r.Header.Get("Content-Type")
	if text == "" {
		return nil
	}
	t, _, err := mime.ParseMediaType(text)
	if err != nil || t != jsonType && !(strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")) {
		return withStatus(http.StatusUnsupportedMediaType, job.Errorf(job.Invalid, "Content-Type (%s): is not taken: send JSON with Content-Type: application/json", text))
	}
	return nil
}

// steady reads a body whose bytes must keep coming.
type steady struct {
	from    io.Reader
	control *http.ResponseController
	begun   time.Time
	read    int64
}

func (s *steady) Read(p []byte) (int, error) {
	allowed := readGrace + time.Duration(s.read/readSlowest)*time.Second
	s.control.SetReadDeadline(s.begun.Add(allowed)) //nolint:errcheck // what is not a connection knows no deadlines
	n, err := s.from.Read(p)
	s.read += int64(n)
	return n, err
}

// depth returns how deep lists and maps stand in each other in JSON.
func depth(text []byte) (deepest int) {
	now, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}', c == ']':
			now--
		}
	}
	return deepest
}
