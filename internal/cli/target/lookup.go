package target

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// JobRule says how a job is named; see [service.Service.Find].
const JobRule = `JOB is a job's id, a beginning or an end of its id (6 characters or more, if no other job has it), or
its name. If several jobs have that name, it is the unfinished one, or the newest if all have ended.`

// Lookup finds the job that ref names; see [JobRule].
func (at *Target) Lookup(ctx context.Context, ref string) (service.View, error) {
	return at.find(ctx, ref, false)
}

// LookupHidden is lookup that prefers the newest hidden job of a name.
func (at *Target) LookupHidden(ctx context.Context, ref string) (service.View, error) {
	return at.find(ctx, ref, true)
}

func (at *Target) find(ctx context.Context, ref string, hidden bool) (service.View, error) {
	if id, err := job.ParseID(ref); err == nil {
		return at.Job(ctx, id)
	}
	v, err := at.Find(ctx, ref, hidden)
	if job.KindOf(err) == job.NotFound {
		err = job.Errorf(job.NotFound, "no job %q %s: see pawl list", ref, at.Where())
	}
	return v, err
}

// Ref is what a user types for a job: its name where that finds it, or else the end of its id.
func (at *Target) Ref(ctx context.Context, j *job.Job) string {
	if len(j.Name) <= mostTyped && plainWord.MatchString(j.Name) {
		if found, err := at.Lookup(ctx, j.Name); err == nil && found.ID == j.ID {
			return j.Name
		}
	}
	return j.ID.Short()
}

// mostTyped is how many characters of a name are typed rather than the end of the id.
const mostTyped = 40

// plainWord matches what a shell takes for one word.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Remedy says what to do about a job that ended or is blocked, in words that can be typed.
func (at *Target) Remedy(ctx context.Context, j *job.Job) string {
	var system string
	switch {
	case j.State == job.Blocked:
		if g, err := at.BlockedBy(ctx, j.Group); err == nil { // else the advice is not so exact
			system = SystemOf(&g)
		}
	case !bytes.Contains(j.Request, []byte("system://")): // else it may be about another one
		system = far(j.Watch)
	}
	return strings.ReplaceAll(Advice(j.Code, j.State == job.Blocked, system), "JOB", at.Ref(ctx, j))
}

// Advice says what to do about a code. system is the one that it is about; empty: it is not known.
func Advice(code job.Code, blocked bool, system string) string {
	advice := "see pawl history JOB"
	for _, i := range job.Codes {
		if i.Code != code {
			continue
		}
		advice = i.Remedy
		if system != "" {
			advice = strings.ReplaceAll(advice, "NAME", system)
		}
		if blocked {
			advice += "; once that has cleared, what it blocks goes on by itself"
		}
	}
	return advice
}

// SystemOf returns the system that the condition of a group is about; empty: it is not known.
func SystemOf(g *service.BlockedGroup) string {
	if g.Params["kind"] == "system" {
		return g.Params["name"]
	}
	return far(g.Params["watch"])
}

// far returns the system of a watch over programs, unless that is a machine of the service.
func far(watch string) string {
	system, _, there := strings.Cut(watch, "/")
	if !there {
		return ""
	}
	return system
}

// CompleteJob completes the argument JOB: the names of jobs, and their ids.
func CompleteJob(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return CompleteOne(nil)(cmd, args, part)
}

// The jobs that fit commands.
var (
	LivingJobs   = job.Unended()
	PausableJobs = job.Unended().And("state", job.IsNot, string(job.Paused)).And("wish", job.IsNot,
		string(job.WishPause), string(job.WishCancel))
	PausedJobs    = job.WhereState(job.Paused)
	SuspendedJobs = job.Where("wish", job.Is, string(job.WishPause))
	EndedJobs     = job.WhereState(job.Ends...)
	HiddenJobs    = job.Where("hidden", job.Is, "true")
)

// CompleteOne completes a single argument JOB with the jobs that one of the filters chooses.
func CompleteOne(fit ...job.Filter) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return CompleteJobs(fit...)(cmd, args, part)
	}
}

// CompleteJobs completes arguments JOB with the jobs that one of the filters chooses and that do
// not stand there yet.
func CompleteJobs(fit ...job.Filter) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const how = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		at, err := Open(cmd.Context(), cmd)
		if err != nil {
			return nil, how
		}
		defer at.Close()
		var names, ids []cobra.Completion
		seen := map[string]bool{}
		for _, f := range fit {
			page, err := at.List(cmd.Context(), store.Query{Filter: f, Limit: MostListed})
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
