package shell

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
			unread := filepath.Join(t.TempDir(), "it's unread")
			if err := os.WriteFile(unread, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			argv := Argv(shell, tt.profile, []string{"/bin/sh", "-c", tt.program, "sh", "a  b"}, unread)
			c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			var out, errs strings.Builder
			c.Stdout, c.Stderr = &out, &errs
			err := c.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			if _, err := os.Stat(unread); !os.IsNotExist(err) && (shell != nil || tt.profile != "") {
				t.Errorf("%v, %q: the login files are not read: %v", shell, tt.profile, err)
			}
			if code := c.ProcessState.ExitCode(); code != tt.code || out.String() != tt.out ||
				strings.Contains(errs.String(), early) != (tt.errs != "") {
				t.Errorf("%v, %q, %q: %d, %q, %q", shell, tt.profile, tt.program, code, out.String(), errs.String())
			}
		}
	}
}
