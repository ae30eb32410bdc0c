// Package egress is how Pawl goes to servers that jobs name: by one client, which heeds a rule
// wherever it goes, also where a name leads to another address than before, and where a server
// sends it on.
package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Rule says to which addresses jobs may have Pawl go.
type Rule string

// The rules.
const (
	None   Rule = "none"   // to none
	Public Rule = "public" // to those that anybody can reach, and none of this machine or of networks of its site
	All    Rule = "all"
)

// inward are networks that not anybody can reach, beside those that [netip.Addr] knows.
var inward = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // behind a provider's translation
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
	netip.MustParsePrefix("64:ff9b:1::/48"),  // local translation to IPv4
	netip.MustParsePrefix("64:ff9b::/96"),    // what is behind a translation may be any IPv4
	netip.MustParsePrefix("2002::/16"),       // the same
	netip.MustParsePrefix("2001::/32"),       // the same (Teredo)
	netip.MustParsePrefix("::/96"),           // the same, as it was
	netip.MustParsePrefix("fec0::/10"),       // site-local, as it was
	netip.MustParsePrefix("::ffff:0:0:0/96"), // translated
}

// Allows reports whether a job may have Pawl go to an address.
func (r Rule) Allows(a netip.Addr) bool {
	switch r {
	case All:
		return true
	case Public:
		a = a.Unmap().WithZone("")
		return a.IsGlobalUnicast() && !a.IsPrivate() &&
			!slices.ContainsFunc(inward, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return false
}

// own reports whether an address is one of those of this machine. They come and go, so it looks
// each time.
func own(a netip.Addr, addresses func() ([]net.Addr, error)) (bool, error) {
	a = a.Unmap().WithZone("")
	all, err := addresses()
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok && n.IP.Equal(a.AsSlice()) {
			return true, nil
		}
	}
	return false, err
}

// ErrRefused says that the rule refuses an address. It comes with kind [job.Invalid].
var ErrRefused = errors.New("jobs of this service may not have it go there (http_inputs)")

// Dialer returns what opens connections by the rule. It looks at the very address to which it
// connects, so no name leads around it.
func (r Rule) Dialer() *net.Dialer {
	return &net.Dialer{
		Timeout: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err == nil && !r.Allows(to.Addr()) {
				err = ErrRefused
			}
			if err == nil && r == Public {
				var here bool
				if here, err = own(to.Addr(), net.InterfaceAddrs); here {
					err = ErrRefused
				}
			}
			if err != nil {
				return job.Errorf(job.Invalid, "%s: %w", address, err)
			}
			return nil
		},
	}
}

const mostRedirects = 10

// Client returns a client that goes by the rule. It waits up to header for the head of an answer,
// and follows up to ten redirects, none of which leads out of TLS. Only with [All] it uses the
// proxy that the environment names: nobody here sees where that goes. Who is done with it closes
// its idle connections.
func (r Rule) Client(header time.Duration) *http.Client {
	t := &http.Transport{
		DialContext:           r.Dialer().DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   30 * time.Second,
		ResponseHeaderTimeout: header,
		DisableCompression:    true, // bytes are taken as they come
	}
	if r == All {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: t, CheckRedirect: redirect}
}

func redirect(next *http.Request, via []*http.Request) error {
	switch first := via[0].URL; {
	case next.URL.Scheme != "https" && next.URL.Scheme != via[len(via)-1].URL.Scheme:
		return job.Errorf(job.Invalid, "%s sends on to %s://%s, which is less safe", first.Host, next.URL.Scheme,
			next.URL.Host)
	case len(via) > mostRedirects:
		return job.Errorf(job.Invalid, "%s sends on more than %d times", first.Host, mostRedirects)
	}
	return nil
}
