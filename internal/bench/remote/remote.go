// Package remote has the benchmark of programs that run over SSH: pawl bench ssh.
package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// parts are the parts of the benchmark, in the order in which they are measured.
var parts = []string{"launch", "latency", "end", "copy", "sleep", "fake"}

// Command makes the command bench ssh.
func Command(o *bench.Options) *cobra.Command {
	b := &sshBench{}
	cmd := o.Benchmark(&cobra.Command{
		Use:   "ssh",
		Short: "Measure programs over SSH: launches, ends, copies, and what it costs to watch them",
		Long: `Ssh starts a private SSH server on the loopback address, with keys of its own, for the account that
runs it, and measures what happens around programs there. It needs sshd (Debian: openssh-server),
and sftp for the part copy. Both sides share the machine, so ratios of one run and counts tell more
than rates do. The server grants as many sessions and logins as it does by default.

  launch   jobs that go through all states over one connection, each with one input that is staged and one output that is
           archived; counted from the submit until the last has ended in the database. Beside it the same jobs on the
           local system, in turns. Then launches alone, beside a bare loop that starts the same programs through one sh -s,
           50 to a request, and writes their pid and exit code: both are counted until all programs have run.
           forks_per_launch counts processes and threads that the whole machine has started meanwhile (/proc/stat), less
           what it starts by itself; the program is one of them. round_trips_per_job are the requests of shell and
           SFTP. connections are the logins at the server. The naive way has a session for each command, and asks
           each --poll whether the program has ended.
  latency  the same jobs, where each way back and forth takes --rtt longer.
  end      programs that end one after another: from the time that the program itself tells with its last act to when its job
           is ARCHIVING, committed, and told to whoever follows it. The naive way asks each --poll.
  copy     one large file there and back, beside the program sftp, in turns. Neither waits for the disk.
  sleep    programs that sleep, all watched by this process over one connection: what that costs. goroutines and
           descriptors are more than before the first; channels are all sessions at the server.
           commands_per_minute are requests, counted for --watch, with ten programs and with all. First the limits of the
           system are compared with what so many programs need; if one is too low nothing is started.
  fake     as many jobs as --fake, whose programs are only pretended: what they cost in memory.

peak_rss_mb is VmHWM: the most memory that this process had in RAM during that part, the benchmark
included.`,
		Example: "  pawl bench ssh\n  pawl bench ssh --only launch,end -o json\n  pawl bench ssh --only sleep " +
			"--programs 1000 --watch 1m",
	}, b.measure)
	cmd.Flags().StringSliceVar(&b.only, "only", parts, "parts to measure")
	cmd.Int(&b.rounds, "rounds", 3, 1, 100, "launch and copy: rounds, of all that takes turns")
	cmd.Int(&b.jobs, "jobs", 500, 1, 1_000_000, "launch: jobs, and launches, in each part of a round")
	cmd.Int(&b.slow, "slow", 200, 1, 1_000_000, "latency: jobs")
	term.DurationVar(cmd.Command, &b.rtt, "rtt", 100*time.Millisecond, "latency: how much longer each round trip takes")
	cmd.Int(&b.ends, "ends", 200, 1, 100_000, "end: programs, one after another")
	cmd.Int(&b.naive, "naive", 100, 1, 10_000, "launch and end: programs of the naive way, all at once")
	term.DurationVar(cmd.Command, &b.poll, "poll", 5*time.Second, "launch and end: how often the naive way asks")
	cmd.Int(&b.megabytes, "megabytes", 1000, 1, 1_000_000, "copy: size of the file")
	cmd.Int(&b.programs, "programs", 10_000, 1, 1_000_000, "sleep: programs, all at once")
	term.DurationVar(cmd.Command, &b.watch, "watch", 2*time.Minute, "sleep: for how long requests are counted, twice")
	cmd.Int(&b.ghosts, "fake", 100_000, 1, 10_000_000, "fake: programs")
	cmd.Timeout(time.Hour)
	cmd.Check(func() error { return b.check(o) })
	return cmd.Command
}

type sshBench struct {
	only                                                         []string
	rounds, jobs, slow, ends, naive, megabytes, programs, ghosts int
	rtt, poll, watch                                             time.Duration
}

func (b *sshBench) check(o *bench.Options) error {
	for _, part := range b.only {
		if !slices.Contains(parts, part) {
			return term.Usagef("--only %s is unknown: give some of %s", part, strings.Join(parts, ","))
		}
	}
	for flag, d := range map[string]time.Duration{"rtt": b.rtt, "poll": b.poll, "watch": b.watch} {
		if d <= 0 || d > time.Hour {
			return term.Usagef("--%s %s is out of range: give a time up to 1h", flag, d)
		}
	}
	if o.DB != "" {
		return term.Usage(errors.New(
			"--db: what is measured here is a connection, on an embedded database: leave it out"))
	}
	return nil
}

// figures are those of the parts that were measured.
type figures struct {
	Launch  *launchFigures  `json:"launch,omitempty"`
	Latency *latencyFigures `json:"latency,omitempty"`
	End     *endFigures     `json:"end,omitempty"`
	Sleep   *sleepFigures   `json:"sleep,omitempty"`
	Fake    *fakeFigures    `json:"fake,omitempty"`
	Copy    *copyFigures    `json:"copy,omitempty"`
	bench.Machine
}

// Rows implements [bench.Figures].
func (f *figures) Rows(row func(name, format string, args ...any)) {
	if f.Launch != nil {
		f.Launch.Rows(row)
	}
	if f.Latency != nil {
		f.Latency.Rows(row)
	}
	if f.End != nil {
		f.End.Rows(row)
	}
	if f.Copy != nil {
		f.Copy.Rows(row)
	}
	if f.Sleep != nil {
		f.Sleep.Rows(row)
	}
	if f.Fake != nil {
		f.Fake.Rows(row)
	}
}

// A part is what each part of the benchmark has.
type part struct {
	*sshBench
	*bench.Measurement
	dir    string // its own
	server *bed.SSHD
}

func (b *sshBench) measure(ctx context.Context, m *bench.Measurement) (_ bench.Figures, err error) {
	if slices.Contains(b.only, "sleep") {
		if err := bed.RoomFor(m.Dir).Refuse(b.programs, "programs"); err != nil {
			return nil, err
		}
	}
	sftp := ""
	if slices.Contains(b.only, "copy") {
		if sftp, err = sftpProgram(); err != nil {
			return nil, err
		}
	}
	server, err := bed.StartSSHD(ctx, filepath.Join(m.Dir, "sshd"))
	if err != nil {
		return nil, err
	}
	// Programs outlive their service; those of a benchmark must not.
	defer func() { err = errors.Join(err, server.Close(), bed.EndPrograms(m.Dir)) }()
	f := &figures{Machine: m.Machine}
	run := map[string]func(context.Context, *part) error{
		"launch":  func(ctx context.Context, p *part) (err error) { f.Launch, err = p.launch(ctx); return err },
		"latency": func(ctx context.Context, p *part) (err error) { f.Latency, err = p.latency(ctx); return err },
		"end":     func(ctx context.Context, p *part) (err error) { f.End, err = p.end(ctx); return err },
		"copy":    func(ctx context.Context, p *part) (err error) { f.Copy, err = p.copy(ctx, sftp); return err },
		"sleep":   func(ctx context.Context, p *part) (err error) { f.Sleep, err = p.sleep(ctx); return err },
		"fake":    func(ctx context.Context, p *part) (err error) { f.Fake, err = p.fake(ctx); return err },
	}
	for _, name := range parts {
		if !slices.Contains(b.only, name) {
			continue
		}
		fmt.Fprintf(m.Progress, "measuring %s\n", name)
		p := &part{sshBench: b, Measurement: m, dir: filepath.Join(m.Dir, name), server: server}
		if err := os.Mkdir(p.dir, 0o755); err != nil {
			return nil, err
		}
		err := run[name](ctx, p)
		if err = errors.Join(err, bed.EndPrograms(p.dir), os.RemoveAll(p.dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return f, nil
}

// far is the name of the system over SSH.
const far = "far"

// counted is a machine that counts what it is asked.
type counted interface {
	// Requests is how many requests of shell and SFTP were made so far.
	Requests() int64
}

// requests returns how many requests a machine was asked so far.
func requests(h host.Host) (int64, error) {
	c, ok := h.(counted)
	if !ok {
		return 0, fmt.Errorf("the machine %s does not count its requests", h.ID())
	}
	return c.Requests(), nil
}

// quote makes a word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// quoted makes a command line of a shell.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = quote(a)
	}
	return strings.Join(words, " ")
}
