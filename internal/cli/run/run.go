// Package run is the command pawl run. It submits the jobs of a file, runs them or looks on while
// another process does, shows their states and their logs, and says how they ended.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// Command makes the command run.
func Command() *cobra.Command {
	var anew bool
	var jobs int
	var line jobfile.CommandLine
	cmd := &cobra.Command{
		Use:   "run [FILE | -- COMMAND...]",
		Short: "Run the jobs of a file, or a command, and see them to their end",
		Long: `Run submits the jobs that FILE describes, runs them, shows their states and their logs, and says where
their output is. Without FILE it goes on with all unfinished programs of the folder.

Before it submits jobs it looks, as pawl validate does, whether what they need is on this machine,
and says what is not there. With --server, and by pawl submit, jobs are submitted without that look.

` + jobfile.CommandRule + `

With --server the server runs them, and this process shows them: to leave them takes nothing from
them.

When this process is stopped or killed, programs go on. The same command on the same, unchanged file
then finds its jobs and goes on with them instead of submitting others; once all have ended, it
submits them anew. A file that was edited is a new run.

One process at a time runs all unfinished jobs of a folder, whatever submitted them, until its own
jobs have ended. Another run on the folder shows its jobs through that process, and takes over when
it ends. An interrupt (Ctrl-C) asks whether to cancel the jobs or to leave them; without a terminal
they are left.

As many programs run at once as the limit ` + node.LocalTurns + ` says, which a new folder has for the
cores of the machine: pawl limits set changes it, and --jobs for the time in which this process runs
the jobs. A job that waits for its turn says so; see pawl show.

` + jobfile.Rule + `

Exit codes: 0 all FINISHED, 4 some left unfinished or paused, else 1 some FAILED, else 3 some
CANCELED; for others see pawl help exit-codes.`,
		Example: `  pawl run examples/wordcount/job.yaml
  pawl run --new examples/pi/jobs.yaml
  pawl run --jobs 1 examples/wordcount/job.yaml
  pawl run --dir data job.yaml
  pawl run -- echo hello
  pawl run --name words --input examples/wordcount/poem.txt -- wc -w poem.txt`,
		Args: line.Args(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &run{
				cmd: cmd, anew: anew, atOnce: jobs, call: job.NewID().String(), patience: attachPatience,
				jobs: map[job.ID]*runJob{},
			}
			var err error
			if jobs < 0 || jobs > job.MaxTurns || jobs == 0 && cmd.Flags().Changed("jobs") {
				return term.Usagef("--jobs %d is out of range: give 1 to %d", jobs, job.MaxTurns)
			}
			if r.server, err = target.ServerOf(cmd); err != nil {
				return err
			}
			if r.server != nil && jobs > 0 {
				return errNotHere(&target.Target{Server: r.server}, jobs)
			}
			if command := jobfile.BehindDash(cmd, args); command != nil {
				f, err := line.File(command, jobfile.Use{Away: r.away()})
				if err != nil {
					return err
				}
				r.file, r.anew = &f, true
			} else if len(args) == 1 {
				f, err := jobfile.Read(cmd.Context(), args[0], jobfile.Use{Away: r.away(), Here: r.server == nil})
				if err != nil {
					return err
				}
				r.file = &f
			} else if anew {
				return term.Usage(errors.New("--new without FILE: name the file whose jobs are to be submitted anew"))
			}
			if r.server != nil {
				err := r.do(cmd.Context())
				return (&target.Target{Server: r.server}).Advised(err)
			}
			if r.dir, err = target.DataDir(cmd); err != nil {
				return err
			}
			return r.do(cmd.Context())
		},
	}
	line.Flags(cmd)
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0,
		"how many programs run at once meanwhile (default: as pawl limits show "+node.LocalTurns+" says)")
	cmd.Flags().BoolVar(&anew, "new", false,
		"submit the jobs of FILE anew although those of an earlier run have not ended")
	return cmd
}

// A run is one call of pawl run. It outlasts the attachments that it has one after another.
type run struct {
	cmd    *cobra.Command
	server *target.Server // nil: the jobs are those of a folder
	dir    string
	file   *jobfile.File // nil: all unfinished programs that there are
	anew   bool
	atOnce int    // how many programs run at once meanwhile; 0: as the limit of the folder says
	call   string // of this run, for submitting it anew

	patience time.Duration // with a process that has the folder and does not listen

	view   *live.View
	order  []job.ID // its own jobs
	jobs   map[job.ID]*runJob
	cursor string // up to where it knows what happened

	systems sync.Map // names of those that its own jobs run on
}

// errNotHere says that --jobs was given, and that another process runs the jobs.
func errNotHere(at *target.Target, jobs int) error {
	return term.Usagef("--jobs is for jobs that this process runs, and %s runs them: nothing was submitted; "+
		"leave it out, or set the limit there: pawl limits set %s %d",
		at.Who(), node.LocalTurns, jobs)
}

// away reports whether the jobs run on another machine.
func (r *run) away() bool { return r.server != nil && !r.server.Here() }

// do runs until the jobs have ended or are left, and says how they stand.
func (r *run) do(ctx context.Context) error {
	terminal, release := live.Terminal(os.Stdin, os.Stdout)
	defer release()
	switch {
	case term.Quiet(r.cmd):
		terminal = live.Config{Out: io.Discard}
	case terminal.Size == nil:
		terminal.Out = r.cmd.OutOrStdout()
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	r.view = live.NewView(terminal, &live.Board{})
	defer r.view.Close() // again: it is closed below, where its error matters
	defer r.finishLogs()

	s, err := r.attachments(ctx, signals)
	// All is safe on disk, so a second signal ends the process at once.
	concluded := make(chan struct{})
	defer close(concluded)
	if errors.Is(err, errLeft) {
		signal.Stop(signals)
	} else {
		go func() {
			select {
			case <-signals:
				signal.Stop(signals)
			case <-concluded:
			}
		}()
	}
	switch {
	case err != nil && !errors.Is(err, errLeft):
		if s != nil {
			err = errors.Join(err, s.leave())
		}
		return err
	case err != nil && r.order == nil:
		if s != nil {
			if err := s.leave(); err != nil {
				return err
			}
		}
		if r.file != nil {
			fmt.Fprintln(r.view, "stopped before an answer said what was submitted;", r.again(), "goes on with it")
		}
		return cmp.Or[error](r.view.Close(), term.Exit(term.ExitLeft))
	}
	r.finishLogs()
	return r.conclude(ctx, s)
}

// errLeft says that the jobs are left as they are.
var errLeft = errors.New("left")

// stopped is that because of a signal.
type stopped struct{ signal os.Signal }

func (stopped) Error() string { return errLeft.Error() }

func (stopped) Is(e error) bool { return e == errLeft }

// attachments attaches and attends, again and again until the jobs have ended or are left. It
// returns the last attachment.
func (r *run) attachments(ctx context.Context, signals chan os.Signal) (s *attachment, err error) {
	for {
		next, err := r.attach(ctx, signals)
		if err != nil {
			return s, err
		}
		s = next
		if r.order != nil && s.node != nil {
			fmt.Fprintln(r.view, "the process that ran the jobs has gone; this one goes on with them")
		}
		err = r.attend(ctx, s, signals)
		if s.node != nil || s.Server != nil || !errors.Is(err, errDetached) && job.KindOf(err) != job.Unavailable {
			return s, err
		}
		s.leave() //nolint:errcheck // nobody is there any more
		select {
		case <-time.After(attachRetry):
		case <-signals:
			return s, errLeft
		}
	}
}

// attend submits the jobs, the first time, and looks on until they have ended, or are left, or the
// attachment is lost.
func (r *run) attend(ctx context.Context, s *attachment, signals chan os.Signal) error {
	first := r.order == nil
	slow := time.AfterFunc(attachQuiet, r.tellWait)
	if s.node != nil {
		slow.Stop()
	}
	err := unlessStopped(ctx, signals, func(ctx context.Context) error { return r.takePlace(ctx, s) })
	slow.Stop()
	if by, ok := errors.AsType[stopped](err); ok && by.signal == os.Interrupt && first && len(r.jobs) > 0 &&
		len(r.jobs) == len(r.order) {
		// The jobs are on the board, if only for a moment: an interrupt asks, as at any later time.
		select {
		case signals <- by.signal:
			err = nil
		default: // more than once
		}
	}
	if err != nil {
		return err
	}
	s.start()
	s.Patient()
	return r.watch(ctx, s, signals)
}

// tellWait says why nothing happens.
func (r *run) tellWait() {
	at := target.Target{Server: r.server, Dir: r.dir}
	fmt.Fprintf(r.view, "waiting for an answer of %s; an interrupt ends this\n", at.Who())
}

// takePlace gets to know the jobs at a new attachment.
func (r *run) takePlace(ctx context.Context, s *attachment) error {
	who := ""
	if s.node == nil {
		who = s.Who()
	}
	r.view.Elsewhere(who, r.again())
	err := error(nil)
	if r.order == nil {
		err = r.submit(ctx, s)
	} else {
		err = r.catchUp(ctx, s)
	}
	if err == nil && s.node != nil {
		err = r.others(ctx, s)
	}
	return err
}

// unlessStopped calls f, whose ctx a signal ends. Then it returns that as stopped.
func unlessStopped(ctx context.Context, signals <-chan os.Signal, f func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var listening sync.WaitGroup
	done := make(chan struct{})
	listening.Go(func() {
		select {
		case by := <-signals:
			stop(stopped{by})
		case <-done:
		}
	})
	err := f(ctx)
	close(done)
	listening.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
