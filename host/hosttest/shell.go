package hosttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

func (f fixture) shell(t *testing.T) host.Shell {
	t.Helper()
	sh, ok := f.host.(host.Shell)
	if !ok {
		t.Skip("it runs no scripts")
	}
	return sh
}

// scripts: a script gets its input as it is, and its output and its exit code come back.
func scripts(t *testing.T, f fixture) {
	sh := f.shell(t)
	every := make([]byte, 0, 1<<16)
	for len(every) < cap(every) {
		every = append(every, byte(len(every)), byte(len(every)>>8))
	}
	words := "'" + strings.ReplaceAll(strings.Join(strange, "\x01"), "'", `'\''`) + "'"
	for name, tt := range map[string]struct {
		script, in, out string
		code            int
	}{
		"input and output":      {"cat", string(every), string(every), 0},
		"no input":              {"cat; echo end", "", "end\n", 0},
		"an exit code":          {"echo out; exit 7", "", "out\n", 7},
		"a script that is none": {"echo (", "", "", 2},
		"a signal":              {"kill -9 $(exec sh -c 'echo $PPID')", "", "", 137},
		"errors":                {"echo out; echo err >&2", "", "out\n", 0},
		"what was given":        {"printf %s " + words, "", strings.Join(strange, "\x01"), 0},
		"nothing":               {"", "", "", 0},
	} {
		out, code, err := sh.Run(t.Context(), tt.script, []byte(tt.in))
		if err != nil || string(out) != tt.out || code != tt.code {
			t.Errorf("%s: %d bytes %.100q, code %d, %v", name, len(out), out, code, err)
		}
	}
	if _, _, err := sh.Run(t.Context(), "echo \x00", nil); job.KindOf(err) != job.Invalid {
		t.Errorf("a NUL: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := sh.Run(ctx, "echo", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// scriptsApart: what one script does to its shell is not seen by the next.
func scriptsApart(t *testing.T, f fixture) {
	sh := f.shell(t)
	run := func(script string) string {
		t.Helper()
		out, _, err := sh.Run(t.Context(), script, nil)
		must(t, err)
		return string(out)
	}
	const look = `echo "$PWD $VALUE $- $#"; umask; command -V own; exec echo end`
	before := run(look)
	run(`cd /; VALUE=it; export VALUE; umask 0; own() { :; }; set -C -- a b; exec >/dev/null; exit 3`)
	if diff := cmp.Diff(before, run(look)); diff != "" {
		t.Errorf("after another script (-before +after):\n%s", diff)
	}
	env, err := f.host.Environ(t.Context())
	must(t, err)
	found := map[string]bool{}
	for v := range strings.SplitSeq(run("env -0"), "\x00") {
		found[v] = true
	}
	for _, v := range env {
		if !found[v] {
			t.Errorf("its environment lacks %q", v)
		}
	}
}

// scriptsAtOnce: scripts that are run at once do not mix, nor do those whose callers have gone.
func scriptsAtOnce(t *testing.T, f fixture) {
	sh := f.shell(t)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%10 == 0 {
				go cancel()
			}
			word := fmt.Sprintf("%d%s", i, strings.Repeat("x", i*100))
			out, code, err := sh.Run(ctx, "read -r word; echo \"$word\"; exit "+fmt.Sprint(i), []byte(word+"\n"))
			switch {
			case i%10 == 0 && errors.Is(err, context.Canceled):
			case err != nil || string(out) != word+"\n" || code != i:
				t.Errorf("%d: %.20q, code %d, %v", i, out, code, err)
			}
		})
	}
	all.Wait()
}
