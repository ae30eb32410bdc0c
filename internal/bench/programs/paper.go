package programs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// PaperCommand makes the command bench local-paper.
func PaperCommand(o *bench.Options) *cobra.Command {
	b := &paperBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "local-paper",
		Short: "Measure how full a system with a limit is kept by programs on this machine",
		Long: `Local-paper submits --jobs programs to the system local, of which --limit may run at once. Each
sleeps for a time between 15 and 90 s, drawn evenly from --seed, divided by --speedup. It wires the
service as pawl run does, and sets the limit before.

makespan_seconds counts from the first call of submit until the last job is FINISHED in the database, its results archived: so the
time until the first programs run is in it, and the time at the end when fewer are left than may run.

  efficiency       the sum of all times, divided by the limit, divided by the makespan: 1 if --limit programs
                   slept at every moment.
  efficiency_list  the makespan of list scheduling, divided by that of Pawl: it starts the same programs in the order of their
                   submission, each the moment that a place is free, and knows of no other cost.

Each program writes its number to a file before it sleeps: launched_twice is how many numbers stand
there more than once, and lost how many jobs did not end, or are FINISHED without having run.
max_running is the most programs that slept at once, and the curve how many did on average, in parts
of the makespan: every 50 ms the processes of this machine are looked at, and those are counted that
are still there at a second look.

With --trouble each program takes files from eight of ten web servers, each of which answers 503 for
a twentieth of the time, in outages that are drawn from --seed and last for half a minute on
average, divided by the speedup. Who meets one is blocked, and goes on when it is over; a server is
tested once a minute, and jobs are released at 10 per second, by the paper's clock, which is faster
by the speedup. blocked counts the jobs that were blocked at least once.

  efficiency_left  the makespan of list scheduling in which no program starts while a server is away that it needs,
                   divided by that of Pawl.

With --preset the same engine does as Tapis Jobs does, every delay divided by the speedup and every
rate multiplied by it: tapis is all of

  throttles  10 jobs start, and 8 are launched, in 2 s at the most
  batches    of those that are blocked 10 go on after each test, all at once: no rate of releases holds them
  quotas     no limit holds programs back: who finds that --limit run is blocked, and it is tested once a minute whether fewer do

With --ssh the programs run on a system that a private SSH server serves on the loopback address,
which local-paper starts itself (Debian: openssh-server). The limit is that of this system. Then
beside_list_scheduling is efficiency_list, and running_at_most is max_running.

peak_mb is VmHWM: the most memory that this process had in RAM from the submit to the end, the benchmark included.`,
		Example: "  pawl bench local-paper --jobs 500\n  pawl bench local-paper --speedup 100 --db " +
			"postgres://localhost/pawl -o json",
	}, b.measure)
	cmd.Int(&b.jobs, "jobs", 10_000, 1, 1_000_000, "programs")
	cmd.Int(&b.speedup, "speedup", 50, 1, 10_000, "by how much faster than the paper's programs these are")
	cmd.Int(&b.most, "limit", 50, 1, 10_000, "programs that may run at once")
	cmd.Int(&b.slots, "slots", 0, 0, 1000, "slots in each lane (default: those of pawl run)")
	cmd.Flags().Uint64Var(&b.seed, "seed", 1, "of the times for which programs sleep")
	cmd.Flags().BoolVar(&b.trouble, "trouble", false, "programs need a file of a server that is away at times")
	cmd.Flags().BoolVar(&b.ssh, "ssh", false, "programs run on a system that a private SSH server serves")
	cmd.Flags().StringSliceVar(&b.preset, "preset", nil,
		"do as another service does: tapis, or some of throttles, batches, quotas")
	cmd.Timeout(30 * time.Minute)
	cmd.Profile(&b.profile, "a CPU profile")
	cmd.Check(b.checkPreset)
	return cmd.Command
}

type paperBench struct {
	jobs, speedup, most, slots int
	seed                       uint64
	trouble, ssh               bool
	preset                     []string
	profile                    string
}

type paperFigures struct {
	Jobs     int    `json:"jobs"`
	Limit    int    `json:"limit"`
	Speedup  int    `json:"speedup"`
	Seed     uint64 `json:"seed"`
	Database string `json:"database"`
	Preset   string `json:"preset,omitempty"`

	Efficiency     float64 `json:"efficiency"`
	EfficiencyList float64 `json:"efficiency_list"`
	Makespan       float64 `json:"makespan_seconds"`
	Ideal          float64 `json:"ideal_seconds"`
	List           float64 `json:"list_seconds"`

	Lost          int `json:"lost"`
	Failed        int `json:"failed"`
	LaunchedTwice int `json:"launched_twice"`
	MaxRunning    int `json:"max_running"`

	*troubleFigures
	*overSSHFigures

	Submit     float64 `json:"submit_seconds"` // until the last submit was answered
	Full       float64 `json:"full_seconds"`   // until as many programs ran as may
	Peak       float64 `json:"peak_mb"`        // VmHWM
	CPUPerJob  float64 `json:"cpu_us_per_job"` // of this process
	Programs   float64 `json:"programs_cpu_us_per_job"`
	Statements float64 `json:"statements_per_job"`

	Curve      []float64 `json:"running"` // on average, in each part
	CurveEvery float64   `json:"running_every_seconds"`
	bench.Machine
}

// overSSHFigures are told of programs that run over SSH.
type overSSHFigures struct {
	System        string  `json:"system"`
	BesideList    float64 `json:"beside_list_scheduling"`
	RunningAtMost int     `json:"running_at_most"`
}

// Rows implements [bench.Figures].
func (f *paperFigures) Rows(row func(name, format string, args ...any)) {
	row("efficiency", "%.3f: %.1f s, and %.1f s if %d programs slept at every moment", f.Efficiency, f.Makespan,
		f.Ideal, f.Limit)
	row("list scheduling", "%.3f: %.1f s without any cost", f.EfficiencyList, f.List)
	if t := f.troubleFigures; t != nil {
		row("beside outages", "%.3f: %.1f s if no program starts in one, without any other cost; %d outages, "+
			"%.1f %% of the time", t.EfficiencyLeft, t.IdealLeft, t.Outages, 100*t.Off)
		row("blocked", "%d of %d jobs at least once, %.0f %%", t.Blocked, f.Jobs,
			100*float64(t.Blocked)/float64(f.Jobs))
	}
	row("jobs", "%d lost, %d failed, %d launched twice", f.Lost, f.Failed, f.LaunchedTwice)
	row("running", "%d at most, limit %d; all places taken after %.2f s", f.MaxRunning, f.Limit, f.Full)
	row("cost", "%.0f µs of CPU per job and %.0f µs of its programs; %.1f statements per job; %.1f MB at most",
		f.CPUPerJob, f.Programs, f.Statements, f.Peak)
	if s := f.overSSHFigures; s != nil {
		row("over SSH", "all of them, on the system %s", s.System)
	}
	row("load", "%d programs on %s, 15-90 s divided by %d, seed %d, submitted within %.2f s", f.Jobs, f.Database,
		f.Speedup, f.Seed, f.Submit)
}

// system is the name of the system on which the programs run.
func (b *paperBench) system() string {
	if b.ssh {
		return "far"
	}
	return job.SystemLocal
}

// A paperProgram tells that it runs, and becomes one that sleeps. It is one process, as any
// program, and a cheap one.
const paperProgram = `echo "$1" >>"$2" && exec "$3" "$4"`

func (b *paperBench) measure(ctx context.Context, m *bench.Measurement) (_ bench.Figures, err error) {
	// Programs outlive their service; those of a benchmark must not.
	defer func() { err = errors.Join(err, bed.EndPrograms(m.Dir)) }()
	sleeps := b.sleeps()
	var sum time.Duration
	for _, d := range sleeps {
		sum += d
	}
	f := &paperFigures{
		Jobs: b.jobs, Limit: b.most, Speedup: b.speedup, Seed: b.seed, Database: "SQLite",
		Machine: m.Machine,
	}
	f.Preset = strings.Join(b.preset, ",")
	ideal, list := sum/time.Duration(b.most), listScheduled(sleeps, b.most, nil)

	o := node.Options{Logger: m.Log, Options: engine.Options{Slots: laneSlots(b.slots)}}
	if m.DB != "" {
		f.Database, o.DB.DSN = "PostgreSQL", m.DB
		var remove func() error
		if o.DB.Schema, remove, err = m.Schema(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	preset := b.newPreset(&o)
	var server *bed.SSHD
	if b.ssh {
		if server, err = bed.StartSSHD(ctx, filepath.Join(m.Dir, "sshd")); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
	}
	p, err := bed.Open(ctx, filepath.Join(m.Dir, "pawl"), o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if b.ssh {
		if err := p.AddSystem(server.System(b.system(), filepath.Join(m.Dir, "there"), server.Port)); err != nil {
			return nil, err
		}
	}
	if err := preset.set(p); err != nil {
		return nil, err
	}
	var trouble *paperTrouble
	if b.trouble {
		if trouble, err = b.newTrouble(p, ideal); err != nil {
			return nil, err
		}
		defer trouble.close()
	}
	program, err := newSleeper(m.Dir)
	if err != nil {
		return nil, err
	}
	ledger := filepath.Join(m.Dir, "ledger")
	if err := bed.ForgetPeak(); err != nil {
		return nil, err
	}
	if b.profile != "" {
		stop, err := bench.StartProfile(b.profile)
		if err != nil {
			return nil, err
		}
		defer stop()
	}

	statements := p.Store.Statements()
	begin, used, usedByPrograms := time.Now(), bench.UsedCPU(), usedByChildren()
	trouble.start(begin)
	look := watchPrograms(p.Context(), program, begin)
	defer look.end()
	if _, err := p.SubmitAll(b.jobs, func(i int) job.Spec {
		seconds := strconv.FormatFloat(sleeps[i].Seconds(), 'f', 6, 64)
		spec := job.Spec{System: b.system(), Command: []string{
			"/bin/sh", "-c", paperProgram, "sleeper", strconv.Itoa(i), ledger,
			program, seconds,
		}}
		trouble.needs(i, &spec)
		return spec
	}); err != nil {
		return nil, err
	}
	f.Submit = bench.Rounded(time.Since(begin).Seconds(), 2)
	fmt.Fprintf(m.Progress, "%d programs are submitted after %.1f s; they need %.1f s\n", b.jobs, f.Submit,
		ideal.Seconds())
	if err := bench.Wait(p.Context(), ideal-time.Since(begin)); err != nil { // before that they cannot have ended
		return nil, err
	}
	end, counts, err := p.AllEnded(begin.Add(10*ideal + time.Minute))
	if err != nil {
		return nil, err
	}
	makespan := end.Sub(begin)
	each := func(d time.Duration) float64 { return bench.Rounded(float64(d.Microseconds())/float64(b.jobs), 1) }
	f.CPUPerJob, f.Programs = each(bench.UsedCPU()-used), each(usedByChildren()-usedByPrograms)
	f.Statements = bench.Rounded(float64(p.Store.Statements()-statements)/float64(b.jobs), 2)
	f.Peak = bed.PeakMB()
	seen := look.end()
	f.MaxRunning, f.Full = seen.most(), bench.Rounded(seen.reached(b.most).Seconds(), 2)
	f.Curve, f.CurveEvery = seen.curve(makespan)

	f.Makespan, f.Ideal, f.List = bench.Rounded(makespan.Seconds(), 3), bench.Rounded(ideal.Seconds(), 3),
		bench.Rounded(list.Seconds(), 3)
	f.Efficiency, f.EfficiencyList = bench.Rounded(ideal.Seconds()/makespan.Seconds(), 4),
		bench.Rounded(list.Seconds()/makespan.Seconds(), 4)
	if f.troubleFigures, err = trouble.figures(p, sleeps, b.most, makespan); err != nil {
		return nil, err
	}
	finished := counts[job.Finished] - p.Warm()
	f.Failed = counts[job.Failed] + counts[job.Canceled]
	ran, err := bed.Launches(ledger)
	if err != nil {
		return nil, err
	}
	for _, n := range ran {
		if n > 1 {
			f.LaunchedTwice++
		}
	}
	f.Lost = b.jobs - finished - f.Failed + max(0, finished-len(ran))
	if b.ssh {
		f.overSSHFigures = &overSSHFigures{b.system(), f.EfficiencyList, f.MaxRunning}
	}
	return f, nil
}

// sleeps returns for how long each program sleeps.
func (b *paperBench) sleeps() []time.Duration {
	const shortest, longest = 15 * time.Second, 90 * time.Second
	rnd := rand.New(rand.NewPCG(b.seed, 0))
	all := make([]time.Duration, b.jobs)
	for i := range all {
		all[i] = (shortest + time.Duration(rnd.Int64N(int64(longest-shortest)))) / time.Duration(b.speedup)
	}
	return all
}

// listScheduled returns when the last job ends if each begins, in their order, the moment that one
// of the places is free, and not before ready says so, which may be nil.
func listScheduled(jobs []time.Duration, places int, ready func(i int, at time.Duration) time.Duration) time.Duration {
	free := make([]time.Duration, places) // from when on
	for n, d := range jobs {
		first := 0
		for i, at := range free {
			if at < free[first] {
				first = i
			}
		}
		if ready != nil {
			free[first] = ready(n, free[first])
		}
		free[first] += d
	}
	return slices.Max(free)
}
