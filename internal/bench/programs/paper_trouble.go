package programs

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A paperTrouble is some web servers that are away at times, from which programs take files; nil:
// there is none.
type paperTrouble struct {
	servers []*paperServer
	needed  [][]int                   // by each program: its servers
	begin   atomic.Pointer[time.Time] // nil: not yet
}

type paperServer struct {
	*http.Server
	url     string
	outages []outage
}

// An outage is a time in which a server is away, since the benchmark began.
type outage struct{ from, to time.Duration }

type troubleFigures struct {
	Blocked        int     `json:"blocked"` // jobs, at least once
	Outages        int     `json:"outages"` // that began before the last job had ended
	Off            float64 `json:"off"`     // part of the time in which a server was away, on average
	IdealLeft      float64 `json:"ideal_left_seconds"`
	EfficiencyLeft float64 `json:"efficiency_left"`
}

// Of the time each server is away for a part, for so long at a time on average, by the paper's
// clock. Who needs eight of them is blocked with a probability of 1 - 0.95^8, a third, less what
// was made ready before: in the three years of which the paper tells 29 % were. An outage of a
// minute outlasts all that is made ready, so that nobody is left whom it could block, and of some
// seeds only 26 % are.
const (
	paperServers = 10
	paperNeeds   = 8
	offPart      = 0.05
	offTime      = 30 * time.Second
)

// drawTrouble draws when servers are away, and who needs which.
func (b *paperBench) drawTrouble(ideal time.Duration) *paperTrouble {
	t := &paperTrouble{needed: make([][]int, b.jobs)}
	rnd := rand.New(rand.NewPCG(b.seed, 1))
	for range paperServers {
		t.servers = append(t.servers, &paperServer{outages: b.outages(rnd, ideal)})
	}
	for i := range t.needed {
		t.needed[i] = rnd.Perm(paperServers)[:paperNeeds]
	}
	return t
}

// newTrouble starts the servers, and says how often they are tested.
func (b *paperBench) newTrouble(p *bed.Bed, ideal time.Duration) (_ *paperTrouble, err error) {
	t := b.drawTrouble(ideal)
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for _, s := range t.servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s.url = "http://" + l.Addr().String()
		s.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if begin := t.begin.Load(); begin != nil && s.away(time.Since(*begin)) > 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.Write([]byte("a small input\n")) //nolint:errcheck // who asks has gone
		})}
		go s.Serve(l) //nolint:errcheck // it is closed in the end
	}
	policy := job.RecoveryPolicy{
		Name:   string(job.FilesUnavailable),
		Stages: []job.Stage{{Every: b.scaled(time.Minute)}},
	}
	doc, err := job.Encode(policy)
	if err != nil {
		return nil, err
	}
	_, _, err = p.Policies().Apply(p.Context(), doc, service.AnyVersion)
	return t, err
}

// scaled returns a time of the paper as long as it is here.
func (b *paperBench) scaled(d time.Duration) job.Duration {
	return job.Duration(d / time.Duration(b.speedup))
}

// outages draws when a server is away: of the ideal time for its part, whatever the seed, and
// likewise of a time after that, for the run takes longer.
func (b *paperBench) outages(rnd *rand.Rand, ideal time.Duration) []outage {
	return append(b.outagesIn(rnd, 0, ideal), b.outagesIn(rnd, ideal, ideal/2)...)
}

// outagesIn draws when a server is away in a time that begins at one.
func (b *paperBench) outagesIn(rnd *rand.Rand, at, whole time.Duration) []outage {
	n := max(1, int(offPart*float64(whole)/(float64(offTime)/float64(b.speedup))))
	// All lengths, and all gaps, are drawn alike, and then stretched to what they come to together.
	draw := func(n int, sum time.Duration) []time.Duration {
		parts, drawn := make([]time.Duration, n), 0.0
		for i := range parts {
			e := rnd.ExpFloat64()
			parts[i], drawn = time.Duration(e*1e9), drawn+e
		}
		for i := range parts {
			parts[i] = time.Duration(float64(parts[i]) / (drawn * 1e9) * float64(sum))
		}
		return parts
	}
	off := time.Duration(offPart * float64(whole))
	lengths, gaps := draw(n, off), draw(n+1, whole-off)
	all := make([]outage, n)
	for i := range all {
		at += gaps[i]
		all[i] = outage{at, at + lengths[i]}
		at += lengths[i]
	}
	return all
}

// start lets the time of outages begin.
func (t *paperTrouble) start(begin time.Time) {
	if t != nil {
		t.begin.Store(&begin)
	}
}

// away returns for how long a server is still away, a time after the beginning; 0: it is there.
func (s *paperServer) away(at time.Duration) time.Duration {
	for _, o := range s.outages {
		if at >= o.from && at < o.to {
			return o.to - at
		}
	}
	return 0
}

func (t *paperTrouble) close() {
	for _, s := range t.servers {
		if s.Server != nil {
			s.Close()
		}
	}
}

// needs has a program take files.
func (t *paperTrouble) needs(i int, spec *job.Spec) {
	if t == nil {
		return
	}
	for _, n := range t.needed[i] {
		spec.Inputs = append(spec.Inputs, job.Input{From: t.servers[n].url + "/in", To: fmt.Sprint("in", n)})
	}
}

// figures tells what the outages did.
func (t *paperTrouble) figures(p *bed.Bed, sleeps []time.Duration, places int,
	makespan time.Duration,
) (*troubleFigures, error) {
	if t == nil {
		return nil, nil
	}
	f, off := &troubleFigures{}, time.Duration(0)
	for _, s := range t.servers {
		for _, o := range s.outages {
			if o.from < makespan {
				f.Outages++
				off += min(o.to, makespan) - o.from
			}
		}
	}
	f.Off = bench.Rounded(off.Seconds()/makespan.Seconds()/paperServers, 4)
	left := listScheduled(sleeps, places, t.ready)
	f.IdealLeft, f.EfficiencyLeft = bench.Rounded(left.Seconds(), 3),
		bench.Rounded(left.Seconds()/makespan.Seconds(), 4)
	for q := (store.Query{Limit: 1000}); ; {
		page, err := p.List(p.Context(), q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			if page.Jobs[i].Recoveries > 0 {
				f.Blocked++
			}
		}
		if page.Next == "" {
			return f, nil
		}
		q.Cursor = page.Next
	}
}

// ready returns when all that a program needs is there, not before a time.
func (t *paperTrouble) ready(i int, at time.Duration) time.Duration {
	for again := true; again; {
		again = false
		for _, n := range t.needed[i] {
			if wait := t.servers[n].away(at); wait > 0 {
				at, again = at+wait, true
			}
		}
	}
	return at
}
