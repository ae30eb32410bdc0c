package node

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/ingress"
	"github.com/pawl-jobs/pawl/internal/observe"
)

// The doors of a server: the address, where callers show a token; the socket, which only the
// folder's owner can open; and the address for processes of other machines.
const (
	doorNetwork = iota
	doorSocket
	doorPeers
	doors // how many there are
)

// open makes the handlers of all doors, from the configuration as it is now.
func (s *serving) open() {
	cfg := s.config.Load()
	c := api.Config{
		Service: s.node.Service, Stopping: s.stopping, Ready: s.ready(true), Metrics: s.observe.Metrics(),
		Answered: s.answered,
		Version:  Version, Log: s.log, Limits: api.Limits{
			Body: int64(cfg.Limits.Body), Jobs: cfg.Limits.Jobs, Depth: cfg.Limits.Depth, Rate: cfg.Limits.Rate,
			Burst:   cfg.Limits.Burst,
			Streams: cfg.Limits.Streams, Wait: cfg.Limits.Wait,
		},
	}
	socket := api.New(c)
	s.doors[doorSocket].Store(&socket)
	c.Auth, c.Prefix, c.Ready = s.caller, cfg.Prefix, s.ready(false)
	network := api.New(c)
	s.doors[doorNetwork].Store(&network)
	if cfg.Peer.Listen != "" {
		c.Auth, c.Prefix, c.Inward = s.peer, "", true
		peers := api.New(c)
		s.doors[doorPeers].Store(&peers)
	}
}

// servers returns the servers of all doors. Requests live in ctx.
func (s *serving) servers(ctx context.Context) [doors]*http.Server {
	behind := func(door int) http.Handler {
		return s.observe.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(*s.doors[door].Load()).ServeHTTP(w, r)
		}))
	}
	trusted := func(a netip.Addr) bool { return s.config.Load().TrustedProxies.Contains(a) }
	var servers [doors]*http.Server
	for door := range servers {
		h := behind(door)
		if door != doorSocket {
			h = ingress.Behind(logged(h), trusted)
		}
		srv := newServer(ctx, h)
		servers[door] = srv
		// of handshakes and connections that clients broke
		srv.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	}
	return servers
}

// logged names the client of a request in the log.
func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(observe.With(r.Context(), slog.String("client", r.RemoteAddr))))
	})
}

// serveAt serves at a door; at an address with TLS if there is a certificate.
func (s *serving) serveAt(door int, srv *http.Server, l net.Listener) error {
	if door == doorSocket || s.pair == nil {
		return srv.Serve(l)
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.Certificate}
	return srv.ServeTLS(l, "", "")
}

// drain ends what is open: nobody new is let in, streams end, and requests under way are answered.
func (s *serving) drain(ctx context.Context, servers [doors]*http.Server) {
	close(s.stopping)
	var all sync.WaitGroup
	for _, srv := range servers {
		all.Go(func() { shutDown(ctx, srv, s.config.Load().Grace) })
	}
	all.Wait()
}

// caller tells the API who calls.
func (s *serving) caller(r *http.Request) (api.Caller, error) {
	if s.node.peers != nil && auth.FromPeer(r) {
		return s.peer(r)
	}
	c, err := s.keys.Caller(r)
	return api.Caller{Principal: c.Principal, Job: c.Job, Launch: c.Launch}, s.letIn(r, err)
}

// peer tells the API for which process of another machine a request is made, and what that may do.
func (s *serving) peer(r *http.Request) (api.Caller, error) {
	g, err := s.node.peers.Caller(r)
	return api.Caller{Principal: g.Principal, Job: g.Job, Peer: api.PeerMay(g.Does)}, s.letIn(r, err)
}

// letIn logs refused callers.
func (s *serving) letIn(r *http.Request, err error) error {
	if err != nil {
		s.log.InfoContext(r.Context(), "not let in", "error", err)
	}
	return err
}

func (s *serving) answered(a api.Answer) {
	s.observe.Answered(a.Context, observe.Request{
		Operation: a.Operation, Principal: a.Principal, Status: a.Status,
		Took: a.Duration, Bytes: a.Bytes,
	})
}

// baseURL is how others reach a service that listens on addr.
func baseURL(cfg *config.Config, addr net.Addr) string {
	if cfg.URL != "" {
		return strings.TrimSuffix(cfg.URL, "/")
	}
	return urlOf(cfg, addr, cfg.Listen, cfg.TLS.Cert != "") // a certificate names a host
}

// inwardURL is how processes of other machines reach this very process: at its address for them, or
// else at that for everybody; a listener that is nil is not there.
func inwardURL(cfg *config.Config, network, peers net.Listener) string {
	switch {
	case network == nil && peers == nil:
		return ""
	case cfg.Peer.URL != "":
		return strings.TrimSuffix(cfg.Peer.URL, "/")
	case peers != nil:
		return urlOf(cfg, peers.Addr(), cfg.Peer.Listen, true)
	case cfg.URL != "":
		return strings.TrimSuffix(cfg.URL, "/")
	}
	return urlOf(cfg, network.Addr(), cfg.Listen, true)
}

// urlOf is the URL of addr, on which a process listens because of the setting given. With named it
// has the name of the host that is given, or that of this one in the place of all addresses; else
// it leads there from this host only.
func urlOf(cfg *config.Config, addr net.Addr, given string, named bool) string {
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
		if name, err := os.Hostname(); err == nil && named {
			host = name
		}
	}
	if given, _, err := net.SplitHostPort(given); err == nil && named && given != "" && net.ParseIP(given) == nil {
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

// Loopback reports whether a URL leads to the host of its reader.
func Loopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
