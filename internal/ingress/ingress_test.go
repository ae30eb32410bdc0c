package ingress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A maker makes pairs for tests.
type maker struct {
	t         *testing.T
	cert, key string
	serial    int64
}

func newMaker(t *testing.T) *maker {
	dir := t.TempDir()
	m := &maker{t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	m.write(m.next())
	return m
}

// next makes another pair.
func (m *maker) next() (cert, key []byte) {
	m.t.Helper()
	m.serial++
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(m.serial), Subject: pkix.Name{CommonName: "pawl.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		m.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		m.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func (m *maker) write(cert, key []byte) {
	m.t.Helper()
	for name, content := range map[string][]byte{m.cert: cert, m.key: key} {
		if content == nil {
			continue
		}
		if err := os.WriteFile(name+".new", content, 0o600); err != nil {
			m.t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			m.t.Fatal(err)
		}
	}
}

func TestPair(t *testing.T) {
	m := newMaker(t)
	var told []error
	p, err := OpenPair(m.cert, m.key, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(serial int64, news ...bool) {
		t.Helper()
		c, err := p.Certificate(nil)
		if err != nil || c.Leaf.SerialNumber.Int64() != serial {
			t.Fatalf("certificate %v, %v; want %d", c.Leaf.SerialNumber, err, serial)
		}
		if len(told) != len(news) {
			t.Fatalf("told %v", told)
		}
		for i, good := range news {
			if (told[i] == nil) != good {
				t.Errorf("news %d: %v", i+1, told[i])
			}
		}
		if bad := len(news) > 0 && !news[len(news)-1]; (p.Check() != nil) != bad {
			t.Errorf("check: %v", p.Check())
		}
		told = nil
	}
	expect(1)
	t.Run("a new pair is taken", func(*testing.T) {
		m.write(m.next())
		expect(2, true)
		expect(2)
	})
	t.Run("half of one leaves the old in use, and the other half completes it", func(*testing.T) {
		cert, key := m.next()
		m.write(cert, nil)
		expect(2, false)
		m.write(nil, key)
		expect(3, true)
	})
	t.Run("one that the clock of the file system does not tell from the old one is taken", func(t *testing.T) {
		tick := time.Now().Add(time.Hour) // it lasts for as long as this test
		write := func() (size int64) {
			m.write(m.next())
			for _, name := range []string{m.cert, m.key} {
				info, err := os.Stat(name)
				if err == nil {
					err = os.Chtimes(name, tick, tick)
				}
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			return size
		}
		size := write()
		expect(4, true)
		for write() != size { // that of a signature varies
			m.serial--
		}
		expect(5, true)
	})
	t.Run("a broken one is told once", func(t *testing.T) {
		m.write([]byte("nothing"), nil)
		expect(5, false)
		if c, err := p.Certificate(nil); err != nil || c.Leaf.SerialNumber.Int64() != 5 || len(told) != 0 {
			t.Errorf("%v, told %v", err, told)
		}
		if p.Check() == nil {
			t.Error("the trouble is forgotten")
		}
	})
	t.Run("a missing one leaves the old in use", func(t *testing.T) {
		if err := os.Remove(m.key); err != nil {
			t.Fatal(err)
		}
		expect(5, false)
		m.write(m.next())
		expect(6, true)
	})
}

func TestPairThatIsBrokenFromTheBeginning(t *testing.T) {
	m := newMaker(t)
	_, other := m.next()
	m.write(nil, other)
	if _, err := OpenPair(m.cert, m.key, nil); job.KindOf(err) != job.Invalid {
		t.Error(err)
	}
}

func TestClient(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	trusted := func(a netip.Addr) bool {
		for _, n := range networks {
			if n.Contains(a) {
				return true
			}
		}
		return false
	}
	for _, tt := range []struct {
		name, peer, xff, forwarded, want string
	}{
		{"no proxy", "192.0.2.1:99", "", "", "192.0.2.1:99"},
		{"a stranger is not believed", "192.0.2.1:99", "198.51.100.1", "for=198.51.100.1", "192.0.2.1:99"},
		{"a proxy", "10.0.0.1:99", "198.51.100.1", "", "198.51.100.1"},
		{"what the client itself wrote does not count", "10.0.0.1:99", "1.1.1.1, 198.51.100.1", "", "198.51.100.1"},
		{"two proxies", "10.0.0.1:99", "198.51.100.1, 10.2.2.2", "", "198.51.100.1"},
		{"only proxies", "10.0.0.1:99", "10.3.3.3, 10.2.2.2", "", "10.3.3.3"},
		{"nonsense", "10.0.0.1:99", "somebody", "", "10.0.0.1:99"},
		{"nonsense before an address", "10.0.0.1:99", "somebody, 198.51.100.1", "", "198.51.100.1"},
		{"nonsense before a proxy", "10.0.0.1:99", "somebody, 10.2.2.2", "", "10.0.0.1:99"},
		{"Forwarded", "10.0.0.1:99", "", `for="198.51.100.1:3";proto=https`, "198.51.100.1"},
		{"Forwarded with IPv6", "[fd00::1]:99", "", `proto=https;For="[2001:db8::1]:3", for=10.1.1.1`, "2001:db8::1"},
		{"Forwarded that hides", "10.0.0.1:99", "", "for=_hidden", "10.0.0.1:99"},
		{"Forwarded without for", "10.0.0.1:99", "", "for=198.51.100.1, proto=https", "10.0.0.1:99"},
		{"both agree", "10.0.0.1:99", "198.51.100.1", "for=198.51.100.1", "198.51.100.1"},
		{"both disagree", "10.0.0.1:99", "198.51.100.1", "for=1.1.1.1", "10.0.0.1:99"},
		{"one is nonsense", "10.0.0.1:99", "198.51.100.1", "for=unknown", "10.0.0.1:99"},
		{"an IPv4 address in IPv6", "[::ffff:10.0.0.1]:99", "198.51.100.1", "", "198.51.100.1"},
		{"a socket", "@", "198.51.100.1", "", "@"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tt.peer
			if tt.xff != "" {
				r.Header.Set("X-Forwarded-For", tt.xff)
			}
			if tt.forwarded != "" {
				r.Header.Set("Forwarded", tt.forwarded)
			}
			var got string
			Behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }), trusted).ServeHTTP(nil, r)
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzClient(f *testing.F) {
	f.Add("10.0.0.1", "for=a;b, for=\"[::1]:2\"")
	f.Add(", ,", ";=;,for=")
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.0.0.1:99"
		r.Header["X-Forwarded-For"], r.Header["Forwarded"] = []string{xff}, []string{forwarded}
		got := Client(r, func(netip.Addr) bool { return true })
		if got == r.RemoteAddr {
			return
		}
		if _, err := netip.ParseAddr(got); err != nil {
			t.Errorf("%q is no address", got)
		}
	})
}
