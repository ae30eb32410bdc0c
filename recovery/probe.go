package recovery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pawl-jobs/pawl/job/groups"
)

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
	groups.Test           // as it is written, but for what is found
	waits       time.Time // since when it has had no turn: see [groups.Group.Waits]
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

// probe asks a tester, and gives it up when it takes too long. It returns when the tester has, or
// when the loop has ended and the tester is left behind.
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
