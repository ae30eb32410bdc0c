package testers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/recovery"
)

// Command runs programs that the operator of the site has registered. The map gives for each name
// the program and its first arguments. Parameters: name, and further arguments as arg1, arg2 and so
// on. No shell reads them, and no job can name a program that is not registered.
//
// Exit code 0 says that the condition has cleared. If the first line of the output is "may N", it
// has cleared for N jobs. The last line of the output is [recovery.Answer.Says]. A program that
// takes too long is killed with its process group. It gets from the environment only PATH, its user
// and home, the language and the time zone, and TMPDIR. It gets no setting of Pawl, since some are
// secret.
type Command map[string][]string

// passedOn are the variables that a program gets.
var passedOn = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// lingers is for how long the output is read of what a program has left running.
const lingers = time.Second

// Test implements [recovery.Tester].
func (c Command) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	name := q.Params["name"]
	if name == "" {
		return recovery.Answer{}, missing(recovery.Command, "name")
	}
	argv := slices.Clone(c[name])
	if len(argv) == 0 {
		return recovery.Answer{}, fmt.Errorf(
			"tester %s: no program %q is registered in this process: testers in its configuration names those there are",
			recovery.Command, name)
	}
	for i := 1; ; i++ {
		arg, there := q.Params["arg"+strconv.Itoa(i)]
		if !there {
			break
		}
		argv = append(argv, arg)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out ends
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = []string{}
	for _, v := range passedOn {
		if value, set := os.LookupEnv(v); set {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lingers
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left running
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return recovery.Answer{}, ctx.Err()
	case errors.As(err, &exit):
		return recovery.Answer{Says: out.says(name + ": " + exit.String())}, nil
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return recovery.Answer{}, fmt.Errorf("program %s: %w", name, err)
	}
	a := recovery.Answer{Clear: true, Says: out.says(name + ": exit code 0")}
	if n, is := strings.CutPrefix(out.firstLine(), "may "); is {
		may, err := strconv.Atoi(strings.TrimSpace(n))
		if err != nil || may < 0 {
			return recovery.Answer{}, fmt.Errorf(
				"program %s: %.40q does not say how many may go: write may and a number", name, out.firstLine())
		}
		a.Clear, a.May = may > 0, may
	}
	return a, nil
}

// ends is what is kept of an output: its beginning and its end.
type ends struct{ first, last []byte }

const (
	mostFirst = 256
	mostLast  = 4 << 10
)

// Write implements [io.Writer]. It takes all output, since a program whose output is not read would
// not end.
func (e *ends) Write(p []byte) (int, error) {
	e.first = append(e.first, p[:min(len(p), mostFirst-len(e.first))]...)
	e.last = append(e.last, p[max(0, len(p)-mostLast):]...)
	e.last = e.last[max(0, len(e.last)-mostLast):]
	return len(p), nil
}

func (e *ends) firstLine() string {
	line, _, _ := bytes.Cut(e.first, []byte("\n"))
	return strings.TrimSpace(string(line))
}

// says returns the last line; otherwise what else there is to say.
func (e *ends) says(otherwise string) string {
	lines := bytes.Split(bytes.TrimSpace(e.last), []byte("\n"))
	if line := strings.TrimSpace(string(lines[len(lines)-1])); line != "" {
		return line
	}
	return otherwise
}
