package cli

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pairMaker writes certificates for 127.0.0.1, each with its own serial number.
type pairMaker struct {
	testing.TB
	cert, key string
	serial    int64
	roots     *x509.CertPool
}

func newPairMaker(t testing.TB) *pairMaker {
	dir := t.TempDir()
	m := &pairMaker{TB: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), roots: x509.NewCertPool()}
	m.write()
	return m
}

func (m *pairMaker) write() {
	m.Helper()
	m.serial++
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(m.serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		m.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		m.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	m.roots.AppendCertsFromPEM(cert)
	m.replace(m.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	m.replace(m.cert, cert)
}

func (m *pairMaker) replace(name string, content []byte) {
	m.Helper()
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		m.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		m.Fatal(err)
	}
}

func TestServeTLS(t *testing.T) {
	m := newPairMaker(t)
	p := startServe(t, t.TempDir(), nil, "--listen", "0.0.0.0:0", "--url", "https://jobs.example.org", "--tls-cert", m.cert, "--tls-key", m.key)
	if p.url != "https://jobs.example.org" {
		t.Errorf("it says that it is at %s", p.url)
	}
	p.url = "https://" + listening(t, p)
	// Each client has connections of its own.
	client := func() *http.Client {
		return &http.Client{Timeout: time.Minute, Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: m.roots.Clone()}}}
	}
	serial := func() int64 {
		t.Helper()
		p.client = client()
		defer p.client.CloseIdleConnections()
		a, err := p.ask(t.Context(), http.MethodGet, "/v1/version", "")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if a.ProtoMajor != 2 || a.StatusCode != http.StatusOK {
			t.Errorf("%s %s", a.Proto, a.Status)
		}
		return a.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("certificate %d", got)
	}
	p.client = client()
	a, err := p.ask(t.Context(), http.MethodGet, "/v1/events?follow=true", "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	stream := bufio.NewReader(a.Body)

	m.write()
	if got := serial(); got != 2 {
		t.Errorf("after a change: certificate %d", got)
	}
	p.await(`level=INFO msg="the certificate has changed and is in use"`)

	m.replace(m.cert, []byte("nothing"))
	if got := serial(); got != 2 {
		t.Errorf("after a broken one: certificate %d", got)
	}
	p.await(`level=ERROR msg="the certificate has changed and cannot be used; the one before stays in use"`)
	status, body := p.get(http.MethodGet, "/readyz", "")
	if status != http.StatusOK || !strings.Contains(body, `"name":"certificate","ok":false,"degraded":true`) || strings.Contains(body, m.cert) {
		t.Errorf("%d %s", status, body)
	}
	m.write()
	p.signal(syscall.SIGHUP) // it is looked at without a connection, too
	p.await(`(?s)in use.*cannot be used.*level=INFO msg="the certificate has changed and is in use"`)

	// The stream has outlived all of that.
	if status, body := p.get(http.MethodPost, "/v1/jobs", `{"name": "seen", "command": ["true"]}`); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	for line := ""; !strings.Contains(line, `"FINISHED"`); {
		if line, err = stream.ReadString('\n'); err != nil {
			t.Fatalf("the stream is broken off: %v", err)
		}
	}
}

// listening returns the address on which a process listens, as the system knows it.
func listening(t testing.TB, p *served) string {
	t.Helper()
	p.await(`msg=serving .*listen=\S+`)
	_, rest, _ := strings.Cut(p.log.String(), " listen=")
	address, _, _ := strings.Cut(rest, "\n")
	_, port, err := net.SplitHostPort(strings.Trim(strings.Fields(address)[0], `"`))
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func TestServeBehindAProxy(t *testing.T) {
	p := startServe(t, t.TempDir(), nil, "--listen", "0.0.0.0:0", "--tls-elsewhere", "--prefix", "/pawl", "--trusted-proxies", "127.0.0.0/8", "--log-level", "debug")
	if !strings.HasPrefix(p.url, "http://127.0.0.1:") {
		t.Errorf("it says that it is at %s", p.url)
	}
	for path, from := range map[string]string{"/pawl/v1/jobs": "198.51.100.7", "/v1/jobs": "198.51.100.8"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, strings.NewReader(`{"command": ["true"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+p.token)
		req.Header.Set("X-Forwarded-For", "1.1.1.1, "+from)
		a, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, a.Body)
		a.Body.Close()
		if at := a.Header.Get("Location"); a.StatusCode != http.StatusAccepted || !strings.HasPrefix(at, "/pawl/v1/jobs/") {
			t.Errorf("%s: %s, Location %s", path, a.Status, at)
		}
		p.await(`msg=request operation=submit .*client=` + strings.ReplaceAll(from, ".", `\.`))
	}
}
