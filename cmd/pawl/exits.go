package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/job"
)

// Exit codes. They are part of the interface.
const (
	exitOK       = 0
	exitFailed   = 1
	exitInput    = 2
	exitCanceled = 3
	exitLeft     = 4
	exitBroken   = 5
	exitDenied   = 6
	exitSettings = 78 // EX_CONFIG of sysexits.h
)

// exitCodes says what each of them means.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "all is well; of commands that wait for jobs: all FINISHED"},
	{exitFailed, "a job FAILED"},
	{exitInput, "the command, its flags or its file are wrong, or do not fit what is there: nothing was done"},
	{exitCanceled, "a job was CANCELED"},
	{exitLeft, "a job is PAUSED, or left unfinished; or nobody is there to go on with it"},
	{exitBroken, "Pawl could not go on: the server cannot be reached or has no room now, the folder is locked, damaged, or of a newer version"},
	{exitDenied, "the server does not know who asks, or does not let them do this"},
	{exitSettings, "of serve and worker, in place of 2: their settings or their folder are wrong, and another start would not help. A crash of Pawl itself ends with 2"},
}

// exitOf maps the kinds of error to exit codes. A kind that is not here is exitBroken.
var exitOf = map[job.ErrorKind]int{
	job.Invalid: exitInput, job.NotFound: exitInput, job.Conflict: exitInput, job.Denied: exitDenied,
}

// An exit ends the program with a code and without a message: everything has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// A usageError is a command that was called wrongly.
type usageError struct{ error }

// exitCode says what is wrong, if anything is, and returns the exit code for it. Go ends a process that crashes with 2, so
// a service has another code for wrong settings: after a crash it is to be started again.
func exitCode(cmd *cobra.Command, err error) int {
	code := exitCodeOf(cmd, err)
	if service := cmd.Name() == "serve" || cmd.Name() == "worker"; service && code == exitInput {
		return exitSettings
	}
	return code
}

func exitCodeOf(cmd *cobra.Command, err error) int {
	var code exit
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(cmd.ErrOrStderr(), "pawl: %v\n", err)
		return exitInput
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "pawl: %s\n", typed(cmd, err.Error()))
	if c, ok := exitOf[job.KindOf(err)]; ok {
		return c
	}
	return exitBroken
}

// exitTopic is the page of pawl help exit-codes.
func exitTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes:\n\n")
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, c := range exitCodes {
		fmt.Fprintf(w, "  %d\t%s\n", c.code, c.meaning)
	}
	w.Flush()
	text.WriteString("\nOf several jobs the worst counts: 4 before 1 before 3.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: text.String()}
}
