package jobfile

import (
	_ "embed"
	"io"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// The templates are job files that run as they are. In them "#field:" is a field that is left out,
// and "# text" a comment.
var (
	//go:embed template/program.yaml
	programTemplate string
	//go:embed template/script.yaml
	scriptTemplate string
)

func initCommand() *cobra.Command {
	templates := map[string]string{"program": programTemplate, "script": scriptTemplate}
	return &cobra.Command{
		Use:   "init [program|script]",
		Short: "Print a job file to begin with",
		Long: `Init prints a job file that runs as it is, with every field and what it means. It is
for a program; pawl init script prints one for a script.`,
		Example: `  pawl init script > job.yaml
  pawl run job.yaml`,
		ValidArgs: []string{"program", "script"},
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := "program"
			if len(args) == 1 {
				kind = args[0]
			}
			template, ok := templates[kind]
			if !ok {
				return term.Usagef("there is no template %q: give program or script", kind)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), template)
			return err
		},
	}
}
