package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
)

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
	got = s.ends(term.ExitOK)
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
	p.write("jobs.yaml", "defaults: {name: sim}\njobs:\n"+
		strings.Repeat(fmt.Sprintf("  - command: [sh, -c, %q]\n", p.waits("hello")), n))
}

func TestTerminalMany(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.many(20)
	s := p.run(100, 30, "jobs.yaml")
	got := s.sees(`\ANAME +STATE +IN STATE +ELAPSED\n`, `^sim-\d+ +RUNNING +\S+ +\S+  round \d+$`, `^sim-20 `,
		`^20 jobs: .*\d RUNNING.*\z`)
	for i := range 20 {
		once(t, got, fmt.Sprintf("sim-%d ", i+1))
	}
	p.letGo()
	s.resize(200, 60) // so that all of the last frame is seen
	got = s.ends(term.ExitOK)
	if n := len(regexp.MustCompile(`(?m)^sim-\d+ +FINISHED +\S+  /.*`+idExpr+`$`).FindAllString(got, -1)); n != 20 {
		t.Errorf("%d lines of finished jobs", n)
	}
	once(t, got, "20 jobs: 20 FINISHED")
}

func TestTerminalFailure(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.write("jobs.yaml", "jobs:\n  - {name: good, command: ['true']}\n  - {name: bad, command: [sh, -c, exit 3]}\n")
	s := p.run(120, 24, "jobs.yaml")
	got := s.ends(term.ExitFailed)
	once(t, got, "bad   FAILED")
	once(t, got, "PROGRAM_FAILED")
	once(t, got, "2 jobs: 1 FINISHED, 1 FAILED")
	once(t, got, "bad  sh ended with exit code 3")
	once(t, got, "bad  what to do: ")
	once(t, got, "output: pawl output good")

	// What is to be typed has the flag.
	p.write("bad.yaml", "name: bad\ncommand: [sh, -c, exit 3]\n")
	got = p.run(120, 24, "--dir", "elsewhere", "bad.yaml").ends(term.ExitFailed)
	once(t, got, "what to do: ")
	once(t, unfolded(got), "pawl logs --dir elsewhere bad,")
}

// The last frame does not scroll away what stands above it: it is as short as any.
func TestTerminalLastFrame(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	name := strings.Repeat("日本", 30)
	p.write("jobs.yaml", "jobs:\n"+strings.Repeat("  - {command: [echo, done]}\n", 40)+
		strings.Repeat("  - {name: "+name+", command: [sh, -c, 'echo no; exit 3']}\n", 8))
	got := p.run(80, 24, "jobs.yaml").ends(term.ExitFailed)
	once(t, got, "NAME ")
	once(t, got, "48 jobs: 40 FINISHED, 8 FAILED")
	once(t, got, "  what to do: read what it wrote:")
	once(t, got, "3 more FAILED: see pawl list --state FAILED")
	if n := len(strings.Split(got, "\n")); n > 24 {
		t.Errorf("%d lines:\n%s", n, got)
	}

	for _, args := range [][]string{
		{"list"},
		{"history", name},
		{"limits"},
		{"get", "queues"},
		{"get", "policies"},
		{"get", "systems"},
		{"recovery"},
		{"list", "--count"},
	} {
		for line := range strings.Lines(strings.ReplaceAll(p.sends(args...), "\r", "")) {
			if w := live.Width(strings.TrimSuffix(line, "\n")); w > 80 && !strings.HasPrefix(line, "  ") {
				t.Errorf("pawl %s has a line of %d cells: %s", args[0], w, line)
			}
		}
	}
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
		got = s.ends(term.ExitCanceled)
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
		s := p.run(100, 24, "--jobs=5", "jobs.yaml")
		s.sees(`^5 jobs: 5 RUNNING`)
		s.types(ctrlC)
		s.sees(`^What shall become of the 5 unfinished jobs\?`, prompt)
		s.types("c\n")
		got := s.ends(term.ExitCanceled)
		once(t, got, "5 jobs: 5 CANCELED")
		if left := p.alive(); len(left) > 0 {
			t.Errorf("programs %v run", left)
		}
	})
	t.Run("leave", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.many(3)
		s := p.run(100, 30, "--jobs=3", "jobs.yaml")
		s.sees(`^sim-1 .* round \d`, `^sim-2 .* round \d`, `^sim-3 .* round \d`)
		s.types(ctrlC)
		s.sees(prompt)
		s.types("l\n")
		got := s.ends(term.ExitLeft)
		once(t, unfolded(got), "3 jobs left as they are: programs that run go on without pawl, all else waits "+
			"until the same command goes on with them")
		once(t, unfolded(got), "the same command goes on with them")
		if strings.Contains(got, "What shall") {
			t.Errorf("the question still stands:\n%s", got)
		}
		if left := p.alive(); len(left) != 3 {
			t.Errorf("%d programs run, want 3", len(left))
		}
		p.cancelAll()
	})
	for again, args := range map[string][]string{
		"pawl run":                       {"--", "sh", "-c", "echo round; sleep 1000"},
		"the same command without --new": {"--new", "job.yaml"},
	} {
		t.Run(again+" goes on", func(t *testing.T) {
			t.Parallel()
			p := newShell(t)
			p.one()
			s := p.run(100, 30, args...)
			s.sees(`^  \| round`)
			s.types(ctrlC)
			got := s.sees(prompt)
			once(t, unfolded(got), "all else waits until "+again+" goes on with it")
			s.types("l\n")
			got = s.ends(term.ExitLeft)
			once(t, unfolded(got), "all else waits until "+again+" goes on with it")
			p.cancelAll()
		})
	}
	t.Run("two interrupts leave at once", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(100, 30, "job.yaml")
		s.sees(`^  \| round`)
		s.types(ctrlC)
		s.sees(prompt)
		s.types(ctrlC)
		got := s.ends(term.ExitLeft)
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
		got := s.ends(term.ExitOK)
		once(t, got, "output: ")
		once(t, got, "sim ")
	})
}

func TestTerminalKilled(t *testing.T) {
	testenv.Aside(t)
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
	got = second.ends(term.ExitOK)
	once(t, got, "output: ")
}

func TestTerminalTakeover(t *testing.T) {
	testenv.Aside(t)
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
	got = second.ends(term.ExitOK)
	once(t, got, "output: ")
	once(t, got, "has gone")
	once(t, got, "sim  ")
}

func TestTerminalLeaveOther(t *testing.T) {
	testenv.Aside(t)
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
	got := second.ends(term.ExitLeft)
	once(t, unfolded(got), "left as it is: the process that runs jobs in folder")
	p.letGo()
	first.ends(term.ExitOK)
}

// TestTerminalHangs is of a run whose jobs another process runs, which does not answer any more.
func TestTerminalHangs(t *testing.T) {
	testenv.Aside(t)
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
	second.ends(term.ExitLeft)
	third := p.run(100, 30, "job.yaml")
	third.sees(`^waiting for an answer of the process that runs jobs`)
	third.types(ctrlC)
	got := third.ends(term.ExitLeft)
	once(t, got, "stopped before an answer said what was submitted")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.closed
	p.cancelAll()
}

func TestTerminalSuspended(t *testing.T) {
	testenv.Aside(t)
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
	s.ends(term.ExitOK)
}

// A job that is paused before it runs ends the run.
func TestTerminalPaused(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.write("job.yaml", "name: later\ncommand: ['true']\ndelay: 1h\n")
	s := p.run(100, 30, "job.yaml")
	s.sees(`^WAITING  .*until`)
	p.pawl("pause", "later")
	got := s.ends(term.ExitLeft)
	once(t, got, "pawl resume later lets it go on")
	p.pawl("cancel", "later")
}

func TestTerminalNothing(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	got := p.run(100, 30).ends(term.ExitOK)
	if want := "no unfinished program in folder " +
		filepath.Join(p.dir, "state/pawl"); strings.ReplaceAll(got, "\n", "") != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.write("task.yaml", "kind: mail\nargs: {}\n")
	got = p.run(100, 30, "task.yaml").ends(term.ExitInput)
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
		s.ends(term.ExitOK)
	})
	t.Run("resized", func(t *testing.T) {
		t.Parallel()
		p := newShell(t)
		p.one()
		s := p.run(40, 10, "job.yaml")
		s.sees(`^RUNNING  \S+ of 10m  elapsed \S+`, `^  \| round`)
		s.resize(100, 30)
		got := s.sees(`^sim  `+idExpr+`$`, `SUBMITTING_JOB \S+ →\s+RUNNING$`)
		once(t, got, "sim ")
		s.resize(60, 12)
		s.sees(`^  \| round`, `→\s+RUNNING\n`)
		p.letGo()
		got = s.ends(term.ExitOK)
		once(t, got, "output: ")
	})
}

// A line that a program writes again and again is shown in its newest state, though it has no end
// yet.
func TestTerminalProgress(t *testing.T) {
	t.Parallel()
	p := newShell(t)
	p.write("jobs.yaml", fmt.Sprintf(`jobs:
  - name: bar
    script: |
      printf 'a line\n10 %%%%\r'; printf '20 %%%%\r'; printf '\033[32m30 %%%%\033[0m\r'
      while [ -e %[1]s ]; do sleep 0.1; done
      printf '\n100 %%%%\n'
  - {name: other, command: [sh, -c, 'echo one; echo two; while [ -e %[1]s ]; do sleep 0.1; done']}
`, p.hold))
	s := p.run(80, 24, "jobs.yaml")
	s.sees(`^bar +RUNNING +\S+ +\S+  30 %$`, `^other +RUNNING .*  two$`)
	w := p.start(80, 24, "watch")
	w.sees(`^[0-9a-f]{8}  bar +RUNNING +\S+ +\S+  30 %$`, `^[0-9a-f]{8}  other +RUNNING .*  two$`)
	w.types(ctrlC)
	w.ends(term.ExitOK)
	l := p.start(80, 24, "logs", "-f", "bar")
	l.sees(`\Aa line\n30 %\s*\z`)
	p.letGo()
	if got := l.ends(term.ExitOK); !strings.HasPrefix(got, "a line\n30 %\n100 %") {
		t.Errorf("the end of pawl logs:\n%s", got)
	}
	s.ends(term.ExitOK)
	if got := p.pawl("logs", "bar"); got != "a line\n10 %\r20 %\r\x1b[32m30 %\x1b[0m\r\n100 %\n" {
		t.Errorf("pawl logs > file: %q", got)
	}
}
