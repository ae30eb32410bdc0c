package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A desk is where a command asks about the jobs of a folder: the process that runs jobs there, or without one the
// folder itself. Both answer alike.
type desk struct {
	*client.Client
	dir     string
	process bool // a process answers
	release func() error
}

func (d *desk) close() error { return d.release() }

// openDesk opens the desk of the folder of --dir.
func openDesk(ctx context.Context, cmd *cobra.Command) (*desk, error) {
	dir, err := dataDir(cmd)
	if err != nil {
		return nil, err
	}
	if d, err := processDesk(ctx, dir); err == nil {
		return d, nil
	}
	n, err := openReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	return n.desk(), nil
}

// processDesk is the desk of the process that runs jobs in a folder.
func processDesk(ctx context.Context, dir string) (*desk, error) {
	c, err := dialClient(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &desk{Client: c, dir: dir, process: true, release: func() error { c.Close(); return nil }}, nil
}

// desk asks n itself. To close it closes n.
func (n *node) desk() *desk { return &desk{Client: n.client(), dir: n.dir, release: n.close} }

// withJob opens the desk and looks up the job that the first argument names.
func withJob(f func(context.Context, *cobra.Command, *desk, *pawl.View) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		d, err := openDesk(ctx, cmd)
		if err != nil {
			return err
		}
		defer d.close()
		v, err := d.lookup(ctx, args[0])
		if err != nil {
			return err
		}
		return f(ctx, cmd, d, &v)
	}
}

// jobRule says how a job is named.
const jobRule = `JOB is a job's id, the end of its id (6 characters or more, if no other job has it), or its name. Of several jobs
with one name it is the unfinished one, or the newest when all have ended.`

// leastEnd is how many characters the end of an id must have at least to name a job.
const leastEnd = 6

// lookup finds the job that ref names; see jobRule.
func (d *desk) lookup(ctx context.Context, ref string) (pawl.View, error) {
	if ref == "" {
		return pawl.View{}, &usageError{errors.New("JOB is empty: give the name or the id of a job, see pawl list")}
	}
	if id, err := job.ParseID(ref); err == nil {
		return d.Job(ctx, id)
	}
	found, err := d.named(ctx, ref)
	if err == nil && len(found) == 0 {
		found, err = d.ending(ctx, ref)
	}
	switch {
	case err != nil:
		return pawl.View{}, err
	case len(found) == 0:
		return pawl.View{}, job.Errorf(job.NotFound, "no job %q in folder %s: see pawl list", ref, d.dir)
	case len(found) == 1:
		return d.Job(ctx, found[0].ID)
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID, found[i].Name, found[i].State)
	}
	return pawl.View{}, job.Errorf(job.Conflict, "%q names more than one job: give the id of one of them%s", ref, &ids)
}

// mostNamed is how many jobs are named when a reference fits several.
const mostNamed = 20

// named returns the unfinished jobs of a name, or when all have ended the newest.
func (d *desk) named(ctx context.Context, name string) ([]pawl.View, error) {
	page, err := d.List(ctx, store.Query{Filter: job.Unended().And("name", job.Is, name), Limit: mostNamed})
	if err == nil && len(page.Jobs) == 0 {
		page, err = d.List(ctx, store.Query{Filter: job.Where("name", name), Limit: 1})
	}
	return page.Jobs, err
}

// ending returns the jobs whose id ends in ref.
func (d *desk) ending(ctx context.Context, ref string) (found []pawl.View, err error) {
	if len(ref) < leastEnd {
		return nil, nil
	}
	q := store.Query{Limit: mostListed}
	for more := true; more && len(found) < mostNamed; more = q.Cursor != "" {
		page, err := d.List(ctx, q)
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

// ref is what a user types for a job: its name where that finds it, or else the end of its id.
func (d *desk) ref(ctx context.Context, j *job.Job) string {
	if plainWord.MatchString(j.Name) {
		if found, err := d.lookup(ctx, j.Name); err == nil && found.ID == j.ID {
			return j.Name
		}
	}
	return j.ID.Short()
}

// plainWord matches what a shell takes for one word.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// remedy says what to do about a job that ended, in words that can be typed.
func (d *desk) remedy(ctx context.Context, j *job.Job) string {
	advice := "see pawl history JOB"
	for _, i := range job.Codes {
		if i.Code == j.Code {
			advice = i.Remedy
		}
	}
	return strings.ReplaceAll(advice, "JOB", d.ref(ctx, j))
}

// command matches a command of pawl on a data folder, within advice.
var command = regexp.MustCompile(`\bpawl (run|list|show|history|logs|output|cancel|pause|resume|resubmit)\b`)

// typed makes advice that can be typed as it is: where --dir was given, its commands need it too.
func typed(cmd *cobra.Command, advice string) string {
	flag := cmd.Flag("dir")
	if flag == nil || !flag.Changed {
		return advice
	}
	dir := flag.Value.String()
	if !plainPath.MatchString(dir) {
		dir = "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return command.ReplaceAllStringFunc(advice, func(c string) string { return c + " --dir " + dir })
}

// plainPath matches a path that a shell takes for one word.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./-]*$`)

// occupied reports whether a process runs jobs in the folder. pawl listens on the socket there; a program with
// handlers of its own has only the lock.
func occupied(ctx context.Context, dir string) bool {
	if c, err := dial(ctx, dir); err == nil {
		c.Close()
		return true
	}
	// The kernel's list shows the lock without trying it: one who tries it may turn away another who wants it.
	info, err := os.Stat(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	return ok && err == nil && strings.Contains(string(locks), fmt.Sprintf(":%d 0 EOF\n", stat.Ino))
}

// completeJob completes the argument JOB: the names of jobs, and their ids.
func completeJob(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	d, err := openDesk(cmd.Context(), cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer d.close()
	page, err := d.List(cmd.Context(), store.Query{Limit: mostListed})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names, ids []cobra.Completion
	seen := map[string]bool{}
	for i := range page.Jobs {
		j := &page.Jobs[i]
		if !seen[j.Name] {
			seen[j.Name] = true
			names = append(names, cobra.CompletionWithDesc(j.Name, string(j.State)))
		}
		ids = append(ids, cobra.CompletionWithDesc(j.ID.String(), j.Name+" "+string(j.State)))
	}
	return append(names, ids...), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
