package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/edge"
	"github.com/pawl-jobs/pawl/internal/observe"
)

// The doors of a server: the address, where callers show a token, and the socket, which only the folder's owner can open.
const (
	doorNetwork = iota
	doorSocket
)

// open makes the handlers of both doors, from the configuration as it is now.
func (s *serving) open() {
	cfg := s.config.Load()
	c := api.Config{
		Service: s.node.Service, Stopping: s.stopping, Ready: s.ready, Metrics: s.observe.Metrics(), Answered: s.answered,
		Version: version, Log: s.log, Limits: api.Limits{
			Body: int64(cfg.Limits.Body), Jobs: cfg.Limits.Jobs, Depth: cfg.Limits.Depth, Rate: cfg.Limits.Rate, Burst: cfg.Limits.Burst,
			Streams: cfg.Limits.Streams, Wait: cfg.Limits.Wait,
		},
	}
	socket := api.New(c)
	s.doors[doorSocket].Store(&socket)
	c.Auth, c.Prefix = s.caller, cfg.Prefix
	network := api.New(c)
	s.doors[doorNetwork].Store(&network)
}

// servers returns the servers of both doors. Requests live in ctx.
func (s *serving) servers(ctx context.Context) [2]*http.Server {
	behind := func(door int) http.Handler {
		return s.observe.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(*s.doors[door].Load()).ServeHTTP(w, r)
		}))
	}
	network := edge.Behind(logged(behind(doorNetwork)), func(a netip.Addr) bool { return s.config.Load().TrustedProxies.Contains(a) })
	servers := [2]*http.Server{newServer(ctx, network), newServer(ctx, behind(doorSocket))}
	for _, srv := range servers {
		srv.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug) // of handshakes and connections that clients broke
	}
	return servers
}

// logged names the client of a request in the log.
func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(observe.With(r.Context(), slog.String("client", r.RemoteAddr))))
	})
}

// serveNetwork serves on the address, with TLS if there is a certificate.
func (s *serving) serveNetwork(srv *http.Server, l net.Listener) error {
	if s.pair == nil {
		return srv.Serve(l)
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.Certificate}
	return srv.ServeTLS(l, "", "")
}

// drain ends what is open: nobody new is let in, streams end, and requests under way are answered.
func (s *serving) drain(ctx context.Context, servers [2]*http.Server) {
	close(s.stopping)
	var all sync.WaitGroup
	for _, srv := range servers {
		all.Go(func() { shutDown(ctx, srv, s.config.Load().Grace) })
	}
	all.Wait()
}

// caller tells the API who calls.
func (s *serving) caller(r *http.Request) (api.Caller, error) {
	c, err := s.keys.Caller(r)
	if err != nil {
		s.log.InfoContext(r.Context(), "not let in", "error", err)
		return api.Caller{}, err
	}
	return api.Caller{Principal: c.Principal, Job: c.Job, Launch: c.Launch}, nil
}

func (s *serving) answered(a api.Answer) {
	s.observe.Answered(a.Context, observe.Request{Operation: a.Operation, Principal: a.Principal, Status: a.Status, Took: a.Duration, Bytes: a.Bytes})
}

// baseURL is how others reach a service that listens on addr.
func baseURL(cfg *config.Config, addr net.Addr) string {
	if cfg.URL != "" {
		return strings.TrimSuffix(cfg.URL, "/")
	}
	scheme := "http"
	if cfg.TLS.Cert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if name, err := os.Hostname(); err == nil && scheme == "https" { // which is what a certificate names
			host = name
		}
	}
	if given, _, err := net.SplitHostPort(cfg.Listen); err == nil && scheme == "https" && given != "" && net.ParseIP(given) == nil {
		host = given
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// writeWhole writes a file for its owner only, which appears whole in the place of what was there.
func writeWhole(name, content string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// noneIfZero is how the engine writes that there is no grace.
func noneIfZero(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
