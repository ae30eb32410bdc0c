package app_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/app"
)

// A program is started with the lines of a profile before it. A profile that ends its shell is no
// success, and says why.
func TestProfile(t *testing.T) {
	t.Parallel()
	const early = "the profile of the system ended its shell before the program began"
	for _, shell := range [][]string{nil, {"sh"}, {"dash"}, {"bash", "-l"}} {
		if shell != nil {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Logf("no %s", shell[0])
				continue
			}
		}
		for _, tt := range []struct {
			profile, program string
			code             int
			out, errs        string
		}{
			{"X=1; export X", `echo "$X $1"`, 0, "1 a  b\n", ""},
			{"X=1; export X", "exit 7", 7, "", ""},
			{"", "echo", 0, "\n", ""},
			{"exit 0", "echo ran", 125, "", early},
			{"true || nothing\nexit", "echo ran", 125, "", early},
			{"set -e\nfalse", "echo ran", 125, "", early},
			{"# a comment", "exit 125", 125, "", ""},
			{`exec env X=2 "$@"`, `echo "$X"`, 0, "2\n", ""},
		} {
			y := app.System{Shell: shell, Profile: tt.profile}
			argv := y.Argv([]string{"/bin/sh", "-c", tt.program, "sh", "a  b"})
			c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			var out, errs strings.Builder
			c.Stdout, c.Stderr = &out, &errs
			err := c.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			if code := c.ProcessState.ExitCode(); code != tt.code || out.String() != tt.out ||
				strings.Contains(errs.String(), early) != (tt.errs != "") {
				t.Errorf("%v, %q, %q: %d, %q, %q", shell, tt.profile, tt.program, code, out.String(), errs.String())
			}
		}
	}
}
