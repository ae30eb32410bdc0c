package cli

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestLogsThatArePipes has programs whose logs have become pipes, which nobody writes.
func TestLogsThatArePipes(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: pipes\ncommand: [sh, -c, 'echo hello; rm stdout stderr; mkfifo stdout stderr; "+
		"exec sleep 1']\n")
	out, err := p.command("run", "job.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "FINISHED") {
		t.Errorf("pawl run: %v\n%s", err, out)
	}
	p.write("job.yaml", fmt.Sprintf("name: held\ncommand: [sh, -c, 'rm stdout; mkfifo stdout; echo gone >&2; "+
		"while [ -e %s ]; do sleep 0.1; done']\n", p.hold))
	start := func() *exec.Cmd {
		run := p.command("run", "job.yaml")
		pipe, err := run.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(pipe)
		for lines.Scan() && !strings.Contains(lines.Text(), "| gone") {
		}
		return run
	}
	run := start()
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	run.Wait() // its code is looked at
	if code := run.ProcessState.ExitCode(); code != term.ExitLeft {
		t.Errorf("a run that is told to end exits with %d", code)
	}
	for late := true; late; { // the program may have ended before logs looks
		p.write("hold", "")
		run = start()
		logs := p.command("logs", "-f", "held")
		var said strings.Builder
		logs.Stderr = &said
		if err := logs.Start(); err != nil {
			t.Fatal(err)
		}
		p.letGo()
		err := logs.Wait()
		if late = strings.Contains(said.String(), "has no stdout: it is FINISHED"); err != nil && !late {
			t.Errorf("pawl logs -f: %v: %s", err, said.String())
		}
		run.Wait() // it has shown what it had to
	}
}
