package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// mostListed is how many jobs are listed at most; see [store.Query].
const mostListed = 1000

func listCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the jobs of the folder, newest first",
		Example: "  pawl list --limit 20",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > mostListed {
				return &usageError{fmt.Errorf("--limit %d is out of range: give 1 to %d", limit, mostListed)}
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
			now, occupied := time.Now(), n.occupied(cmd.Context())
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tKIND\tSTATE\tAGE\tSUMMARY")
			for i := range page.Jobs {
				j := &page.Jobs[i]
				age, summary := spent(now.Sub(j.Created)), firstLine(why(j, now, occupied))
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, j.Name, j.Kind, j.State, age, summary)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			switch {
			case page.Next == "":
			case limit < mostListed:
				fmt.Fprintf(out, "there are older ones: raise --limit, which is %d\n", limit)
			default:
				fmt.Fprintf(out, "there are older ones, which pawl list does not show: pawl show finds them by id or name\n")
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("how many jobs to list, 1 to %d", mostListed))
	return cmd
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show JOB",
		Short:   "Show one job: where it stands, why, and where its files are",
		Long:    "Show prints one job: where it stands, why, and where its files are.\n\n" + jobRule,
		Example: "  pawl show wordcount",
		Args:    cobra.ExactArgs(1),
		RunE: withJob(func(ctx context.Context, out io.Writer, n *node, j *job.Job) error {
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
			row("why", why(j, time.Now(), n.occupied(ctx)))
			if j.State == job.Failed {
				row("what to do", n.remedy(ctx, j))
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
		Long:    "History prints one line for each change of a job's state or custody.\n\n" + jobRule,
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
		Long:    "Logs prints the standard output of a job's program, from its folder or from its results.\n\n" + jobRule,
		Example: "  pawl logs --stderr fails",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(func(ctx context.Context, out io.Writer, n *node, j *job.Job) error {
				size, err := printLog(out, j, stderr)
				if err != nil || size > 0 || stderr {
					return err
				}
				if other, err := printLog(io.Discard, j, true); err == nil && other > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "stdout is empty; see pawl logs --stderr %s\n", n.ref(ctx, j))
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&stderr, "stderr", false, "print the standard error instead")
	return cmd
}

// printLog prints stdout or stderr of a job's program, and returns how many bytes that were.
func printLog(out io.Writer, j *job.Job, stderr bool) (int64, error) {
	var r app.Resolved
	if j.Kind != job.KindApp {
		return 0, job.Errorf(job.Invalid, "job %s is a task and has no log: see pawl history %s", j.ID, j.ID)
	}
	if json.Unmarshal(j.Resolved, &r) != nil {
		return 0, job.Errorf(job.NotFound, "job %s has no log yet: it is %s", j.ID, j.State)
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
		return io.Copy(out, f)
	}
	return 0, job.Errorf(job.NotFound, "job %s has no %s: it is %s", j.ID, name, j.State)
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

// jobRule says how a job is named.
const jobRule = `JOB is a job's id, the end of its id (6 characters or more, if no other job has it), or its name. Of several jobs
with one name it is the unfinished one, or the newest when all have ended.`

// leastEnd is how many characters the end of an id must have at least to name a job.
const leastEnd = 6

// lookup finds the job that ref names; see jobRule.
func (n *node) lookup(ctx context.Context, ref string) (job.Job, error) {
	if ref == "" {
		return job.Job{}, &usageError{errors.New("JOB is empty: give the name or the id of a job, see pawl list")}
	}
	if id, err := job.ParseID(ref); err == nil {
		return n.Job(ctx, id)
	}
	found, err := n.named(ctx, ref)
	if err == nil && len(found) == 0 {
		found, err = n.ending(ctx, ref)
	}
	switch {
	case err != nil:
		return job.Job{}, err
	case len(found) == 0:
		return job.Job{}, job.Errorf(job.NotFound, "no job %q in folder %s: see pawl list", ref, n.dir)
	case len(found) == 1:
		return n.Job(ctx, found[0].ID)
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID, found[i].Name, found[i].State)
	}
	return job.Job{}, job.Errorf(job.Conflict, "%q names more than one job: give the id of one of them%s", ref, &ids)
}

// mostNamed is how many jobs are named when a reference fits several.
const mostNamed = 20

// named returns the unfinished jobs of a name, or when all have ended the newest.
func (n *node) named(ctx context.Context, name string) ([]job.Job, error) {
	page, err := n.List(ctx, store.Query{Name: name, States: unfinished(), Limit: mostNamed})
	if err == nil && len(page.Jobs) == 0 {
		page, err = n.List(ctx, store.Query{Name: name, Limit: 1})
	}
	return page.Jobs, err
}

// ending returns the jobs whose id ends in ref.
func (n *node) ending(ctx context.Context, ref string) (found []job.Job, err error) {
	if len(ref) < leastEnd {
		return nil, nil
	}
	q := store.Query{Limit: mostListed}
	for more := true; more && len(found) < mostNamed; more = q.Cursor != "" {
		page, err := n.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			if strings.HasSuffix(page.Jobs[i].ID.String(), strings.ToLower(ref)) {
				found = append(found, page.Jobs[i])
			}
		}
		q.Cursor = page.Next
	}
	return found, nil
}

// occupied reports whether a process runs jobs in the folder. pawl listens on the socket there; a program with
// handlers of its own has only the lock.
func (n *node) occupied(ctx context.Context) bool {
	if c, err := dial(ctx, n.dir); err == nil {
		c.Close()
		return true
	}
	// The kernel's list shows the lock without trying it: one who tries it may turn away another who wants it.
	info, err := os.Stat(filepath.Join(n.dir, "lock"))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	return ok && err == nil && strings.Contains(string(locks), fmt.Sprintf(":%d 0 EOF\n", stat.Ino))
}

// why says in one sentence why a job stands where it stands. occupied is whether a process runs jobs in its folder.
func why(j *job.Job, now time.Time, occupied bool) string {
	stands := reason(j, now, occupied)
	switch {
	case occupied || j.Custody == job.None || j.Custody == job.User:
		return stands
	case j.Program():
		return stands + "; no pawl runs in this folder now: pawl run FILE goes on with it"
	}
	return stands + "; no program runs in this folder now: start the one that handles " + j.Kind
}

func reason(j *job.Job, now time.Time, occupied bool) string {
	switch j.Custody {
	case job.None:
		if j.Message != "" {
			return string(j.Code) + ": " + j.Message
		}
		return string(j.Code)
	case job.Gate:
		switch {
		case !j.Due.IsZero() && j.Due.Before(now):
			return "was due at " + j.Due.Local().Format(time.RFC3339)
		case !j.Due.IsZero():
			return "waits until " + j.Due.Local().Format(time.RFC3339)
		case j.Needs > 0:
			return "waits for the end of " + plural(j.Needs, "other job")
		}
		return "waits for its turn"
	case job.Ready:
		if !j.Program() {
			return "waits for a program that handles " + j.Kind
		}
		return "waits for a process with a free slot"
	case job.Worker:
		if !occupied {
			return "the process that worked on it is gone"
		}
		return "a process works on it"
	case job.Monitor:
		switch {
		case j.Wish == job.WishPause:
			return "its program is suspended"
		case !occupied:
			return "its program runs, or has ended meanwhile"
		}
		return "its program runs"
	case job.Recovery:
		return "blocked: " + j.Message
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
