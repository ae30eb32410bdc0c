package cli

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
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A shell is a folder with job files, a data folder, and a file while which is there programs wait.
type shell struct {
	t        *testing.T
	dir      string
	hold     string
	detector string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts a shell on a terminal, and there pawl, some ten times")
	}
	dir := t.TempDir()
	p := &shell{t, dir, filepath.Join(dir, "hold"), detector(t)}
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
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(p.dir, "state"), "USER=ada", "TERM=xterm",
		"NO_COLOR=1", p.detector)
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
	return p.start(width, height, append([]string{"run"}, args...)...)
}

// start starts pawl in a terminal.
func (p *shell) start(width, height int, args ...string) *terminal {
	p.t.Helper()
	cmd := p.command(args...)
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

// slow is what a run says first where nobody answers for a while, wherever the terminal's edge
// breaks it.
var slow = regexp.MustCompile(`(?s)\Awaiting for an answer of .*?` + strings.Join(strings.Split("an interrupt ends this", ""), `\n?`) + `\n?`)

// text is what the terminal shows, and what was said first only as long as that is all.
func (s *terminal) text() string {
	var lines []string
	for l := range strings.Lines(s.vt.String()) {
		lines = append(lines, strings.TrimRight(l, " \n"))
	}
	all := strings.TrimRight(strings.Join(lines, "\n"), "\n")
	if rest := slow.ReplaceAllString(all, ""); rest != "" {
		return rest
	}
	return all
}

// sees waits until the terminal's contents match all of the expressions, and returns them.
func (s *terminal) sees(exprs ...string) string {
	s.t.Helper()
	late := time.After(testenv.Patience)
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
	case <-time.After(testenv.Patience):
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
