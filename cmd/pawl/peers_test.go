package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// hello is a job that has said hello.
func (p *served) hello() job.ID {
	p.Helper()
	status, body := p.get(http.MethodPost, "/v1/jobs?wait=30s", `{"command": ["echo", "hello"]}`)
	var v struct{ ID job.ID }
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != http.StatusOK {
		p.Fatalf("%d %s, %v", status, body, err)
	}
	return v.ID
}

// TestPeersWithTLS has three machines: one shows a certificate of a private authority, one believes in that, and one does
// not.
func TestPeersWithTLS(t *testing.T) {
	db := []string{"PAWL_DB=" + testenv.Postgres(t).Database(t)}
	m := newPairMaker(t)
	shows := startServe(t, t.TempDir(), db, "--tls-cert", m.cert, "--tls-key", m.key)
	shows.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: m.roots}}}
	defer shows.client.CloseIdleConnections()
	believes := startServe(t, t.TempDir(), db, "--peer-ca", m.cert)
	doubts := startServe(t, t.TempDir(), db)

	path := "/v1/jobs/" + shows.hello().String() + "/logs"
	if status, body := believes.get(http.MethodGet, path, ""); status != http.StatusOK || body != "hello\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := doubts.get(http.MethodGet, path, ""); status != http.StatusServiceUnavailable || strings.Contains(body, shows.url) {
		t.Errorf("%d %s", status, body)
	}
	doubts.await(`level=WARN msg="a process of another machine does not answer" .*name the authority of its certificate in peer\.ca`)
}

// TestPeersOnAllAddresses has a machine that listens on all addresses, and is reached under the name of its host.
func TestPeersOnAllAddresses(t *testing.T) {
	host, err := os.Hostname()
	if err == nil {
		_, err = net.DefaultResolver.LookupHost(t.Context(), host)
	}
	if err != nil {
		t.Skipf("nobody reaches this host under its own name: %v", err)
	}
	db := []string{"PAWL_DB=" + testenv.Postgres(t).Database(t)}
	for _, args := range [][]string{{"--listen", "0.0.0.0:0", "--tls-elsewhere"}, {"--peer-listen", "0.0.0.0:0", "--tls-elsewhere"}} {
		a, b := startServe(t, t.TempDir(), db, args...), startServe(t, t.TempDir(), db)
		a.await(`msg="processes of other machines reach this one" at=http://` + regexp.QuoteMeta(host) + `:\d+`)
		if status, body := b.get(http.MethodGet, "/v1/jobs/"+a.hello().String()+"/logs", ""); status != http.StatusOK || body != "hello\n" {
			t.Errorf("%v: %d %s", args, status, body)
		}
	}
}

func TestTokensForOneMachineAreNotGoodAtAnother(t *testing.T) {
	db := testenv.Postgres(t).Database(t)
	a, b := startServe(t, t.TempDir(), []string{"PAWL_DB=" + db}), startServe(t, t.TempDir(), []string{"PAWL_DB=" + db})
	n, err := openNode(t.Context(), a.dir, nodeOptions{db: db}) // a process of the machine of a
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	id := a.hello()
	path := "/v1/jobs/" + id.String() + "/logs"
	token := func(p *auth.Peers) string {
		t.Helper()
		text, err := p.Token(t.Context(), n.peers.Machine, auth.Grant{Principal: "ada", Job: id, Does: auth.PeerRead})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ours := *n.peers
	ours.Key = (&peerKey{store: n.store}).sign
	a.token = token(&ours)
	if status, body := a.get(http.MethodGet, path, ""); status != http.StatusOK || body != "hello\n" {
		t.Errorf("where it is good: %d %s", status, body)
	}
	if status, body := a.get(http.MethodGet, "/v1/jobs", ""); status != http.StatusForbidden {
		t.Errorf("for something else: %d %s", status, body)
	}
	b.token = a.token
	if status, body := b.get(http.MethodGet, path, ""); status != http.StatusUnauthorized || !strings.Contains(body, "and one of machine "+n.peers.Machine+" was meant") {
		t.Errorf("at another machine: %d %s", status, body)
	}
	old := ours
	old.Now = func() time.Time { return n.Now().Add(-2 * time.Minute) }
	a.token = token(&old)
	if status, body := a.get(http.MethodGet, path, ""); status != http.StatusUnauthorized || !strings.Contains(body, "not of this moment") {
		t.Errorf("after two minutes: %d %s", status, body)
	}
	for _, p := range []*served{a, b} {
		if strings.Contains(p.log.String(), "pawl_peer_") {
			t.Error("a token is in the log")
		}
	}
}

// TestPeerKey has processes that want the key at the same time.
func TestPeerKey(t *testing.T) {
	st, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	keys := make([]string, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			k := peerKey{store: st}
			key, err := k.sign(t.Context())
			if err != nil || len(key) != auth.PeerKeySize {
				t.Errorf("%d bytes, %v", len(key), err)
			}
			keys[i] = string(key)
		})
	}
	all.Wait()
	for _, k := range keys[1:] {
		if k != keys[0] {
			t.Error("two processes have different keys")
		}
	}
	used := peerKey{store: st}
	if _, err := used.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := st.Delete(t.Context(), store.Site, peerKeyKind, peerKeyName); err != nil {
		t.Fatal(err)
	}
	if key, err := used.check(t.Context()); err != nil || string(key) != keys[0] {
		t.Errorf("it is not remembered: %v", err)
	}
	used.at = time.Now().Add(-keepPeerKey)
	if key, err := used.check(t.Context()); job.KindOf(err) != job.Denied {
		t.Errorf("after it was removed a token is held against %q, %v", key, err)
	}
	if _, err := st.Resource(t.Context(), store.Site, peerKeyKind, peerKeyName); job.KindOf(err) != job.NotFound {
		t.Errorf("whoever shows a token makes a key: %v", err)
	}
	if key, err := used.sign(t.Context()); err != nil || string(key) == keys[0] {
		t.Errorf("one that was removed is used for ever: %v", err)
	}
	for _, doc := range []string{`{"key": "c2hvcnQ="}`, `{"key": 3}`} {
		old, err := st.Resource(t.Context(), store.Site, peerKeyKind, peerKeyName)
		if err != nil {
			t.Fatal(err)
		}
		old.Doc = json.RawMessage(doc)
		if _, err := st.Put(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		k := peerKey{store: st}
		if _, err := k.sign(t.Context()); job.KindOf(err) != job.Corrupt {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// TestPeerKeyOfASlowDatabase: whoever gives up waits neither for the database nor for others who wait for it.
func TestPeerKeyOfASlowDatabase(t *testing.T) {
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	n, err := openNode(t.Context(), t.TempDir(), nodeOptions{db: dsn, migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	busy, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close(context.Background())
	if _, err := busy.Exec(t.Context(), "BEGIN; LOCK TABLE pawl.resources IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	k := peerKey{store: n.store}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := k.sign(t.Context())
		first <- err
	}()
	for server.Psql(t, dsn, "-c", "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0") == "0" {
		if t.Context().Err() != nil {
			t.Fatal("nobody waits for the table")
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		_, err := k.check(gone)
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("whoever gave up is told %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("whoever gave up waits for the first one")
	}
	if _, err := busy.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestAuthoritiesOfPeers(t *testing.T) {
	dir := t.TempDir()
	nothing := filepath.Join(dir, "nothing.pem")
	if err := os.WriteFile(nothing, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{nothing, filepath.Join(dir, "missing.pem")} {
		if _, err := peerTransport(name); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A listener is only an address.
type addressOnly struct {
	net.Listener
	at string
}

func (a addressOnly) Addr() net.Addr  { return a }
func (a addressOnly) Network() string { return "tcp" }
func (a addressOnly) String() string  { return a.at }

func TestWhereOthersReachIt(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what           string
		listen, peers  string // as they are given; empty: that door is closed
		url, peerURL   string
		tls            bool
		base, inward   string
		network, doors string // the addresses as the system knows them
	}{
		{what: "by default", listen: "127.0.0.1:7295", network: "127.0.0.1:7295", base: "http://127.0.0.1:7295", inward: "http://127.0.0.1:7295"},
		{what: "at all addresses, behind a proxy", listen: "0.0.0.0:80", network: "[::]:80", base: "http://127.0.0.1:80", inward: "http://" + host + ":80"},
		{what: "at all addresses", listen: ":443", network: "[::]:443", tls: true, base: "https://" + host + ":443", inward: "https://" + host + ":443"},
		{what: "at a name", listen: "node7:80", network: "10.0.0.7:80", base: "http://10.0.0.7:80", inward: "http://node7:80"},
		{what: "with a URL", listen: ":80", network: "[::]:80", url: "https://jobs.example.org/pawl/", base: "https://jobs.example.org/pawl", inward: "https://jobs.example.org/pawl"},
		{
			what: "with a URL, and a door for processes", listen: ":80", network: "[::]:80", url: "https://jobs.example.org", peers: "10.0.0.7:7296", doors: "10.0.0.7:7296",
			base: "https://jobs.example.org", inward: "http://10.0.0.7:7296",
		},
		{
			what: "with a URL for processes", listen: ":80", network: "[::]:80", url: "https://jobs.example.org", peerURL: "https://node7.example.org/",
			base: "https://jobs.example.org", inward: "https://node7.example.org",
		},
		{what: "for processes only", peers: "0.0.0.0:7296", doors: "[::]:7296", tls: true, inward: "https://" + host + ":7296"},
		{what: "nowhere", peerURL: "https://node7.example.org"},
	} {
		var cfg config.Config
		cfg.Listen, cfg.URL, cfg.Peer.Listen, cfg.Peer.URL = tt.listen, tt.url, tt.peers, tt.peerURL
		if tt.tls {
			cfg.TLS.Cert = "cert.pem"
		}
		var network, peers net.Listener
		if tt.network != "" {
			network = addressOnly{at: tt.network}
			if got := baseURL(&cfg, network.Addr()); got != tt.base {
				t.Errorf("%s: for everybody %s, want %s", tt.what, got, tt.base)
			}
		}
		if tt.doors != "" {
			peers = addressOnly{at: tt.doors}
		}
		if got := inwardURL(&cfg, network, peers); got != tt.inward {
			t.Errorf("%s: for other machines %s, want %s", tt.what, got, tt.inward)
		}
	}
}
