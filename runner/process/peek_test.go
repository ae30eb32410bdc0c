package process

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// TestPeek reads what may be in a spool by the shells that a machine may have.
func TestPeek(t *testing.T) {
	dead := func(pid int) string { return fmt.Sprintf("taken token boot %d 7 0\ncode 0\nend\n", pid) }
	cases := []struct {
		what    string
		content string
		gone    bool
	}{
		{"whole, of a wrapper that is gone", dead(1 << 30), true},
		{"whole, of a wrapper that is here", dead(os.Getpid()), false},
		{"half, with half of a number", fmt.Sprintf("taken token boot %d", 1<<30), false},
		{"half, in the middle of a line", "taken token boot 1 7 0\n  co\\de", false},
		{"without words", "\n\n", false},
		{"with words of somebody else", "taken token boot ../1 7 0\n", false},
		{"empty", "", false},
	}
	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			h := newShellHost(t, shell, "-s")
			b := newShellBench(t, h)
			name := func(launch int) string { // its order in the request is that of the launches
				return runner.EndName(runner.Key{Job: job.ID{1}, Attempt: 1, Launch: launch}, 0)
			}
			var names []string
			for i, c := range cases {
				names = append(names, name(i+1))
				if err := os.WriteFile(path.Join(b.Spool, name(i+1)), []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fifo, dir, missing, huge := name(101), name(102), name(103), name(104)
			if err := syscall.Mkfifo(path.Join(b.Spool, fifo), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(path.Join(b.Spool, dir), 0o700); err != nil {
				t.Fatal(err)
			}
			long := strings.Repeat(strings.Repeat("x", 999)+"\n", 1000)
			if err := os.WriteFile(path.Join(b.Spool, huge), []byte(long), 0o600); err != nil {
				t.Fatal(err)
			}
			names = append(names, fifo, dir, missing, huge, "no end's name")
			got, err := b.runner.Peek(t.Context(), names)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range cases {
				switch s := got[name(i+1)]; {
				case s == nil:
					t.Errorf("%s: not read", c.what)
				case string(s.Content) != c.content || s.Gone != c.gone:
					t.Errorf("%s: got %q, gone %t; want %q, gone %t", c.what, s.Content, s.Gone, c.content, c.gone)
				}
			}
			if len(got) != len(cases) {
				t.Errorf("%d are read, want %d: what is no small file is left to the file system", len(got), len(cases))
			}
		})
	}
}
