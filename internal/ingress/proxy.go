package ingress

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Behind returns next as it is reached through proxies: the address of a request is that of the
// client for whom a trusted proxy sent it.
func Behind(next http.Handler, trusted func(netip.Addr) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := Client(r, trusted); client != r.RemoteAddr {
			r = r.Clone(r.Context())
			r.RemoteAddr = client
		}
		next.ServeHTTP(w, r)
	})
}

// Client returns the address from which a request came: that of its connection, or, if that is a
// trusted proxy, the nearest one before it that is no trusted proxy. A proxy that sets one of the
// two headers may let the other pass as the client wrote it, so where there are both and they
// disagree, none is believed.
func Client(r *http.Request, trusted func(netip.Addr) bool) string {
	peer, ok := address(r.RemoteAddr)
	if !ok || !trusted(peer) {
		return r.RemoteAddr
	}
	var told []string
	for _, chain := range [][]string{
		listed(r.Header.Values("X-Forwarded-For")),
		forwarded(r.Header.Values("Forwarded")),
	} {
		if len(chain) > 0 {
			told = append(told, nearest(chain, trusted))
		}
	}
	if len(told) == 0 || told[0] == "" || told[len(told)-1] != told[0] {
		return r.RemoteAddr
	}
	return told[0]
}

// nearest returns the last address of a chain that is no trusted proxy, or the first of all when
// all are; "" when there is something else before it is found.
func nearest(chain []string, trusted func(netip.Addr) bool) (found string) {
	for i := len(chain) - 1; i >= 0; i-- {
		a, ok := address(chain[i])
		if !ok {
			return ""
		}
		found = a.String()
		if !trusted(a) {
			break
		}
	}
	return found
}

// forwarded returns the values of "for" in headers of RFC 7239.
func forwarded(headers []string) (chain []string) {
	for _, element := range listed(headers) {
		name := "unknown" // an element without it stands for a proxy that does not tell
		for part := range strings.SplitSeq(element, ";") {
			key, value, _ := strings.Cut(part, "=")
			if strings.EqualFold(strings.TrimSpace(key), "for") {
				name = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
		chain = append(chain, name)
	}
	return chain
}

// listed splits headers at their commas.
func listed(headers []string) (all []string) {
	for _, h := range headers {
		for v := range strings.SplitSeq(h, ",") {
			all = append(all, strings.TrimSpace(v))
		}
	}
	return all
}

// address reads an IP address, with or without a port.
func address(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err == nil
}
