package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/guard"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

const (
	page    = 100                   // groups that are asked for at once, beside as many as were due when it was last asked
	most    = 1000                  // that are written at once
	soon    = 10 * time.Millisecond // how far apart looks are
	gather  = 50 * time.Millisecond // how far apart looks are that others ask for
	reading = time.Millisecond / 10 // how far apart looks are for each group that was due, up to fresh
	fresh   = time.Second           // for how long those wait for places of whom a look told
	grace   = time.Second / 2       // for how long a tester that is cut off may take to return
	leave   = time.Second           // for how long who stops waits for testers to return
	forgets = time.Hour             // after which, or twice that, it does not matter whether a host answered
	maxSays = 500                   // bytes of what a test says
)

// A loop is one holding of a duty. Everything in it is its own, but for news.
type loop struct {
	*Recovery
	fence job.Fence

	probes map[string]*probe // by key: those that have not returned, given up or not
	hosts  map[string]*host  // those that they ask, and have asked
	forgot time.Time         // when hosts were forgotten that nobody asks any more
	places [standings]places // of probes under way, but for those that were given up: by what was known of their hosts when they began
	turns  int               // how many probes have begun
	looked time.Time         // when it was asked what is due
	due    int               // groups that were due then
	// waiting are those that were due then, and for whom there was no place. They are not asked for anew each time that a place is free:
	// there may be many.
	waiting []*probe
	found   []store.Test // to be written

	news  chan news
	ended chan struct{} // closed when nobody listens for news any more
	wg    sync.WaitGroup
}

// A standing is what is known of a host. Probes of each have places of their own, so that those which hang keep none from hosts that answer.
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

// may reports whether a tenant may take one more of so many: while more are free than it has. So nobody has more than half of them, two have
// no more than three quarters, and so on: of 32, five have no more than 31, and who has none finds one.
func (s *places) may(tenant string, all int) bool {
	if guard.Share.Off() {
		return s.taken < all
	}
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

// A probe is one question, and the groups that its answer is for.
type probe struct {
	key     string
	at      string // its host
	tester  string
	q       Question
	tests   []asking // in the turn in which these get what there is for a few
	tenants []string // those for whom it is due
	givenUp bool

	// What follows is set when there are places to be given.

	host     *host
	standing standing // in which it has its place
	whose    string   // the tenant that has it
}

// An asking is a group for which a probe asks.
type asking struct {
	store.Test           // as it is written, but for what is found
	waits      time.Time // since when it has had no turn: see [store.Group.Waits]
}

// news is what has become of a probe.
type news struct {
	*probe
	finding
	returned bool // it is over; else it was given up
	late     bool // it was given up before
}

// A finding is what a probe found.
type finding struct {
	Answer
	outcome Outcome
}

func newLoop(r *Recovery, f job.Fence) *loop {
	l := &loop{Recovery: r, fence: f, probes: map[string]*probe{}, hosts: map[string]*host{}, news: make(chan news), ended: make(chan struct{})}
	for i := range l.places {
		l.places[i] = places{of: map[string]int{}, turns: map[string]int{}}
	}
	return l
}

// end waits for testers that return, now that the context of run has ended, or run has. Others are left behind.
func (l *loop) end() {
	close(l.ended)
	returned := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(returned)
	}()
	patience := time.NewTimer(leave)
	defer patience.Stop()
	select {
	case <-returned:
	case <-patience.C:
		l.cfg.Log.Warn("testers that do not stop are left behind", "duty", l.fence.Duty)
	}
}

// run makes tests until ctx ends or something fails for good.
func (l *loop) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	told, err := engine.Try(ctx, l.cfg.Log, "listen for tests", func() (broker.Subscription, error) { return l.cfg.Broker.Subscribe(ctx, engine.TestsTopic) })
	if err != nil {
		return err
	}
	defer told.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at := time.Now(); ; { // when to look; zero: there is nothing to look for
		var due <-chan time.Time
		if !at.IsZero() {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-due:
			at, err = l.look(ctx)
		case <-told.Messages():
			for len(told.Messages()) > 0 { // one look is enough for many
				<-told.Messages()
			}
			at = earlier(at, l.after(gather))
		case <-told.Lost():
			at = earlier(at, l.after(gather))
		case n := <-l.news:
			l.hear(n)
			for more := true; more; { // what is ready is written together
				select {
				case n := <-l.news:
					l.hear(n)
				default:
					more = false
				}
			}
			again := l.looked.Add(fresh)
			if time.Now().Before(again) {
				l.begin(ctx, l.waiting)
			}
			if len(l.waiting) == 0 {
				again = l.after(soon)
			}
			at = earlier(at, again)
			err = l.write(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// after returns when to look again at the earliest. Who has read of many groups does not do so all the time.
func (l *loop) after(d time.Duration) time.Time {
	return l.looked.Add(max(d, min(fresh, time.Duration(l.due)*reading)))
}

// earlier returns the earlier of two times, of which the first may be zero: then it is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// look begins the tests that are due, as far as there are places, and returns when the next one is; zero: none is as far as is known.
func (l *loop) look(ctx context.Context) (at time.Time, err error) {
	l.forget()
	for limit := page + l.due; ; limit *= 2 {
		a, err := engine.Try(ctx, l.cfg.Log, "tests", func() (store.Tests, error) { return l.cfg.Store.Tests(ctx, l.fence.Duty, limit) })
		if err != nil {
			return at, err
		}
		probes, due := l.ask(&a)
		if due >= limit && slices.ContainsFunc(l.places[:], func(s places) bool { return s.taken < l.cfg.Parallel }) {
			continue // behind those who are many others may stand, whose turn it is
		}
		l.looked, l.due = time.Now(), due
		l.begin(ctx, probes)
		told := len(l.found) > 0
		if err := l.write(ctx); err != nil {
			return at, err
		}
		if !a.Next.IsZero() {
			at = l.after(max(soon, a.Next.Sub(a.Now)))
		}
		if told {
			at = earlier(at, l.after(soon)) // when these are due next
		}
		return at, nil
	}
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
		if guard.Apart.Off() {
			p.standing = answers
		}
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

// next returns who of those that wait is next, with the tenant that takes the place; nil: there is none for any of them. That tenant is next
// which took one the longest ago, but for its host: there it is the one which asked that host the longest ago.
func (l *loop) next() *probe {
	p := l.first(l.waiting, func(p *probe) map[string]int { return l.places[p.standing].turns })
	if p == nil {
		return nil
	}
	there := slices.DeleteFunc(slices.Clone(l.waiting), func(other *probe) bool { return other.host != p.host })
	return l.first(there, func(p *probe) map[string]int { return p.host.turns })
}

// first returns who is first by the turns of tenants, and where these are the same, the first that was due.
func (l *loop) first(probes []*probe, turns func(*probe) map[string]int) (first *probe) {
	least := 0
	for _, p := range probes {
		if p.host.probes >= l.cfg.PerHost && !guard.PerHost.Off() {
			continue
		}
		for _, tenant := range p.tenants {
			turn := turns(p)[tenant]
			if guard.Round.Off() {
				turn = 0
			}
			if (first == nil || turn < least) && l.places[p.standing].may(tenant, l.cfg.Parallel) {
				first, least, p.whose = p, turn, tenant
			}
		}
	}
	return first
}

// ask makes probes of groups that are due, those first that are due first, and returns how many these groups are.
func (l *loop) ask(a *store.Tests) (all []*probe, due int) {
	known := map[string]*probe{}
	for i := range a.Due {
		g := &a.Due[i]
		key, q := g.Block.Probe(), Question{Params: g.Block.Params}
		if _, private := l.cfg.Testers[g.Block.Tester].(Private); private {
			key, q.Tenant = key+"/"+g.Tenant, g.Tenant
		}
		if guard.Same.Off() {
			key += "/" + g.Tenant + "/" + g.Key
		}
		p := known[key]
		if p == nil {
			p = &probe{key: key, at: hostOf(g.Block.Params, key), tester: g.Block.Tester, q: q}
			known[key] = p
			all = append(all, p)
		}
		p.tests = append(p.tests, asking{store.Test{Tenant: g.Tenant, Key: g.Key, Began: a.Now}, g.Waits()})
		if !g.Next.After(a.Now) {
			if due++; !slices.Contains(p.tenants, g.Tenant) {
				p.tenants = append(p.tenants, g.Tenant)
			}
		}
	}
	for _, p := range all {
		slices.SortFunc(p.tests, func(a, b asking) int {
			return cmp.Or(a.waits.Compare(b.waits), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
		})
	}
	return slices.DeleteFunc(all, func(p *probe) bool { return len(p.tenants) == 0 }), due // the same is asked for another tenant only
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

func (l *loop) unknown(tester string) string {
	if tester == SSH || tester == Scheduler {
		return fmt.Sprintf("tester %s is not there yet", tester)
	}
	return fmt.Sprintf("no tester %s is known here: correct the name that the job is blocked with, or register it", tester)
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

// probe asks a tester, and gives it up when it takes too long. It returns when the tester has, or when the loop has ended and the tester is
// left behind.
func (l *loop) probe(ctx context.Context, p *probe, t Tester) {
	if !guard.CutOff.Off() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.cfg.Timeout)
		defer cancel()
	}
	answered := make(chan finding, 1)
	l.wg.Go(func() { l.test(ctx, p, t, answered) })
	tell := func(n news) {
		select {
		case l.news <- n:
		case <-l.ended:
		}
	}
	select {
	case f := <-answered:
		tell(news{probe: p, finding: f, returned: true})
	case <-ctx.Done():
		patience := time.NewTimer(grace)
		defer patience.Stop()
		select {
		case <-answered:
			tell(news{probe: p, finding: l.late(), returned: true})
		case <-patience.C:
			tell(news{probe: p, finding: l.late()})
			<-answered
			tell(news{probe: p, returned: true, late: true})
		}
	}
}

// late is what is found where there is no answer.
func (l *loop) late() finding {
	return finding{Answer{Says: fmt.Sprintf("no answer within %v", l.cfg.Timeout)}, TimedOut}
}

// test calls a tester, whatever that does.
func (l *loop) test(ctx context.Context, p *probe, t Tester, answered chan<- finding) {
	f := finding{Answer{Says: "the tester ended its goroutine"}, Failed}
	defer func() {
		if cause := recover(); cause != nil {
			l.cfg.Log.Error("a tester panicked", "tester", p.tester, "panic", cause, "stack", string(debug.Stack()))
			f.Says = fmt.Sprintf("the tester panicked: %v", cause)
		}
		answered <- f
	}()
	a, err := t.Test(ctx, p.q)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		f = l.late()
	case err != nil:
		f = finding{Answer{Says: err.Error()}, Failed}
	case a.Clear:
		f = finding{a, Cleared}
	default:
		f = finding{a, NotClear}
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

// note keeps what was found, to be written.
func (l *loop) note(p *probe, f finding) {
	tester := p.tester
	if _, known := l.cfg.Testers[tester]; !known {
		tester = "unknown" // whoever blocks jobs chooses the name
	}
	l.cfg.Probed(tester, f.outcome)
	for i := range p.tests {
		t := p.tests[i].Test
		t.Clear, t.May, t.Result = f.Clear, share(f.May, len(p.tests), i), sentence(f.Says)
		switch {
		case !f.Clear:
			t.May, t.After = 0, f.After
		case f.May > 0 && t.May == 0:
			t.Clear, t.Result = false, sentence("no more jobs may go now than those of other groups: "+f.Says)
		}
		l.found = append(l.found, t)
	}
}

// share returns how many jobs of group i of n may go where so many of all together may; 0 where all may, or none of it.
func share(may, n, i int) int {
	if may <= 0 {
		return 0
	}
	if i < may%n {
		return may/n + 1
	}
	return may / n
}

// write writes down what was found, and has others hear of it.
func (l *loop) write(ctx context.Context) error {
	for len(l.found) > 0 {
		some := l.found[:min(len(l.found), most)]
		eff, err := engine.Try(ctx, l.cfg.Log, "write down tests", func() (store.Effects, error) { return l.cfg.Store.Tested(ctx, l.fence, some) })
		if err != nil {
			return err
		}
		l.cfg.Follow(ctx, eff)
		l.found = l.found[len(some):]
	}
	l.found = nil
	return nil
}

// sentence is what a test says as it is kept: one line of text that is not too long.
func sentence(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(s) > maxSays {
		s = strings.ToValidUTF8(s[:maxSays], "") + "…"
	}
	return s
}
