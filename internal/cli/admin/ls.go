package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

func lsCommand() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "ls system://NAME/PATH",
		Short: "List a folder of a system",
		Long: fmt.Sprintf(`Ls lists a folder of a system on another machine, up to %d entries by name: what a job can
take from there as an input. The document of the system says in files which folders these are.

The process that runs jobs looks there, as in pawl systems check.`, job.MaxListed),
		Example: `  pawl ls system://lab/data
  pawl ls system://lab/data -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no folder is given: write pawl ls system://NAME/PATH; jobs are listed by pawl list")
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			system, name, ok := job.OnSystem(args[0])
			if !ok || system == "" {
				return job.Errorf(job.Invalid, "%s: is no folder of a system: give one such as system://lab/data", args[0])
			}
			return target.With(target.OpenWriting, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				l, err := at.ListSystem(ctx, system, name, job.MaxListed)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				return f.Print(out, l, nil, func() error {
					t := term.NewTable(out, false, term.Column{Title: "MODE"}, term.Column{Title: "SIZE"},
						term.Column{Title: "MODIFIED"}, term.Column{Title: "NAME", Least: 20})
					for _, e := range l.Entries {
						size := "-"
						if e.Type == job.ListedFile {
							size = strconv.FormatInt(e.Size, 10)
						}
						t.Row(e.Mode, size, e.Modified.Format(time.RFC3339), e.Name)
					}
					if err := t.Flush(); err != nil {
						return err
					}
					if l.More {
						fmt.Fprintf(cmd.ErrOrStderr(), "there is more: these are the first %d by name\n", len(l.Entries))
					}
					return nil
				})
			})(cmd, args)
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML)
	return cmd
}
