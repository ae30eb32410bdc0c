// Package shell starts programs by a shell that reads its login files and the profile of a system
// first. These may end the shell, as by exit 0: without its program there is no success.
package shell

import (
	"slices"
	"strings"
)

// Argv returns how a program is started by a shell, which is /bin/sh where there is only a profile;
// where there is none, by itself. The lines of the profile see its
// arguments, and may start it themselves. unread is a file that the shell removes when it has read
// its login files, so that whoever finds it knows that they have ended the shell; "" for none.
func Argv(shell []string, profile string, argv []string, unread string) []string {
	switch {
	case shell == nil && profile == "":
		return argv
	case shell == nil:
		shell = []string{"/bin/sh"}
	}
	read := ""
	if unread != "" { // by a rm that no login file hides
		read = "command -p rm -f '" + strings.ReplaceAll(unread, "'", `'\''`) + "' || exit 125\n"
	}
	return slices.Concat(shell, []string{"-c", read + early + profile + "\ntrap - EXIT\nexec \"$@\"", shell[0]}, argv)
}

// early has a shell fail that ends in the lines of a profile.
const early = `trap 'echo "pawl: the profile of the system ended its shell before the program began" >&2; exit 125' EXIT
`
