package term

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A UsageError is a command that was called wrongly.
type UsageError struct{ err error }

// Error implements error.
func (e *UsageError) Error() string { return e.err.Error() }

// Usage is an error that says how a command was called wrongly.
func Usage(err error) error { return &UsageError{err} }

// Usagef is such an error with the text of fmt.Errorf.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// FlagErrors makes errors of the flags of a command, and of those below it, usage errors.
func FlagErrors(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w; see %s --help", err, cmd.CommandPath())
	})
}

// CheckArgs makes errors of a command's arguments usage errors.
func CheckArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			// cobra counts
			if text := err.Error(); strings.Contains(text, "arg(s)") || strings.HasPrefix(text, "unknown command") {
				what := "an argument is missing"
				if len(args) > 0 {
					what = fmt.Sprintf("%q is not what it takes", strings.Join(args, " "))
				}
				err = fmt.Errorf("%s: write %s", what, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
			return Usagef("%w; see %s --help", err, cmd.CommandPath())
		}
	}
	for _, sub := range c.Commands() {
		CheckArgs(sub)
	}
}
