package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

const (
	readGrace   = 30 * time.Second // in which the first bytes of a body must come
	readSlowest = 8 << 10          // bytes in a second that come from then on

	maxValues = 2_000_000 // of lists and maps in a body: two bytes of it may be one, which takes a hundred in memory
)

// readBody reads the body of a request if its operation takes one. It refuses a body that is too
// large, too slow or nested too deep, that is not JSON by its type, or that two readers could read
// differently.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context())
	if c.op.body == nil {
		return nil
	}
	if err := checkType(r); err != nil {
		return err
	}
	tooLarge := withStatus(http.StatusRequestEntityTooLarge, job.Errorf(job.Invalid, "the body has more than %d "+
		"bytes: send less at once, and pass large data as input files", h.Limits.Body))
	if r.ContentLength > h.Limits.Body {
		return tooLarge
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
		return tooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		w.Header().Set("Connection", "close")
		return withStatus(http.StatusRequestTimeout,
			job.Errorf(job.Unavailable, "the body comes too slowly: it must begin within %s and bring %d bytes a second",
				readGrace, readSlowest))
	case err != nil:
		return withStatus(http.StatusBadRequest, job.Errorf(job.Invalid, "the body is broken off: send it again"))
	case body.Len() == 0:
		return withStatus(http.StatusBadRequest, job.Errorf(job.Invalid, "the request body is required: send JSON"))
	}
	c.body = body.Bytes()
	deepest, values := job.Measure(c.body)
	switch {
	case !utf8.Valid(c.body):
		return invalid("(body)", "", "is not text in UTF-8", "encode it so")
	case deepest > h.Limits.Depth:
		return invalid("(body)", "", "has lists and maps more than "+itoa(h.Limits.Depth)+" deep in each other",
			"write it flatter")
	case values > maxValues:
		return invalid("(body)", itoa(values)+" values in lists and maps", "are too many",
			"keep to "+itoa(maxValues)+", and send less at once")
	}
	if at := job.Repeated(c.body); at != "" {
		return invalid(at, "", "stands there twice", "keep one of them")
	}
	return nil
}

// checkType refuses a body that says that it is something else than JSON.
func checkType(r *http.Request) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return withStatus(http.StatusUnsupportedMediaType,
			job.Errorf(job.Invalid, "Content-Encoding (%s): is not supported: send the body as it is", e))
	}
	text := r.Header.Get("Content-Type")
	if text == "" {
		return nil
	}
	t, _, err := mime.ParseMediaType(text)
	if err != nil || t != jsonType && !(strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")) {
		return withStatus(http.StatusUnsupportedMediaType,
			job.Errorf(job.Invalid, "Content-Type (%s): is not supported: send JSON with Content-Type: application/json", text))
	}
	return nil
}

// linger reads what is still sent of a body after [writeProblem], for a while. A client that sends
// all of it before it reads would else find its connection reset, and no answer.
func (a *answer) linger(r *http.Request) {
	whole, ends := a.Header().Get("Content-Length") != "", a.Header().Get("Connection") != ""
	if a.status >= http.StatusBadRequest && whole && !ends && r.Header.Get("Expect") == "" {
		_ = a.note(a.control.Flush())                        // the client has gone
		a.control.SetReadDeadline(time.Now().Add(readGrace)) //nolint:errcheck // what is not a connection knows none
		io.Copy(io.Discard, r.Body)                          //nolint:errcheck // the client has gone, or sends too much
	}
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
