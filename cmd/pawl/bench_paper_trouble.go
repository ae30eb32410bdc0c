package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A paperTrouble is a web server that is away at times, from which programs take a file; nil: there is none.
type paperTrouble struct {
	*http.Server
	url     string
	outages []outage
	begin   atomic.Pointer[time.Time] // nil: not yet
}

// An outage is a time in which the server is away, since the benchmark began.
type outage struct{ from, to time.Duration }

type troubleFigures struct {
	Blocked        int     `json:"blocked"` // jobs, at least once
	Outages        int     `json:"outages"` // until the last job had ended
	Off            float64 `json:"off_seconds"`
	IdealLeft      float64 `json:"ideal_left_seconds"`
	EfficiencyLeft float64 `json:"efficiency_left"`
}

// Of the time there are outages for a part, and each lasts for so long on average, by the paper's clock.
const (
	offPart = 0.05
	offTime = time.Minute
)

// newTrouble starts the server, and says how often it is tested and how fast jobs go on.
func (b *paperBench) newTrouble(p *programBed, ideal time.Duration) (*paperTrouble, error) {
	t := &paperTrouble{outages: b.outages(ideal)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.url = "http://" + l.Addr().String() + "/in"
	t.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if t.away() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("a small input\n")) //nolint:errcheck // who asks has gone
	})}
	go t.Serve(l) //nolint:errcheck // it is closed in the end
	policy := job.RecoveryPolicy{Name: string(job.FilesUnavailable), Stages: []job.Stage{{Every: b.scaled(time.Minute)}}}
	doc, err := job.Encode(policy)
	if err == nil {
		_, _, err = p.Policies().Apply(p.ctx, doc, pawl.AnyVersion)
	}
	if err == nil {
		err = p.SetLimit(p.ctx, job.Limit{Key: job.RateReleases + "/*", Most: 10 * b.speedup, Per: job.Duration(time.Second)})
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// scaled returns a time of the paper as long as it is here.
func (b *paperBench) scaled(d time.Duration) job.Duration {
	return job.Duration(d / time.Duration(b.speedup))
}

// outages draws when the server is away, for a time that is somewhat longer than the ideal.
func (b *paperBench) outages(ideal time.Duration) []outage {
	rnd := rand.New(rand.NewPCG(b.seed, 1))
	whole := ideal * 5 / 4
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
	all, at := make([]outage, n), time.Duration(0)
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

func (t *paperTrouble) away() bool {
	begin := t.begin.Load()
	if begin == nil {
		return false
	}
	at := time.Since(*begin)
	return slices.ContainsFunc(t.outages, func(o outage) bool { return at >= o.from && at < o.to })
}

func (t *paperTrouble) close() error { return t.Close() }

// needs has a program take the file.
func (t *paperTrouble) needs(_ int, spec *job.Spec) {
	if t != nil {
		spec.Inputs = []job.Input{{From: t.url, To: "in"}}
	}
}

// figures tells what the outages did.
func (t *paperTrouble) figures(p *programBed, sleeps []time.Duration, places int, makespan time.Duration) (*troubleFigures, error) {
	if t == nil {
		return nil, nil
	}
	f := &troubleFigures{}
	for _, o := range t.outages {
		if o.from < makespan {
			f.Outages++
			f.Off += (min(o.to, makespan) - o.from).Seconds()
		}
	}
	f.Off = rounded(f.Off, 2)
	left := scheduledAround(sleeps, places, t.outages)
	f.IdealLeft, f.EfficiencyLeft = rounded(left.Seconds(), 3), rounded(left.Seconds()/makespan.Seconds(), 4)
	q := store.Query{Limit: 1000}
	for {
		page, err := p.List(p.ctx, q)
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

// scheduledAround is list scheduling in which no job begins during an outage.
func scheduledAround(jobs []time.Duration, places int, outages []outage) time.Duration {
	free := make([]time.Duration, places)
	for _, d := range jobs {
		first := 0
		for i, at := range free {
			if at < free[first] {
				first = i
			}
		}
		at := free[first]
		for _, o := range outages {
			if at >= o.from && at < o.to {
				at = o.to
			}
		}
		free[first] = at + d
	}
	return slices.Max(free)
}
