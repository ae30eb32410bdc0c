package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// jobRule says how a job is named; see [pawl.Service.Find].
const jobRule = `JOB is a job's id, a beginning or an end of its id (6 characters or more, if no other job has it), or its name. Of
several jobs with one name it is the unfinished one, or the newest when all have ended.`

// lookup finds the job that ref names; see jobRule.
func (d *desk) lookup(ctx context.Context, ref string) (pawl.View, error) {
	return d.find(ctx, ref, false)
}

// lookupHidden is lookup that prefers the newest hidden job of a name.
func (d *desk) lookupHidden(ctx context.Context, ref string) (pawl.View, error) {
	return d.find(ctx, ref, true)
}

func (d *desk) find(ctx context.Context, ref string, hidden bool) (pawl.View, error) {
	if ref == "" {
		return pawl.View{}, &usageError{errors.New("JOB is empty: give the name or the id of a job, see pawl list")}
	}
	if id, err := job.ParseID(ref); err == nil {
		return d.Job(ctx, id)
	}
	v, err := d.Find(ctx, ref, hidden)
	if job.KindOf(err) == job.NotFound {
		err = job.Errorf(job.NotFound, "no job %q %s: see pawl list", ref, d.where())
	}
	return v, err
}

// ref is what a user types for a job: its name where that finds it, or else the end of its id.
func (d *desk) ref(ctx context.Context, j *job.Job) string {
	if len(j.Name) <= mostTyped && plainWord.MatchString(j.Name) {
		if found, err := d.lookup(ctx, j.Name); err == nil && found.ID == j.ID {
			return j.Name
		}
	}
	return j.ID.Short()
}

// mostTyped is how many characters of a name are typed rather than the end of the id.
const mostTyped = 40

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

// plainPath matches a path that a shell takes for one word.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_.:/-]*$`)

// completeJob completes the argument JOB: the names of jobs, and their ids.
func completeJob(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completeOne(nil)(cmd, args, part)
}

// The jobs that fit commands.
var (
	livingJobs    = job.Unended()
	pausableJobs  = job.Unended().And("state", job.IsNot, string(job.Paused)).And("wish", job.IsNot, string(job.WishPause), string(job.WishCancel))
	pausedJobs    = job.WhereState(job.Paused)
	suspendedJobs = job.Where("wish", string(job.WishPause))
	endedJobs     = job.WhereState(job.Ends...)
	hiddenJobs    = job.Where("hidden", "true")
)

// completeOne completes a single argument JOB with the jobs that one of the filters chooses.
func completeOne(fit ...job.Filter) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeJobs(fit...)(cmd, args, part)
	}
}

// completeJobs completes arguments JOB with the jobs that one of the filters chooses and that do not stand there yet.
func completeJobs(fit ...job.Filter) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		d, err := openDesk(cmd.Context(), cmd)
		if err != nil {
			return nil, how
		}
		defer d.close()
		var names, ids []cobra.Completion
		seen := map[string]bool{}
		for _, f := range fit {
			page, err := d.List(cmd.Context(), store.Query{Filter: f, Limit: mostListed})
			if err != nil {
				return nil, how
			}
			for i := range page.Jobs {
				j := &page.Jobs[i]
				id := j.ID.String()
				if slices.Contains(args, j.Name) || slices.Contains(args, id) {
					continue
				}
				if !seen[j.Name] {
					seen[j.Name] = true
					names = append(names, cobra.CompletionWithDesc(j.Name, string(j.State)))
				}
				ids = append(ids, cobra.CompletionWithDesc(id, j.Name+" "+string(j.State)))
			}
		}
		return append(names, ids...), how
	}
}
