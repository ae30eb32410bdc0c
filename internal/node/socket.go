package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/ingress"
)

// socketName is the socket in a data folder on which the process that runs jobs there can be asked:
// it serves the API. Where several processes share the folder each has one of its own, whose name
// ends with its pid.
const socketName = "socket"

// A socketDir is a folder that is open, so that sockets in it can be named: the name of a socket
// has 107 bytes at most and the folder's may be longer, so they are reached through its descriptor.
type socketDir struct{ *os.File }

func openSockets(dir string) (socketDir, error) {
	dir, err := folder.Sockets(dir)
	if err != nil {
		return socketDir{}, err
	}
	f, err := os.Open(dir)
	return socketDir{f}, err
}

func (d socketDir) socket(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
}

// dial connects to a process that runs jobs in a folder.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	d, err := openSockets(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	c, failed := dialer.DialContext(ctx, "unix", d.socket(socketName))
	if failed == nil {
		return c, nil
	}
	for _, name := range d.shared() {
		if c, err := dialer.DialContext(ctx, "unix", d.socket(name)); err == nil {
			return c, nil
		}
	}
	return nil, failed
}

// shared returns the names of the sockets of processes that share the folder, in the order of
// these.
func (d socketDir) shared() []string {
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, socketName+"-") })
	slices.Sort(names)
	return names
}

// sweep removes the sockets of processes that died.
func (d socketDir) sweep(ctx context.Context) {
	var dialer net.Dialer
	for _, name := range d.shared() {
		c, err := dialer.DialContext(ctx, "unix", d.socket(name))
		if err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			os.Remove(d.socket(name))
		}
	}
}

// Reach returns the way to the process that runs jobs in a folder. The error says that none listens
// there.
func Reach(ctx context.Context, dir string) (http.RoundTripper, error) {
	c, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	c.Close()
	return client.Dialed(func(ctx context.Context) (net.Conn, error) { return dial(ctx, dir) }), nil
}

// QuietLog is the log of what the owner of a folder asks: they are told what went wrong, all of it.
var QuietLog = slog.New(slog.DiscardHandler)

// Transport is the way to this process itself.
func (n *Node) Transport() http.RoundTripper {
	return client.Local(api.New(api.Config{Service: n.Service, Version: Version, Log: QuietLog}))
}

// Client returns a client of this process itself.
func (n *Node) Client() *client.Client { return client.New(n.Transport()) }

// Listen lets other commands on the folder ask this process. When ctx ends, waiting requests are
// answered with the state of that moment.
func (n *Node) Listen(ctx context.Context) (stop func(), err error) {
	_, crowd, err := ingress.Crowds()
	if err != nil {
		return nil, err
	}
	l, err := n.socket(ctx)
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	srv := newServer(ctx, api.New(api.Config{Service: n.Service, Stopping: stopping, Version: Version, Log: QuietLog}))
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	joined := crowd.Join(srv, l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(joined) //nolint:errcheck // it ends with Close
	}()
	return func() {
		shutDown(ctx, srv, 15*time.Second) // a program gets 10 s to end
		<-done
	}, nil
}

// newServer returns a server of HTTP with bounds on what a client can hold: a header in time and
// not too large (the API refuses a smaller one in words), and a connection that is not used not for
// long. Handlers have bounds of their own for bodies and answers.
func newServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 128 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}

// shutDown stops a server. Requests that run are answered, if that takes no longer than patience.
func shutDown(ctx context.Context, srv *http.Server, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		srv.Close()
	}
}

// socket listens on the folder's socket, or on one of its own where others share the folder.
func (n *Node) socket(ctx context.Context) (net.Listener, error) {
	d, err := openSockets(n.Dir)
	if err != nil {
		return nil, err
	}
	name := socketName
	if n.shared {
		name += "-" + strconv.Itoa(os.Getpid())
		d.sweep(ctx)
	}
	l, err := d.listen(ctx, name)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return l, nil
}

// listen listens on a socket for its owner only. Nobody else uses the name, so a socket that is
// there is dead. The name is made last: a process that finds it is answered, and never takes it for
// the socket of a dead process.
func (d socketDir) listen(ctx context.Context, name string) (net.Listener, error) {
	unnamed := d.socket("." + name)
	if err := os.Remove(unnamed); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", unnamed)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(unnamed, 0o600), os.Rename(unnamed, d.socket(name))); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it would remove the name that was
	return &socketListener{l, sync.OnceValue(func() error {
		gone := os.Remove(d.socket(name))
		if os.IsNotExist(gone) {
			gone = nil // another process swept it while this one left
		}
		return errors.Join(gone, l.Close(), d.Close())
	})}, nil
}

// A socketListener removes its name when it is closed, and holds the folder open until then. Both
// the server that accepts from it and who made it close it: the name may be another process's then.
type socketListener struct {
	net.Listener
	close func() error
}

func (l *socketListener) Close() error { return l.close() }

// Occupied reports whether a process runs jobs in the folder. pawl listens on the socket there; a
// program with handlers of its own has only the lock.
func Occupied(ctx context.Context, dir string) bool {
	if c, err := dial(ctx, dir); err == nil {
		c.Close()
		return true
	}
	return folder.Held(dir)
}
