package node

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

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
	if err := st.Delete(t.Context(), store.Site, peerKeyKind, peerKeyName, store.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if key, err := used.check(t.Context()); err != nil || string(key) != keys[0] {
		t.Errorf("it is not remembered: %v", err)
	}
	used.at = time.Now().Add(-keepPeerKey)
	if key, err := used.check(t.Context()); job.KindOf(err) != job.Denied {
		t.Errorf("after it was removed a token is held against %q, %v", key, err)
	}
	if _, err := store.FindResource(t.Context(), st, store.Site, peerKeyKind,
		peerKeyName); job.KindOf(err) != job.NotFound {
		t.Errorf("whoever shows a token makes a key: %v", err)
	}
	if key, err := used.sign(t.Context()); err != nil || string(key) == keys[0] {
		t.Errorf("one that was removed is used for ever: %v", err)
	}
	for _, doc := range []string{`{"key": "c2hvcnQ="}`, `{"key": 3}`} {
		old, err := store.FindResource(t.Context(), st, store.Site, peerKeyKind, peerKeyName)
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

// TestPeerKeyOfASlowDatabase: whoever gives up waits neither for the database nor for others who
// wait for it.
func TestPeerKeyOfASlowDatabase(t *testing.T) {
	server := testenv.Postgres(t)
	dsn := server.Database(t)
	n, err := Open(t.Context(), t.TempDir(), Options{DB: DatabaseConfig{DSN: dsn}, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	busy, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close(context.Background())
	if _, err := busy.Exec(t.Context(), "BEGIN; LOCK TABLE pawl.resources IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	k := peerKey{store: n.Store}
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
	case <-time.After(testenv.Patience):
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

func (a addressOnly) Addr() net.Addr { return a }

func (a addressOnly) Network() string { return "tcp" }

func (a addressOnly) String() string { return a.at }

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
		{
			what: "by default", listen: "127.0.0.1:7295", network: "127.0.0.1:7295", base: "http://127.0.0.1:7295",
			inward: "http://127.0.0.1:7295",
		},
		{
			what: "at all addresses, behind a proxy", listen: "0.0.0.0:80", network: "[::]:80",
			base: "http://127.0.0.1:80", inward: "http://" + host + ":80",
		},
		{
			what: "at all addresses", listen: ":443", network: "[::]:443", tls: true, base: "https://" + host + ":443",
			inward: "https://" + host + ":443",
		},
		{
			what: "at a name", listen: "node7:80", network: "10.0.0.7:80", base: "http://10.0.0.7:80",
			inward: "http://node7:80",
		},
		{
			what: "with a URL", listen: ":80", network: "[::]:80", url: "https://jobs.example.org/pawl/",
			base: "https://jobs.example.org/pawl", inward: "https://jobs.example.org/pawl",
		},
		{
			what: "with a URL, and a door for processes", listen: ":80", network: "[::]:80",
			url: "https://jobs.example.org", peers: "10.0.0.7:7296", doors: "10.0.0.7:7296",
			base: "https://jobs.example.org", inward: "http://10.0.0.7:7296",
		},
		{
			what: "with a URL for processes", listen: ":80", network: "[::]:80", url: "https://jobs.example.org",
			peerURL: "https://node7.example.org/",
			base:    "https://jobs.example.org", inward: "https://node7.example.org",
		},
		{what: "for processes only", peers: "0.0.0.0:7296", doors: "[::]:7296", tls: true, inward: "https://" +
			host + ":7296"},
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
