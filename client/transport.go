package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Unix reaches a service through the Unix socket whose path is name.
func Unix(name string) http.RoundTripper {
	return Dialed(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", name)
	})
}

// Dialed reaches a service through connections that dial makes.
func Dialed(dial func(context.Context) (net.Conn, error)) http.RoundTripper {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
	}
}

// Local reaches a service in this process. Each request is a call of its handler in a goroutine,
// which has ended when the body of the answer is closed. Answers that stream do so here too.
func Local(h http.Handler) http.RoundTripper { return local{h} }

type local struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (l local) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := context.Cause(req.Context()); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	ctx, stop := context.WithCancel(req.Context())
	r, w := io.Pipe()
	a := &answer{header: http.Header{}, body: w, begun: make(chan struct{})}
	in := req.Clone(ctx)
	in.RequestURI = req.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer in.Body.Close()
		defer func() { a.end(recover()) }()
		l.handler.ServeHTTP(a, in)
	}()
	body := &localBody{PipeReader: r, stop: stop, done: done}
	select {
	case <-a.begun:
	case <-ctx.Done():
		body.Close()
		return nil, context.Cause(req.Context())
	}
	resp := &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body, ContentLength: -1, Request: req,
	}
	if n := a.sent.Get("Content-Length"); n != "" {
		if _, err := fmt.Sscan(n, &resp.ContentLength); err != nil {
			resp.ContentLength = -1
		}
	}
	return resp, nil
}

// localBody is the body of an answer. A read that the end of the request's context interrupts says
// so.
type localBody struct {
	*io.PipeReader
	stop context.CancelFunc
	done chan struct{}
}

func (b *localBody) Close() error {
	b.stop()
	err := b.PipeReader.Close()
	<-b.done
	return err
}

// answer is the [http.ResponseWriter] of a local request.
type answer struct {
	header http.Header
	body   *io.PipeWriter

	once   sync.Once
	begun  chan struct{} // closed when status and sent are there
	status int
	sent   http.Header
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	})
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// Flush implements [http.Flusher]: nothing is kept back but the header.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// end ends the body; with an error, where the handler panicked.
func (a *answer) end(panicked any) {
	var err error
	switch p := panicked.(type) {
	case nil:
	case error:
		err = fmt.Errorf("the answer was cut off: %w", p)
		if errors.Is(p, http.ErrAbortHandler) {
			err = io.ErrUnexpectedEOF
		}
	default:
		err = fmt.Errorf("the answer was cut off: %v", p)
	}
	if err == nil {
		a.WriteHeader(http.StatusOK)
	} else {
		a.WriteHeader(http.StatusInternalServerError)
	}
	a.body.CloseWithError(err)
}
