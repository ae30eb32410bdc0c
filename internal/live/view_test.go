package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

func TestPlainLines(t *testing.T) {
	at := func(after time.Duration) string { return start.Add(after).Local().Format("15:04:05.000") }
	event := func(n int, number int64, after time.Duration, place job.Place, message string) job.Event {
		return job.Event{Job: id(n), N: number, State: place.State, Custody: place.Custody, At: start.Add(after), Message: message}
	}
	row := func(n int, name string) *job.Job { return &job.Job{ID: id(n), Name: name} }

	t.Run("one job", func(t *testing.T) {
		var out bytes.Buffer
		v := NewView(Config{Out: &out}, &Board{})
		v.Row(row(0, "sim"), Facts{})
		v.Event(event(0, 1, 0, pending, ""))
		v.Event(event(0, 2, 3*ms, submitting, ""))
		v.Event(event(0, 3, 4*ms, submitting, ""))
		v.Event(event(0, 4, 5*ms, submitting, "about to be launched"))
		v.Event(event(0, 4, 5*ms, submitting, "about to be launched"))
		v.Event(event(0, 5, 7*ms, running, ""))
		v.Log(id(0), "\x1b[31mred")
		v.Event(event(0, 6, 2*time.Second, archiving, "ended with exit code 0\nand more"))
		v.Progress(id(0), job.Progress{What: "archiving", Done: 1})
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		want := at(0) + "  PENDING\n" +
			at(3*ms) + "  SUBMITTING_JOB     after 3ms PENDING\n" +
			at(5*ms) + "  SUBMITTING_JOB     about to be launched\n" +
			at(7*ms) + "  RUNNING            after 4ms SUBMITTING_JOB\n" +
			"  | \x1b[31mred\n" + // a file takes a log as it is
			at(2*time.Second) + "  ARCHIVING          after 2s RUNNING  ended with exit code 0 …\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("several jobs are told apart by their names", func(t *testing.T) {
		var out bytes.Buffer
		v := NewView(Config{Out: &out, Clean: true}, &Board{})
		v.Row(row(0, "sim"), Facts{})
		v.Row(row(1, "longer"), Facts{})
		v.Note("this process also runs 3 other unfinished jobs")
		v.Event(event(0, 1, 0, pending, ""))
		v.Event(event(1, 1, 0, pending, ""))
		v.Log(id(0), "\x1b[31mred")
		v.Close()
		want := "this process also runs 3 other unfinished jobs\n" +
			"sim     " + at(0) + "  PENDING\n" +
			"longer  " + at(0) + "  PENDING\n" +
			"sim       | red\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("nobody is asked", func(t *testing.T) {
		v := NewView(Config{Out: io.Discard}, &Board{})
		if c := v.Ask(t.Context()); c != Leave {
			t.Error(c)
		}
		v.Close()
	})
}

// TestFrames looks at when frames are drawn, in a bubble with a time of its own.
func TestFrames(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var w counter
		resized := make(chan os.Signal)
		width := 80
		v := NewView(Config{Out: &w, Size: func() (int, int) { return width, 24 }, Resized: resized}, &Board{})
		frames := func() counter {
			synctest.Wait()
			v.mu.Lock()
			defer v.mu.Unlock()
			return w
		}
		expect := func(want counter, what string) {
			t.Helper()
			if n := frames(); n != want {
				t.Fatalf("%s: %d frames, want %d", what, n, want)
			}
		}
		v.Row(&job.Job{ID: id(0), Name: "sim", Place: pending, Since: time.Now(), Created: time.Now()}, Facts{})
		defer v.Close()
		expect(1, "the job has come")
		for i := range 1000 {
			v.Log(id(0), fmt.Sprintf("line %d", i))
			time.Sleep(ms)
		}
		expect(1+10, "a second with a line each millisecond")
		time.Sleep(200 * ms)
		was := frames()
		time.Sleep(3 * time.Second)
		expect(was+3, "three seconds of nothing but time")
		v.Together(func() {
			was = frames()
			for i := range 5 {
				v.Log(id(0), fmt.Sprintf("together %d", i))
				time.Sleep(time.Second)
			}
			expect(was, "what belongs together is being told")
		})
		expect(was+1, "all of it has been told")
		time.Sleep(time.Second)
		v.Event(job.Event{Job: id(0), N: 1, State: job.Finished, Custody: job.None, At: time.Now()})
		time.Sleep(time.Second)
		was = frames()
		time.Sleep(time.Minute)
		expect(was, "it has ended")
		v.mu.Lock() // Size is called with it
		width = 60
		v.mu.Unlock()
		resized <- syscall.SIGWINCH
		expect(was+1, "another width")
	})
}

// A person sits at a pseudo-terminal: what the view writes comes to an emulator, and what is typed
// goes to the view.
type person struct {
	t       *testing.T
	pty     *os.File
	vt      vt10x.Terminal
	view    *View
	release func()
}

func sitDown(t *testing.T, width, height int) *person {
	t.Helper()
	p, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { p.Close(); tty.Close() })
	// pty.Setsize would take the deadlines from p.
	raw, err := p.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	sized := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)})
	})
	if err := errors.Join(sized, err); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	cfg, release := Terminal(tty, tty)
	if cfg.Size == nil || cfg.In == nil || cfg.Color {
		t.Fatalf("not taken for a terminal: %+v", cfg)
	}
	t.Cleanup(release)
	v := NewView(cfg, &Board{})
	t.Cleanup(func() { v.Close() })
	return &person{t, p, vt10x.New(vt10x.WithSize(width, height)), v, release}
}

// sees waits until the terminal's contents are as ok wants them.
func (p *person) sees(what string, ok func(string) bool) {
	p.t.Helper()
	buf := make([]byte, 4096)
	for !ok(contents(p.vt)) {
		if err := p.pty.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			p.t.Fatal(err)
		}
		n, err := p.pty.Read(buf)
		if err != nil {
			p.t.Fatalf("%s: %v; the terminal shows\n%s", what, err, contents(p.vt))
		}
		p.vt.Write(buf[:n])
	}
}

func (p *person) seesLine(want string) {
	p.t.Helper()
	p.sees(want, func(s string) bool { return strings.Contains("\n"+s+"\n", "\n"+want+"\n") })
}

func (p *person) types(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.pty, s); err != nil {
		p.t.Fatal(err)
	}
}

func TestPseudoTerminal(t *testing.T) {
	now := time.Now()
	begin := func(t *testing.T) *person {
		p := sitDown(t, 72, 24)
		p.view.Row(&job.Job{ID: id(0), Name: "sim", Created: now}, Facts{Results: "/archive/" + strings.Repeat("long/", 20)})
		p.view.Event(job.Event{Job: id(0), N: 1, State: job.Running, Custody: job.Monitor, At: now})
		p.view.Log(id(0), "step 1\x1b[2J")
		p.seesLine("  | step 1")
		return p
	}
	end := func(p *person) {
		p.t.Helper()
		p.view.Event(job.Event{Job: id(0), N: 2, State: job.Finished, Custody: job.None, At: now.Add(time.Second)})
		if err := p.view.Close(); err != nil {
			p.t.Error(err)
		}
		p.sees("the last frame", func(s string) bool { return strings.Contains(s, "output: ") && strings.HasSuffix(s, "/long/") })
		lines := strings.Split(contents(p.vt), "\n")
		want := []string{
			"sim  " + id(0).String(), "  RUNNING 1s → FINISHED", "  | step 1",
			"FINISHED  after 1s, of which it ran 1s",
		}
		if diff := cmp.Diff(want, lines[:len(lines)-2]); diff != "" {
			p.t.Errorf("the last frame is not alone:\n%s", diff)
		}
	}
	ask := func(p *person, ctx context.Context) <-chan Choice {
		chosen := make(chan Choice, 1)
		go func() { chosen <- p.view.Ask(ctx) }()
		p.seesLine(strings.TrimSpace(prompt))
		return chosen
	}
	answer := func(t *testing.T, chosen <-chan Choice, want Choice) {
		t.Helper()
		if c := <-chosen; c != want {
			t.Errorf("the choice is to %s, want %s", c, want)
		}
	}

	t.Run("nothing but the last frame is left", func(t *testing.T) {
		p := begin(t)
		end(p)
	})
	for typed, want := range map[string]Choice{"c\n": Cancel, "L\n": Leave, "g\n": GoOn, "\n": GoOn} {
		t.Run("the answer "+strings.TrimSpace(typed)+" is to "+want.String(), func(t *testing.T) {
			p := begin(t)
			chosen := ask(p, t.Context())
			p.seesLine("What shall become of the unfinished job?")
			p.types(typed)
			answer(t, chosen, want)
			end(p)
		})
	}
	t.Run("to leave means less while another process runs the jobs", func(t *testing.T) {
		p := begin(t)
		p.view.Elsewhere("the process that runs the jobs", "pawl run")
		chosen := ask(p, t.Context())
		p.sees("what it means", func(s string) bool { return strings.Contains(s, "l  leave it: the process that runs the jobs") })
		p.types("l\n")
		answer(t, chosen, Leave)
	})
	t.Run("the question is put again after what is no answer", func(t *testing.T) {
		p := begin(t)
		chosen := ask(p, t.Context())
		p.types("what?\n")
		p.sees("the prompt again", func(s string) bool { return strings.Count(s, strings.TrimSpace(prompt)) == 2 })
		p.types("g\n")
		answer(t, chosen, GoOn)
		end(p)
	})
	t.Run("what was typed before is no answer", func(t *testing.T) {
		p := begin(t)
		p.types("c\n")
		p.sees("what was typed", func(s string) bool { return strings.Contains(s, "c") && strings.Count(s, "\n") > 2 })
		chosen := ask(p, t.Context())
		p.types("g\n")
		answer(t, chosen, GoOn)
	})
	t.Run("whoever does not want to answer leaves", func(t *testing.T) {
		p := begin(t)
		ctx, again := context.WithCancel(t.Context())
		chosen := ask(p, ctx)
		again()
		answer(t, chosen, Leave)
		end(p)
	})
	t.Run("a question can be put twice", func(t *testing.T) {
		p := begin(t)
		ctx, again := context.WithCancel(t.Context())
		chosen := ask(p, ctx)
		again()
		answer(t, chosen, Leave)
		p.view.Log(id(0), "step 2")
		p.seesLine("  | step 2")
		chosen = ask(p, t.Context())
		p.types("c\n")
		answer(t, chosen, Cancel)
	})
	t.Run("the end of the terminal is an answer", func(t *testing.T) {
		p := begin(t)
		chosen := ask(p, t.Context())
		p.types("\x04") // the end of the input
		answer(t, chosen, Leave)
	})
	t.Run("what happens meanwhile is shown after the answer", func(t *testing.T) {
		p := begin(t)
		chosen := ask(p, t.Context())
		p.view.Log(id(0), "step 2")
		io.WriteString(p.view, "a warning\n")
		p.types("g\n")
		answer(t, chosen, GoOn)
		p.seesLine("  | step 2")
		p.seesLine("a warning")
		if strings.Contains(contents(p.vt), prompt[:3]) {
			t.Errorf("the question still stands:\n%s", contents(p.vt))
		}
	})
	t.Run("an interrupt asks, and a second one leaves at once", func(t *testing.T) {
		p := begin(t)
		signals, chosen := make(chan os.Signal), make(chan Choice, 1)
		go func() { chosen <- p.view.Stopped(t.Context(), signals) }()
		signals <- os.Interrupt
		p.seesLine(strings.TrimSpace(prompt))
		p.types("g\n")
		p.sees("the question is gone", func(s string) bool { return !strings.Contains(s, "What shall") })
		signals <- os.Interrupt
		p.seesLine(strings.TrimSpace(prompt))
		signals <- os.Interrupt
		answer(t, chosen, Leave)
		end(p)
	})
	t.Run("who is asked to end does not ask", func(t *testing.T) {
		p := begin(t)
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		if c := p.view.Stopped(t.Context(), signals); c != Leave {
			t.Error(c)
		}
	})
	t.Run("when all has ended, the question is withdrawn", func(t *testing.T) {
		p := begin(t)
		ctx, over := context.WithCancel(t.Context())
		signals, chosen := make(chan os.Signal), make(chan Choice, 1)
		go func() { chosen <- p.view.Stopped(ctx, signals) }()
		signals <- os.Interrupt
		p.seesLine(strings.TrimSpace(prompt))
		over()
		answer(t, chosen, GoOn)
		end(p)
	})
	t.Run("where lines cannot be drawn in place, they are plain", func(t *testing.T) {
		t.Setenv("TERM", "dumb")
		p, tty, err := pty.Open()
		if err != nil {
			t.Skipf("no pseudo-terminal: %v", err)
		}
		defer p.Close()
		defer tty.Close()
		cfg, release := Terminal(tty, tty)
		defer release()
		if cfg.Size != nil || cfg.In != nil || !cfg.Clean {
			t.Errorf("%+v", cfg)
		}
	})
	t.Run("a file is no terminal", func(t *testing.T) {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cfg, release := Terminal(f, f)
		defer release()
		if cfg.Size != nil || cfg.In != nil || cfg.Clean || cfg.Color {
			t.Errorf("%+v", cfg)
		}
	})
}
