package recovery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pawl-jobs/pawl/job/groups"
)

// A probe is one question, and the groups that wait for its answer.
type probe struct {
	key     string
	at      string // its host
	tester  string
	q       Question
	tests   []asking // the group that has waited longest first: it is first if only some jobs may go
	tenants []string // the tenants for which it is due
	givenUp bool

	// What follows is set when there are places to be given.

	host     *host
	standing standing // whose places it uses
	whose    string   // the tenant that has the place
}

// An asking is a group that asks the question.
type asking struct {
	groups.Test           // what is written, without the result
	waits       time.Time // since when its jobs have waited: see [groups.Group.BlockedSince]
}

// news is the latest about a probe.
type news struct {
	*probe
	finding
	returned bool // the tester returned; else the probe is given up
	late     bool // the probe was given up before
}

// A finding is what a probe found.
type finding struct {
	Answer
	outcome Outcome
}

// probe calls a tester, and gives up if it takes too long. It returns when the tester has returned,
// or when the loop has ended and the tester is left behind.
func (l *loop) probe(ctx context.Context, p *probe, t Tester) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
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
		wait := time.NewTimer(grace)
		defer wait.Stop()
		select {
		case <-answered:
			tell(news{probe: p, finding: l.late(), returned: true})
		case <-wait.C:
			tell(news{probe: p, finding: l.late()})
			<-answered
			tell(news{probe: p, returned: true, late: true})
		}
	}
}

// late is the finding when there is no answer in time.
func (l *loop) late() finding {
	return finding{Answer{Says: fmt.Sprintf("no answer within %v", l.cfg.Timeout)}, TimedOut}
}

// test calls a tester. It survives a panic of the tester.
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
