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
	pageSize  = 100                   // groups in one look, beside as many as were due at the last one
	batchSize = 1000                  // results in one write
	lookGap   = 10 * time.Millisecond // the least time between looks
	toldGap   = 50 * time.Millisecond // the same for looks that others ask for
	groupGap  = time.Millisecond / 10 // the same for each group that was due, up to lookAgain
	lookAgain = time.Second           // how old a look may be when its groups still wait for places
	grace     = time.Second / 2       // how long a tester that is cut off may take to return
	endGrace  = time.Second           // how long the end of the loop waits for testers to return
	hostLife  = time.Hour             // how long a host is remembered that nothing asks; up to twice that
	maxSays   = 500                   // bytes in the result of a test
)

// A loop makes the tests of a duty for as long as this process holds it. Only its own goroutine
// uses it, but for news.
type loop struct {
	*Recovery
	fence job.Fence

	probes map[string]*probe // by key: probes that have not returned, given up or not
	hosts  map[string]*host  // hosts that were asked lately
	forgot time.Time         // when forget last ran
	// places are those of probes that are under way and were not given up, by the standing of their
	// host when they began.
	places [standings]places
	turns  int       // how many probes have begun
	looked time.Time // when the last look was
	due    int       // how many groups were due then
	// waiting are probes that were due at the last look and found no place. They are kept, since a
	// look for each free place would be too many.
	waiting []*probe
	found   []groups.Test // results that are to be written

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

// end waits for testers to return, after run has returned or its context has ended. Testers that
// take too long are left behind.
func (l *loop) end() {
	close(l.ended)
	returned := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(returned)
	}()
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	select {
	case <-returned:
	case <-timer.C:
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
			at = earlier(at, l.after(toldGap))
		case <-told.Lost():
			at = earlier(at, l.after(toldGap))
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
			again := l.looked.Add(lookAgain)
			if time.Now().Before(again) {
				l.begin(ctx, l.waiting)
			}
			if len(l.waiting) == 0 {
				again = l.after(lookGap)
			}
			at = earlier(at, again)
			err = l.write(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// after returns the earliest time of the next look. The more groups were due, the later it is.
func (l *loop) after(d time.Duration) time.Time {
	return l.looked.Add(max(d, min(lookAgain, time.Duration(l.due)*groupGap)))
}

// earlier returns the earlier of two times. a may be zero, and then it does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// look begins the tests that are due, as far as there are places. It returns when the next one is
// due; zero if none is known.
func (l *loop) look(ctx context.Context) (at time.Time, err error) {
	l.forget()
	for limit := pageSize + l.due; ; limit *= 2 {
		a, err := engine.Try(ctx, l.cfg.Log, "tests",
			func() (store.Tests, error) { return l.cfg.Store.Tests(ctx, l.fence.Duty, limit) })
		if err != nil {
			return at, err
		}
		probes, due := l.ask(&a)
		if due >= limit && slices.ContainsFunc(l.places[:], func(s places) bool { return s.taken < l.cfg.Parallel }) {
			continue // many groups of one tenant may hide those of others
		}
		l.looked, l.due = time.Now(), due
		l.begin(ctx, probes)
		told := len(l.found) > 0
		if err := l.write(ctx); err != nil {
			return at, err
		}
		if !a.Next.IsZero() {
			at = l.after(max(lookGap, a.Next.Sub(a.Now)))
		}
		if told {
			at = earlier(at, l.after(lookGap)) // when these are due next
		}
		return at, nil
	}
}

// ask makes probes of groups. It returns the probes that are due, in the order of their groups, and
// how many groups are due.
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
		tester = "unknown" // handlers choose names freely: a metric must not grow with them
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

// share returns how many jobs of group i of n may go if may jobs of all groups together may go. It
// is 0 for no bound; and for a group that gets none.
func share(may, n, i int) int {
	if may <= 0 {
		return 0
	}
	if i < may%n {
		return may/n + 1
	}
	return may / n
}

// write writes down the results, and acts on what they mean for others.
func (l *loop) write(ctx context.Context) error {
	for len(l.found) > 0 {
		some := l.found[:min(len(l.found), batchSize)]
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

// sentence makes one line of text of a result, and cuts it to maxSays bytes.
func sentence(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"),
		func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(s) > maxSays {
		s = strings.ToValidUTF8(s[:maxSays], "") + "…"
	}
	return s
}
