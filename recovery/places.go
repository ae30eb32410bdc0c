package recovery

import (
	"context"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A standing is what is known of a host. The probes of each standing have their own places, so that
// probes that hang take no place from hosts that answer.
type standing int

const (
	stranger  standing = iota // it was not asked lately
	answers                   // it answered the newest probe, well or not
	silent                    // it did not answer the newest probe in time
	standings                 // the number of standings
)

// places are taken by probes. Each is for one tenant.
type places struct {
	taken int
	of    map[string]int // by tenant
	turns map[string]int // the count of probes when a tenant took its newest place
}

// may reports whether a tenant may take one more of all places: while more are free than it has. So
// one tenant has at most half of them, two have at most three quarters, and so on. With 32 places,
// five tenants have at most 31, and a sixth one finds a place.
func (s *places) may(tenant string, all int) bool {
	return s.of[tenant] < all-s.taken
}

// A host is what probes ask.
type host struct {
	standing standing
	heard    time.Time      // when its standing was last learned
	probes   int            // probes that have not returned
	givenUp  int            // how many of these were given up
	turns    map[string]int // the count of probes when a tenant last asked it
}

// begin begins probes for which there are places. The others wait.
func (l *loop) begin(ctx context.Context, probes []*probe) {
	l.waiting = nil
	for _, p := range probes {
		_, known := l.cfg.Testers[p.tester]
		running, h := l.probes[p.key], l.hosts[p.at]
		if h == nil {
			h = &host{turns: map[string]int{}}
			l.hosts[p.at] = h
		}
		p.host, p.standing = h, h.standing
		switch {
		case !known:
			l.note(p, finding{Answer{Says: l.unknown(p.tester)}, Failed})
		case running != nil && running.givenUp, h.givenUp >= l.cfg.PerHost:
			l.note(p, finding{Answer{Says: "not tested: an earlier test has not returned yet"}, TimedOut})
		case running != nil: // these groups were not there when it began, or not due: they are next
		default:
			l.waiting = append(l.waiting, p)
		}
	}
	for p := l.next(); p != nil; p = l.next() {
		l.waiting = slices.DeleteFunc(l.waiting, func(other *probe) bool { return other == p })
		l.start(ctx, p)
	}
}

// next returns the probe that is next and has a place, and sets its tenant; nil if there is none.
// The tenant that took a place the longest ago chooses the host. At that host, the tenant that
// asked it the longest ago is next.
func (l *loop) next() *probe {
	p := l.first(l.waiting, func(p *probe) map[string]int { return l.places[p.standing].turns })
	if p == nil {
		return nil
	}
	there := slices.DeleteFunc(slices.Clone(l.waiting), func(other *probe) bool { return other.host != p.host })
	return l.first(there, func(p *probe) map[string]int { return p.host.turns })
}

// first returns the probe of the tenant with the oldest turn. With equal turns it is the first that
// was due.
func (l *loop) first(probes []*probe, turns func(*probe) map[string]int) (first *probe) {
	least := 0
	for _, p := range probes {
		if p.host.probes >= l.cfg.PerHost {
			continue
		}
		for _, tenant := range p.tenants {
			turn := turns(p)[tenant]
			if (first == nil || turn < least) && l.places[p.standing].may(tenant, l.cfg.Parallel) {
				first, least, p.whose = p, turn, tenant
			}
		}
	}
	return first
}

// start begins a probe.
func (l *loop) start(ctx context.Context, p *probe) {
	l.turns++
	l.probes[p.key] = p
	p.host.probes++
	p.host.turns[p.whose], l.places[p.standing].turns[p.whose] = l.turns, l.turns
	l.count(p, 1)
	l.wg.Go(func() { l.probe(ctx, p, l.cfg.Testers[p.tester]) })
}

// count notes that a probe takes its place (1) or leaves it (-1).
func (l *loop) count(p *probe, n int) {
	s := &l.places[p.standing]
	s.taken += n
	if s.of[p.whose] += n; s.of[p.whose] == 0 {
		delete(s.of, p.whose)
	}
}

// hear takes in the news of a probe.
func (l *loop) hear(n news) {
	p := n.probe
	h := p.host
	if !n.late {
		l.count(p, -1)
		l.note(p, n.finding)
		h.standing, h.heard = answers, time.Now()
		if n.outcome == TimedOut {
			h.standing = silent
		}
	}
	switch {
	case !n.returned:
		p.givenUp = true
		h.givenUp++
		return
	case n.late:
		h.givenUp--
	}
	delete(l.probes, p.key)
	h.probes--
}

// forget forgets hosts that were not asked for a long time.
func (l *loop) forget() {
	if time.Since(l.forgot) < hostLife {
		return
	}
	l.forgot = time.Now()
	maps.DeleteFunc(l.hosts, func(_ string, h *host) bool { return h.probes == 0 && time.Since(h.heard) > hostLife })
}

// hostOf returns the host that a probe asks. A probe that names none is its own host.
func hostOf(params map[string]string, key string) string {
	at := params["host"]
	if u, err := url.Parse(params["url"]); at == "" && err == nil {
		at = u.Hostname()
	}
	if at == "" {
		return key
	}
	if name, _, err := net.SplitHostPort(at); err == nil {
		at = name
	}
	return strings.ToLower(at)
}
