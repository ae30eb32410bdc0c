package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// sends runs pawl on a terminal and returns all that it sends there.
func (p *shell) sends(args ...string) string {
	p.t.Helper()
	cmd := p.command(args...)
	cmd.Env = append(cmd.Env, "NO_COLOR=")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 80, Rows: 24})
	if err != nil {
		p.t.Skipf("no pseudo-terminal: %v", err)
	}
	defer f.Close()
	b, _ := io.ReadAll(f)                              // it ends with an error where the process does
	cmd.Wait()                                         // what it exits with is of no interest
	return strings.ReplaceAll(string(b), "\r\n", "\n") // as the terminal makes of a line's end
}

// evil is what a program writes that a terminal would obey, or that hides something.
const evil = "\x1b]0;owned\a\x1b[2J\x1b[31mred\x9b1A\u009b1A\u202egpj\u2066\u200b\ufeff\u061c\xff\x7f\bx"

// orders finds what a terminal obeys, or what shows nothing.
func orders(text string) (found []string) {
	text = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
	for i, r := range text {
		if r != '\n' && r != '\t' && (!job.Visible(r) || r == utf8.RuneError && text[i] != "\ufffd"[0]) {
			found = append(found, fmt.Sprintf("%q", text[max(0, i-20):min(len(text), i+20)]))
		}
	}
	return found
}

func TestTerminalShowsOrders(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	p := newShell(t)
	p.write("evil", evil+"\n")
	p.write("job.yaml", fmt.Sprintf("name: bad\nnotes: {x: %q}\nscript: |\n  cat %[2]s/evil; cat %[2]s/evil >&2; cp %[2]s/evil result\n  cp result \"$(cat %[2]s/evil)\"; exit 3\n",
		"a\u202e\u009b1A\x7f", p.dir))
	p.sends("run", "job.yaml")
	for _, args := range [][]string{
		{"logs", "bad"},
		{"logs", "--stderr", "bad"},
		{"logs", "-f", "bad"},
		{"show", "bad"},
		{"show", "bad", "-o", "yaml"},
		{"show", "bad", "-o", "json"},
		{"history", "bad"},
		{"history", "bad", "-o", "yaml"},
		{"history", "bad", "-o", "json"},
		{"events", "bad"},
		{"events", "bad", "-o", "json"},
		{"list"},
		{"list", "-o", "wide"},
		{"list", "-o", "yaml"},
		{"list", "-o", "json"},
		{"watch", "--state", "FAILED"},
		{"output", "bad"},
		{"output", "bad", "-o", "name"},
		{"output", "bad", "-o", "yaml"},
		{"output", "bad", "result"},
		{"show", evil},
		{"cancel", evil},
		{"run", "job.yaml"},
		{"run", evil},
		{"list", "--filter", evil},
		{evil},
	} {
		got := p.sends(args...)
		if args[0] == "run" || args[0] == "watch" { // what draws its frames
			got = regexp.MustCompile("\x1b\\[([0-9]*[AKJ]|\\?7[lh])|\r").ReplaceAllString(got, "")
		}
		if found := orders(got); found != nil {
			t.Errorf("pawl %q sends %s", args, found)
		}
		if args[0] == "output" && len(args) == 3 && args[2] == "result" {
			if want := `\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1A\u009b1A\u202egpj\u2066\u200b\ufeff\u061c\xff\x7f\x08x` + "\n"; got != want {
				t.Errorf("pawl output shows %q, want %q", got, want)
			}
		}
		if args[0] == "logs" && !strings.HasPrefix(got, `\x1b]0;owned\x07\x1b[2J`+"\x1b[31mred") {
			t.Errorf("pawl %q shows %q", args, got)
		}
	}

	// What is no terminal gets what there is.
	for _, args := range [][]string{{"logs", "bad"}, {"output", "bad", "result"}} {
		if got := p.pawl(args...); got != evil+"\n" {
			t.Errorf("pawl %q > file: %q", args, got)
		}
	}
	cmd := p.command("output", "bad", "result")
	out, err := os.Create(p.dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if cmd.Stdout = out; cmd.Run() != nil {
		t.Fatal("pawl output > file")
	}
	if got, err := os.ReadFile(p.dir + "/out"); err != nil || string(got) != evil+"\n" {
		t.Errorf("pawl output > file: %q, %v", got, err)
	}
}
