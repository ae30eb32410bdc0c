package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func eventCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "event JOB NAME [MESSAGE]",
		Short: "Write an event into the history of a job",
		Long: `Event writes an event into the history of a job that has not ended: a name, a message for people, and
data for programs. Everyone who follows the events sees it. A program that a server runs may write
events of its own job, $PAWL_JOB_ID: its environment holds the token for that. The next attempt finds
the message of its last event named checkpoint in $PAWL_CHECKPOINT. One named progress, such as 40 or
3/7 epochs, tells how far it is, and is not written into the history.

` + target.JobRule,
		Example: `  pawl event slow checkpoint 'half of the steps are done'
  pawl event slow epoch --data '{"loss": 0.25}'`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: target.CompleteOne(target.LivingJobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			n := job.CustomEvent{Name: args[1]}
			if len(args) > 2 {
				n.Message = args[2]
			}
			if data != "" {
				if !json.Valid([]byte(data)) {
					return term.Usage(errors.New(`--data is not JSON: give such as '{"loss": 0.25}'`))
				}
				n.Data = json.RawMessage(data)
			}
			if err := n.Validate(); err != nil {
				return term.Usage(err)
			}
			return target.With(target.OpenOwn(args[0]),
				func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
					id, err := job.ParseID(args[0]) // a job's own token is for no more than to write
					if err != nil {
						v, err := at.Lookup(ctx, args[0])
						if err != nil {
							return err
						}
						id = v.ID
					}
					if err := at.MakeWritable(ctx, node.Options{}); err != nil {
						return err
					}
					e, err := at.AddEvent(ctx, id, n)
					if err == nil {
						what := "job" // progress is no row of the history
						if e.N > 0 {
							what = "event " + eventNumber(&e) + " of job"
						}
						fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s\n", what, id, live.Clean(eventText(&e)))
					}
					return err
				})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "data for programs, as JSON")
	return cmd
}

// Where the events that are printed begin, unless a cursor says that.
const (
	fromStart = "start"
	fromEnd   = "end"
)

func eventsCommand() *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [JOB]",
		Short: "Print what happens to jobs, or to one",
		Long: `Events prints one line for each event of all jobs, or of one job: each change of state or custody, and
the events of pawl event. With --follow it also prints new events: those of one job until it has
ended; those of all jobs from now on, unless --after gives another beginning. With -o json each line
is an event as JSON, with a cursor for --after.

` + target.JobRule + "\n\n" + filterRule + ` State and code are those that the event led to.`,
		Example: `  pawl events wordcount
  pawl events --type FINISHED,FAILED --filter name=wordcount -o json
  pawl events -f slow`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: target.CompleteJob,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.filter, err = parseFilter(o.text); err != nil {
				return err
			}
			if len(args) > 0 && len(o.filter) > 0 {
				return term.Usage(errors.New("a job is named, and jobs are also chosen by --filter: do only one of these"))
			}
			for i, t := range o.types {
				if s := job.State(strings.ToUpper(t)); slices.Contains(job.States, s) {
					o.types[i] = string(s)
				}
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				return o.print(ctx, cmd, at, args)
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on with the events that come")
	cmd.Flags().StringVar(&o.text, "filter", "", "only events of jobs that this filter chooses")
	cmd.Flags().StringSliceVar(&o.types, "type", nil,
		"only those that lead to one of these states, or have one of these names")
	cmd.Flags().StringVar(&o.after, "after", "", "begin at the start or the end of what there is, or behind a cursor")
	term.FormatFlag(cmd, &o.format, term.AsTable, term.AsJSON)
	term.CompleteFlag(cmd, "type", stateNames())
	term.CompleteFlag(cmd, "after", []string{fromStart, fromEnd})
	return cmd
}

type eventsOptions struct {
	follow bool
	text   string
	filter job.Filter
	types  []string
	after  string
	format term.Format
}

// print prints events until there are no more.
func (o *eventsOptions) print(ctx context.Context, cmd *cobra.Command, at *target.Target, refs []string) error {
	q := client.EventQuery{Filter: o.filter, Types: o.types, After: o.after, Follow: o.follow}
	if len(refs) > 0 {
		v, err := at.Lookup(ctx, refs[0])
		if err != nil {
			return err
		}
		q.Job, q.Types = v.ID, nil
	}
	switch {
	case o.after == fromStart:
		q.After = ""
	case o.after == "" && o.follow && q.Job.IsZero():
		q.After = fromEnd
	}
	if o.follow && !at.Served(ctx) {
		q.Follow = false // nothing happens
	}
	at.Patient()
	names := map[job.ID]string{}
	ended := false
	for e, err := range at.Events(ctx, q) {
		switch {
		case err != nil && ctx.Err() != nil:
			return term.Exit(term.ExitLeft)
		case err != nil:
			return err
		}
		ended = e.State.Terminal()
		if !q.Job.IsZero() && o.types != nil && !slices.Contains(o.types, cmp.Or(e.Name, string(e.State))) {
			continue
		}
		if err := o.line(ctx, cmd.OutOrStdout(), at, &e, names); err != nil {
			return err
		}
	}
	if o.follow && (q.Job.IsZero() || !ended) {
		fmt.Fprintln(term.Hints(cmd), term.Typed(cmd, "nothing runs the jobs "+at.Where()+
			" now: nothing more happens until pawl run does, or pawl serve"))
		return term.Exit(term.ExitLeft)
	}
	return nil
}

func (o *eventsOptions) line(ctx context.Context, out io.Writer, at *target.Target, e *store.Event,
	names map[job.ID]string,
) error {
	if o.format == term.AsJSON {
		b, err := job.Encode(struct {
			job.Event
			Cursor string `json:"cursor"`
		}{e.Event, e.Cursor})
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", term.Shown(b))
		}
		return err
	}
	if _, known := names[e.Job]; !known {
		if len(names) > target.MostListed {
			clear(names)
		}
		names[e.Job] = e.Job.Short()
		if v, err := at.Job(ctx, e.Job); err == nil { // else it was deleted meanwhile
			names[e.Job] = live.Clean(v.Name)
		}
	}
	when, id, name, text := e.At.Local().Format("2006-01-02 15:04:05.000"), e.Job.String(), names[e.Job],
		live.FirstLine(eventText(&e.Event))
	width, room := 0, 20
	if w, is := out.(*live.Writer); is {
		width = w.Width()
	}
	if width > 0 && width < term.WideTerminal {
		room = 16
		when, id, name = e.At.Local().Format(time.TimeOnly), e.Job.Short(), live.Cut(name, room)
	}
	name += strings.Repeat(" ", max(0, room-live.Width(name)))
	line := fmt.Sprintf("%s  %s  %s  %s", when, id, name, term.Colours(out).Padded(e.State, 17))
	if text != "" {
		if width > 0 {
			text = live.Cut(text, max(1, width-live.Width(line)-2))
		}
		line += "  " + text
	}
	_, err := fmt.Fprintln(out, strings.TrimRight(line, " "))
	return err
}
