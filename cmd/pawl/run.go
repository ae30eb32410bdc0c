package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func runCommand() *cobra.Command {
	var anew bool
	var jobs int
	var line commandLine
	cmd := &cobra.Command{
		Use:   "run [FILE | -- COMMAND...]",
		Short: "Run the jobs that a file describes, or a command, and see them to their end",
		Long: `Run submits the jobs that FILE describes, runs them, shows their states and their logs, and says where their output is.
Without FILE it goes on with all unfinished programs of the folder.

` + commandRule + `

With --server the server runs them, and this process
shows them: to leave them takes nothing from them.

When this process is stopped or killed, programs go on. The same command on the same, unchanged file then finds its jobs
and goes on with them instead of submitting others; once all have ended, it submits them anew. A file that was edited is
a new run.

One process at a time runs the jobs of a folder: all that are unfinished, whoever submitted them, for as long as its own
last. Another run on the folder shows its jobs through that process, and takes over when it goes. An interrupt (Ctrl-C)
asks whether to cancel the jobs or to leave them; without a terminal they are left.

As many programs run at once as the limit ` + localTurns + ` says, which a new folder has for the cores of the machine: pawl limits set changes
it, and --jobs for the time in which this process runs the jobs. A job that waits for its turn says so; see pawl show.

` + fileRule + `

Exit codes: 0 all FINISHED, 4 some left unfinished or paused, else 1 some FAILED, else 3 some CANCELED; others as pawl help
exit-codes says.`,
		Example: `  pawl run examples/wordcount/job.yaml
  pawl run --new examples/pi/jobs.yaml
  pawl run --jobs 1 examples/wordcount/job.yaml
  pawl run --dir data job.yaml
  pawl run -- echo hello
  pawl run --name words --input examples/wordcount/poem.txt -- wc -w poem.txt`,
		Args: line.args(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &run{cmd: cmd, anew: anew, atOnce: jobs, call: job.NewID().String(), patience: seatPatience, jobs: map[job.ID]*runJob{}}
			var err error
			if jobs < 0 || jobs > job.MaxTurns || jobs == 0 && cmd.Flags().Changed("jobs") {
				return &usageError{fmt.Errorf("--jobs %d is out of range: give 1 to %d", jobs, job.MaxTurns)}
			}
			if r.server, err = serverOf(cmd); err != nil {
				return err
			}
			if r.server != nil && jobs > 0 {
				return errNotHere(&desk{server: r.server}, jobs)
			}
			if command := behindDash(cmd, args); command != nil {
				f, err := line.file(command, fileUse{away: r.away()})
				if err != nil {
					return err
				}
				r.file, r.anew = &f, true
			} else if len(args) == 1 {
				f, err := readJobs(args[0], fileUse{away: r.away()})
				if err != nil {
					return err
				}
				r.file = &f
			} else if anew {
				return &usageError{errors.New("--new without FILE: name the file whose jobs are to be submitted anew")}
			}
			if r.server != nil {
				err := r.do(cmd.Context())
				return (&desk{server: r.server}).advised(err)
			}
			if r.dir, err = dataDir(cmd); err != nil {
				return err
			}
			return r.do(cmd.Context())
		},
	}
	line.flags(cmd)
	cmd.Flags().IntVarP(&jobs, "jobs", "j", 0, "how many programs run at once meanwhile (default: as pawl limits show "+localTurns+" says)")
	cmd.Flags().BoolVar(&anew, "new", false, "submit the jobs of FILE anew although those of an earlier run have not ended")
	return cmd
}

// A run is one call of pawl run. It outlasts the seats that it has one after another.
type run struct {
	cmd    *cobra.Command
	server *server // nil: the jobs are those of a folder
	dir    string
	file   *jobFile // nil: all unfinished programs that there are
	anew   bool
	atOnce int    // how many programs run at once meanwhile; 0: as the limit of the folder says
	call   string // of this run, for submitting it anew

	patience time.Duration // with a process that has the folder and does not listen

	view   *live.View
	order  []job.ID // its own jobs
	jobs   map[job.ID]*runJob
	cursor string // up to where it knows what happened
}

// errNotHere says that --jobs was given, and that another process runs the jobs.
func errNotHere(d *desk, jobs int) error {
	return &usageError{fmt.Errorf("--jobs is for jobs that this process runs, and %s runs them: nothing was submitted; leave it out, or set the limit there: pawl limits set %s %d",
		d.who(), localTurns, jobs)}
}

// away reports whether the jobs run on another machine.
func (r *run) away() bool { return r.server != nil && !r.server.here() }

// do runs until the jobs have ended or are left, and says how they stand.
func (r *run) do(ctx context.Context) error {
	terminal, release := live.Terminal(os.Stdin, os.Stdout)
	defer release()
	if isQuiet(r.cmd) {
		terminal = live.Config{Out: io.Discard}
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	r.view = live.NewView(terminal, &live.Board{})
	defer r.view.Close() // again: it is closed below, where its error matters
	defer r.finishLogs()

	s, err := r.seats(ctx, signals)
	// All is safe on disk, so a signal after that which ended the run ends the process at once.
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
			fmt.Fprintln(r.view, "stopped before an answer said what was submitted; the same command goes on with it")
		}
		return cmp.Or[error](r.view.Close(), exit(exitLeft))
	}
	r.finishLogs()
	return r.conclude(ctx, s)
}

// errLeft says that the jobs are left as they are.
var errLeft = errors.New("left")

// stopped is that because of a signal.
type stopped struct{ signal os.Signal }

func (stopped) Error() string   { return errLeft.Error() }
func (stopped) Is(e error) bool { return e == errLeft }

// seats sits down and attends, again and again until the jobs have ended or are left. It returns the last seat.
func (r *run) seats(ctx context.Context, signals chan os.Signal) (s *seat, err error) {
	for {
		next, err := r.sit(ctx, signals)
		if err != nil {
			return s, err
		}
		s = next
		if r.order != nil && s.node != nil {
			fmt.Fprintln(r.view, "the process that ran the jobs has gone; this one goes on with them")
		}
		err = r.attend(ctx, s, signals)
		if s.node != nil || s.server != nil || !errors.Is(err, errSeatLost) && job.KindOf(err) != job.Unavailable {
			return s, err
		}
		s.leave() //nolint:errcheck // nobody is there any more
		select {
		case <-time.After(seatRetry):
		case <-signals:
			return s, errLeft
		}
	}
}

// attend submits the jobs, the first time, and looks on until they have ended, or are left, or the seat is lost.
func (r *run) attend(ctx context.Context, s *seat, signals chan os.Signal) error {
	first := r.order == nil
	slow := time.AfterFunc(seatQuiet, r.tellWait)
	if s.node != nil {
		slow.Stop()
	}
	err := unlessStopped(ctx, signals, func(ctx context.Context) error { return r.takePlace(ctx, s) })
	slow.Stop()
	if by, ok := errors.AsType[stopped](err); ok && by.signal == os.Interrupt && first && len(r.jobs) > 0 && len(r.jobs) == len(r.order) {
		// The jobs are on the board, if only for a moment: who interrupts that is asked, as at any time later.
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
	s.patient()
	return r.watch(ctx, s, signals)
}

// tellWait says why nothing happens.
func (r *run) tellWait() {
	at := desk{server: r.server, dir: r.dir}
	fmt.Fprintf(r.view, "waiting for an answer of %s; an interrupt ends this\n", at.who())
}

// takePlace gets to know the jobs at a new seat.
func (r *run) takePlace(ctx context.Context, s *seat) error {
	r.view.Elsewhere(s.node == nil)
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

// submit submits the jobs of the file, or finds those that there are.
func (r *run) submit(ctx context.Context, s *seat) (err error) {
	if r.cursor, err = s.Cursor(ctx); err != nil {
		return err
	}
	existed := true
	if r.file == nil {
		r.order, err = s.unfinished(ctx)
		if err == nil && len(r.order) == 0 {
			fmt.Fprintf(r.view, "no unfinished program %s\n", s.where())
		}
	} else {
		existed, err = r.submitFile(ctx, s)
	}
	if err != nil {
		return err
	}
	r.view.Together(func() {
		for _, id := range r.order {
			var v pawl.View
			if v, err = s.Job(ctx, id); err == nil {
				err = r.add(ctx, s, &v, existed)
			}
			if err != nil {
				return
			}
		}
	})
	return err
}

// submitFile submits the jobs of the file, or finds them, and says so.
func (r *run) submitFile(ctx context.Context, s *seat) (existed bool, err error) {
	specs := make([]json.RawMessage, len(r.file.jobs))
	for i, e := range r.file.jobs {
		specs[i] = e.given
	}
	path, err := r.filePath()
	if err != nil {
		return false, err
	}
	a, err := s.RunFile(ctx, pawl.FileRun{Path: path, Sum: r.file.sum, New: r.anew, Call: r.call}, specs...)
	if err != nil {
		return false, err
	}
	for _, o := range a.Older {
		if r.file.path == commandFile {
			break // they are others
		}
		what := "an earlier version of this file"
		if o.Sum == r.file.sum {
			what = "this file"
		}
		fmt.Fprintf(r.view, "an older run of %s is unfinished: %s; see pawl list, and pawl cancel\n", what, r.names(ctx, s, o.Jobs))
	}
	r.order = a.Jobs
	switch {
	case len(a.Jobs) == 1:
		return a.Existed, nil // it is said with its name
	case a.Existed:
		fmt.Fprintf(r.view, "%s of %s go on\n", plural(len(a.Jobs), "job"), r.file.path)
	case !r.view.Terminal(): // there the board says it
		fmt.Fprintf(r.view, "%s of %s submitted\n", plural(len(a.Jobs), "job"), r.file.path)
	}
	return a.Existed, nil
}

// filePath is the name under which the runs of the file are remembered. For other machines it says on which one it is.
func (r *run) filePath() (string, error) {
	if !r.away() || r.file.path == commandFile {
		return r.file.path, nil
	}
	host, err := os.Hostname()
	return host + ":" + r.file.path, err
}

// others says how many unfinished programs besides its own this process runs.
func (r *run) others(ctx context.Context, s *seat) error {
	ids, err := r.strangers(ctx, s)
	if err == nil && len(ids) > 0 {
		r.view.Note(fmt.Sprintf("this process also runs %s of folder %s while it lasts; see pawl list",
			plural(len(ids), "other unfinished job"), r.dir))
	}
	return err
}

// strangers returns the unfinished programs of the folder that are not this run's.
func (r *run) strangers(ctx context.Context, s *seat) ([]job.ID, error) {
	ids, err := s.unfinished(ctx)
	return slices.DeleteFunc(ids, func(id job.ID) bool { return r.jobs[id] != nil }), err
}

// names names some jobs.
func (r *run) names(ctx context.Context, s *seat, ids []job.ID) string {
	const most = 5
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		if v, err := s.Job(ctx, id); err == nil {
			names = append(names, s.ref(ctx, &v.Job))
		}
	}
	if n := len(ids) - most; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// conclude gives up the seat, says how the jobs stand, and makes the exit code of it.
func (r *run) conclude(ctx context.Context, s *seat) error {
	s, err := s.alone(ctx) // the process that was asked may be gone
	if err != nil {
		return errors.Join(err, s.leave())
	}
	var waiting []job.ID
	if s.node != nil {
		if waiting, err = r.strangers(ctx, s); err != nil {
			return errors.Join(err, s.leave())
		}
	}
	// What a step was doing when it was told to stop is known once the service has stopped.
	if err := s.stop(); err != nil {
		return errors.Join(err, s.leave())
	}
	code, advice := exitOK, ""
	var ended []*pawl.View
	for _, id := range r.order {
		v, err := s.Job(ctx, id)
		if err == nil {
			err = r.last(ctx, s, &v)
		}
		if err != nil {
			return errors.Join(err, s.leave())
		}
		ended = append(ended, &v)
		code = worse(code, exitFor(v.State))
	}
	if len(waiting) > 0 {
		them := "them"
		if len(waiting) == 1 {
			them = "it"
		}
		advice = fmt.Sprintf("%s in folder %s: %s; the next pawl run goes on with %s",
			plural(len(waiting), "other unfinished job"), r.dir, r.names(ctx, s, waiting), them)
	}
	r.view.Note("")
	var below strings.Builder
	if r.view.Terminal() && len(ended) > 1 {
		r.advise(ctx, s, &below, ended)
	}
	r.rest(ctx, s, &below, ended)
	if advice != "" {
		fmt.Fprintln(&below, r.view.Fold(typed(r.cmd, advice)))
	}
	r.view.Below(below.String())
	err = r.view.Close()
	for _, v := range ended {
		if v.State == job.Failed && isQuiet(r.cmd) {
			fmt.Fprintf(r.cmd.ErrOrStderr(), "%s  FAILED  %s: %s\n", s.ref(ctx, &v.Job), v.Code, live.FirstLine(v.Message))
		}
		if v.State.Terminal() && !r.view.Terminal() && (len(ended) == 1 || v.State == job.Failed) {
			r.tell(ctx, s, v, len(ended) > 1)
		}
	}
	out := r.cmd.OutOrStdout()
	if !r.view.Terminal() && len(ended) > 1 {
		fmt.Fprintf(out, "%s: %s\n", plural(len(ended), "job"), countStates(ended))
	}
	fmt.Fprint(out, &below)
	if err = errors.Join(err, s.leave()); err != nil {
		return err
	}
	if code != exitOK {
		return exit(code)
	}
	return nil
}

// tell says how one job stands, with its name where there are several.
func (r *run) tell(ctx context.Context, s *seat, v *pawl.View, named bool) {
	out := r.cmd.OutOrStdout()
	if named {
		out = prefixed{out, live.Clean(v.Name) + "  "}
	}
	switch v.State {
	case job.Finished:
		fmt.Fprintf(out, "FINISHED  output: %s\n", outputOf(v))
	case job.Failed:
		fmt.Fprintf(out, "FAILED  %s: %s\n", v.Code, v.Message)
		fmt.Fprintf(out, "what to do: %s\n", typed(r.cmd, s.remedy(ctx, &v.Job)))
		if v.Folder != "" {
			fmt.Fprintf(out, "folder: %s\n", v.Folder)
		}
	case job.Canceled:
		fmt.Fprintf(out, "CANCELED  %s\n", v.Message)
	}
}

// advise says why the first jobs failed, for which a line among others has no room, and once for each code what to do; and
// where the output of the others is.
func (r *run) advise(ctx context.Context, s *seat, out io.Writer, all []*pawl.View) {
	const most = 5
	n, told := 0, map[job.Code]bool{}
	finished := slices.IndexFunc(all, func(v *pawl.View) bool { return v.State == job.Finished })
	for _, v := range all {
		if v.State != job.Failed {
			continue
		}
		if n++; n > most {
			continue
		}
		name := live.Cut(live.Clean(v.Name), mostLabel)
		if ref := s.ref(ctx, &v.Job); ref != v.Name {
			name += " " + ref
		}
		fmt.Fprintln(out, r.view.Fold(name+"  "+live.FirstLine(v.Message)))
		if !told[v.Code] {
			fmt.Fprintln(out, r.view.Fold(name+"  what to do: "+typed(r.cmd, s.remedy(ctx, &v.Job))))
		}
		told[v.Code] = true
	}
	if n > most {
		fmt.Fprintln(out, r.view.Fold(typed(r.cmd, fmt.Sprintf("%d more FAILED: see pawl list --state FAILED", n-most))))
	}
	if finished >= 0 {
		fmt.Fprintln(out, r.view.Fold("output: "+typed(r.cmd, "pawl output "+s.ref(ctx, &all[finished].Job))+", and so of each"))
	}
}

// mostLabel is how many cells of a job's name stand before what there is to say of it.
const mostLabel = 20

// rest says what becomes of the jobs that have not ended.
func (r *run) rest(ctx context.Context, s *seat, out io.Writer, all []*pawl.View) {
	var paused, left []*pawl.View
	for _, v := range all {
		switch {
		case v.State == job.Paused:
			paused = append(paused, v)
		case !v.State.Terminal():
			left = append(left, v)
		}
	}
	what := func(vs []*pawl.View) string {
		if len(all) == 1 {
			return string(vs[0].State) + "  "
		}
		return plural(len(vs), "job") + " "
	}
	if len(paused) > 0 {
		advice := "pawl resume " + s.ref(ctx, &paused[0].Job) + " lets it go on"
		switch {
		case len(paused) > 1:
			advice = "PAUSED: pawl resume JOB lets one go on: " + r.names(ctx, s, idsOf(paused))
		case len(all) > 1:
			advice = "PAUSED: " + advice
		}
		fmt.Fprintln(out, what(paused)+typed(r.cmd, advice))
	}
	if len(left) > 0 {
		as, them := "they are", "them"
		if len(left) == 1 {
			as, them = "it is", "it"
		}
		meaning := "programs that run go on without pawl, all else waits until " + r.again() + " goes on with "
		if s.server != nil || s.node == nil && occupied(ctx, r.dir) {
			meaning = s.who() + " goes on with " + them + "; " + r.again() + " shows "
		}
		fmt.Fprintln(out, r.view.Fold(what(left)+"left as "+as+": "+meaning+them))
	}
}

// again is the command that goes on with the jobs.
func (r *run) again() string {
	if r.file != nil && r.file.path == commandFile {
		return typed(r.cmd, "pawl run")
	}
	return "the same command"
}

func idsOf(vs []*pawl.View) (ids []job.ID) {
	for _, v := range vs {
		ids = append(ids, v.ID)
	}
	return ids
}

// outputOf returns where the output of a job is that finished.
func outputOf(v *pawl.View) string {
	if v.Results == "" {
		return v.Folder
	}
	return v.Results
}

// prefixed begins each write with a text.
type prefixed struct {
	io.Writer
	text string
}

func (p prefixed) Write(b []byte) (int, error) {
	_, err := p.Writer.Write(append([]byte(p.text), b...))
	return len(b), err
}

// exitFor is the exit code for one job.
func exitFor(s job.State) int {
	switch s {
	case job.Finished:
		return exitOK
	case job.Failed:
		return exitFailed
	case job.Canceled:
		return exitCanceled
	}
	return exitLeft
}

// worse returns which of two exit codes counts when both are due.
func worse(a, b int) int {
	order := []int{exitOK, exitCanceled, exitFailed, exitLeft}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

func countStates(vs []*pawl.View) string {
	n := map[job.State]int{}
	for _, v := range vs {
		n[v.State]++
	}
	var parts []string
	for _, s := range slices.Backward(job.States) {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// unfinished returns the programs of the folder that have not ended.
func (s *seat) unfinished(ctx context.Context) (ids []job.ID, err error) {
	q := store.Query{Filter: job.Unended().And("kind", job.Is, job.KindApp), Limit: mostListed}
	for more := true; more; more = q.Cursor != "" {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			ids = append(ids, page.Jobs[i].ID)
		}
		q.Cursor = page.Next
	}
	return ids, nil
}

// plural counts things whose name takes an s.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
