package egress

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "::ffff:93.184.216.34": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"10.1.2.3": false, "172.16.0.1": false, "192.168.0.1": false, "fd00::1": false, "::ffff:10.0.0.1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false,
		"100.64.0.1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"64:ff9b::7f00:1": false, "2001:0:1::1": false, "::7f00:1": false, "2002:7f00:1::": false,
	} {
		a := netip.MustParseAddr(address)
		if got := Public.Allows(a); got != want {
			t.Errorf("%s: %t", address, got)
		}
		if !All.Allows(a) || None.Allows(a) || Rule("").Allows(a) {
			t.Errorf("%s: all, or none, is something else", address)
		}
	}
}

// TestOwn asks of the addresses that a machine may have: its public ones are its own too.
func TestOwn(t *testing.T) {
	network := func(text string) net.Addr {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	addresses := func() ([]net.Addr, error) {
		return []net.Addr{network("127.0.0.1/8"), network("93.184.216.34/24"), network("2606:2800:220:1::1/64")}, nil
	}
	for address, want := range map[string]bool{
		"93.184.216.34": true, "::ffff:93.184.216.34": true, "2606:2800:220:1::1": true, "2606:2800:220:1::1%eth0": true,
		"93.184.216.35": false, "2606:2800:220:1::2": false,
	} {
		if got, err := own(netip.MustParseAddr(address), addresses); got != want || err != nil {
			t.Errorf("%s: %t, %v", address, got, err)
		}
	}
	if _, err := own(netip.MustParseAddr("8.8.8.8"), func() ([]net.Addr, error) { return nil, errors.New("no answer") }); err == nil {
		t.Error("where the machine cannot tell its addresses one is allowed")
	}
}

func TestRedirects(t *testing.T) {
	via := func(urls ...string) (all []*http.Request) {
		for _, u := range urls {
			all = append(all, httptest.NewRequest(http.MethodGet, u, http.NoBody))
		}
		return all
	}
	for _, tt := range []struct {
		name string
		next string
		via  []*http.Request
		ok   bool
	}{
		{"within http", "http://b.example/", via("http://a.example/"), true},
		{"within https", "https://b.example/", via("https://a.example/"), true},
		{"into TLS", "https://a.example/", via("http://a.example/"), true},
		{"out of TLS", "http://a.example/", via("https://a.example/"), false},
		{"out of TLS, by a detour", "http://a.example/", via("http://a.example/", "https://b.example"), false},
		{"the tenth", "http://a.example/", via(strings.Fields(strings.Repeat("http://a.example/ ", 10))...), true},
		{"the eleventh", "http://a.example/", via(strings.Fields(strings.Repeat("http://a.example/ ", 11))...), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := redirect(via(tt.next)[0], tt.via)
			if (err == nil) != tt.ok || err != nil && job.KindOf(err) != job.Invalid {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Where a name leads says nothing: the address counts, and so it is where a server sends on.
func TestDial(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		c := Public.Client(time.Minute)
		res, err := c.Get(strings.Replace(server.URL, "127.0.0.1", host, 1))
		if err == nil {
			res.Body.Close()
		}
		if job.KindOf(err) != job.Invalid || asked {
			t.Errorf("%s: error %v", host, err)
		}
		c.CloseIdleConnections()
	}
}
