package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/bench/library"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func tasksCommand(o *Options) *cobra.Command {
	b := &tasksBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "tasks",
		Short: "Measure how many tasks per second go through, beside bare SQL",
		Long: `Tasks submits no-op tasks, --batch of them with each call, while the service runs them in --slots slots.

What is counted: from the first call of submit until the last job is FINISHED in the database. Every job is committed,
and waits for the disk, three times on its way: when it is submitted, when it is claimed and when it ends; each time it
gets its row of history. Nothing is kept in memory only, and the handler is called for every job.

The rival is bare SQL, written by hand with prepared statements on the same driver, settings and schema, without Pawl's
code: it inserts the same rows --batch to a transaction, then claims and finishes --slots to a transaction until nothing
is left, many rows to a statement, which leaves the same rows of jobs, specs and events. It has no handler, checks no
lease, and decides nothing: it is the limit for whatever keeps this history in this database. With --db it works on two
connections side by side, and each takes half of --slots.

The two take turns, each on a fresh database, --rounds times. With --db there is one round before these that does not
count: a server that is new writes the files of its log for the first time, and only then uses them again. Figures are
medians; ratio_to_sql is the median of the rounds' own ratios, since a round's two halves share the state of a busy
machine; sql_limit_per_second is the best round of bare SQL. cpu_us_per_job is what this process used on all cores,
garbage collection included: it says more than the clock where others use the machine.

Then the same tasks are claimed by --workers workers over HTTP, as a program in another language would: each has one
connection to the API, claims up to its part of --slots, and finishes these with one call. They share the cores with the
service.

At the end Pawl is measured as a library. --transactions of a Go program, on connections of its own, write one row each,
besides enqueue a task, or besides insert a row in a table with three indexes: tx tells what a task and that row add to a
transaction, at the median, with the commit; how many a second 32 committers commit that enqueue, beside the same where
nobody is woken (without NOTIFY; in an embedded database: tasks that are not due); and how soon after the commit a waiting
handler starts. ratio_typed is the speed of typed handlers beside raw ones. schedules counts the statements a minute of an
idle service, without schedules and with --schedules that are not due.`,
		Example: "  pawl bench tasks --jobs 20000 --rounds 5",
	}, b.measure)
	cmd.Int(&b.jobs, "jobs", 100_000, 1, 10_000_000, "tasks in each round")
	cmd.Int(&b.slots, "slots", 200, 1, 10_000, "tasks that run at once")
	cmd.Int(&b.batch, "batch", 1000, 1, 100_000, "tasks in each call of submit")
	cmd.Int(&b.rounds, "rounds", 3, 1, 100, "rounds, of Pawl and bare SQL each")
	cmd.Flags().BoolVar(&b.later, "work-alone", false,
		"submit all tasks before the service runs, and measure from then on")
	cmd.Int(&b.kept, "kept", 0, 0, 100_000_000,
		"jobs that have ended before and are kept: bare SQL makes them, for Pawl and itself, before each round")
	cmd.Int(&b.workers, "workers", 4, 0, 1000, "workers that claim over HTTP; 0: this is not measured")
	cmd.Int(&b.transactions, "transactions", 2000, 0, 1_000_000,
		"transactions that enqueue; 0: they and typed handlers are not measured")
	cmd.Int(&b.schedules, "schedules", 100_000, 0, 1_000_000,
		"schedules that are not due; 0: they are not measured")
	term.DurationVar(cmd.Command, &b.idle, "idle", 30*time.Second,
		"how long the statements of an idle service are counted")
	cmd.Timeout(15 * time.Minute)
	cmd.Profile(&b.profile, "a CPU profile of Pawl's part of the first round")
	return cmd.Command
}

type tasksBench struct {
	jobs, slots, batch, rounds, kept, workers int
	transactions, schedules                   int
	idle                                      time.Duration
	later                                     bool
	profile                                   string
}

// noop is the kind of the tasks that are measured, and noopArgs what they are given.
const noop = "noop"

type noopArgs struct {
	N int `json:"n"`
}

// A taskRound is how long one round took.
type taskRound struct {
	submit time.Duration // until the last submit was answered
	whole  time.Duration
	cpu    time.Duration // that this process used meanwhile, on all cores
}

func (b *tasksBench) perSecond(d time.Duration) float64 { return float64(b.jobs) / d.Seconds() }

type taskFigures struct {
	Jobs   int `json:"jobs"`
	Slots  int `json:"slots"`
	Batch  int `json:"batch"`
	Rounds int `json:"rounds"`
	Kept   int `json:"kept"`

	JobsPerSecond      float64   `json:"jobs_per_second"`
	SubmitPerSecond    float64   `json:"submit_per_second"` // while the service runs what is there
	SQLJobsPerSecond   float64   `json:"sql_jobs_per_second"`
	SQLSubmitPerSecond float64   `json:"sql_submit_per_second"` // while nothing else runs
	SQLLimitPerSecond  float64   `json:"sql_limit_per_second"`
	RatioToSQL         float64   `json:"ratio_to_sql"`
	CPUPerJob          float64   `json:"cpu_us_per_job"`
	SQLCPUPerJob       float64   `json:"sql_cpu_us_per_job"`
	StatementsPerJob   float64   `json:"statements_per_job"`
	RSS                float64   `json:"rss_mb"`
	EachJobsPerSecond  []float64 `json:"jobs_per_second_rounds"`
	EachSQLPerSecond   []float64 `json:"sql_jobs_per_second_rounds"`

	HTTP       *httpFigures          `json:"http,omitempty"`
	Tx         *library.Transactions `json:"tx,omitempty"`
	RatioTyped float64               `json:"ratio_typed,omitempty"`
	Schedules  *library.Schedules    `json:"schedules,omitempty"`
	Machine
}

// Rows implements [Figures].
func (f *taskFigures) Rows(row func(name, format string, args ...any)) {
	row("pawl", "%.0f jobs/s, median of %.0f; submitted at %.0f jobs/s meanwhile", f.JobsPerSecond,
		f.EachJobsPerSecond, f.SubmitPerSecond)
	row("bare SQL", "%.0f jobs/s, median of %.0f; best %.0f", f.SQLJobsPerSecond, f.EachSQLPerSecond,
		f.SQLLimitPerSecond)
	row("ratio", "%.0f %% of bare SQL", 100*f.RatioToSQL)
	row("cost", "%.0f µs of CPU per job (bare SQL: %.0f), %.2f statements, %.0f MB resident", f.CPUPerJob,
		f.SQLCPUPerJob, f.StatementsPerJob, f.RSS)
	if h := f.HTTP; h != nil {
		row("over HTTP", "%.0f jobs/s by %d workers of %d slots in all: %.0f %% of those in the process; lost %d, "+
			"twice %d", h.TasksPerSecond, h.Workers, h.Slots, 100*h.Ratio, h.Lost, h.Twice)
	}
	if t := f.Tx; t != nil {
		row("in a transaction", "a task adds %.0f µs, a row with three indexes %.0f µs; a handler starts %.2f ms after the commit",
			t.Added, t.BareInsert, t.AfterCommit)
		row("side by side", "%d clients that enqueue commit %.0f times a second, %.0f where nobody is woken", t.Committers,
			t.Commits, t.Quiet)
		row("typed handlers", "%.0f %% of the speed of raw ones", 100*f.RatioTyped)
	}
	if s := f.Schedules; s != nil {
		row("schedules", "%.0f statements a minute with %d that are not due, %.0f without", s.Each, s.Count, s.EachOff)
	}
	row("load", "%d no-op tasks, %d slots, %d to a submit, %d rounds, beside %d jobs that have ended", f.Jobs,
		f.Slots, f.Batch, f.Rounds, f.Kept)
}

func (b *tasksBench) measure(ctx context.Context, m *Measurement) (Figures, error) {
	f := &taskFigures{Jobs: b.jobs, Slots: b.slots, Batch: b.batch, Rounds: b.rounds, Kept: b.kept, Machine: m.Machine}
	var submits, sqlSubmits, ratios, cpu, sqlCPU []float64
	if m.DB != "" {
		warm := *b
		warm.kept, warm.profile = 0, ""
		if _, _, err := warm.round(ctx, m, 0, &taskFigures{}); err != nil {
			return nil, err
		}
		fmt.Fprintln(m.Progress, "the round that does not count is over")
	}
	for i := range b.rounds {
		ours, theirs, err := b.round(ctx, m, i, f)
		if err != nil {
			return nil, err
		}
		jobs, sql := b.perSecond(ours.whole), b.perSecond(theirs.whole)
		fmt.Fprintf(m.Progress, "round %d of %d: pawl %.0f jobs/s, bare SQL %.0f jobs/s\n", i+1, b.rounds, jobs, sql)
		f.EachJobsPerSecond = append(f.EachJobsPerSecond, Rounded(jobs, 1))
		f.EachSQLPerSecond = append(f.EachSQLPerSecond, Rounded(sql, 1))
		submits = append(submits, b.perSecond(ours.submit))
		sqlSubmits = append(sqlSubmits, b.perSecond(theirs.submit))
		ratios = append(ratios, jobs/sql)
		cpu = append(cpu, float64(ours.cpu.Microseconds())/float64(b.jobs))
		sqlCPU = append(sqlCPU, float64(theirs.cpu.Microseconds())/float64(b.jobs))
	}
	f.JobsPerSecond, f.SubmitPerSecond = Median(f.EachJobsPerSecond), Rounded(Median(submits), 1)
	f.SQLJobsPerSecond, f.SQLSubmitPerSecond = Median(f.EachSQLPerSecond), Rounded(Median(sqlSubmits), 1)
	f.SQLLimitPerSecond, f.RatioToSQL = slices.Max(f.EachSQLPerSecond), Rounded(Median(ratios), 3)
	f.CPUPerJob, f.SQLCPUPerJob = Rounded(Median(cpu), 1), Rounded(Median(sqlCPU), 1)
	if b.workers > 0 {
		var err error
		if f.HTTP, err = b.overHTTP(ctx, m, filepath.Join(m.Dir, "http")); err != nil {
			return nil, fmt.Errorf("workers over HTTP: %w", err)
		}
		f.HTTP.InProcessPerSecond = f.JobsPerSecond
		f.HTTP.Ratio = Rounded(f.HTTP.TasksPerSecond/f.JobsPerSecond, 3)
	}
	return f, b.library(ctx, m, f)
}

// library measures Pawl as a library.
func (b *tasksBench) library(ctx context.Context, m *Measurement, f *taskFigures) (err error) {
	l := library.Bench{Dir: filepath.Join(m.Dir, "library"), DB: m.DB, Schema: m.Schema, Log: m.Log}
	if b.transactions > 0 {
		if f.Tx, err = l.Transactions(ctx, b.transactions, 32); err != nil {
			return fmt.Errorf("enqueue in transactions: %w", err)
		}
		if f.RatioTyped, err = l.Typed(ctx, b.jobs, b.rounds); err != nil {
			return fmt.Errorf("typed handlers: %w", err)
		}
	}
	if b.schedules > 0 {
		if f.Schedules, err = l.Schedules(ctx, b.schedules, b.idle); err != nil {
			return fmt.Errorf("schedules: %w", err)
		}
	}
	return nil
}

// round measures Pawl and bare SQL, one after the other. What Pawl costs besides time goes into f.
func (b *tasksBench) round(ctx context.Context, m *Measurement, i int, f *taskFigures) (ours, theirs taskRound,
	err error,
) {
	halves := []func(dir string) error{
		func(dir string) (err error) {
			ours, err = b.service(ctx, m, dir, i == 0, f)
			return err
		},
		func(dir string) (err error) {
			if m.DB != "" {
				theirs, err = b.postgres(ctx, m.DB)
			} else {
				theirs, err = b.sql(ctx, dir)
			}
			return err
		},
	}
	if i%2 == 1 { // what drifts weighs on both
		slices.Reverse(halves)
	}
	for k, half := range halves {
		dir := filepath.Join(m.Dir, fmt.Sprintf("%d-%d", i, k))
		runtime.GC()
		if err := half(dir); err != nil {
			return ours, theirs, err
		}
		if err := os.RemoveAll(dir); err != nil {
			return ours, theirs, err
		}
	}
	if b.later {
		theirs.whole -= theirs.submit
	}
	return ours, theirs, nil
}

// service measures Pawl in dir. What it costs besides time goes into f.
func (b *tasksBench) service(ctx context.Context, m *Measurement, dir string, first bool,
	f *taskFigures,
) (r taskRound, err error) {
	var handled atomic.Int64
	all := make(chan struct{})
	if m.DB == "" {
		if err := b.keep(ctx, dir); err != nil {
			return r, err
		}
	}
	svc, err := m.makeBed(ctx, dir, withSlots(b.slots), func(s *service.Service) {
		service.Handle(s, noop, func(context.Context, *service.Task[noopArgs]) (struct{}, error) {
			if handled.Add(1) == int64(b.jobs) {
				close(all)
			}
			return struct{}{}, nil
		})
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()
	if m.DB != "" {
		if err := withBarePostgres(svc.ctx, m.DB, svc.schema,
			func(q *barePostgres) error { return q.keep(svc.ctx, b) }); err != nil {
			return r, err
		}
	}
	if !b.later {
		svc.start()
		if _, err := svc.Wait(svc.ctx, svc.warm); err != nil {
			return r, err
		}
	}
	if first && b.profile != "" {
		stop, err := StartProfile(b.profile)
		if err != nil {
			return r, err
		}
		defer stop()
	}

	statements := svc.data.Store.Statements()
	begin, used := time.Now(), UsedCPU()
	spec := func(n int) job.Spec { return service.NewTask(noop, noopArgs{n}) }
	if err := svc.submitAll(b.jobs, b.batch, spec); err != nil {
		return r, err
	}
	r.submit = time.Since(begin)
	if b.later {
		begin, used = time.Now(), UsedCPU()
		svc.start()
	}
	select {
	case <-all:
	case <-svc.ctx.Done():
		return r, context.Cause(svc.ctx)
	}
	end, err := svc.finished(b.kept + b.jobs)
	if err != nil {
		return r, err
	}
	r.whole, r.cpu = end.Sub(begin), UsedCPU()-used
	f.StatementsPerJob = Rounded(float64(svc.data.Store.Statements()-statements)/float64(b.jobs), 2)
	f.RSS = max(f.RSS, ResidentMB())
	return r, nil
}

// StartProfile writes a CPU profile to a file until stop is called.
func StartProfile(name string) (stop func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, term.Usagef("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
