// Command pawl runs jobs that must not be lost.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/live"
)

// version is set at build time.
var version = "dev"

// ballast is never touched, so it is in no memory. The garbage collector counts it as in use, and so begins later: what a
// process that is busy keeps is a few MB, and would be gone through many times a second.
var ballast = make([]byte, 32<<20)

func main() {
	runtime.KeepAlive(ballast)
	os.Exit(pawlMain(context.Background()))
}

// pawlMain runs the command line of this process.
func pawlMain(ctx context.Context) int {
	if inherits() {
		return initMain()
	}
	out, errs := live.NewWriter(os.Stdout), live.NewWriter(os.Stderr)
	defer out.Close()
	defer errs.Close()
	root := rootCommand()
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	return exitCode(cmd, err)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Run jobs that must not be lost",
		Long: `Pawl runs jobs that must not be lost: programs, and tasks written in Go.

A job that was accepted is never lost, never run by two at once, and always moving or waiting for something that
Pawl can name. Kill this program at any moment and start it again: it goes on where it was.

` + jobRule + `

Jobs are those of a data folder on this machine (--dir), or of a server (--server, or PAWL_SERVER). What a server has to
know of who asks is a token: in the file of --token-file, or in PAWL_TOKEN; of a server on this machine it is found in
the server's data folder.

pawl help exit-codes says what the exit codes mean.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2, // two letters that changed places
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	placeFlags(root)
	quietFlag(root)
	for _, c := range []*cobra.Command{
		serveCommand(), workerCommand(), runCommand(), submitCommand(), waitCommand(), watchCommand(), validateCommand(), initCommand(),
		listCommand(), showCommand(), historyCommand(), eventsCommand(), logsCommand(), outputCommand(),
		cancelCommand(), pauseCommand(), resumeCommand(), resubmitCommand(),
		hideCommand(), unhideCommand(), annotateCommand(), eventCommand(),
		applyCommand(), getCommand(), deleteCommand(), enableCommand(), disableCommand(), explainCommand(),
		limitsCommand(), recoveryCommand(),
		workersCommand(),
		migrateCommand(), reconcileCommand(), benchCommand(), chaosCommand(), versionCommand(), exitTopic(),
	} {
		checkArgs(c)
		if c.Name() != "run" { // it asks first
			interruptible(c)
		}
		root.AddCommand(c)
	}
	return root
}

// interruptible ends the context of a command, and of those below it, at the first signal to stop. The second one ends
// the process at once.
func interruptible(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop)
			cmd.SetContext(ctx)
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		interruptible(sub)
	}
}

// noCommand refuses what is not a command, with the names of those that it may have been meant for.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if near := root.SuggestionsFor(args[0]); args[0] != "" && len(near) > 0 {
		meant = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{fmt.Errorf("unknown command %q%s; see pawl --help", args[0], meant)}
}

// checkArgs makes errors of a command's arguments usage errors.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if text := err.Error(); strings.Contains(text, "arg(s)") || strings.HasPrefix(text, "unknown command") { // cobra counts
				what := "an argument is missing"
				if len(args) > 0 {
					what = fmt.Sprintf("%q is not what it takes", strings.Join(args, " "))
				}
				err = fmt.Errorf("%s: write %s", what, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
			return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

func versionCommand() *cobra.Command {
	var licences bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, or the licences of what is linked in",
		Example: "  pawl version\n  pawl version --notices",
		Args:    cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			if licences {
				fmt.Fprint(cmd.OutOrStdout(), notices)
				return
			}
			fmt.Fprintln(cmd.OutOrStdout(), "pawl "+version)
		},
	}
	cmd.Flags().BoolVar(&licences, "notices", false, "print the notices of the modules that are linked into pawl")
	return cmd
}
