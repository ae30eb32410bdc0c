// Command pawl runs jobs that must not be lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/job"
)

// version is set at build time.
var version = "dev"

// Exit codes. They are part of the interface.
const (
	exitOK       = 0
	exitFailed   = 1 // a job ended FAILED
	exitInput    = 2 // the command, its flags or its file are wrong; nothing was done
	exitCanceled = 3 // a job ended CANCELED
	exitLeft     = 4 // a job was left running, waiting or paused
	exitBroken   = 5 // Pawl itself could not go on
)

// exitOf maps the kinds of error to exit codes.
var exitOf = map[job.ErrorKind]int{
	job.Invalid: exitInput, job.NotFound: exitInput, job.Conflict: exitInput,
}

// An exit ends the program with a code and without a message: everything has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	// A process that loads one core with the database and the other with the jobs gains from a heap that may grow.
	debug.SetGCPercent(200)
	os.Exit(pawlMain(context.Background()))
}

// pawlMain runs the command line of this process.
func pawlMain(ctx context.Context) int {
	cmd := rootCommand()
	err := cmd.ExecuteContext(ctx)
	var code exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "pawl: %v\n", err)
		return exitInput
	}
	fmt.Fprintf(os.Stderr, "pawl: %s\n", typed(cmd, err.Error()))
	if c, ok := exitOf[job.KindOf(err)]; ok {
		return c
	}
	return exitBroken
}

// A usageError is a command that was called wrongly.
type usageError struct{ error }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Run jobs that must not be lost",
		Long: `Pawl runs jobs that must not be lost: programs, and tasks written in Go.

A job that was accepted is never lost, never run by two at once, and always moving or waiting for something that
Pawl can name. Kill this program at any moment and start it again: it goes on where it was.

` + jobRule + `

Exit codes: 0 all is well (for run: FINISHED), 1 a job FAILED, 2 bad input, 3 a job was CANCELED, 4 a job was left
running, waiting or paused, 5 Pawl itself could not go on (the folder is locked, corrupt, or of a newer version).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2, // two letters that changed places
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.PersistentFlags().String("dir", "", "data folder (default: $XDG_STATE_HOME/pawl or ~/.local/state/pawl)")
	for _, c := range []*cobra.Command{
		runCommand(), validateCommand(), initCommand(), listCommand(), showCommand(), historyCommand(), logsCommand(),
		outputCommand(), cancelCommand(), pauseCommand(), resumeCommand(), resubmitCommand(),
		benchCommand(), chaosCommand(), versionCommand(), serveCommand(),
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
			if err := check(cmd, args); err != nil {
				return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "pawl "+version)
		},
	}
}
