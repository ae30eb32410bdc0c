package cli

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
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

// TestPeersWithTLS has three machines: one shows a certificate of a private authority, one believes
// in that, and one does not.
func TestPeersWithTLS(t *testing.T) {
	testenv.Aside(t)
	db := []string{"PAWL_DB=" + testenv.Postgres(t).Database(t)}
	m := newPairMaker(t)
	shows := startServe(t, t.TempDir(), db, "--tls-cert", m.cert, "--tls-key", m.key)
	shows.client = &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: m.roots}},
	}
	defer shows.client.CloseIdleConnections()
	believes := startServe(t, t.TempDir(), db, "--peer-ca", m.cert)
	doubts := startServe(t, t.TempDir(), db)

	path := "/v1/jobs/" + shows.hello().String() + "/logs"
	if status, body := believes.get(http.MethodGet, path, ""); status != http.StatusOK || body != "hello\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := doubts.get(http.MethodGet, path, ""); status != http.StatusServiceUnavailable ||
		strings.Contains(body, shows.url) {
		t.Errorf("%d %s", status, body)
	}
	doubts.await(`level=WARN msg="a process of another machine does not answer" .*name the authority of its certificate in peer\.ca`)
}

// TestPeersOnAllAddresses has a machine that listens on all addresses, and is reached under the
// name of its host.
func TestPeersOnAllAddresses(t *testing.T) {
	testenv.Aside(t)
	host, err := os.Hostname()
	if err == nil {
		_, err = net.DefaultResolver.LookupHost(t.Context(), host)
	}
	if err != nil {
		t.Skipf("nobody reaches this host under its own name: %v", err)
	}
	db := []string{"PAWL_DB=" + testenv.Postgres(t).Database(t)}
	for _, args := range [][]string{
		{"--listen", "0.0.0.0:0", "--tls-elsewhere"},
		{"--peer-listen", "0.0.0.0:0", "--tls-elsewhere"},
	} {
		a, b := startServe(t, t.TempDir(), db, args...), startServe(t, t.TempDir(), db)
		a.await(`msg="processes of other machines reach this one" at=http://` + regexp.QuoteMeta(host) + `:\d+`)
		if status, body := b.get(http.MethodGet, "/v1/jobs/"+a.hello().String()+"/logs",
			""); status != http.StatusOK || body != "hello\n" {
			t.Errorf("%v: %d %s", args, status, body)
		}
	}
}

func TestTokensForOneMachineAreNotGoodAtAnother(t *testing.T) {
	testenv.Aside(t)
	db := testenv.Postgres(t).Database(t)
	a, b := startServe(t, t.TempDir(), []string{"PAWL_DB=" + db}), startServe(t, t.TempDir(), []string{"PAWL_DB=" + db})
	// a process of the machine of a
	n, err := node.Open(t.Context(), a.dir, node.Options{DB: node.DatabaseConfig{DSN: db}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	id := a.hello()
	path := "/v1/jobs/" + id.String() + "/logs"
	token := func(p *auth.Peers) string {
		t.Helper()
		text, err := p.Token(t.Context(), p.Machine, auth.Grant{Principal: "ada", Job: id, Does: auth.PeerRead})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ours := n.Signing()
	a.token = token(ours)
	if status, body := a.get(http.MethodGet, path, ""); status != http.StatusOK || body != "hello\n" {
		t.Errorf("where it is good: %d %s", status, body)
	}
	if status, body := a.get(http.MethodGet, "/v1/jobs", ""); status != http.StatusForbidden {
		t.Errorf("for something else: %d %s", status, body)
	}
	b.token = a.token
	if status, body := b.get(http.MethodGet, path, ""); status != http.StatusUnauthorized ||
		!strings.Contains(body, "and not of machine "+ours.Machine+" as was meant") {
		t.Errorf("at another machine: %d %s", status, body)
	}
	old := *ours
	old.Now = func() time.Time { return n.Now().Add(-2 * time.Minute) }
	a.token = token(&old)
	if status, body := a.get(http.MethodGet, path, ""); status != http.StatusUnauthorized ||
		!strings.Contains(body, "the token has expired, or is from the future") {
		t.Errorf("after two minutes: %d %s", status, body)
	}
	for _, p := range []*served{a, b} {
		if strings.Contains(p.log.String(), "pawl_peer_") {
			t.Error("a token is in the log")
		}
	}
}
