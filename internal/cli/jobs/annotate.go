package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func hideCommand() *cobra.Command {
	return hidingCommand("hide", true, "Leave jobs that have ended out of lists",
		"Hide leaves jobs that have ended out of lists. They are found by id or name, and by a filter with hidden=true.",
		`  pawl hide wordcount
  pawl hide --filter 'state=FAILED label.project=x'`)
}

func unhideCommand() *cobra.Command {
	return hidingCommand("unhide", false, "Show hidden jobs in lists again",
		"Unhide shows jobs in lists again. A filter has to say hidden=true to choose them.",
		`  pawl unhide wordcount
  pawl unhide --filter 'hidden=true label.project=x'`)
}

func hidingCommand(name string, hidden bool, short, long, example string) *cobra.Command {
	var b Bulk
	fit := target.EndedJobs
	if !hidden {
		fit = target.HiddenJobs
	}
	cmd := &cobra.Command{
		Use:               name + " [JOB...]",
		Short:             short,
		Long:              long + "\n\n" + target.JobRule + "\n\n" + BulkRule,
		Example:           example,
		Args:              b.Args(math.MaxInt),
		ValidArgsFunction: target.CompleteJobs(fit),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return b.Run(cmd, service.Bulk{Action: service.Action(name)})
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				lookup := at.Lookup
				if !hidden {
					lookup = at.LookupHidden
				}
				return each(ctx, args, lookup, func(v *service.View) error {
					if err := at.MakeWritable(ctx, node.Options{}); err != nil {
						return err
					}
					if _, err := at.Hide(ctx, v.ID, hidden); err != nil {
						return err
					}
					what := "shown"
					if hidden {
						what = "hidden"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "job %s (%s): %s\n", v.Name, v.ID, what)
					return nil
				})
			})(cmd, args)
		},
	}
	b.Flags(cmd)
	return cmd
}

func annotateCommand() *cobra.Command {
	var notes string
	var replace bool
	cmd := &cobra.Command{
		Use:   "annotate JOB [KEY=VALUE | KEY-]...",
		Short: "Change the labels and notes of a job",
		Long: `Annotate sets labels (KEY=VALUE), removes them (KEY-), and merges --notes into the notes of a job: maps
key by key, null removes a key. With --replace the given labels replace all labels, and the given
notes all notes. What is not given stays as it is. It works at any time, also after the job's end.

` + target.JobRule,
		Example: `  pawl annotate wordcount project=x checked-
  pawl annotate wordcount --notes '{"paper": {"figure": 3}}'`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := annotation(args[1:], notes, replace)
			if err != nil {
				return term.Usage(err)
			}
			return target.WithJob(func(ctx context.Context, cmd *cobra.Command, at *target.Target, v *service.View) error {
				if err := at.MakeWritable(ctx, node.Options{}); err != nil {
					return err
				}
				now, err := at.Annotate(ctx, v.ID, a, replace)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "job %s (%s): labels %s, notes %s\n", now.Name, now.ID,
					term.OrDash(labelText(now.Labels)), term.OrDash(string(now.Notes)))
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&notes, "notes", "", "notes, as JSON")
	cmd.Flags().BoolVar(&replace, "replace", false, "put labels and notes in the place of those that are there")
	return cmd
}

// annotation returns the annotation that arguments and flags describe.
func annotation(args []string, notes string, replace bool) (a job.Annotation, err error) {
	for _, arg := range args {
		key, value, set := strings.Cut(arg, "=")
		gone, removed := strings.CutSuffix(arg, "-")
		if a.Labels == nil {
			a.Labels = map[string]*string{}
		}
		switch {
		case !utf8.ValidString(arg):
			return a, fmt.Errorf("%q is not text: give it in UTF-8", arg)
		case set && key != "":
			a.Labels[key] = &value
		case !set && removed && gone != "" && !replace:
			a.Labels[gone] = nil
		case !set && removed && replace:
			return a, fmt.Errorf("%s removes a label, and --replace removes all that are not given: leave one of "+
				"both out", arg)
		default:
			return a, fmt.Errorf("%s is not a label: give key=value to set one, or key- to remove it", arg)
		}
	}
	if notes != "" {
		if !json.Valid([]byte(notes)) {
			return a, errors.New(`--notes is not JSON: give such as '{"figure": 3}'`)
		}
		a.Notes = json.RawMessage(notes)
	}
	if a.Labels == nil && a.Notes == nil {
		return a, errors.New("there is nothing to change: give labels as key=value or key-, or --notes")
	}
	return a, nil
}
