package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func listCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the jobs of the folder, newest first",
		Example: "  pawl list --limit 20",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 1000 {
				return &usageError{fmt.Errorf("--limit %d is out of range: give 1 to 1000", limit)}
			}
			n, err := openReader(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer n.close()
			page, err := n.List(cmd.Context(), store.Query{Limit: limit})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tKIND\tSTATE\tAGE\tSUMMARY")
			for i := range page.Jobs {
				j := &page.Jobs[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, j.Name, j.Kind, j.State, spent(time.Since(j.Created)), firstLine(why(j)))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if page.Next != "" {
				fmt.Fprintf(out, "there are older ones: use --limit\n")
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many jobs to list, 1 to 1000")
	return cmd
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show JOB",
		Short:   "Show one job: where it stands, why, and where its files are",
		Long:    "Show prints one job. JOB is its id, the last eight characters of it, or its name.",
		Example: "  pawl show wordcount",
		Args:    cobra.ExactArgs(1),
		RunE: withJob(func(_ context.Context, out io.Writer, n *node, j *job.Job) error {
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			row := func(name, value string) {
				if value != "" {
					fmt.Fprintf(w, "%s:\t%s\n", name, strings.ReplaceAll(value, "\n", "\n\t"))
				}
			}
			row("id", j.ID.String())
			row("name", j.Name)
			row("kind", j.Kind)
			row("owner", j.Owner)
			row("state", string(j.State))
			row("why", why(j))
			if j.State == job.Failed {
				row("what to do", remedy(j.Code))
			}
			if j.Wish != "" {
				row("asked for", fmt.Sprintf("%s, by %s", j.Wish, j.WishedBy))
			}
			row("attempt", fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts))
			if j.Recoveries > 0 {
				row("recoveries", fmt.Sprint(j.Recoveries))
			}
			row("queue", fmt.Sprintf("%s, priority %d", j.Queue, j.Priority))
			row("created", j.Created.Local().Format(time.RFC3339))
			if !j.Ended.IsZero() {
				row("ended", fmt.Sprintf("%s, after %s", j.Ended.Local().Format(time.RFC3339), spent(j.Ended.Sub(j.Created))))
			}
			folder, results := app.Places(j)
			if exists(folder) {
				row("folder", folder)
			}
			if exists(results) {
				row("results", results)
			}
			row("result", string(j.Result))
			row("request", string(j.Request))
			return w.Flush()
		}),
	}
}

func historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "history JOB",
		Short:   "Show everything that happened to a job",
		Long:    "History prints one line for each change of a job's state or custody. JOB is its id, the last eight characters of it, or its name.",
		Example: "  pawl history wordcount",
		Args:    cobra.ExactArgs(1),
		RunE: withJob(func(ctx context.Context, out io.Writer, n *node, j *job.Job) error {
			events, err := n.History(ctx, j.ID)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "N\tTIME\tSPENT\tSTATE\tCUSTODY\tCAUSE\tCODE\tMESSAGE")
			for i, e := range events {
				held := "-"
				if i+1 < len(events) {
					held = spent(events[i+1].At.Sub(e.At))
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.N, e.At.Local().Format("2006-01-02 15:04:05.000"), held, e.State, e.Custody, e.Cause, e.Code, firstLine(e.Message))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, e := range events {
				if len(e.Data) > 0 {
					fmt.Fprintf(out, "evidence of %d: %s\n", e.N, e.Data)
				}
			}
			return nil
		}),
	}
}

func logsCommand() *cobra.Command {
	var stderr bool
	cmd := &cobra.Command{
		Use:     "logs JOB",
		Short:   "Print what a job's program has written",
		Long:    "Logs prints the standard output of a job's program, from its folder or from its results. JOB is its id, the last eight characters of it, or its name.",
		Example: "  pawl logs --stderr fails",
		Args:    cobra.ExactArgs(1),
		RunE: withJob(func(_ context.Context, out io.Writer, n *node, j *job.Job) error {
			var r app.Resolved
			if j.Kind != job.KindApp {
				return job.Errorf(job.Invalid, "job %s is a task and has no log: see pawl history %s", j.ID, j.ID)
			}
			if json.Unmarshal(j.Resolved, &r) != nil {
				return job.Errorf(job.NotFound, "job %s has no log yet: it is %s", j.ID, j.State)
			}
			name := r.Stdout
			if stderr {
				name = r.Stderr
			}
			for _, dir := range []string{r.Folder, r.Results} {
				f, err := os.Open(filepath.Join(dir, name))
				if err != nil {
					continue
				}
				defer f.Close()
				_, err = io.Copy(out, f)
				return err
			}
			return job.Errorf(job.NotFound, "job %s has no %s: it is %s", j.ID, name, j.State)
		}),
	}
	cmd.Flags().BoolVar(&stderr, "stderr", false, "print the standard error instead")
	return cmd
}

// withJob opens the folder for reading and looks up the job that the first argument names.
func withJob(f func(context.Context, io.Writer, *node, *job.Job) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		n, err := openReader(cmd.Context(), cmd)
		if err != nil {
			return err
		}
		defer n.close()
		j, err := n.lookup(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return f(cmd.Context(), cmd.OutOrStdout(), n, &j)
	}
}

// lookup finds a job by its id, the end of its id, or its name; of several with one name the newest.
func (n *node) lookup(ctx context.Context, ref string) (job.Job, error) {
	if id, err := job.ParseID(ref); err == nil {
		return n.Job(ctx, id)
	}
	page, err := n.List(ctx, store.Query{Name: ref, Limit: 1})
	if err != nil {
		return job.Job{}, err
	}
	if len(page.Jobs) == 1 {
		return n.Job(ctx, page.Jobs[0].ID)
	}
	for q := (store.Query{Limit: 1000}); len(ref) == 8; q.Cursor = page.Next {
		if page, err = n.List(ctx, q); err != nil {
			return job.Job{}, err
		}
		for _, j := range page.Jobs {
			if j.ID.Short() == ref {
				return n.Job(ctx, j.ID)
			}
		}
		if page.Next == "" {
			break
		}
	}
	return job.Job{}, job.Errorf(job.NotFound, "no job %q in folder %s: see pawl list", ref, n.dir)
}

// why says in one sentence why a job stands where it stands.
func why(j *job.Job) string {
	switch j.Custody {
	case job.None:
		if j.Message != "" {
			return string(j.Code) + ": " + j.Message
		}
		return string(j.Code)
	case job.Gate:
		switch {
		case !j.Due.IsZero():
			return "waits until " + j.Due.Local().Format(time.RFC3339)
		case j.Needs > 0:
			return fmt.Sprintf("waits for %d job(s) that must end first", j.Needs)
		}
		return "waits for its turn"
	case job.Ready:
		return "waits for a process with a free slot: pawl run on this folder is one"
	case job.Worker:
		return "a process works on it"
	case job.Monitor:
		if j.Wish == job.WishPause {
			return "its program is suspended"
		}
		return "its program runs"
	case job.Recovery:
		return "blocked: " + j.Message
	case job.User:
		return j.Message
	}
	return j.Message
}

func exists(name string) bool {
	if name == "" {
		return false
	}
	_, err := os.Stat(name)
	return err == nil
}
