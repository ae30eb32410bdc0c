package runnertest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner"
)

func runs(t *testing.T, b Bench) {
	k, p := b.newJob(t, `pwd; cat; echo "$1" >&2`, "to stderr")
	h, e := b.run(t, k, p)
	boot, err := b.Host.Boot(t.Context())
	must(t, err)
	if out, errs := b.read(t, p.Dir+"/stdout"), b.read(t, p.Dir+"/stderr"); out != p.Dir+"\n" || errs != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	if e.Code != 0 || e.Key != k || e.Run != 0 || e.Token != h.Token || e.Boot != boot || e.Ended.IsZero() {
		t.Errorf("end %+v of handle %+v", e, h)
	}
	if s := b.settled(t, h); s != runner.Ended {
		t.Errorf("state %s", s)
	}
	all, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	if diff := cmp.Diff(runner.Status{State: runner.Ended, End: &e, Usage: all[0].Usage}, all[0]); diff != "" {
		t.Errorf("Probe (-want +got):\n%s", diff)
	}
	// A handle is good after a restart.
	text, err := json.Marshal(h)
	must(t, err)
	var again runner.Handle
	must(t, json.Unmarshal(text, &again))
	if diff := cmp.Diff(h, again); diff != "" {
		t.Errorf("handle as JSON (-want +got):\n%s", diff)
	}
	must(t, b.Runner.Kill(t.Context(), again, time.Hour)) // nothing is left: it does not wait
}

func codes(t *testing.T, b Bench) {
	for script, code := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 128 + 15,
		"kill -KILL $$": 128 + 9, "kill -SEGV $$": 128 + 11,
	} {
		k, p := b.newJob(t, script)
		if _, e := b.run(t, k, p); e.Code != code {
			t.Errorf("%s: code %d, want %d", script, e.Code, code)
		}
	}
}

func cannotStart(t *testing.T, b Bench) {
	for name, test := range map[string]struct {
		argv0 string
		code  int
		says  []string
	}{
		"a program that is not there":    {"/nowhere/absent", 127, []string{"absent", "not found", "No such file"}},
		"one that is not in PATH":        {"pawl-absent", 127, []string{"absent", "not found"}},
		"one with an option's name":      {"-x", 127, []string{"-x"}},
		"one with control characters":    {"a\x1b[1mb\tc\x7fd\xffe", 127, []string{"not found", "No such file"}},
		"one with a name of two lines":   {"two\nlines", 127, []string{"two\nlines"}},
		"one with a long name":           {"x" + strings.Repeat("ü", 5_000), 127, []string{"xüüü"}},
		"a shell's own word":             {"if", 127, []string{"if"}},
		"a file that is not executable":  {"./plain", 126, []string{"ermission"}},
		"a folder":                       {"./folder", 126, []string{"ermission", "irectory"}},
		"a bad interpreter":              {"./script", 127, []string{"not found", "No such file"}},
		"too long an argument":           {"echo", 126, []string{"rgument list too long"}},
		"a name that is two words":       {"true false", 127, []string{"true false"}},
		"a name that looks like setting": {"A=b", 127, []string{"A=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, "")
			b.put(t, path.Join(p.Dir, "plain"), "x", 0o644)
			b.put(t, path.Join(p.Dir, "script"), "#!/nowhere/interpreter\n", 0o755)
			must(t, b.Host.Files().Mkdir(t.Context(), path.Join(p.Dir, "folder")))
			p.Argv = []string{test.argv0, "x"}
			if test.argv0 == "echo" {
				p.Argv[1] = strings.Repeat("x", 200<<10) // Linux takes 128 KiB in one argument
			}
			_, e := b.run(t, k, p)
			says := b.read(t, p.Dir+"/stderr")
			if e.Code != test.code || !slices.ContainsFunc(test.says,
				func(s string) bool { return strings.Contains(says, s) }) {
				t.Errorf("code %d, want %d; stderr %q", e.Code, test.code, says)
			}
			// The reason is in the shell's words, without those about itself.
			n := e.NotStarted
			strange := func(r rune) bool { return !unicode.IsPrint(r) }
			if n == "" || len(n) > 300 || strings.Contains(n, runner.Folder) || strings.Contains(n, "exec:") ||
				strings.ContainsFunc(n, strange) {
				t.Errorf("not started: %q; stderr %q", n, says)
			}
			if strings.Contains(says, p.Dir) {
				t.Errorf("the job's folder is named in stderr: %q", says)
			}
		})
	}
}

// The code of a program that did start is its own, also if it writes what a shell would.
func didStart(t *testing.T, b Bench) {
	for name, script := range map[string]string{
		"silent, 126":                     "exit 126",
		"silent, 127":                     "exit 127",
		"its program is not there":        "pawl-absent",
		"its program is not executable":   "exec ./plain",
		"it says what a shell would":      "echo '.pawl/run.1.1.X: 12: exec: nosuch: not found' >&2; exit 127",
		"it writes much, and no new line": "head -c 3000000 /dev/zero >&2; exit 127",
		"its stderr is gone":              "rm stderr; exit 126",
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, script)
			b.put(t, path.Join(p.Dir, "plain"), "x", 0o644)
			p.Env = map[string]string{"LC_ALL": "xx_XX.pawl"} // a shell that does not know it may say so first
			if _, e := b.run(t, k, p); e.Code != 126 && e.Code != 127 || e.NotStarted != "" {
				t.Errorf("%+v", e)
			}
		})
	}
}

// logs: writers that open a log again write behind what is there, and so does what writes after the
// log was emptied.
func logs(t *testing.T, b Bench) {
	k, p := b.newJob(t, `echo a; echo b >>/dev/stdout; echo c >/dev/fd/1; echo d; echo e >&2; : >stderr; echo f >&2`)
	p.Env = map[string]string{"LC_ALL": "C"}
	b.put(t, path.Join(p.Dir, "stdout"), "of an attempt before\n", 0o644)
	b.run(t, k, p)
	if got := b.read(t, p.Dir+"/stdout"); !strings.HasSuffix(got, "c\nd\n") {
		t.Errorf("stdout %q", got)
	}
	if got := b.read(t, p.Dir+"/stderr"); got != "f\n" {
		t.Errorf("stderr %q", got)
	}
	k, p = b.newJob(t, `echo a; echo b >>/dev/stdout; echo c; echo d >>stdout; echo e`)
	b.run(t, k, p)
	if got := b.read(t, p.Dir+"/stdout"); got != "a\nb\nc\nd\ne\n" {
		t.Errorf("stdout %q", got)
	}
}

// noOutputs: a program whose outputs cannot be opened was not started.
func noOutputs(t *testing.T, b Bench) {
	for _, which := range []string{"stdout", "stderr"} {
		k, p := b.newJob(t, ": >ran")
		must(t, b.Host.Files().Mkdir(t.Context(), path.Join(p.Dir, which)))
		if _, e := b.run(t, k, p); e.Code != 126 || !strings.Contains(e.NotStarted, which) {
			t.Errorf("%s: %+v", which, e)
		}
		if b.exists(t, p.Dir+"/ran") {
			t.Errorf("%s: it ran", which)
		}
	}
}

// noSignals: a code above 128 is a signal's only if a signal ended the program.
func noSignals(t *testing.T, b Bench) {
	for script, signal := range map[string]int{
		"exit 137": 0, "exit 143": 0, "exit 200": 0, "exit 255": 0, "sh -c 'kill -9 $$'; exit $?": 0,
		"kill -9 $$": 9, "kill -TERM $$": 15, "kill -SEGV $$": 11,
	} {
		k, p := b.newJob(t, script)
		p.Env = map[string]string{"LC_ALL": "xx_XX.pawl"} // a shell that does not know it may say so
		if _, e := b.run(t, k, p); e.Signal != signal {
			t.Errorf("%s: %+v", script, e)
		}
	}
}

func usage(t *testing.T, b Bench) {
	if _, ok := b.Host.(host.Accountant); !ok || b.Runner.Traits().Queues {
		t.Skip("its host keeps no accounts")
	}
	const memory = 50 << 20
	k, p := b.newJob(t, `dd if=/dev/zero of=/dev/null bs=$1 count=1; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`,
		strconv.Itoa(memory))
	ended, _ := b.run(t, k, p)
	b.settled(t, ended)
	k, p = b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	alive := b.launch(t, k, p)
	wait("up")
	probe := func(want runner.State) {
		t.Helper()
		all, err := b.Runner.Probe(t.Context(), []runner.Handle{ended, alive})
		must(t, err)
		if u := all[0].Usage; u == nil || u.User+u.System <= 0 || u.MaxRSS != 0 && u.MaxRSS < memory {
			t.Errorf("usage: %+v", u)
		}
		if all[1].State != want || (all[1].Usage != nil) != (want == runner.Ended) {
			t.Errorf("%+v, want %s", all[1], want)
		}
	}
	probe(runner.Active)
	b.kill(t, alive)
	probe(runner.Ended)
}

func intact(t *testing.T, b Bench) {
	t.Run("arguments", func(t *testing.T) {
		k, p := b.newJob(t, "")
		p.Argv = append([]string{"./own 'program'"}, strange...)
		must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "own 'program'"),
			strings.NewReader("#!/bin/sh\nprintf '%s\\000' \"$@\"\n"), files.PutOptions{Mode: 0o755}))
		p.Stdout, p.Stderr = "-it's $(out)\n", "e r r"
		if _, e := b.run(t, k, p); e.Code != 0 {
			t.Errorf("code %d; stderr %q", e.Code, b.read(t, p.Dir+"/e r r"))
		}
		if diff := cmp.Diff(append(slices.Clone(strange), ""),
			strings.Split(b.read(t, p.Dir+"/-it's $(out)\n"), "\x00")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("environment", func(t *testing.T) {
		env := map[string]string{
			"PATH": "/opt/pawl-test:/usr/bin:/bin", "IFS": "ab", "HOME": "/some where", "LC_ALL": "C", "lower_1": "x",
			// Shells give these a meaning of their own.
			"UID": "x y", "EUID": "1", "PPID": "1", "OPTIND": "abc", "LINENO": "x", "RANDOM": "r", "SECONDS": "s",
			"SHELLOPTS":     "o",
			"BASH_VERSINFO": "v", "PS4": "$(id)", "ENV": "/nowhere", "CDPATH": "/", "GROUPS": "g",
		}
		for i, s := range strange {
			env[fmt.Sprintf("STRANGE_%d", i)] = s
		}
		k, p := b.newJob(t, "")
		p.Env, p.Argv = env, []string{"cat", "/proc/self/environ"} // a shell would not show it as it was given
		if _, e := b.run(t, k, p); e.Code != 0 {
			t.Errorf("code %d; stderr %q", e.Code, b.read(t, p.Dir+"/stderr"))
		}
		got := map[string]string{}
		for v := range strings.SplitSeq(b.read(t, p.Dir+"/stdout"), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			if _, ok := env[name]; ok {
				got[name] = value
			}
		}
		if diff := cmp.Diff(env, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func oneOutput(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo one; echo two >&2; echo three")
	p.Stdout, p.Stderr = "log", "./log"
	must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "log"),
		strings.NewReader("what an earlier attempt wrote\n"), files.PutOptions{}))
	b.run(t, k, p)
	if got := b.read(t, p.Dir+"/log"); got != "one\ntwo\nthree\n" {
		t.Errorf("log %q", got)
	}
}
