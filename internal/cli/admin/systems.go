package admin

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/systems"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

func systemsCommand() *cobra.Command {
	kind := kindNamed(job.KindSystem)
	cmd := kind.list.by(&cobra.Command{
		Use:     "systems",
		Aliases: []string{"system"},
		Short:   "List systems, add machines that ssh reaches, and Slurm",
		Long: `Systems lists where programs run, as pawl get systems does. With one of the commands below it adds a
machine that ssh reaches, or Slurm, checks what jobs need of a system, trusts a new key, or logs in.`,
		Example: "  pawl systems",
		Args:    term.NoSubject,
	})
	cmd.AddCommand(systems.Commands(kind.list.complete)...)
	return cmd
}

// kindNamed returns the kind of document with a name.
func kindNamed(name string) *resourceKind {
	i := slices.IndexFunc(resourceKinds, func(k *resourceKind) bool { return k.kind == name })
	return resourceKinds[i]
}
