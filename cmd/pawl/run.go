package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run FILE",
		Short: "Run the job that a file describes, and see it to its end",
		Long: `Run submits the job that FILE describes (YAML or JSON), runs it, shows its states and its log, and says where its
output is.

When this process is stopped or killed, the program goes on. The same command on the same, unchanged file then finds
the job and goes on with it instead of submitting another; once it has ended, the command submits it anew.

Exit codes: 0 FINISHED, 1 FAILED, 2 bad input, 3 CANCELED, 4 left unfinished, 5 Pawl itself could not go on.`,
		Example: `  pawl run examples/wordcount/job.yaml
  pawl run --dir /scratch/me/pawl job.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := readJobs(args[0])
			if err != nil {
				return err
			}
			if len(f.jobs) > 1 {
				return &usageError{fmt.Errorf("job file %s holds %d jobs: give one job per file", args[0], len(f.jobs))}
			}
			spec, key := f.jobs[0].spec, "run:"+f.sum
			dir, err := dataDir(cmd)
			if err != nil {
				return err
			}
			err = runJob(cmd.Context(), cmd.OutOrStdout(), dir, spec, key)
			if job.KindOf(err) == job.Locked {
				err = fmt.Errorf("%w\nnothing was submitted; %s", err, watchers(cmd, spec.Name))
			}
			return err
		},
	}
}

// watchers names the commands that show what another process runs in the folder.
func watchers(cmd *cobra.Command, name string) string {
	ctx := cmd.Context()
	if d, err := openDesk(ctx, cmd); err == nil {
		defer d.close()
		if j, err := d.lookup(ctx, name); err == nil && !j.State.Terminal() {
			ref := d.ref(ctx, &j.Job)
			return fmt.Sprintf("job %s is %s there: watch it with pawl show %[3]s and pawl logs %[3]s", j.Name, j.State, ref)
		}
	}
	return "see the jobs there with pawl list, and each with pawl show JOB and pawl logs JOB"
}

// runJob submits the job, or finds it unfinished, and runs the service until it has ended.
func runJob(ctx context.Context, out io.Writer, dir string, spec job.Spec, key string) error {
	n, err := openNode(ctx, dir, nodeOptions{})
	if err != nil {
		return err
	}
	defer n.close()
	// A job that was accepted can be canceled, so whoever asks for that is heard before it is submitted.
	serving, cut := context.WithCancel(ctx)
	defer cut()
	hangUp, err := n.listen(serving)
	if err != nil {
		return fmt.Errorf("listen on the folder's socket: %w", err)
	}
	defer hangUp()
	answers, err := n.Submit(ctx, pawl.Request{Spec: spec, Unique: []store.Unique{{Mode: job.UntilDone, Key: key}}})
	if err != nil {
		return err
	}
	id := answers[0].ID
	j, err := n.Job(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case answers[0].Existed && j.State.Terminal():
		fmt.Fprintf(out, "job %s (%s) has already ended %s: to run it again, give it another external_id\n",
			j.Name, id, j.State)
		return n.conclude(ctx, out, &j)
	case answers[0].Existed:
		fmt.Fprintf(out, "job %s (%s) goes on: it is %s\n", j.Name, id, j.State)
	default:
		fmt.Fprintf(out, "job %s (%s) submitted\n", j.Name, id)
	}
	if err := n.others(ctx, out, id); err != nil {
		return err
	}

	// The service runs until the job has ended, and stops in good order in any case.
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running) }()
	watching, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	var broke error
	over := make(chan struct{})
	go func() {
		defer close(over)
		broke = <-ended
		cut()
		unwatch(errors.New("the service stopped"))
	}()
	err = n.show(watching, out, &j)
	hangUp() // who waits for the end of another job is answered first
	stop()
	<-over
	if broke != nil {
		return broke
	}
	if j, err2 := n.Job(context.WithoutCancel(ctx), id); err2 == nil {
		return n.conclude(context.WithoutCancel(ctx), out, &j)
	} else if err == nil {
		err = err2
	}
	return err
}

// others says how many unfinished programs besides id this process will run.
func (n *node) others(ctx context.Context, out io.Writer, id job.ID) error {
	q := store.Query{Kind: job.KindApp, States: unfinished(), Limit: 1000}
	others := 0
	for more := true; more; more = q.Cursor != "" {
		page, err := n.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Jobs {
			if page.Jobs[i].ID != id {
				others++
			}
		}
		q.Cursor = page.Next
	}
	if others > 0 {
		fmt.Fprintf(out, "this process also runs %s of folder %s while it lasts; see pawl list\n",
			plural(others, "other unfinished job"), n.dir)
	}
	return nil
}

func unfinished() []job.State {
	return slices.DeleteFunc(slices.Clone(job.States), job.State.Terminal)
}

// plural counts things whose name takes an s.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// show prints the job's states as they come, each with the time spent in the one before, and its log as it grows.
func (n *node) show(ctx context.Context, out io.Writer, j *job.Job) error {
	var since job.Event // with which the job came into the state where it is
	var stopped time.Time
	logs := follower{out: out, name: n.desk().ref(ctx, j)}
	defer logs.finish()
	for e, err := range n.Events(ctx, j.ID, "") {
		if err != nil {
			return err
		}
		stays := since.N > 0 && e.State == since.State
		if stays && e.Message == "" {
			continue
		}
		switch {
		case stays:
		case since.State == job.Running:
			logs.finish()
		case since.State == job.Archiving:
			stopped = e.At // what the program left running has been ended, too
		}
		fmt.Fprintln(out, eventLine(e, since))
		if e.State == job.Running && !stays {
			files, err := n.logsOf(ctx, e, stopped)
			if err != nil {
				return err
			}
			logs.follow(files)
		}
		if !stays {
			since = e
		}
	}
	return nil
}

// logsOf returns the logs of the launch that began to run with event e; none if a later launch has the files by now,
// or may have. stopped is when nothing of the launch before was alive any more.
func (n *node) logsOf(ctx context.Context, e job.Event, stopped time.Time) ([]logFile, error) {
	j, err := n.Job(ctx, e.Job)
	if err != nil {
		return nil, err
	}
	var r app.Resolved
	if err := json.Unmarshal(j.Resolved, &r); err != nil {
		return nil, fmt.Errorf("resolved spec of job %s: %w", j.ID, err)
	}
	events, err := n.History(ctx, e.Job)
	if err != nil {
		return nil, err
	}
	for _, later := range events {
		if later.N > e.N && later.State == job.SubmittingJob {
			return nil, nil
		}
	}
	var logs []logFile
	for _, name := range slices.Compact([]string{path.Clean(r.Stdout), path.Clean(r.Stderr)}) {
		logs = append(logs, logFile{
			name: filepath.Join(r.Folder, name), archived: filepath.Join(r.Results, name), stale: stopped,
		})
	}
	return logs, nil
}

// eventLine is one line of a job's story. since is the event with which the job came into the state before; in one
// state there is only something to say.
func eventLine(e, since job.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-17s", e.At.Local().Format("15:04:05.000"), e.State)
	if since.N > 0 && e.State != since.State {
		fmt.Fprintf(&b, "  after %s %s", spent(e.At.Sub(since.At)), since.State)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, "  %s", firstLine(e.Message))
	}
	return strings.TrimRight(b.String(), " ")
}

func spent(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if more {
		line += " …"
	}
	return line
}

// conclude says how the job stands, and makes the exit code of it.
func (n *node) conclude(ctx context.Context, out io.Writer, j *job.Job) error {
	folder, results := app.Places(j)
	switch j.State {
	case job.Finished:
		fmt.Fprintf(out, "FINISHED  output: %s\n", results)
		return nil
	case job.Failed:
		fmt.Fprintf(out, "FAILED  %s: %s\n", j.Code, j.Message)
		fmt.Fprintf(out, "what to do: %s\n", n.desk().remedy(ctx, j))
		if exists(folder) {
			fmt.Fprintf(out, "folder: %s\n", folder)
		}
		return exit(exitFailed)
	case job.Canceled:
		fmt.Fprintf(out, "CANCELED  %s\n", j.Message)
		return exit(exitCanceled)
	}
	fmt.Fprintf(out, "%s  left as it is; the same command goes on with it\n", j.State)
	return exit(exitLeft)
}

func exists(name string) bool {
	if name == "" {
		return false
	}
	_, err := os.Stat(name)
	return err == nil
}
