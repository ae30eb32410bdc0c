package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/schedule"
	"github.com/pawl-jobs/pawl/service"
)

// whenOf says when a schedule is due.
func whenOf(s *job.Schedule) string {
	if s.Every != 0 {
		return "every " + s.Every.String()
	}
	return s.Cron + " " + cmp.Or(s.TimeZone, "UTC")
}

func schedulesCommand() *cobra.Command {
	kind := kindNamed(job.KindSchedule)
	cmd := kind.list.by(&cobra.Command{
		Use:     "schedules",
		Aliases: []string{"schedule"},
		Short:   "Submit jobs on a clock: by cron or at an interval",
		Long: `Schedules lists what submits jobs on a clock, and when each is due next. With one of the commands below
it makes one, pauses it, or submits its jobs at once.

A schedule is a document, as queues are: pawl apply takes it from a file, pawl get schedule NAME
-o yaml prints it, and pawl explain schedule has its fields. Its jobs have the label pawl/schedule,
which is its name, and pawl/due, which is when they were due: pawl list --label pawl/schedule=NAME lists
them.`,
		Example: "  pawl schedules",
		Args:    term.NoSubject,
	})
	show := kind.showing()
	show.Use, show.Example = "show NAME", "  pawl schedules show weekly\n  pawl schedules show weekly -o yaml"
	list := kind.list.by(&cobra.Command{Use: "list", Short: "List the schedules", Args: cobra.NoArgs})
	list.Example = "  pawl schedules list\n  pawl schedules list -o wide"
	cmd.AddCommand(list, show, schedulesAddCommand(), schedulesNextCommand(kind), schedulesRunCommand(kind),
		kind.switchedBy("pause", "paused", true), kind.switchedBy("resume", "resumed", false), kind.removing("delete"))
	return cmd
}

func schedulesAddCommand() *cobra.Command {
	var line jobfile.CommandLine
	var s job.Schedule
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "add NAME (--cron TIMES | --every TIME) FILE | -- COMMAND...",
		Short: "Submit the jobs of a file, or a command, on a clock",
		Long: `Add makes a schedule that submits the jobs of a job file, or a command behind --, at each due time. The
service keeps what the file says now: a change of the file changes nothing.

TIMES are five fields, as in crontab: minute, hour, day of the month, month and day of the week. Six
fields begin with the second. Clock changes are followed: what they skip is due when the clock has
changed, and what comes twice is due the first time. With --every the first due time is that long
after the schedule was made.`,
		Example: `  pawl schedules add weekly --cron '0 9 * * MON' --time-zone Europe/Berlin job.yaml
  pawl schedules add beat --every 90s -- date`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return fmt.Errorf("the schedule has no name: give NAME first")
			case dash > 1 || dash < 0 && len(args) > 2:
				return fmt.Errorf("%q is too much: give NAME and one file, or NAME and a command behind --", args[len(args)-1])
			case len(args) == 1:
				return fmt.Errorf("no job is given: name a job file, or a command behind --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			srv, err := target.ServerOf(cmd)
			if err != nil {
				return err
			}
			use := jobfile.Use{Away: srv != nil && !srv.Here(), Tasks: true}
			var f jobfile.File
			if cmd.ArgsLenAtDash() == 1 {
				f, err = line.File(args[1:], use)
			} else {
				f, err = jobfile.Read(cmd.Context(), args[1], use)
			}
			if err != nil {
				return err
			}
			s.Name, s.Every = args[0], job.Duration(every)
			for _, e := range f.Jobs {
				s.Jobs = append(s.Jobs, job.Given(e.Given))
			}
			doc, err := job.Encode(&s)
			if err != nil {
				return err
			}
			if _, err := schedule.Parse(doc); err != nil {
				return term.Usage(err)
			}
			return target.With(target.OpenWriting, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				r, _, err := at.Schedules().Apply(ctx, s.Name, doc, 0)
				if job.KindOf(err) == job.Conflict {
					return job.Errorf(job.Conflict, "schedule %s is there already: choose another name, or change it with "+
						"pawl get schedule %s -o yaml and pawl apply", s.Name, s.Name)
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "schedule %s made; due next at %s\n", s.Name, r.Next.Local().Format(time.RFC3339))
				return nil
			})(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Cron, "cron", "", "when jobs are due, as in crontab")
	term.DurationVar(cmd, &every, "every", 0, "the time from one due time to the next")
	f.StringVar(&s.TimeZone, "time-zone", "", "the time zone of --cron, such as Europe/Berlin (default UTC)")
	f.StringVar(&s.CatchUp, "catch-up", "", "what becomes of due times that were missed: none, one or all (default one)")
	f.StringVar(&s.Overlap, "overlap", "", "if the job before has not ended: skip or allow (default skip)")
	f.StringVar(&s.Description, "description", "", "for people")
	line.Flags(cmd)
	return cmd
}

func schedulesNextCommand(kind *resourceKind) *cobra.Command {
	var count int
	var f term.Format
	cmd := &cobra.Command{
		Use:               "next NAME",
		Short:             "Print when a schedule is due next",
		Example:           "  pawl schedules next weekly\n  pawl schedules next weekly --count 3",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: kind.list.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := term.CheckRange("count", count, 1, service.MostNext); err != nil {
				return err
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				r, err := at.Schedules().Resource(ctx, args[0])
				if err != nil {
					return err
				}
				times, err := at.NextDue(ctx, args[0], count)
				if err != nil {
					return err
				}
				zone, err := time.LoadLocation(r.Doc.TimeZone)
				if err != nil {
					zone = time.UTC
				}
				out := cmd.OutOrStdout()
				return f.Print(out, map[string]any{"times": times}, nil, func() error {
					if r.Doc.Disabled {
						fmt.Fprintf(term.Hints(cmd), "schedule %s is paused: it is due then once it is resumed\n", r.Doc.Name)
					}
					for _, t := range times {
						fmt.Fprintln(out, t.In(zone).Format("Mon 2006-01-02T15:04:05Z07:00"))
					}
					return nil
				})
			})(cmd, args)
		},
	}
	cmd.Flags().IntVar(&count, "count", 10, "how many due times")
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML)
	return cmd
}

func schedulesRunCommand(kind *resourceKind) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME...",
		Short: "Submit the jobs of schedules now",
		Long: `Run submits the jobs of schedules now, also of one that is paused, and prints their ids. The due times
stay as they are. A job that must not overlap is not submitted while the one before has not ended.`,
		Example:           "  pawl schedules run weekly",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: kind.list.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.With(target.OpenWriting, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				for _, name := range args {
					jobs, err := at.RunSchedule(ctx, name)
					if err != nil {
						return err
					}
					for _, j := range jobs {
						if j.Existed {
							fmt.Fprintf(cmd.ErrOrStderr(), "schedule %s: job %s has not ended; no other is submitted\n", name, j.ID)
							continue
						}
						fmt.Fprintln(cmd.OutOrStdout(), j.ID)
					}
				}
				return nil
			})(cmd, args)
		},
	}
}
