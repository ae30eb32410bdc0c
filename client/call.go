package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A request is one call of the API.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any
	once         bool // it would be carried out again: it is repeated only if the service has not begun with it
}

// An outcome is how a call that succeeded has gone.
type outcome struct {
	status   int
	header   http.Header
	repeated bool // the service may have carried it out more than once
}

// call asks and reads the answer into one value, unless that is nil.
func (c *Client) call(ctx context.Context, r request, answer any) (o outcome, err error) {
	o.repeated, err = c.try(ctx, r, func(resp *http.Response) error {
		defer resp.Body.Close()
		o.status, o.header = resp.StatusCode, resp.Header
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return broken(ctx, err)
		}
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(b, answer); err != nil {
			return job.Errorf(job.Internal,
				"the answer of %s is not Pawl's: check that this is the address of a service: %w", c.base, err)
		}
		return nil
	})
	return o, err
}

// fetch reads the answer to a GET.
func fetch[T any](ctx context.Context, c *Client, path string, q url.Values) (answer T, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: path, query: q}, &answer)
	return answer, err
}

// open asks for something whose body the caller reads and closes.
func (c *Client) open(ctx context.Context, path string, q url.Values, header http.Header) (resp *http.Response,
	err error,
) {
	_, err = c.try(ctx, request{method: http.MethodGet, path: path, query: q, header: header},
		func(r *http.Response) error {
			resp = r
			return nil
		})
	return resp, err
}

// try sends a request until it has an answer that take can take, or there is no use in another try.
// It reports whether the service may have carried the request out before the last one.
func (c *Client) try(ctx context.Context, r request, take func(*http.Response) error) (repeated bool, err error) {
	var body []byte
	if r.body != nil {
		if body, err = job.Encode(r.body); err != nil {
			return false, job.Errorf(job.Invalid, "request: %w", err)
		}
	}
	for n := 1; ; n++ {
		resp, err := c.send(ctx, r, body) //nolint:bodyclose // take closes it, or hands it on
		if err == nil {
			err = take(resp)
		}
		if err == nil {
			return repeated, nil
		}
		f := failureOf(err)
		begun := repeated || f.begun
		last := &failure{err, f.passes, begun, f.after}
		if ctx.Err() != nil || n >= c.tries || !f.passes || r.once && f.begun || f.after > longestAfter {
			return repeated, last
		}
		repeated = begun
		if stop := sleep(ctx, max(pause(n), f.after)); stop != nil {
			return repeated, last // the reason why it has come to nothing says more than that the time is over
		}
	}
}

// longestAfter is for how long a service is waited for that says when to come again.
const longestAfter = time.Minute

// A failure says what may be done about an error.
type failure struct {
	error
	passes bool          // the same request may succeed later
	begun  bool          // the service may have carried it out
	after  time.Duration // not before
}

func (f *failure) Unwrap() error { return f.error }

// MayHaveBegun reports whether the service may have carried out a call that failed with err. It is
// false where no try reached the service, or where it answered that it took nothing (429).
func MayHaveBegun(err error) bool { return err != nil && failureOf(err).begun }

func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{begun: true}
}

// pause is how long to wait after try n: 200 ms, and twice as long each time, up to 5 s. Chance
// takes up to half of it away, so that many clients do not return at the same moment.
func pause(n int) time.Duration {
	const first, longest = 200 * time.Millisecond, 5 * time.Second
	d := longest
	if n < 6 {
		d = min(first<<(n-1), longest)
	}
	return d/2 + rand.N(d/2)
}

// sleep waits, unless ctx ends before that.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send asks once. An answer that is an error becomes one.
func (c *Client) send(ctx context.Context, r request, body []byte) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, content)
	if err != nil {
		return nil, job.Errorf(job.Invalid, "request: %w", err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, broken(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refusal(resp)
}

// broken is the error of a connection; an end of ctx is told as that.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	reached := !errors.As(err, &op) || op.Op != "dial"
	return &failure{error: job.Errorf(job.Unavailable, "ask the service: %w", err), passes: true, begun: reached}
}

// seconds reads a Retry-After, which is a number of seconds or a date.
func seconds(value string) time.Duration {
	if n, err := strconv.Atoi(value); err == nil {
		return time.Duration(max(0, n)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return time.Until(at)
	}
	return 0
}
