package programs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

type sleepFigures struct {
	Sleepers int `json:"sleepers"`

	Peak   float64 `json:"peak_rss_mb"` // VmHWM
	Target float64 `json:"target_peak_rss_mb"`
	RSS    float64 `json:"rss_mb"`      // while all sleep
	Anon   float64 `json:"rss_anon_mb"` // of that, what is no file

	PerSleeper  float64 `json:"rss_kb_per_sleeper"` // more than before the first
	Descriptors int     `json:"descriptors"`        // more than before
	Goroutines  int     `json:"goroutines"`         // more than before
	CPU         float64 `json:"idle_cpu_percent"`   // of one core, while all sleep

	Launch       float64 `json:"launch_seconds"` // until all are RUNNING
	Notice       float64 `json:"notice_p50_ms"`  // the end of one, until ARCHIVING
	NoticeMax    float64 `json:"notice_max_ms"`
	NoticeTarget float64 `json:"target_notice_ms"`
	Cancel       float64 `json:"cancel_seconds"` // until all are CANCELED
	Left         int     `json:"processes_left"` // after that

	Bare            int     `json:"bare_sleepers"`
	BarePerSleeper  float64 `json:"bare_rss_kb_per_sleeper"`
	BareDescriptors float64 `json:"bare_descriptors_per_sleeper"`
	BareGoroutines  float64 `json:"bare_goroutines_per_sleeper"`
}

// Rows implements [bench.Figures].
func (f *sleepFigures) Rows(row func(name, format string, args ...any)) {
	row("watching", "%.1f MB at most for %d sleeping programs, %.1f MB while they sleep (%.1f MB anonymous); "+
		"target %.0f MB", f.Peak, f.Sleepers, f.RSS, f.Anon, f.Target)
	row("for each", "%.1f kB; %d descriptors and %d goroutines for all; %.2f %% of a core", f.PerSleeper,
		f.Descriptors, f.Goroutines, f.CPU)
	row("os/exec", "%.1f kB, %.1f descriptors, %.1f goroutines for each of %d", f.BarePerSleeper, f.BareDescriptors,
		f.BareGoroutines, f.Bare)
	row("among them", "one end to ARCHIVING p50 %.2f ms, max %.2f ms; target %.0f ms", f.Notice, f.NoticeMax,
		f.NoticeTarget)
	row("all of them", "launched in %.1f s, canceled in %.1f s, %d processes left", f.Launch, f.Cancel, f.Left)
}

// awaken is how many of the sleeping programs are let go, one after another.
const awaken = 20

// sleep measures what it costs to watch programs that sleep.
func (b *localBench) sleep(ctx context.Context, m *bench.Measurement, dir string) (_ *sleepFigures, err error) {
	f := &sleepFigures{Sleepers: b.sleepers, Target: 200, NoticeTarget: 10}
	if err := b.bareSleep(ctx, dir, f); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "pawl")
	p, err := bed.Open(ctx, data, node.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	shut, err := bed.OpenGate(dir, "shut")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shut.Close()) }()
	gates := make([]*bed.Gate, min(awaken, b.sleepers))
	for i := range gates {
		if gates[i], err = bed.OpenGate(dir, fmt.Sprint(i)); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, gates[i].Close()) }()
	}

	before := bed.OwnFootprint()
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	begin := time.Now()
	ids, err := p.SubmitAll(b.sleepers, func(i int) job.Spec {
		if i < len(gates) {
			return job.Spec{Command: gates[i].Command()}
		}
		return job.Spec{Command: []string{"/bin/cat", shut.Pipe()}} // it reads for as long as the pipe is open
	})
	if err != nil {
		return nil, err
	}
	end, err := p.Counted(func(counts map[job.State]int) bool { return counts[job.Running] == b.sleepers })
	if err != nil {
		return nil, err
	}
	f.Launch = bench.Rounded(end.Sub(begin).Seconds(), 2)
	fmt.Fprintf(m.Progress, "%d programs sleep after %.1f s\n", b.sleepers, f.Launch)

	used := bench.UsedCPU()
	if err := bench.Wait(p.Context(), sleepFor); err != nil {
		return nil, err
	}
	f.CPU = bench.Rounded(100*(bench.UsedCPU()-used).Seconds()/sleepFor.Seconds(), 2)
	f.RSS = bench.ResidentMB() // as it is, before anything is given back
	f.Anon = bed.AnonymousMB()
	now := bed.OwnFootprint()
	f.PerSleeper = bench.Rounded((now.RSS-before.RSS)*1024/float64(b.sleepers), 2)
	f.Descriptors, f.Goroutines = now.Descriptors-before.Descriptors, now.Goroutines-before.Goroutines

	var noticed []time.Duration
	for i, g := range gates {
		took, err := p.Noticed(g, ids[i], true)
		if err != nil {
			return nil, err
		}
		noticed = append(noticed, took)
	}
	f.Notice, _, f.NoticeMax = bench.Spread(noticed)

	begin = time.Now()
	rest := ids[len(gates):]
	for from := 0; from < len(rest); from += 1000 {
		if _, err := p.Cancel(p.Context(), rest[from:min(from+1000, len(rest))]...); err != nil {
			return nil, err
		}
	}
	end, err = p.Counted(func(counts map[job.State]int) bool { return counts[job.Canceled] == len(rest) })
	if err != nil {
		return nil, err
	}
	f.Cancel = bench.Rounded(end.Sub(begin).Seconds(), 2)
	f.Left = len(bed.ProgramsIn(data))
	f.Peak = bed.PeakMB()
	fmt.Fprintf(m.Progress, "all are canceled after %.1f s\n", f.Cancel)
	return f, nil
}

// sleepFor is how long the programs sleep before it is measured what they cost.
const sleepFor = 2 * time.Second

// bareSleep measures what package os/exec takes for a program that sleeps.
func (b *localBench) bareSleep(ctx context.Context, dir string, f *sleepFigures) (err error) {
	f.Bare = min(b.sleepers, 1000)
	shut, err := bed.OpenGate(dir, "bare")
	if err != nil {
		return err
	}
	var waits sync.WaitGroup
	ctx, end := context.WithCancel(ctx)
	defer func() {
		end() // they are killed: one that has not opened the pipe by now would wait for ever for somebody who writes
		waits.Wait()
		err = errors.Join(err, shut.Close())
	}()
	before := bed.OwnFootprint()
	for range f.Bare {
		cmd := exec.CommandContext(ctx, "/bin/cat", shut.Pipe())
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			return err
		}
		waits.Go(func() { _ = cmd.Wait() }) // how it ends is nobody's concern
	}
	now, n := bed.OwnFootprint(), float64(f.Bare)
	f.BarePerSleeper = bench.Rounded((now.RSS-before.RSS)*1024/n, 2)
	f.BareDescriptors, f.BareGoroutines = bench.Rounded(float64(now.Descriptors-before.Descriptors)/n, 2),
		bench.Rounded(float64(now.Goroutines-before.Goroutines)/n, 2)
	return nil
}
