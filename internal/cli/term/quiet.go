package term

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// QuietFlag adds the flag --quiet to all commands, and refuses those of their flags that say
// nothing.
func QuietFlag(root *cobra.Command) {
	root.PersistentFlags().BoolP("quiet", "q", false,
		"print only what is asked for: ids, contents of files, and errors")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFlags(cmd); err != nil || !Quiet(cmd) {
			return err
		}
		if f := cmd.Flags().Lookup("output"); f != nil && !f.Changed {
			f.Value.Set(string(AsName)) //nolint:errcheck // else the command prints no names, and stays as it is
		}
		if acts(cmd) && !slices.Contains(idsOf, below(cmd)) {
			cmd.SetOut(io.Discard)
		}
		return nil
	}
}

// Quiet reports whether --quiet is given.
func Quiet(cmd *cobra.Command) bool {
	is, err := cmd.Flags().GetBool("quiet")
	return err == nil && is
}

// acts reports whether a call of a command does something: all else only looks.
func acts(cmd *cobra.Command) bool {
	for _, looks := range []string{"dry-run", "help"} {
		if is, err := cmd.Flags().GetBool(looks); is && err == nil {
			return false
		}
	}
	return slices.Contains(idsOf, below(cmd)) || slices.ContainsFunc([]*cobra.Command{cmd, cmd.Parent()}, does)
}

// idsOf are the commands that do something and print the ids of what they have made.
var idsOf = []string{"submit", "resubmit", "schedules run"}

// below is the command as it stands behind pawl.
func below(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "pawl ") }

// does reports whether a command does something and prints nothing but that it is done.
func does(cmd *cobra.Command) bool {
	return cmd != nil && slices.Contains([]string{
		"run", "wait", "cancel", "pause", "resume", "hide", "unhide", "annotate", "event", "apply", "delete",
		"enable", "disable",
		"add", "trust", "set", "remove", "try", "release", "give-up", "drain", "undrain", "stop",
	}, cmd.Name())
}

// Hints is where a command says what may be done next.
func Hints(cmd *cobra.Command) io.Writer {
	if Quiet(cmd) {
		return io.Discard
	}
	return cmd.ErrOrStderr()
}
