// Package http reads inputs from the web, by http: and https: URLs. It implements [files.Source].
//
// A final answer of a server is an error: the content is missing (404, 410) or may not be read
// (401, 403 and other refusals), the certificate is not trusted, or a redirect leads elsewhere.
// Trouble that may clear is a [job.Block]:
//
//	FILES_UNAVAILABLE     the server failed (5xx), or asks to come back later (429, 408)
//	HOST_UNREACHABLE      its name cannot be resolved, or nothing answers at its address
//	CONNECTION_TIMEOUT    no connection, or no answer, came in time
//	TRANSFER_INTERRUPTED  an answer broke off, or stalled
//
// The tester is [TesterTCP] for HOST_UNREACHABLE and for a connection that timed out, and
// [TesterHTTP] for the rest.
//
// All jobs that a server blocks are one group, also if they read different files: 500 jobs with an
// input each make one request per interval instead of 500. So the tester asks the origin of the
// URL, and the origin is healthy if it answers at all, even with 404. If the origin is healthy
// while the inputs of the jobs fail, the jobs block again, and the pace of the group halves each
// time. That costs the server less than a test of each URL.
package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/job"
)

// Names of testers. TesterHTTP tests whether the server of a "url" is well. TesterTCP tests whether
// a connection to a "host" and "port" can be made.
const (
	TesterHTTP = "http"
	TesterTCP  = "tcp"
)

// Config configures a Source. The zero value may not go anywhere.
type Config struct {
	// Rule says which addresses it may reach.
	Rule egress.Rule
	// Header is how long it waits for the header of an answer. Default: a minute.
	Header time.Duration
	// Stall is how long a transfer may stand still. In each such time at least 64 KiB must come.
	// Default: a minute.
	Stall time.Duration
	// Most is the most bytes that a file may have. Default: 100 GiB.
	Most int64
}

// Source reads from the web.
type Source struct {
	client *http.Client
	stall  time.Duration
	most   int64
}

var _ files.Source = (*Source)(nil)

// New returns a Source. It makes no request.
func New(c Config) *Source {
	return &Source{
		client: c.Rule.Client(cmp.Or(c.Header, time.Minute)), stall: cmp.Or(c.Stall, time.Minute),
		most: cmp.Or(c.Most, 100<<30),
	}
}

// Close closes idle connections. The source can still be used.
func (s *Source) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// Stat makes a HEAD request. If the server refuses that, Stat asks for the first byte: some servers
// do not know HEAD, and some URLs are signed for one method.
func (s *Source) Stat(ctx context.Context, url string) (int64, error) {
	res, err := s.ask(ctx, http.MethodHead, url, "")
	if err == nil {
		res.Body.Close()
	}
	var refused *refusal
	switch {
	case err == nil:
		return res.ContentLength, nil
	case !errors.As(err, &refused) || errors.Is(err, fs.ErrNotExist):
		return -1, err
	}
	res, err = s.ask(ctx, http.MethodGet, url, "bytes=0-0")
	switch {
	// so a server answers of an empty file
	case errors.As(err, &refused) && refused.status == http.StatusRequestedRangeNotSatisfiable:
		return 0, nil
	case err != nil:
		return -1, err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusPartialContent {
		return res.ContentLength, nil
	}
	_, total, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil || size < 0 {
		return -1, nil //nolint:nilerr // it does not tell
	}
	return size, nil
}

// Open makes a GET request for the whole content.
func (s *Source) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	res, err := s.ask(ctx, http.MethodGet, url, "") // body closes it
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if res.ContentLength > s.most {
		res.Body.Close()
		cancel(nil)
		return nil, s.tooLarge(res.Request.URL)
	}
	b := &body{
		ReadCloser: res.Body, from: s, at: res.Request.URL, size: res.ContentLength, ctx: ctx,
		cancel: cancel, left: s.stall,
	}
	b.watch, b.stall = time.AfterFunc(s.stall, func() { cancel(errStalled) }), s.stall
	b.watch.Stop()
	return b, nil
}

func (s *Source) tooLarge(at *url.URL) error {
	return job.Errorf(job.Invalid, "%s: the file has more than %d bytes, which is all that this service takes "+
		"(http_size)", at.Host, s.most)
}

// A refusal is an answer that stands.
type refusal struct {
	status int
	text   string
	is     error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.is }

// ask returns an answer that has what was asked for, once its head is there.
func (s *Source) ask(ctx context.Context, method, from, part string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, from, http.NoBody)
	if err != nil {
		return nil, job.Errorf(job.Invalid, "%s: %w", from, err)
	}
	if part != "" {
		req.Header.Set("Range", part)
	}
	req.Header.Set("User-Agent", "pawl")
	res, err := s.client.Do(req)
	if err != nil {
		return nil, unanswered(ctx, req.URL, err)
	}
	if res.StatusCode == http.StatusOK || part != "" && res.StatusCode == http.StatusPartialContent {
		return res, nil
	}
	res.Body.Close()
	said := fmt.Sprintf("%s answers %d", res.Request.URL.Host, res.StatusCode)
	if text := http.StatusText(res.StatusCode); text != "" {
		said += " (" + text + ")"
	}
	switch code := res.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return nil, &fs.PathError{Op: method, Path: from, Err: &refusal{code, said, fs.ErrNotExist}}
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusProxyAuthRequired:
		return nil, &refusal{code, said, fs.ErrPermission}
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout,
		code >= 500 && code != http.StatusNotImplemented && code != http.StatusHTTPVersionNotSupported:
		return nil, busy(res, said)
	}
	return nil, &refusal{res.StatusCode, said, job.Errorf(job.Invalid, "%s", said)}
}

// busy is what blocks a job whose server asks to come back later. It is not tested before the time
// that the server has named, up to an hour.
func busy(res *http.Response, said string) error {
	b := block(job.FilesUnavailable, res.Request.URL, said)
	after := egress.RetryAfter(res.Header)
	if after <= 0 {
		return b
	}
	b.Message += fmt.Sprintf(", and asks to come back after %v", after)
	b.After = job.Duration(after)
	return b
}

// block is what blocks jobs at the origin of a URL.
func block(code job.Code, at *url.URL, message string) *job.Block {
	return &job.Block{
		Code: code, Message: message, Tester: TesterHTTP,
		Params: map[string]string{"url": at.Scheme + "://" + strings.ToLower(at.Host) + "/"},
	}
}

// unanswered says why no answer came.
func unanswered(ctx context.Context, at *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	why := err
	// it repeats the method and the URL, and where a redirect led it is that
	if e, ok := errors.AsType[*url.Error](err); ok {
		why = e.Err
		if to, parseErr := url.Parse(e.URL); parseErr == nil && to.Host != "" {
			at = to
		}
	}
	said := at.Host + ": " + why.Error()
	if job.Shortage(why) {
		return fmt.Errorf("%s: %w", at.Host, why)
	}
	if job.KindOf(why) == job.Invalid {
		return job.Errorf(job.Invalid, "%s", said)
	}
	dns, unnamed := errors.AsType[*net.DNSError](why)
	op, dialed := errors.AsType[*net.OpError](why)
	dialed = dialed && op.Op == "dial"
	late := os.IsTimeout(why)
	switch {
	case unnamed && strings.HasSuffix(dns.Err, syscall.EMFILE.Error()): // the resolver keeps the text alone
		return fmt.Errorf("%s: its name cannot be resolved: %w", at.Hostname(), syscall.EMFILE)
	case unnamed && !dns.IsTimeout:
		return tcp(job.HostUnreachable, at, at.Hostname()+": its name cannot be resolved: "+dns.Err)
	case unnamed || dialed && late:
		return tcp(job.ConnectionTimeout, at, at.Host+": no connection within the time that there is for one")
	case dialed:
		return tcp(job.HostUnreachable, at, at.Host+": "+op.Err.Error())
	case untrusted(why):
		return job.Errorf(job.Invalid, "%s", said)
	case late:
		return block(job.ConnectionTimeout, at, at.Host+": no answer within the time that there is for one")
	case errors.Is(why, io.EOF), errors.Is(why, io.ErrUnexpectedEOF), ofNetwork(why):
		return block(job.TransferInterrupted, at, at.Host+": the connection broke off before it answered")
	}
	return job.Errorf(job.Invalid, "%s", said)
}

func ofNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}

func tcp(code job.Code, at *url.URL, message string) *job.Block {
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	return &job.Block{
		Code: code, Message: message, Tester: TesterTCP,
		Params: map[string]string{"host": strings.ToLower(at.Hostname()), "port": port},
	}
}

// untrusted reports whether TLS failed for a reason that stands.
func untrusted(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	op, said := errors.AsType[*net.OpError](err) // an alert comes as one
	return unverified || noTLS || said && (op.Op == "remote error" || op.Op == "local error")
}

var errStalled = errors.New("the transfer stood still")

// A body is an answer on its way.
type body struct {
	io.ReadCloser
	from   *Source
	at     *url.URL // where it comes from
	size   int64    // below 0: not known
	n      int64
	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  *time.Timer
	stall  time.Duration
	left   time.Duration // of stall, in which the piece must come
	piece  int           // bytes of it that came
}

// slowest is how many bytes come in the time for which a transfer may stand still.
const slowest = 64 << 10

func (b *body) Read(p []byte) (int, error) {
	begun := time.Now()
	b.watch.Reset(max(b.left, 1)) // of the time in which nobody reads the server knows nothing
	n, err := b.ReadCloser.Read(p)
	b.watch.Stop()
	b.n += int64(n)
	b.left -= time.Since(begun)
	if b.piece += n; b.piece >= slowest {
		b.piece, b.left = 0, b.stall
	}
	if b.n > b.from.most {
		return n, b.from.tooLarge(b.at)
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	cause := context.Cause(b.ctx)
	stalled := errors.Is(cause, errStalled)
	if cause != nil && !stalled {
		return n, cause
	}
	said := fmt.Sprintf("%s: the transfer broke off after %d bytes", b.at.Host, b.n)
	if b.size >= 0 {
		said += fmt.Sprintf(" of %d", b.size)
	}
	if stalled {
		said = fmt.Sprintf("%s: the transfer stood still for %v after %d bytes", b.at.Host, b.stall, b.n)
		if time.Since(begun) < b.stall/2 { // it came, in drops
			said = fmt.Sprintf("%s: the transfer brought less than %d bytes in %v after %d bytes", b.at.Host,
				slowest, b.stall, b.n)
		}
	}
	return n, block(job.TransferInterrupted, b.at, said)
}

func (b *body) Close() error {
	b.watch.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
