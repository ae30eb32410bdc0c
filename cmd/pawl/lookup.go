package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

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
		return pawl.View{}, job.Errorf(job.NotFound, "no job %q %s: see pawl list", ref, d.where())
	case len(found) == 1:
		return d.Job(ctx, found[0].ID)
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID, found[i].Name, found[i].State)
	}
	return pawl.View{}, job.Errorf(job.Conflict, "%q names more than one job: give the id of one of them%s", ref, &ids)
}

// lookupHidden is lookup that prefers the newest hidden job of a name.
func (d *desk) lookupHidden(ctx context.Context, ref string) (pawl.View, error) {
	page, err := d.List(ctx, store.Query{Filter: job.Where("name", ref).And("hidden", job.Is, "true"), Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return d.lookup(ctx, ref)
	}
	return d.Job(ctx, page.Jobs[0].ID)
}

// mostNamed is how many jobs are named when a reference fits several.
const mostNamed = 20

// named returns the unfinished jobs of a name, or when all have ended the newest, which may be hidden.
func (d *desk) named(ctx context.Context, name string) ([]pawl.View, error) {
	page, err := d.List(ctx, store.Query{Filter: job.Unended().And("name", job.Is, name), Limit: mostNamed})
	for _, f := range []job.Filter{job.Where("name", name), job.Where("name", name).And("hidden", job.Is, "true")} {
		if err == nil && len(page.Jobs) == 0 {
			page, err = d.List(ctx, store.Query{Filter: f, Limit: 1})
		}
	}
	return page.Jobs, err
}

// ending returns the jobs whose id ends in ref, however old they are.
func (d *desk) ending(ctx context.Context, ref string) ([]pawl.View, error) {
	if len(ref) < leastEnd || !hexEnd.MatchString(ref) {
		return nil, nil
	}
	f, err := job.ParseFilter("id~*"+ref+" created>=2000-01-01 hidden=true,false", time.Now())
	if err != nil {
		return nil, err
	}
	page, err := d.List(ctx, store.Query{Filter: f, Limit: mostNamed})
	return page.Jobs, err
}

// hexEnd matches what the end of an id consists of.
var hexEnd = regexp.MustCompile(`^[0-9a-fA-F-]+$`)

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
