package term

import (
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// QuietFlag adds the flag --quiet to all commands.
func QuietFlag(root *cobra.Command) {
	root.PersistentFlags().BoolP("quiet", "q", false,
		"print only what is asked for: ids, contents of files, and errors")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !Quiet(cmd) {
			return nil
		}
		if f := cmd.Flags().Lookup("output"); f != nil && !f.Changed {
			f.Value.Set(string(AsName)) //nolint:errcheck // else the command prints no names, and stays as it is
		}
		if dry := cmd.Flags().Lookup("dry-run"); (dry == nil || dry.Value.String() != "true") &&
			slices.ContainsFunc([]*cobra.Command{cmd, cmd.Parent()}, does) {
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

// does reports whether a command does something and prints nothing but that it is done.
func does(cmd *cobra.Command) bool {
	return slices.Contains([]string{
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
