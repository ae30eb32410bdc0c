package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/service"
)

type sleepFigures struct {
	Programs    int     `json:"programs"`
	Peak        float64 `json:"peak_rss_mb"` // VmHWM
	Goroutines  int     `json:"goroutines"`  // more than before
	Descriptors int     `json:"descriptors"` // more than before
	Channels    int     `json:"channels"`    // at the server
	PerMinute   float64 `json:"commands_per_minute"`
	AtTen       float64 `json:"commands_per_minute_at_10"`

	rss, anon, launch float64
	watch             time.Duration
}

// Rows implements [bench.Figures].
func (f *sleepFigures) Rows(row func(name, format string, args ...any)) {
	row("watching", "%.1f MB at most for %d sleeping programs, %.1f MB while they sleep (%.1f MB anonymous)", f.Peak,
		f.Programs, f.rss, f.anon)
	row("for all of them", "%d goroutines and %d descriptors more than before; %d channels", f.Goroutines,
		f.Descriptors, f.Channels)
	row("requests", "%.1f a minute, %.1f with ten programs, each counted for %s", f.PerMinute, f.AtTen, f.watch)
	row("their launch", "%.1f s", f.launch)
}

// few is how many programs sleep at first.
const few = 10

// forLong is a time limit that no benchmark reaches.
var forLong = &job.Resources{Minutes: 24 * 60}

// sleep measures what it costs to watch programs that sleep.
func (p *part) sleep(ctx context.Context) (_ *sleepFigures, err error) {
	f := &sleepFigures{Programs: p.programs, watch: p.watch}
	b, err := p.openBed(ctx, far, p.server.Port)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	shut, err := bed.OpenGate(p.dir, "shut")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shut.Close()) }()
	before := bed.OwnFootprint()
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	running := 0
	run := func(n int) error {
		_, err := b.SubmitAll(n, func(int) job.Spec {
			// it reads for as long as the pipe is open
			return job.Spec{System: far, Command: []string{"/bin/cat", shut.Pipe()}, Resources: forLong}
		})
		if err != nil {
			return err
		}
		running += n
		_, err = b.Counted(func(counts map[job.State]int) bool { return counts[job.Running] == running })
		return err
	}
	if err := run(min(few, p.programs)); err != nil {
		return nil, err
	}
	if f.AtTen, err = p.perMinute(b); err != nil {
		return nil, err
	}
	begin := time.Now()
	if rest := p.programs - running; rest > 0 {
		if err := run(rest); err != nil {
			return nil, err
		}
	}
	f.launch = bench.Rounded(time.Since(begin).Seconds(), 1)
	fmt.Fprintf(p.Progress, "%d programs sleep after %.1f s\n", p.programs, f.launch)
	if f.PerMinute, err = p.perMinute(b); err != nil {
		return nil, err
	}
	f.rss, f.anon, f.Peak = bench.ResidentMB(), bed.AnonymousMB(), bed.PeakMB()
	now := bed.OwnFootprint()
	f.Goroutines, f.Descriptors = now.Goroutines-before.Goroutines, now.Descriptors-before.Descriptors
	f.Channels, err = p.server.Sessions()
	return f, err
}

// perMinute returns how many requests a minute a service makes of its system while its programs
// sleep.
func (p *part) perMinute(b *bed.Bed) (float64, error) {
	if err := bench.Wait(b.Context(), settle); err != nil {
		return 0, err
	}
	before, err := p.requests(b, far)
	if err != nil {
		return 0, err
	}
	if err := bench.Wait(b.Context(), p.watch); err != nil {
		return 0, err
	}
	after, err := p.requests(b, far)
	return bench.Rounded(float64(after-before)/p.watch.Minutes(), 1), err
}

// settle is how long after the last launch it is still looked at.
const settle = time.Second

type fakeFigures struct {
	Programs int     `json:"programs"`
	Peak     float64 `json:"peak_rss_mb"` // VmHWM

	rss, launch float64
}

// Rows implements [bench.Figures].
func (f *fakeFigures) Rows(row func(name, format string, args ...any)) {
	row("pretended", "%.1f MB at most for %d programs that are only pretended, %.1f MB when all run, after %.1f s",
		f.Peak, f.Programs, f.rss, f.launch)
}

// fake measures the memory that jobs take whose programs run.
func (p *part) fake(ctx context.Context) (_ *fakeFigures, err error) {
	f := &fakeFigures{Programs: p.ghosts}
	o := node.Options{Logger: p.Log}
	var g *ghosts
	o.Change = func(c *service.Config) {
		sys := c.Kinds[job.KindApp].(*app.Kind).Local()
		g = &ghosts{Runner: sys.Runner, host: sys.Host.ID()}
		sys.Runner = g
	}
	b, err := bed.Open(ctx, filepath.Join(p.dir, "pawl"), o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	g.on.Store(true)
	_ = bed.OwnFootprint() // gives back what is garbage
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	begin := time.Now()
	if _, err := b.SubmitAll(p.ghosts, func(int) job.Spec {
		return job.Spec{Command: []string{"true"}, Resources: forLong}
	}); err != nil {
		return nil, err
	}
	if _, err := b.Counted(func(counts map[job.State]int) bool { return counts[job.Running] == p.ghosts }); err != nil {
		return nil, err
	}
	f.launch, f.rss = bench.Rounded(time.Since(begin).Seconds(), 1), bench.ResidentMB()
	if err := bench.Wait(b.Context(), settle); err != nil {
		return nil, err
	}
	f.Peak = bed.PeakMB()
	return f, nil
}

// ghosts is a runner whose programs are only pretended, once it is on: they run for ever.
type ghosts struct {
	runner.Runner
	host string
	on   atomic.Bool
	last atomic.Int64
}

// Launch implements [runner.Runner].
func (g *ghosts) Launch(ctx context.Context, k runner.Key, plan runner.Plan) (h runner.Handle, err error) {
	if !g.on.Load() {
		return g.Runner.Launch(ctx, k, plan)
	}
	n := g.last.Add(1)
	// It is as long as a real one, which only its runner reads.
	err = json.Unmarshal(fmt.Appendf(nil, `{"host":%q,"dir":%q,"token":"PRETENDED%017d","locks":%d,`+
		`"process":{"boot":"%036d","pid":%d,"start":%d}}`, g.host, plan.Dir, n, 1<<61+n, 0, n, n), &h)
	h.Key = k
	return h, err
}

// Probe implements [runner.Runner].
func (g *ghosts) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	if !g.on.Load() {
		return g.Runner.Probe(ctx, hs)
	}
	all := make([]runner.Status, len(hs))
	for i := range all {
		all[i].State = runner.Active
	}
	return all, nil
}
