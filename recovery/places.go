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

// A standing is what is known of a host. Probes of each have places of their own, so that those
// which hang keep none from hosts that answer.
type standing int

const (
	stranger  standing = iota // it was not asked, as far as is known
	answers                   // it answered the newest probe, whatever it said
	silent                    // the newest probe had no answer in time
	standings                 // how many there are
)

// Places are taken by probes, each for one tenant.
type places struct {
	taken int
	of    map[string]int // by tenant
	turns map[string]int // when a tenant took its newest one, counted in probes
}

// may reports whether a tenant may take one more of so many: while more are free than it has. So
// nobody has more than half of them, two have no more than three quarters, and so on: of 32, five
// have no more than 31, and who has none finds one.
func (s *places) may(tenant string, all int) bool {
	return s.of[tenant] < all-s.taken
}

// A host is what probes ask.
type host struct {
	standing standing
	heard    time.Time      // since when that is known
	probes   int            // that have not returned
	givenUp  int            // of these
	turns    map[string]int // when a tenant asked it last, counted in probes
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

// next returns who of those that wait is next, with the tenant that takes the place; nil: there is
// none for any of them. That tenant is next which took one the longest ago, but for its host: there
// it is the one which asked that host the longest ago.
func (l *loop) next() *probe {
	p := l.first(l.waiting, func(p *probe) map[string]int { return l.places[p.standing].turns })
	if p == nil {
		return nil
	}
	there := slices.DeleteFunc(slices.Clone(l.waiting), func(other *probe) bool { return other.host != p.host })
	return l.first(there, func(p *probe) map[string]int { return p.host.turns })
}

// first returns who is first by the turns of tenants, and where these are the same, the first that
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

// count notes that a probe has its place, or not any more.
func (l *loop) count(p *probe, n int) {
	s := &l.places[p.standing]
	s.taken += n
	if s.of[p.whose] += n; s.of[p.whose] == 0 {
		delete(s.of, p.whose)
	}
}

// hear takes in what has become of a probe.
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

// forget forgets hosts that nobody asks any more.
func (l *loop) forget() {
	if time.Since(l.forgot) < forgets {
		return
	}
	l.forgot = time.Now()
	maps.DeleteFunc(l.hosts, func(_ string, h *host) bool { return h.probes == 0 && time.Since(h.heard) > forgets })
}

// hostOf returns the host that a probe asks. One that names none stands for itself.
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
