// Package term is how commands speak: exit codes and the errors behind them, output for people and
// for programs (-o), tables that fit the terminal, --quiet, and advice that can be typed as it
// stands.
package term

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

// Exit codes. They are part of the interface.
const (
	ExitOK       = 0
	ExitFailed   = 1
	ExitInput    = 2
	ExitCanceled = 3
	ExitLeft     = 4
	ExitBroken   = 5
	exitDenied   = 6
	ExitSettings = 78 // EX_CONFIG of sysexits.h
)

// ExitCodes says what each of them means.
var ExitCodes = []struct {
	Code    int
	Meaning string
}{
	{ExitOK, "all is well; of commands that wait for jobs: all FINISHED"},
	{ExitFailed, "a job FAILED"},
	{ExitInput, "the command, its flags or its file are wrong, or do not fit what is there: nothing was done"},
	{ExitCanceled, "a job was CANCELED"},
	{ExitLeft, "a job is PAUSED, or left unfinished; or nobody is there to go on with it"},
	{ExitBroken, "Pawl could not go on: the server cannot be reached or has no room now, the folder is locked, " +
		"damaged, or of a newer version; or the output could not be written"},
	{exitDenied, "the server does not know who asks, or does not let them do this"},
	{ExitSettings, "of serve and worker, in place of 2: their settings or their folder are wrong, and another " +
		"start would not help. A crash of Pawl itself ends with 2"},
}

// exitOf maps the kinds of error to exit codes. A kind that is not here is [ExitBroken].
var exitOf = map[job.ErrorKind]int{
	job.Invalid: ExitInput, job.NotFound: ExitInput, job.Conflict: ExitInput, job.Denied: exitDenied,
}

// An Exit ends the program with a code and without a message: everything has been said.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ExitCode says what is wrong, if anything is, and returns the exit code for it. Go ends a process
// that crashes with 2, so a service has another code for wrong settings: after a crash it is to be
// started again.
func ExitCode(cmd *cobra.Command, err error) int {
	code := exitCodeOf(cmd, err)
	if out, is := cmd.Root().OutOrStdout().(*live.Writer); is {
		if lost, failed := out.Failed(); failed != nil && !errors.Is(failed, syscall.EPIPE) { // nobody reads any more
			code = cmp.Or(code, ExitBroken)
			if _, silent := errors.AsType[Exit](err); silent || !errors.Is(err, failed) {
				fmt.Fprintf(cmd.ErrOrStderr(), "pawl: %v\n", failed)
			}
			if acts(cmd) { // so what it had to say of that is said here
				fmt.Fprintf(cmd.ErrOrStderr(), "pawl: what was done is done all the same; "+
					"what could not be printed begins with:\n%s\n", strings.TrimSuffix(string(lost), "\n"))
			}
		}
	}
	if service := cmd.Name() == "serve" || cmd.Name() == "worker"; service && code == ExitInput {
		return ExitSettings
	}
	return code
}

func exitCodeOf(cmd *cobra.Command, err error) int {
	var code Exit
	var usage *UsageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(cmd.ErrOrStderr(), "pawl: %v\n", err)
		return ExitInput
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "pawl: %s\n", Typed(cmd, err.Error()))
	if c, ok := exitOf[job.KindOf(err)]; ok {
		return c
	}
	return ExitBroken
}

// ExitTopic is the page of pawl help exit-codes.
func ExitTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes:\n\n")
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, c := range ExitCodes {
		fmt.Fprintf(w, "  %d\t%s\n", c.Code, c.Meaning)
	}
	w.Flush()
	text.WriteString("\nWith several jobs the worst code counts: 4 before 1 before 3.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}

// ExitFor is the exit code for one job.
func ExitFor(s job.State) int {
	switch s {
	case job.Finished:
		return ExitOK
	case job.Failed:
		return ExitFailed
	case job.Canceled:
		return ExitCanceled
	}
	return ExitLeft
}

// WorseExit returns which of two exit codes counts when both are due.
func WorseExit(a, b int) int {
	order := []int{ExitOK, ExitCanceled, ExitFailed, ExitLeft}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}
