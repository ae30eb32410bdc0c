package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

const (
	// groups that are asked for at once, beside as many as were due when it was last asked
	page    = 100
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
	// of probes under way, but for those that were given up: by what was known of their hosts when
	// they began
	places [standings]places
	turns  int       // how many probes have begun
	looked time.Time // when it was asked what is due
	due    int       // groups that were due then
	// waiting are those that were due then, and for whom there was no place. They are not asked for
	// anew each time that a place is free: there may be many.
	waiting []*probe
	found   []groups.Test // to be written

	news  chan news
	ended chan struct{} // closed when nobody listens for news any more
	wg    sync.WaitGroup
}

func newLoop(r *Recovery, f job.Fence) *loop {
	l := &loop{
		Recovery: r, fence: f, probes: map[string]*probe{}, hosts: map[string]*host{}, news: make(chan news),
		ended: make(chan struct{}),
	}
	for i := range l.places {
		l.places[i] = places{of: map[string]int{}, turns: map[string]int{}}
	}
	return l
}

// end waits for testers that return, now that the context of run has ended, or run has. Others are
// left behind.
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
	told, err := engine.Try(ctx, l.cfg.Log, "listen for tests",
		func() (broker.Subscription, error) { return l.cfg.Broker.Subscribe(ctx, engine.TestsTopic) })
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

// after returns when to look again at the earliest. Who has read of many groups does not do so all
// the time.
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

// look begins the tests that are due, as far as there are places, and returns when the next one is;
// zero: none is as far as is known.
func (l *loop) look(ctx context.Context) (at time.Time, err error) {
	l.forget()
	for limit := page + l.due; ; limit *= 2 {
		a, err := engine.Try(ctx, l.cfg.Log, "tests",
			func() (store.Tests, error) { return l.cfg.Store.Tests(ctx, l.fence.Duty, limit) })
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

// ask makes probes of groups that are due, those first that are due first, and returns how many
// these groups are.
func (l *loop) ask(a *store.Tests) (all []*probe, due int) {
	known := map[string]*probe{}
	for i := range a.Due {
		g := &a.Due[i]
		key, q := g.Block.Probe(), Question{Params: g.Block.Params}
		if _, private := l.cfg.Testers[g.Block.Tester].(Private); private {
			key, q.Tenant = key+"/"+g.Tenant, g.Tenant
		}
		p := known[key]
		if p == nil {
			p = &probe{key: key, at: hostOf(g.Block.Params, key), tester: g.Block.Tester, q: q}
			known[key] = p
			all = append(all, p)
		}
		p.tests = append(p.tests, asking{groups.Test{Tenant: g.Tenant, Key: g.Key, Began: a.Now}, g.BlockedSince()})
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
	// the same is asked for another tenant only
	return slices.DeleteFunc(all, func(p *probe) bool { return len(p.tenants) == 0 }), due
}

func (l *loop) unknown(tester string) string {
	if tester == SSH || tester == Scheduler {
		return fmt.Sprintf("tester %s is not there yet", tester)
	}
	return fmt.Sprintf("no tester %s is known here: correct the name that the job is blocked with, or register it",
		tester)
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

// share returns how many jobs of group i of n may go where so many of all together may; 0 where all
// may, or none of it.
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
		eff, err := engine.Try(ctx, l.cfg.Log, "write down tests",
			func() (store.Effects, error) { return l.cfg.Store.Tested(ctx, l.fence, some) })
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
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"),
		func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(s) > maxSays {
		s = strings.ToValidUTF8(s[:maxSays], "") + "…"
	}
	return s
}
