package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// A shell is a folder with job files, a data folder, and a file while which is there programs wait.
type shell struct {
	t    *testing.T
	dir  string
	hold string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := t.TempDir()
	p := &shell{t, dir, filepath.Join(dir, "hold")}
	p.write("hold", "")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		os.Remove(p.hold)
		t.Log(p.pawl("list"))
		for _, id := range strings.Fields(p.pawl("list", "--state", "FAILED", "-o", "name")) {
			t.Log(p.pawl("history", id))
		}
	})
	return p
}

func (p *shell) write(name, content string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// letGo lets programs end that wait.
func (p *shell) letGo() {
	p.t.Helper()
	if err := os.Remove(p.hold); err != nil {
		p.t.Fatal(err)
	}
}

// waits is a shell script that says something, and then something else each time it has waited.
func (p *shell) waits(say string) string {
	return fmt.Sprintf("echo %s; n=0; while [ -e %s ]; do n=$((n+1)); echo round $n; sleep 0.1; done", say, p.hold)
}

// one writes a file of one job whose program waits.
func (p *shell) one() {
	p.write("job.yaml", fmt.Sprintf("name: sim\ncommand: [sh, -c, %q]\n", p.waits("hello")))
}

// command is pawl with this shell's data folder.
func (p *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command("pawl", args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(p.dir, "state"), "USER=ada", "TERM=xterm", "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// pawl runs a command to its end, as from another shell, and returns what it prints.
func (p *shell) pawl(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("pawl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A terminal is a pseudo-terminal with an emulator, in which a command runs.
type terminal struct {
	t       *testing.T
	cmd     *exec.Cmd
	pty     *os.File
	vt      vt10x.Terminal
	changed chan struct{} // holds one when the emulator has got something
	closed  chan struct{} // the command has ended, and all that it wrote has been read
}

// run starts pawl run in a terminal.
func (p *shell) run(width, height int, args ...string) *terminal {
	p.t.Helper()
	cmd := p.command(append([]string{"run"}, args...)...)
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)})
	if err != nil {
		p.t.Skipf("no pseudo-terminal: %v", err)
	}
	s := &terminal{
		t: p.t, cmd: cmd, pty: f, vt: vt10x.New(vt10x.WithSize(width, height)),
		changed: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	go func() {
		defer close(s.closed)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			s.vt.Write(buf[:n])
			select {
			case s.changed <- struct{}{}:
			default:
			}
			if err != nil { // EIO: nobody has the other side any more
				return
			}
		}
	}()
	p.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		f.Close()
		<-s.closed
	})
	return s
}

// text is what the terminal shows.
func (s *terminal) text() string {
	var lines []string
	for l := range strings.Lines(s.vt.String()) {
		lines = append(lines, strings.TrimRight(l, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

const patience = 40 * time.Second

// sees waits until the terminal's contents match all of the expressions, and returns them.
func (s *terminal) sees(exprs ...string) string {
	s.t.Helper()
	late := time.After(patience)
	closed := s.closed
	for {
		text, missing := s.text(), ""
		for _, e := range exprs {
			if !regexp.MustCompile("(?m)" + e).MatchString(text) {
				missing = e
			}
		}
		if missing == "" {
			s.t.Logf("%q:\n%s", exprs, text)
			return text
		}
		if closed == nil {
			s.t.Fatalf("pawl has ended without %q; the terminal shows\n%s", missing, text)
		}
		select {
		case <-s.changed:
		case <-closed:
			closed = nil // what it shows now is the last
		case <-late:
			s.t.Fatalf("no %q; the terminal shows\n%s", missing, text)
		}
	}
}

// seesMore waits for two more rounds than contents show at their end.
func (s *terminal) seesMore(contents string) {
	s.t.Helper()
	n := 0
	fmt.Sscanf(contents[strings.LastIndex(contents, "round "):], "round %d", &n)
	s.sees(fmt.Sprintf(`^  \| round %d$`, n+2))
}

// types types.
func (s *terminal) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.pty, text); err != nil {
		s.t.Fatal(err)
	}
}

const ctrlC = "\x03"

// ends waits for the end of the command and returns what is shown then.
func (s *terminal) ends(code int) string {
	s.t.Helper()
	select {
	case <-s.closed:
	case <-time.After(patience):
		s.t.Fatalf("pawl does not end; the terminal shows\n%s", s.text())
	}
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d; the terminal shows\n%s", got, code, s.text())
	}
	s.t.Logf("the end:\n%s", s.text())
	return s.text()
}

// resize makes the window as large as that.
func (s *terminal) resize(width, height int) {
	s.t.Helper()
	s.vt.Resize(width, height)
	if err := pty.Setsize(s.pty, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		s.t.Fatal(err)
	}
}

// once fails unless text stands in a terminal's contents exactly once.
func once(t *testing.T, contents, text string) {
	t.Helper()
	if n := strings.Count(contents, text); n != 1 {
		t.Errorf("%q is shown %d times:\n%s", text, n, contents)
	}
}

// alive returns the ids of the programs of this shell's jobs that run.
func (p *shell) alive() (pids []string) {
	p.t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		p.t.Fatal(err)
	}
	parents := map[string]string{}
	for _, proc := range procs {
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || !strings.HasPrefix(string(line), "sh\x00-c\x00") || !strings.Contains(string(line), p.hold) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, "stat"))
		if fields := strings.Fields(string(stat)); err == nil && len(fields) > 3 {
			parents[filepath.Base(proc)] = fields[3]
		}
	}
	for pid, parent := range parents {
		if parents[parent] == "" { // else it is about to become a sleep
			pids = append(pids, pid)
		}
	}
	return pids
}

// unfolded is text without the breaks of its lines.
func unfolded(text string) string { return regexp.MustCompile(`\n *`).ReplaceAllString(text, " ") }

// cancelAll ends all jobs that are left.
func (p *shell) cancelAll() {
	p.t.Helper()
	for _, id := range strings.Fields(p.pawl("list", "--state", "RUNNING", "-o", "name")) {
		p.pawl("cancel", id)
	}
	if left := p.alive(); len(left) > 0 {
		p.t.Errorf("processes %v run after they were canceled", left)
	}
}

const idExpr = `[0-9a-f]{8}-[0-9a-f-]{27}`

func TestTerminalOne(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	s := p.run(100, 50, "job.yaml")
	got := s.sees(`\Asim  `+idExpr+`$`, `^  PENDING \S+ →(?s:.* )STAGING_JOB \S+ →(?s:.* )SUBMITTING_JOB \S+ →\s+RUNNING$`,
		`^RUNNING  [1-9]\d*s of 10m  elapsed [1-9]\d*s$`, `^  \| round \d+\n  \| round \d+\z`)
	once(t, got, "sim ")
	p.letGo()
	got = s.ends(exitOK)
	once(t, got, "sim ")
	want := regexp.MustCompile(`(?s)\Asim  (` + idExpr + `)\n.* → FINISHED\n(  \| [^\n]*\n)+` +
		`FINISHED  after \S+, of which it ran \S+\noutput: (.*)\z`)
	m := want.FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("the last frame is not like %s:\n%s", want, got)
	}
	// The name of the folder is not broken but by the terminal's edge.
	folder := strings.ReplaceAll(m[3], "\n", "")
	if b, err := os.ReadFile(filepath.Join(folder, "stdout")); err != nil || !strings.HasPrefix(string(b), "hello\n") {
		t.Errorf("stdout in %s: %q, %v", folder, b, err)
	}
}

// many writes a file of n jobs whose programs wait.
func (p *shell) many(n int) {
	p.write("jobs.yaml", "defaults: {name: sim}\njobs:\n"+strings.Repeat(fmt.Sprintf("  - command: [sh, -c, %q]\n", p.waits("hello")), n))
}

func TestTerminalMany(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.many(20)
	s := p.run(100, 24, "jobs.yaml")
	got := s.sees(`\ANAME +STATE +IN STATE +ELAPSED\n`, `^sim-1 +RUNNING +\ds +\ds  round \d+$`, `^sim-20 `, `^20 jobs: .*\d RUNNING.*\z`)
	for i := range 20 {
		once(t, got, fmt.Sprintf("sim-%d ", i+1))
	}
	p.letGo()
	s.resize(200, 60) // so that all of the last frame is seen
	got = s.ends(exitOK)
	if n := len(regexp.MustCompile(`(?m)^sim-\d+ +FINISHED +\S+  /.*`+idExpr+`$`).FindAllString(got, -1)); n != 20 {
		t.Errorf("%d lines of finished jobs", n)
	}
	once(t, got, "20 jobs: 20 FINISHED")
}

func TestTerminalFailure(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.write("jobs.yaml", "jobs:\n  - {name: good, command: ['true']}\n  - {name: bad, command: [sh, -c, exit 3]}\n")
	s := p.run(120, 24, "jobs.yaml")
	got := s.ends(exitFailed)
	once(t, got, "bad   FAILED")
	once(t, got, "PROGRAM_FAILED")
	once(t, got, "2 jobs: 1 FINISHED, 1 FAILED")
	once(t, got, "bad  what to do: ")

	// What is to be typed has the flag.
	p.write("bad.yaml", "name: bad\ncommand: [sh, -c, exit 3]\n")
	got = p.run(120, 24, "--dir", "elsewhere", "bad.yaml").ends(exitFailed)
	once(t, got, "what to do: ")
	once(t, unfolded(got), "pawl logs --dir elsewhere bad,")
}

func TestTerminalQuestion(t *testing.T) {
	t.Parallel()
	const prompt = `^c, l or g:\z`
	t.Run("go on, and then cancel", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(100, 50, "job.yaml")
		s.sees(`^  \| round`)
		s.types(ctrlC)
		got := s.sees(prompt)
		once(t, got, "What shall become of the unfinished job?")
		if strings.Contains(got, "^C") {
			t.Errorf("the interrupt is shown:\n%s", got)
		}
		s.types("g\n")
		got = s.sees(`^RUNNING  .*\n(  \| round \d+\n?)+\z`) // nothing stands below
		once(t, got, "sim ")
		s.types(ctrlC)
		s.sees(prompt)
		s.types("c\n")
		got = s.ends(exitCanceled)
		once(t, got, "sim ")
		once(t, got, "canceled by ada")
		if left := p.alive(); len(left) > 0 {
			t.Errorf("programs %v run", left)
		}
	})
	t.Run("cancel many", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.many(5)
		s := p.run(100, 24, "jobs.yaml")
		s.sees(`^5 jobs: 5 RUNNING`)
		s.types(ctrlC)
		s.sees(`^What shall become of the 5 unfinished jobs\?`, prompt)
		s.types("c\n")
		got := s.ends(exitCanceled)
		once(t, got, "5 jobs: 5 CANCELED")
		if left := p.alive(); len(left) > 0 {
			t.Errorf("programs %v run", left)
		}
	})
	t.Run("leave", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.many(3)
		s := p.run(100, 30, "jobs.yaml")
		s.sees(`^3 jobs: 3 RUNNING`)
		s.types(ctrlC)
		s.sees(prompt)
		s.types("l\n")
		got := s.ends(exitLeft)
		once(t, unfolded(got), "3 jobs left as they are: programs that run go on without pawl, all else waits until the same command goes on with them")
		once(t, unfolded(got), "the same command goes on with them")
		if strings.Contains(got, "What shall") {
			t.Errorf("the question still stands:\n%s", got)
		}
		if left := p.alive(); len(left) != 3 {
			t.Errorf("%d programs run, want 3", len(left))
		}
		p.cancelAll()
	})
	t.Run("two interrupts leave at once", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(100, 30, "job.yaml")
		s.sees(`^  \| round`)
		s.types(ctrlC)
		s.sees(prompt)
		s.types(ctrlC)
		got := s.ends(exitLeft)
		once(t, got, "left as it is")
		once(t, got, "sim ")
		if len(p.alive()) != 1 {
			t.Error("the program does not run")
		}
		p.cancelAll()
	})
	t.Run("the end of the job withdraws it", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(100, 30, "job.yaml")
		s.sees(`^  \| round`)
		s.types(ctrlC)
		s.sees(prompt)
		p.letGo()
		got := s.ends(exitOK)
		once(t, got, "output: ")
		once(t, got, "sim ")
	})
}

func TestTerminalKilled(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	first := p.run(100, 30, "job.yaml")
	first.sees(`^  \| round`)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.closed
	if len(p.alive()) != 1 {
		t.Error("the program does not run")
	}
	second := p.run(100, 30, "job.yaml")
	got := second.sees(`\Ajob sim goes on\nsim  `+idExpr+`$`, `^RUNNING  `, `^  \| round`)
	once(t, got, "RUNNING  ")
	p.letGo()
	got = second.ends(exitOK)
	once(t, got, "output: ")
}

func TestTerminalTakeover(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	first := p.run(100, 30, "job.yaml")
	first.sees(`^  \| round`)
	second := p.run(100, 30, "job.yaml")
	second.sees(`\Ajob sim goes on\nsim  `+idExpr+`$`, `^  \| round`)
	second.types(ctrlC)
	second.sees(`the process that runs the jobs of this folder goes on with it`, `c, l or g:`)
	second.types("g\n")
	second.sees(`^  \| round \d+\z`)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.closed
	got := second.sees(`^the process that ran the jobs has gone; this one goes on with them$`, `^  \| round \d+\z`)
	second.seesMore(got) // its log goes on, too
	p.letGo()
	got = second.ends(exitOK)
	once(t, got, "output: ")
	once(t, got, "has gone")
	once(t, got, "sim  ")
}

func TestTerminalLeaveOther(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	first := p.run(100, 30, "job.yaml")
	first.sees(`^  \| round`)
	second := p.run(100, 30, "job.yaml")
	second.sees(`^  \| round`)
	second.types(ctrlC)
	second.sees(`c, l or g:`)
	second.types("l\n")
	got := second.ends(exitLeft)
	once(t, unfolded(got), "left as it is: the process that runs the jobs of folder")
	p.letGo()
	first.ends(exitOK)
}

// TestTerminalHangs is of a run whose jobs another process runs, which does not answer any more.
func TestTerminalHangs(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	first := p.run(100, 30, "job.yaml")
	first.sees(`^  \| round`)
	second := p.run(100, 30, "job.yaml")
	second.sees(`^  \| round`)
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second.types(ctrlC)
	second.sees(`c, l or g:`)
	second.types("c\n")
	second.sees(`^  \| round \d+\z`)
	second.types(ctrlC)
	second.sees(`c, l or g:`)
	second.types("l\n")
	second.ends(exitLeft)
	third := p.run(100, 30, "job.yaml")
	third.sees(`^waiting for an answer of the process that runs the jobs`)
	third.types(ctrlC)
	got := third.ends(exitLeft)
	once(t, got, "stopped before an answer said what was submitted")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.closed
	p.cancelAll()
}

func TestTerminalSuspended(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.one()
	s := p.run(100, 30, "job.yaml")
	s.sees(`^  \| round`)
	p.pawl("pause", "sim")
	s.sees(`^RUNNING \(suspended\)  `)
	p.pawl("resume", "sim")
	s.seesMore(s.sees(`^RUNNING  `, `^  \| round \d+\z`))
	p.letGo()
	s.ends(exitOK)
}

// A job that is paused before it runs ends the run.
func TestTerminalPaused(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: later\ncommand: ['true']\ndelay: 1h\n")
	s := p.run(100, 30, "job.yaml")
	s.sees(`^WAITING  .*until`)
	p.pawl("pause", "later")
	got := s.ends(exitLeft)
	once(t, got, "pawl resume later lets it go on")
	p.pawl("cancel", "later")
}

func TestTerminalNothing(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	got := p.run(100, 30).ends(exitOK)
	if want := "no unfinished program in folder " + filepath.Join(p.dir, "state/pawl"); strings.ReplaceAll(got, "\n", "") != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.write("task.yaml", "kind: mail\nargs: {}\n")
	got = p.run(100, 30, "task.yaml").ends(exitInput)
	once(t, got, "run tasks with the Go program that handles them")
}

func TestTerminalSmall(t *testing.T) {
	t.Parallel()
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.many(20)
		s := p.run(40, 10, "jobs.yaml")
		got := s.sees(`\ANAME .*\n(.*\n){6}… and \d+ more: .*\n20 jobs: .*\z`)
		if n := len(strings.Split(got, "\n")); n != 9 {
			t.Errorf("%d lines, want 9:\n%s", n, got)
		}
		s.types(ctrlC)
		s.sees(`^c, l or g:\z`)
		s.types("g\n")
		s.sees(`\ANAME .*\n(.*\n){6}… and \d+ more: .*\n20 jobs: .*\z`)
		p.letGo()
		s.ends(exitOK)
	})
	t.Run("resized", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(40, 10, "job.yaml")
		s.sees(`^RUNNING  \ds of 10m  elapsed \ds`, `^  \| round`)
		s.resize(100, 30)
		got := s.sees(`^sim  `+idExpr+`$`, `SUBMITTING_JOB \S+ →\s+RUNNING$`)
		once(t, got, "sim ")
		s.resize(60, 12)
		s.sees(`^  \| round`, `→\s+RUNNING\n`)
		p.letGo()
		got = s.ends(exitOK)
		once(t, got, "output: ")
	})
}
