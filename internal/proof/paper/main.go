// Command paper runs the benchmark pawl bench local-paper as docs/performance.md tells it: on
// SQLite and on PostgreSQL, of which it starts a private server, with outages, and with what other
// services do otherwise, and over a private SSH server. It ends with an error where a run is not as
// it must be.
//
//	go run ./internal/proof/paper -pawl ./pawl -out runs.json -svg docs/paper.svg
//
// It wants the machine for itself, and is to be done within 18 minutes: that it took longer is an
// error as well.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func main() {
	var o options
	flag.StringVar(&o.pawl, "pawl", "./pawl", "the program to measure")
	flag.IntVar(&o.jobs, "jobs", 10_000,
		"programs in each run; over SSH a fifth; where it shows what presets cost 500 at the most, at speedup 100")
	flag.StringVar(&o.out, "out", "", "write the runs to this file, as JSON")
	flag.StringVar(&o.svg, "svg", "", "draw into this file how many programs ran, over time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "paper:", err)
		os.Exit(1)
	}
}

type options struct {
	pawl, out, svg string
	jobs           int
}

// A run is one run of the benchmark, and what it has found.
type run struct {
	Name           string  `json:"name"`
	Efficiency     float64 `json:"efficiency"`
	EfficiencyList float64 `json:"efficiency_list"`
	Lost           int     `json:"lost"`
	Failed         int     `json:"failed"`
	LaunchedTwice  int     `json:"launched_twice"`
	MaxRunning     int     `json:"max_running"`
	Peak           float64 `json:"peak_mb"`
	EfficiencyLeft float64 `json:"efficiency_left,omitempty"` // by trouble
	Blocked        int     `json:"blocked,omitempty"`

	title      string
	postgresql bool
	speedup    int
	few        bool    // few programs are enough
	trouble    bool    // servers are away at times, of which programs need some
	ssh        bool    // programs run over SSH, and a fifth of them is enough
	preset     string  // what it does as another service does
	least      float64 // efficiency; the same loss weighs more where programs are shorter
	leastList  float64 // beside list scheduling; 0: that is not looked at
	more       `json:"-"`
}

// more is what else pawl bench local-paper tells and is looked at here.
type more struct {
	Jobs       int       `json:"jobs"`
	Limit      int       `json:"limit"`
	Makespan   float64   `json:"makespan_seconds"`
	Curve      []float64 `json:"running"`
	CurveEvery float64   `json:"running_every_seconds"`
}

func runs() []*run {
	return []*run{
		{Name: "sqlite-50", title: "SQLite, speedup 50", speedup: 50, least: 0.95},
		{Name: "postgresql-50", title: "PostgreSQL, speedup 50", postgresql: true, speedup: 50, least: 0.95},
		{Name: "postgresql-100", title: "PostgreSQL, speedup 100", postgresql: true, speedup: 100, least: 0.93},
		{
			Name: "postgresql-50-trouble", title: "PostgreSQL, speedup 50, with outages", postgresql: true,
			speedup: 50, trouble: true, least: 0.88,
		},
		{
			Name: "sqlite-20-ssh", title: "SQLite, over SSH, speedup 20", ssh: true, speedup: 20, least: 0.93,
			leastList: 0.97,
		},
		{Name: "few", title: "500 programs, speedup 100", postgresql: true, speedup: 100, few: true},
		{
			Name: "preset-throttles", title: "with throttles", postgresql: true, speedup: 100, few: true,
			preset: "throttles",
		},
		{
			Name: "preset-quotas", title: "with quotas that are tested", postgresql: true, speedup: 100, few: true,
			preset: "quotas",
		},
		{
			Name: "preset-tapis", title: "with both, and batches of ten", postgresql: true, speedup: 100, few: true,
			preset: "tapis",
		},
	}
}

// oftenBlocked is the part of the jobs that are to be blocked at least once in a run with trouble:
// so many were in the three years of which the paper tells.
const oftenBlocked = 0.29

// longest is how long all runs may take together.
const longest = 18 * time.Minute

func (o *options) run(ctx context.Context) error {
	begin := time.Now()
	server, err := testenv.StartPostgres(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	list := runs()
	for _, r := range list {
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), r.title)
		if err := o.measure(ctx, r, server.Socket("postgres")); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	took := time.Since(begin)
	if err := table(os.Stdout, list); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s all of it took %v\n", time.Now().Format(time.TimeOnly), took.Round(time.Second))
	if o.out != "" {
		b, err := encode(list)
		if err = errors.Join(err, os.WriteFile(o.out, b, 0o644)); err != nil {
			return err
		}
	}
	if o.svg != "" {
		b, err := draw(list)
		if err = errors.Join(err, os.WriteFile(o.svg, b, 0o644)); err != nil {
			return err
		}
	}
	return judge(list, took)
}

// judge returns what is not as it must be, of runs that took so long together.
func judge(list []*run, took time.Duration) error {
	var broken error
	for _, r := range list {
		broken = errors.Join(broken, r.check())
	}
	if took > longest {
		broken = errors.Join(broken, fmt.Errorf(
			"all of it took %v, and is to be done within %v: see that nothing else runs on this machine",
			took.Round(time.Second), longest))
	}
	return broken
}

// measure makes one run.
func (o *options) measure(ctx context.Context, r *run, db string) error {
	jobs := o.jobs
	if r.few {
		jobs = min(jobs, 500)
	}
	if r.ssh {
		jobs = max(1, jobs/5)
	}
	args := []string{
		"bench", "local-paper", "-o", "json", "--jobs", strconv.Itoa(jobs), "--speedup",
		strconv.Itoa(r.speedup),
	}
	if r.postgresql {
		args = append(args, "--db", db)
	}
	if r.trouble {
		args = append(args, "--trouble")
	}
	if r.ssh {
		args = append(args, "--ssh")
	}
	if r.preset != "" {
		args = append(args, "--preset", r.preset)
	}
	cmd := exec.CommandContext(ctx, o.pawl, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its programs
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return r.read(out)
}

// read takes in what the benchmark has printed.
func (r *run) read(out []byte) error {
	return errors.Join(json.Unmarshal(out, r), json.Unmarshal(out, &r.more))
}

// efficiency is beside the makespan that outages leave, where there are some.
func (r *run) efficiency() float64 {
	if r.trouble {
		return r.EfficiencyLeft
	}
	return r.Efficiency
}

// check returns what is not as it must be.
func (r *run) check() error {
	var err error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			err = errors.Join(err, fmt.Errorf("%s: "+format, append([]any{r.Name}, args...)...))
		}
	}
	wrong(r.efficiency() < r.least, "the efficiency is %.4f, and is to be %.2f", r.efficiency(), r.least)
	wrong(r.EfficiencyList < r.leastList, "beside list scheduling it is %.4f, and is to be %.2f", r.EfficiencyList,
		r.leastList)
	wrong(r.trouble && float64(r.Blocked) < oftenBlocked*float64(r.Jobs),
		"%d of %d jobs were blocked, and %.0f %% are to be", r.Blocked, r.Jobs, 100*oftenBlocked)
	wrong(r.Lost > 0, "%d of %d jobs were lost", r.Lost, r.Jobs)
	wrong(r.Failed > 0, "%d of %d jobs failed", r.Failed, r.Jobs)
	wrong(r.LaunchedTwice > 0, "%d programs were launched twice", r.LaunchedTwice)
	wrong(r.MaxRunning > r.Limit, "%d programs ran at once, and %d may", r.MaxRunning, r.Limit)
	return err
}

// encode writes runs as JSON.
func encode(list []*run) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	err := enc.Encode(list)
	return b.Bytes(), err
}

// table prints runs as tables of Markdown: those that are to be so fast, and those that show what
// other ways cost.
func table(out io.Writer, list []*run) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	head := func(columns string) {
		fmt.Fprintln(w, "|\t"+columns)
		fmt.Fprintln(w, strings.Repeat("|---\t", strings.Count(columns, "|"))+"|")
	}
	head("| efficiency\t| to be\t| beside list scheduling\t| makespan\t| blocked\t| lost\t| failed\t| launched " +
		"twice\t| running at most\t| memory\t|")
	var as *run // it is, with few programs
	for _, r := range list {
		if r.few {
			if as == nil {
				as = r
				fmt.Fprintln(w)
				head("| makespan\t| as many times as long\t| efficiency\t| beside list scheduling\t| lost\t| " +
					"failed\t| launched twice\t| running at most\t|")
			}
			fmt.Fprintf(w, "| %s\t| %.1f s\t| %.2f\t| %.3f\t| %.3f\t| %d\t| %d\t| %d\t| %d\t|\n",
				r.title, r.Makespan, r.Makespan/as.Makespan, r.Efficiency, r.EfficiencyList, r.Lost, r.Failed,
				r.LaunchedTwice, r.MaxRunning)
			continue
		}
		fmt.Fprintf(w, "| %s\t| %.3f\t| %.2f\t| %.3f\t| %.1f s\t| %.0f %%\t| %d\t| %d\t| %d\t| %d\t| %.0f MB\t|\n",
			r.title, r.efficiency(), r.least, r.EfficiencyList,
			r.Makespan, 100*float64(r.Blocked)/float64(max(1, r.Jobs)), r.Lost, r.Failed, r.LaunchedTwice,
			r.MaxRunning, r.Peak)
	}
	return w.Flush()
}
