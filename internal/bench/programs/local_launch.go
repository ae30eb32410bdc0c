package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

type launchFigures struct {
	Jobs  int `json:"jobs"`
	Slots int `json:"slots"` // in each lane, and workers of the rival

	JobsPerSecond float64 `json:"jobs_per_second"`
	Target        float64 `json:"target_jobs_per_second"`
	BarePerSecond float64 `json:"bare_jobs_per_second"`
	Ratio         float64 `json:"ratio_to_bare"`
	CPUPerJob     float64 `json:"cpu_us_per_job"`          // of this process
	ProgramsCPU   float64 `json:"programs_cpu_us_per_job"` // of the programs and their wrappers
	BareCPUPerJob float64 `json:"bare_cpu_us_per_job"`     // of both
	Statements    float64 `json:"statements_per_job"`
}

// Rows implements [bench.Figures].
func (f *launchFigures) Rows(row func(name, format string, args ...any)) {
	row("launches", "%.0f jobs/s through all states; bare loop %.0f jobs/s, ratio %.2f; target %.0f jobs/s",
		f.JobsPerSecond, f.BarePerSecond, f.Ratio, f.Target)
	row("launch cost", "%.0f µs of CPU per job and %.0f µs of its programs; bare loop %.0f µs; %.1f statements per job",
		f.CPUPerJob, f.ProgramsCPU, f.BareCPUPerJob, f.Statements)
	row("launch load", "%d jobs with one input and one archived output, %d slots in each lane", f.Jobs, f.Slots)
}

// launched is the program that is launched.
var launched = []string{"sh", "-c", "true; echo done >out"}

// launch measures jobs that go through all states.
func (b *localBench) launch(ctx context.Context, m *bench.Measurement, dir string) (_ *launchFigures, err error) {
	input := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(input, []byte("a small input\n"), 0o600); err != nil {
		return nil, err
	}
	f := &launchFigures{Jobs: b.jobs, Slots: engine.DefaultSlots[job.LanePrepare], Target: 150}
	if b.slots > 0 {
		f.Slots = b.slots
	}
	o := node.Options{Options: engine.Options{Slots: laneSlots(b.slots)}}
	ours, err := b.launchPawl(ctx, filepath.Join(dir, "pawl"), input, o, f)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(m.Progress, "pawl %.0f jobs/s\n", float64(b.jobs)/ours.Seconds())
	theirs, err := b.launchBare(ctx, filepath.Join(dir, "bare"), input, f)
	if err != nil {
		return nil, err
	}
	f.JobsPerSecond, f.BarePerSecond = bench.Rounded(float64(b.jobs)/ours.Seconds(), 1),
		bench.Rounded(float64(b.jobs)/theirs.Seconds(), 1)
	f.Ratio = bench.Rounded(theirs.Seconds()/ours.Seconds(), 3)
	return f, nil
}

// laneSlots gives each lane of programs n slots; 0: those that it has by default.
func laneSlots(n int) map[job.Lane]int {
	if n == 0 {
		return nil
	}
	return map[job.Lane]int{job.LanePrepare: n, job.LaneLaunch: n, job.LaneFinish: n}
}

func (b *localBench) launchPawl(ctx context.Context, dir, input string, o node.Options,
	f *launchFigures,
) (_ time.Duration, err error) {
	p, err := bed.Open(ctx, dir, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	spec := job.Spec{
		Command: launched, Inputs: []job.Input{{From: input}},
		Archive: &job.Archive{Include: []string{"out"}, Required: []string{"out"}},
	}
	const warm = 20
	done := func(n int) func(map[job.State]int) bool {
		return func(counts map[job.State]int) bool { return counts[job.Finished] == n+bench.WarmJobs }
	}
	if _, err := p.SubmitAll(warm, func(int) job.Spec { return spec }); err != nil {
		return 0, err
	}
	if _, err := p.Counted(done(warm)); err != nil {
		return 0, err
	}
	if b.profile != "" {
		stop, err := bench.StartProfile(b.profile)
		if err != nil {
			return 0, err
		}
		defer stop()
	}
	statements := p.Store.Statements()
	begin, used, usedByPrograms := time.Now(), bench.UsedCPU(), usedByChildren()
	if _, err := p.SubmitAll(b.jobs, func(int) job.Spec { return spec }); err != nil {
		return 0, err
	}
	end, err := p.Counted(done(warm + b.jobs))
	if err != nil {
		return 0, err
	}
	each := func(d time.Duration) float64 { return bench.Rounded(float64(d.Microseconds())/float64(b.jobs), 1) }
	f.CPUPerJob, f.ProgramsCPU = each(bench.UsedCPU()-used), each(usedByChildren()-usedByPrograms)
	f.Statements = bench.Rounded(float64(p.Store.Statements()-statements)/float64(b.jobs), 2)
	return end.Sub(begin), nil
}

// launchBare does with each job what has to be done at least: it copies the input, runs the
// program, and archives the output durably.
func (b *localBench) launchBare(ctx context.Context, dir, input string, f *launchFigures) (time.Duration, error) {
	archive := filepath.Join(dir, "archive")
	if err := os.MkdirAll(archive, 0o755); err != nil {
		return 0, err
	}
	fsys := node.LocalFiles()
	one := func(ctx context.Context, i int) error {
		work, to := filepath.Join(dir, fmt.Sprint(i)), filepath.Join(archive, fmt.Sprint(i))
		if err := errors.Join(os.Mkdir(work, 0o755), os.Mkdir(to, 0o755)); err != nil {
			return err
		}
		o := files.CopyOptions{PutOptions: files.PutOptions{NoSync: true}}
		if _, err := files.Copy(ctx, fsys, filepath.Join(work, "in.txt"), fsys, input, o); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, launched[0], launched[1:]...)
		cmd.Dir = work
		if err := cmd.Run(); err != nil {
			return err
		}
		if _, err := files.Copy(ctx, fsys, filepath.Join(to, "out"), fsys, filepath.Join(work, "out"),
			files.CopyOptions{}); err != nil {
			return err
		}
		return os.RemoveAll(work)
	}
	begin, used := time.Now(), bench.UsedCPU()+usedByChildren()
	var next atomic.Int64
	workers, ctx := errgroup.WithContext(ctx)
	for range f.Slots {
		workers.Go(func() error {
			for {
				i := int(next.Add(1))
				if i > b.jobs {
					return nil
				}
				if err := one(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	if err := workers.Wait(); err != nil {
		return 0, fmt.Errorf("bare loop: %w", err)
	}
	f.BareCPUPerJob = bench.Rounded(float64((bench.UsedCPU()+usedByChildren()-used).Microseconds())/float64(b.jobs), 1)
	return time.Since(begin), nil
}

// usedByChildren returns the CPU time of the children that have been waited for, and of all that
// they waited for.
func usedByChildren() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
