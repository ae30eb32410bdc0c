package systems

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

func surveyCommand(complete cobra.CompletionFunc) *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "survey NAME",
		Short: "Print a system with what its Slurm has now",
		Long: `Survey asks the Slurm of a system for its partitions and their limits, and for the default partition and
account. It prints the document of the system with them, as pawl apply takes it, and changes nothing. What
else it finds goes to standard error: partitions that are closed to you, and how Slurm keeps accounts.

Run it on the machine that reaches the system, which is host.from in its document.`,
		Example: `  pawl systems survey hpc
  pawl systems survey hpc | pawl apply -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: complete,
		RunE: target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
			was, err := at.Systems().Resource(ctx, cmd.Flags().Arg(0))
			if err != nil {
				return err
			}
			s := was.Doc
			if !s.Scheduled() {
				return job.Errorf(job.Invalid, "system %s has no scheduler that could be asked: give it runner: slurm", s.Name)
			}
			machine, err := at.Machine(cmd)
			if err != nil {
				return err
			}
			if err := reachedFrom(&s, machine); err != nil {
				return err
			}
			known := s.Partitions
			s.Partitions = nil
			if err := survey(ctx, cmd, at, &s); err != nil {
				return err
			}
			for i := range s.Partitions { // what Slurm does not say stays
				p := &s.Partitions[i]
				if n := slices.IndexFunc(known, func(k job.Partition) bool { return k.Name == p.Name }); n >= 0 {
					p.Description, p.JobsPerUser = known[n].Description, known[n].JobsPerUser
					p.Jobs = max(p.Jobs, known[n].Jobs)
				}
			}
			doc, err := checked(&s)
			if err != nil {
				return err
			}
			// the kind comes first, for people
			named := json.RawMessage(`{"kind":"` + job.KindSystem + `",` + strings.TrimPrefix(string(doc), "{"))
			return f.Print(cmd.OutOrStdout(), named, nil, nil)
		}),
	}
	term.FormatFlag(cmd, &f, term.AsYAML, term.AsJSON)
	return cmd
}

// reachedFrom returns an error if a system is not reached from a machine; "": from that of the
// service.
func reachedFrom(s *job.System, machine string) error {
	if machine == "" || s.Host.Kind == job.HostSSH && s.Host.Keys != job.KeysEverywhere && s.Host.From != machine {
		return job.Errorf(job.Invalid, "system %s is reached from another machine than this one: run the command there, "+
			"with --dir if its data folder is not the usual one", s.Name)
	}
	return nil
}

// survey completes a document with what its Slurm says, and tells people what else there is.
func survey(ctx context.Context, cmd *cobra.Command, at *target.Target, s *job.System) error {
	who, err := at.Whoami(ctx)
	if err != nil {
		return err
	}
	found, err := node.Survey(ctx, s, at.Folder(cmd), who.Tenant)
	if err != nil {
		return fmt.Errorf("system %s: %w", s.Name, err)
	}
	for _, line := range found.Lines() {
		fmt.Fprintln(cmd.ErrOrStderr(), term.CleanLines(line))
	}
	if found.Submit > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "  to have the jobs beyond them wait in Pawl: %s\n",
			term.Typed(cmd, fmt.Sprintf("pawl limits set system/%s %d", s.Name, found.Submit)))
	}
	found.Complete(s)
	return nil
}

// surveyed surveys a system that is to be made. Where a person has to log in first, that is left
// for later.
func surveyed(ctx context.Context, cmd *cobra.Command, at *target.Target, s *job.System) error {
	machine, err := at.Machine(cmd)
	if err != nil {
		return err
	}
	if err := reachedFrom(s, machine); err != nil {
		return err
	}
	err = survey(ctx, cmd, at, s)
	if t, ok := errors.AsType[*host.Trouble](err); ok && t.Code == job.LoginRequired {
		fmt.Fprintf(cmd.ErrOrStderr(), "Slurm has not been asked for its partitions: log in with %s, and then %s\n",
			term.Typed(cmd, "pawl systems login "+s.Name),
			term.Typed(cmd, "pawl systems survey "+s.Name+" | pawl apply -f -"))
		return nil
	}
	if t, ok := errors.AsType[*host.Trouble](err); ok && t.Code == job.SchedulerUnavailable && s.Host.Kind == job.HostSSH {
		return fmt.Errorf("%w; to give its commands variables, such as SLURM_CONF: add it without --slurm, "+
			"give its document runner: slurm and env, and then %s", err,
			term.Typed(cmd, "pawl systems survey "+s.Name+" | pawl apply -f -"))
	}
	if job.KindOf(err) == job.NotFound {
		return job.Errorf(job.Invalid, "%w; run the command on a login node, or name one with --ssh", err)
	}
	return err
}

// SlurmEnv returns the variables that the Slurm commands of this machine need.
func SlurmEnv() map[string]string {
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		return map[string]string{"SLURM_CONF": conf}
	}
	return nil
}
