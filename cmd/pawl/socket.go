package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
)

// socketName is the socket in a data folder on which the process that runs jobs there can be asked: it serves the API.
const socketName = "socket"

// socketIn returns a name of the socket in a folder, valid until close. The name of a socket has 107 bytes at most and
// the folder's may be longer, so it is reached through a descriptor of the folder.
func socketIn(dir string) (name string, close func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), f.Close, nil
}

// dial connects to the process that runs jobs in a folder.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	name, release, err := socketIn(dir)
	if err != nil {
		return nil, err
	}
	defer release() //nolint:errcheck // it was only read
	return (&net.Dialer{}).DialContext(ctx, "unix", name)
}

// reach returns the way to the process that runs jobs in a folder. The error says that none listens there.
func reach(ctx context.Context, dir string) (http.RoundTripper, error) {
	c, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	c.Close()
	return client.Dialed(func(ctx context.Context) (net.Conn, error) { return dial(ctx, dir) }), nil
}

// quiet is the log of what the owner of a folder asks: they are told what went wrong, all of it.
var quiet = slog.New(slog.DiscardHandler)

// here is the way to this process itself.
func (n *node) here() http.RoundTripper {
	return client.Local(api.New(api.Config{Service: n.Service, Version: version, Log: quiet}))
}

// client returns a client of this process itself.
func (n *node) client() *client.Client { return client.New(n.here()) }

// listen lets other commands on the folder ask this process. When ctx ends, those who wait for something are answered
// as it stands then.
func (n *node) listen(ctx context.Context) (stop func(), err error) {
	l, err := n.socket(ctx)
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	srv := newServer(ctx, api.New(api.Config{Service: n.Service, Stopping: stopping, Version: version, Log: quiet}))
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l) //nolint:errcheck // it ends with Close
	}()
	return func() {
		shutDown(ctx, srv, 15*time.Second) // a program gets 10 s to end
		<-done
	}, nil
}

// newServer returns a server of HTTP with bounds on what a client can hold: a header in time and not too large, and a
// connection that is not used not for long. Handlers have bounds of their own for bodies and answers.
func newServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// shutDown stops a server: whoever asked is answered, if that takes no longer than patience.
func shutDown(ctx context.Context, srv *http.Server, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		srv.Close()
	}
}

// socket listens on the folder's socket.
func (n *node) socket(ctx context.Context) (net.Listener, error) {
	name, release, err := socketIn(n.dir)
	if err != nil {
		return nil, err
	}
	l, err := listenAt(ctx, name)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return &heldListener{l, release}, nil
}

// A heldListener releases its name when it is closed, not before: the name is removed with it.
type heldListener struct {
	net.Listener
	release func() error
}

func (l *heldListener) Close() error { return errors.Join(l.Listener.Close(), l.release()) }

// listenAt listens on a socket for its owner only. The caller has the folder's lock, so a socket that is there is dead.
func listenAt(ctx context.Context, name string) (net.Listener, error) {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
