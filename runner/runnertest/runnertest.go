// Package runnertest is the suite that every [runner.Runner] passes. It runs real programs: the host must have a
// POSIX shell.
package runnertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Bench is what a test works with.
type Bench struct {
	Runner runner.Runner
	Host   host.Host // where its programs run
	Work   string    // an empty folder on the host for job folders
	Spool  string    // the runner's spool folder, empty
}

// Run tests the runner on the bench that open sets up for each test, and cleans up by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	tests := map[string]func(*testing.T, Bench){
		"a program runs and its end is told":               runs,
		"exit codes":                                       codes,
		"what cannot be started says so":                   cannotStart,
		"texts arrive intact":                              intact,
		"one file for both outputs":                        oneOutput,
		"a key is launched once":                           once,
		"concurrent launches of a key":                     onceConcurrently,
		"a revoked launch never starts":                    revoked,
		"a started launch is never revoked":                started,
		"settlers against a launch":                        settlers,
		"attempts share a folder":                          attempts,
		"kill asks first":                                  killAsks,
		"kill forces what does not listen":                 killForces,
		"kill ends what the program left behind":           killLeftBehind,
		"a kill that is given up says so":                  killGivenUp,
		"a kill leaves no message":                         killLeavesNoMessage,
		"suspend and resume":                               suspend,
		"many are probed in order":                         probe,
		"without its folder a program is lost, or unknown": away,
		"clean":                    clean,
		"nothing without a folder": noFolder,
		"what is invalid":          invalid,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// newJob makes the folder of a fresh job and a plan for a shell script in it.
func (b Bench) newJob(t *testing.T, script string, args ...string) (runner.Key, runner.Plan) {
	t.Helper()
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
	dir := path.Join(b.Work, k.Job.String())
	must(t, b.Host.Files().Mkdir(t.Context(), path.Join(dir, runner.Folder)))
	return k, runner.Plan{Dir: dir, Argv: append([]string{"sh", "-c", script, "sh"}, args...), Stdout: "stdout", Stderr: "stderr"}
}

// launch launches and makes sure that nothing is left at the test's end.
func (b Bench) launch(t *testing.T, k runner.Key, p runner.Plan) runner.Handle {
	t.Helper()
	h, err := b.Runner.Launch(t.Context(), k, p)
	must(t, err)
	t.Cleanup(func() { b.kill(t, h) })
	return h
}

func (b Bench) kill(t *testing.T, h runner.Handle) {
	t.Helper()
	must(t, b.Runner.Kill(context.WithoutCancel(t.Context()), h, 0))
}

// watch watches a folder and returns a function that waits for a name in it.
func (b Bench) watch(t *testing.T, dir string) func(name string) {
	t.Helper()
	events, err := b.Host.Watch(t.Context(), dir)
	must(t, err)
	seen := map[string]bool{}
	return func(name string) {
		t.Helper()
		for !seen[name] {
			e, ok := <-events
			if !ok || e.Overflow {
				t.Fatalf("the watch of %s broke: %+v", dir, e)
			}
			seen[e.Name] = true
		}
	}
}

// run launches, waits for the end and returns it.
func (b Bench) run(t *testing.T, k runner.Key, p runner.Plan) (runner.Handle, runner.End) {
	t.Helper()
	wait := b.watch(t, b.Spool)
	h := b.launch(t, k, p)
	wait(runner.EndName(k, 0))
	return h, b.end(t, k)
}

func (b Bench) end(t *testing.T, k runner.Key) runner.End {
	t.Helper()
	name := runner.EndName(k, 0)
	e, err := runner.ParseEnd(name, []byte(b.read(t, path.Join(b.Spool, name))))
	must(t, err)
	return e
}

func (b Bench) read(t *testing.T, name string) string {
	t.Helper()
	content, err := files.ReadFile(t.Context(), b.Host.Files(), name)
	must(t, err)
	return string(content)
}

func (b Bench) exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := b.Host.Files().Stat(t.Context(), name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func (b Bench) state(t *testing.T, h runner.Handle) runner.State {
	t.Helper()
	s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	return s[0].State
}

// settled waits until nothing of a launch is under way and returns its state.
func (b Bench) settled(t *testing.T, h runner.Handle) (s runner.State) {
	t.Helper()
	until(t, "the wrapper is gone", func() bool {
		s = b.state(t, h)
		return s != runner.Active
	})
	return s
}

func runs(t *testing.T, b Bench) {
	k, p := b.newJob(t, `pwd; cat; echo "$1" >&2`, "to stderr")
	h, e := b.run(t, k, p)
	if out, errs := b.read(t, p.Dir+"/stdout"), b.read(t, p.Dir+"/stderr"); out != p.Dir+"\n" || errs != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	if e.Code != 0 || e.Key != k || e.Run != 0 || e.Token != h.Token || e.Boot != h.Process.Boot || e.Ended.IsZero() {
		t.Errorf("end %+v of handle %+v", e, h)
	}
	if s := b.settled(t, h); s != runner.Ended {
		t.Errorf("state %s", s)
	}
	all, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	if diff := cmp.Diff(runner.Status{State: runner.Ended, End: &e}, all[0]); diff != "" {
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
	for script, code := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 128 + 15, "kill -KILL $$": 128 + 9, "kill -SEGV $$": 128 + 11} {
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
		"a shell's own word":             {"if", 127, []string{"if"}},
		"a file that is not executable":  {"./plain", 126, []string{"ermission"}},
		"a name that is two words":       {"true false", 127, []string{"true false"}},
		"a name that looks like setting": {"A=b", 127, []string{"A=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			k, p := b.newJob(t, "")
			must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "plain"), strings.NewReader("x"), files.PutOptions{Mode: 0o644}))
			p.Argv = []string{test.argv0, "x"}
			_, e := b.run(t, k, p)
			says := b.read(t, p.Dir+"/stderr")
			if e.Code != test.code || !slices.ContainsFunc(test.says, func(s string) bool { return strings.Contains(says, s) }) {
				t.Errorf("code %d, want %d; stderr %q", e.Code, test.code, says)
			}
		})
	}
}

// strange holds text that a careless way through a shell would change.
var strange = []string{
	"", " ", "a b", "it's", `'`, `"quoted"`, "new\nline\n", "\r\n\t", "$HOME", "${HOME}", "`id`", "$(id)", "-n", "--", "*", "[a]",
	`back\slash\`, `\'`, "ümläut", "\xff\xfe", ";", "&", "|", ">x", "#", "~", "!", "%s", strings.Repeat("long ", 20_000),
}

func intact(t *testing.T, b Bench) {
	t.Run("arguments", func(t *testing.T) {
		k, p := b.newJob(t, "")
		p.Argv = append([]string{"./own 'program'"}, strange...)
		must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "own 'program'"), strings.NewReader("#!/bin/sh\nprintf '%s\\000' \"$@\"\n"), files.PutOptions{Mode: 0o755}))
		p.Stdout, p.Stderr = "-it's $(out)\n", "e r r"
		if _, e := b.run(t, k, p); e.Code != 0 {
			t.Errorf("code %d; stderr %q", e.Code, b.read(t, p.Dir+"/e r r"))
		}
		if diff := cmp.Diff(append(slices.Clone(strange), ""), strings.Split(b.read(t, p.Dir+"/-it's $(out)\n"), "\x00")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("environment", func(t *testing.T) {
		env := map[string]string{
			"PATH": "/opt/pawl-test:/usr/bin:/bin", "IFS": "ab", "HOME": "/some where", "LC_ALL": "C", "lower_1": "x",
			// Shells give these a meaning of their own.
			"UID": "x y", "EUID": "1", "PPID": "1", "OPTIND": "abc", "LINENO": "x", "RANDOM": "r", "SECONDS": "s", "SHELLOPTS": "o",
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
	must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "log"), strings.NewReader("what an earlier attempt wrote\n"), files.PutOptions{}))
	b.run(t, k, p)
	if got := b.read(t, p.Dir+"/log"); got != "one\ntwo\nthree\n" {
		t.Errorf("log %q", got)
	}
}

func once(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo ran >>ran")
	b.run(t, k, p)
	for range 3 {
		if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) || job.KindOf(err) != job.Conflict {
			t.Errorf("launched again: %v", err)
		}
	}
	if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
}

func onceConcurrently(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo ran >>ran")
	wait := b.watch(t, b.Spool)
	var mu sync.Mutex
	var handles []runner.Handle
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			h, err := b.Runner.Launch(t.Context(), k, p)
			if err != nil {
				if !errors.Is(err, runner.ErrArmed) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			handles = append(handles, h)
		})
	}
	wg.Wait()
	if len(handles) != 1 {
		t.Fatalf("%d launches", len(handles))
	}
	wait(runner.EndName(k, 0))
	if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
	b.settled(t, handles[0])
}

func revoked(t *testing.T, b Bench) {
	k, p := b.newJob(t, "touch ran")
	for range 3 {
		f, err := b.Runner.Settle(t.Context(), k, p.Dir)
		must(t, err)
		if diff := cmp.Diff(runner.Fate{}, f); diff != "" {
			t.Fatalf("Settle (-want +got):\n%s", diff)
		}
	}
	if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) {
		t.Errorf("a revoked launch was launched: %v", err)
	}
	if b.exists(t, p.Dir+"/ran") {
		t.Error("it ran")
	}
	// The next number is free.
	k.Launch++
	if _, e := b.run(t, k, p); e.Code != 0 || !b.exists(t, p.Dir+"/ran") {
		t.Errorf("the next launch: %+v", e)
	}
}

func started(t *testing.T, b Bench) {
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	check := func() {
		t.Helper()
		f, err := b.Runner.Settle(t.Context(), k, p.Dir)
		must(t, err)
		if diff := cmp.Diff(runner.Fate{Started: true, Handle: h}, f); diff != "" {
			t.Errorf("Settle (-want +got):\n%s", diff)
		}
	}
	check()
	check()
	if s := b.state(t, h); s != runner.Active {
		t.Errorf("state %s", s)
	}
	b.kill(t, h)
	check()
}

func settlers(t *testing.T, b Bench) {
	const rounds, n = 200, 20
	wait := b.watch(t, b.Spool)
	outcomes := map[bool]int{}
	for round := range rounds {
		k, p := b.newJob(t, "echo ran >>ran")
		var launched *runner.Handle
		fates := make([]runner.Fate, n)
		var wg sync.WaitGroup
		wg.Go(func() {
			h, err := b.Runner.Launch(t.Context(), k, p)
			if err == nil {
				launched = &h
			} else if !errors.Is(err, runner.ErrArmed) {
				t.Error(err)
			}
		})
		// They come at every step: when the launch has left so many files, or has run.
		left := func() int {
			if _, err := b.Host.Files().Stat(t.Context(), path.Join(p.Dir, "ran")); err == nil {
				return n
			}
			infos, err := b.Host.Files().List(t.Context(), path.Join(p.Dir, runner.Folder))
			if err != nil {
				t.Error(err)
			}
			return len(infos)
		}
		come := make(chan struct{})
		wg.Go(func() {
			defer close(come)
			for left() < round%7 && !t.Failed() {
			}
		})
		for i := range n {
			wg.Go(func() {
				<-come
				var err error
				if fates[i], err = b.Runner.Settle(t.Context(), k, p.Dir); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for i := range fates {
			if diff := cmp.Diff(fates[0], fates[i]); diff != "" {
				t.Fatalf("settlers do not agree (-first +other):\n%s", diff)
			}
		}
		f := fates[0]
		outcomes[f.Started]++
		if f.Started {
			if launched == nil || *launched != f.Handle {
				t.Fatalf("launched %+v, settled %+v", launched, f.Handle)
			}
			wait(runner.EndName(k, 0))
			if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
				t.Fatalf("it ran: %q", got)
			}
			continue
		}
		if launched != nil {
			if s := b.settled(t, *launched); s != runner.Lost {
				t.Fatalf("a revoked launch is %s", s)
			}
		}
		if b.exists(t, p.Dir+"/ran") || b.exists(t, path.Join(b.Spool, runner.EndName(k, 0))) {
			t.Fatal("a revoked launch ran")
		}
	}
	t.Logf("started %d, revoked %d", outcomes[true], outcomes[false])
}

func attempts(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo $PAWL_ATTEMPT >>ran")
	for i := range 3 {
		k.Attempt = i + 1
		p.Env = map[string]string{"PAWL_ATTEMPT": fmt.Sprint(k.Attempt)}
		b.run(t, k, p)
	}
	if got := b.read(t, p.Dir+"/ran"); got != "1\n2\n3\n" {
		t.Errorf("they ran: %q", got)
	}
}

// The program starts no other: one that was started while the signal was sent would miss it, and be granted the grace.
func killAsks(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap 'echo ended well >last; exit' TERM; : >up; while :; do :; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "ended well\n" {
		t.Errorf("last words %q", got)
	}
	if s := b.state(t, h); s != runner.Lost && s != runner.Ended {
		t.Errorf("state %s", s)
	}
}

func killForces(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap '' TERM; (: >up; while :; do sleep 1000; done) & wait`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	for range 2 {
		must(t, b.Runner.Kill(t.Context(), h, time.Millisecond))
		b.nothingAlive(t, h)
	}
}

func killLeftBehind(t *testing.T, b Bench) {
	k, p := b.newJob(t, `(trap '' TERM; : >up; exec sleep 1000) & while ! [ -e up ]; do :; done; exit 3`)
	h, e := b.run(t, k, p)
	if e.Code != 3 {
		t.Errorf("code %d", e.Code)
	}
	left := func() bool {
		t.Helper()
		s, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
		must(t, err)
		if s[0].State != runner.Ended {
			t.Errorf("state %s", s[0].State)
		}
		return s[0].Left
	}
	b.settled(t, h)
	if !left() {
		t.Error("the program ended, and what it left behind is not told of")
	}
	must(t, b.Runner.Kill(t.Context(), h, time.Millisecond))
	b.nothingAlive(t, h)
	if left() {
		t.Error("after the kill something is said to be left")
	}
	if e := b.end(t, k); e.Code != 3 {
		t.Errorf("the message changed: %+v", e)
	}
}

func killGivenUp(t *testing.T, b Bench) {
	k, p := b.newJob(t, `trap '' TERM; : >up; while :; do sleep 1000; done`)
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := b.Runner.Kill(ctx, h, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Kill: %v", err)
	}
	if lives, err := b.Host.Inspect(t.Context(), []host.Process{h.Process}); err != nil || lives[0] == host.Gone {
		t.Errorf("it is %v, %v", lives, err)
	}
}

func killLeavesNoMessage(t *testing.T, b Bench) {
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	must(t, b.Runner.Kill(t.Context(), h, 0))
	b.nothingAlive(t, h)
	if s := b.state(t, h); s != runner.Lost {
		t.Errorf("state %s, want lost: nobody knows an exit code", s)
	}
	if b.exists(t, path.Join(b.Spool, runner.EndName(k, 0))) {
		t.Error("a message was left")
	}
}

func (b Bench) nothingAlive(t *testing.T, h runner.Handle) {
	t.Helper()
	lives, err := b.Host.Inspect(t.Context(), []host.Process{h.Process})
	must(t, err)
	if lives[0] != host.Gone {
		t.Errorf("after the kill it is %s", lives[0])
	}
}

func suspend(t *testing.T, b Bench) {
	s, ok := b.Runner.(runner.Suspender)
	if !ok {
		t.Skip("it cannot suspend")
	}
	k, p := b.newJob(t, `echo $$ >temp; mv temp pid; while ! [ -e go ]; do :; done; exit 3`)
	wait, ended := b.watch(t, p.Dir), b.watch(t, b.Spool)
	h := b.launch(t, k, p)
	wait("pid")
	stopped := func() bool {
		stat := b.read(t, "/proc/"+strings.TrimSpace(b.read(t, p.Dir+"/pid"))+"/stat")
		_, rest, _ := strings.Cut(stat, ") ")
		return rest[0] == 'T'
	}
	for range 2 {
		must(t, s.Suspend(t.Context(), h))
		until(t, "the program is stopped", stopped)
	}
	if st := b.state(t, h); st != runner.Active {
		t.Errorf("suspended, it is %s", st)
	}
	must(t, b.Host.Files().Put(t.Context(), path.Join(p.Dir, "go"), strings.NewReader(""), files.PutOptions{}))
	if !stopped() {
		t.Error("it went on by itself")
	}
	for range 2 {
		must(t, s.Resume(t.Context(), h))
	}
	ended(runner.EndName(k, 0))
	if e := b.end(t, k); e.Code != 3 {
		t.Errorf("code %d", e.Code)
	}
	b.settled(t, h)
	must(t, s.Suspend(t.Context(), h)) // nothing is alive: no error
	must(t, s.Resume(t.Context(), h))

	// A suspended program can be killed, and sees that it was asked.
	k, p = b.newJob(t, `trap 'echo asked >last; exit' TERM; : >up; while :; do :; done`)
	wait = b.watch(t, p.Dir)
	h = b.launch(t, k, p)
	wait("up")
	must(t, s.Suspend(t.Context(), h))
	must(t, b.Runner.Kill(t.Context(), h, time.Hour))
	if got := b.read(t, p.Dir+"/last"); got != "asked\n" {
		t.Errorf("last words %q", got)
	}
}

func probe(t *testing.T, b Bench) {
	k, p := b.newJob(t, "exit 3")
	ended, _ := b.run(t, k, p)
	b.settled(t, ended)
	k, p = b.newJob(t, "exec sleep 1000")
	active := b.launch(t, k, p)
	k, p = b.newJob(t, "exec sleep 1000")
	lost := b.launch(t, k, p)
	b.kill(t, lost)
	recycled := active
	recycled.Process.Start--
	reboot := active
	reboot.Process.Boot = "00000000-0000-0000-0000-000000000000"
	elsewhere := active
	elsewhere.Host = "another"

	var hs []runner.Handle
	var want []runner.State
	for range 20 {
		hs = append(hs, ended, active, lost, recycled, reboot, elsewhere)
		want = append(want, runner.Ended, runner.Active, runner.Lost, runner.Lost, runner.Lost, runner.Unknown)
	}
	all, err := b.Runner.Probe(t.Context(), hs)
	must(t, err)
	var got []runner.State
	for _, s := range all {
		got = append(got, s.State)
		if (s.End != nil) != (s.State == runner.Ended) || s.End != nil && s.End.Code != 3 {
			t.Errorf("status %+v", s)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Probe (-want +got):\n%s", diff)
	}
	if all, err := b.Runner.Probe(t.Context(), nil); err != nil || len(all) != 0 {
		t.Errorf("Probe of none: %v, %v", all, err)
	}
}

func away(t *testing.T, b Bench) {
	k, p := b.newJob(t, "exit 3")
	h, _ := b.run(t, k, p)
	b.settled(t, h)
	// A folder above that is not there may be a file system that is not mounted. One that is there without the job's says
	// that this one was removed.
	for _, c := range []struct {
		dir  string
		want runner.State
	}{{path.Dir(p.Dir), runner.Unknown}, {p.Dir, runner.Lost}, {path.Join(p.Dir, runner.Folder), runner.Lost}} {
		must(t, b.Host.Files().Rename(t.Context(), c.dir, c.dir+".away"))
		if s := b.state(t, h); s != c.want {
			t.Errorf("without %s it is %s, want %s", c.dir, s, c.want)
		}
		must(t, b.Host.Files().Rename(t.Context(), c.dir+".away", c.dir))
		if s := b.state(t, h); s != runner.Ended {
			t.Errorf("with its folder it is %s", s)
		}
	}
}

func clean(t *testing.T, b Bench) {
	k, p := b.newJob(t, "touch result")
	h, _ := b.run(t, k, p)
	b.settled(t, h)
	for range 2 {
		must(t, b.Runner.Clean(t.Context(), k, p.Dir))
		if b.exists(t, path.Join(p.Dir, runner.Folder)) || b.exists(t, path.Join(b.Spool, runner.EndName(k, 0))) {
			t.Error("something is left")
		}
		if !b.exists(t, p.Dir+"/result") {
			t.Error("the program's own file is gone")
		}
	}
	k.Launch++
	if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("launched in a cleaned folder: %v", err)
	}
}

func noFolder(t *testing.T, b Bench) {
	k, p := b.newJob(t, "true")
	must(t, b.Host.Files().Remove(t.Context(), p.Dir))
	if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Launch: %v", err)
	}
	if _, err := b.Runner.Settle(t.Context(), k, p.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Settle: %v", err)
	}
	if b.exists(t, p.Dir) {
		t.Error("the folder was made")
	}
}

func invalid(t *testing.T, b Bench) {
	k, good := b.newJob(t, "true")
	fault := func(edit func(*runner.Plan)) runner.Plan {
		p := good
		p.Env = maps.Clone(p.Env)
		edit(&p)
		return p
	}
	for name, p := range map[string]runner.Plan{
		"no program":          fault(func(p *runner.Plan) { p.Argv = nil }),
		"an empty program":    fault(func(p *runner.Plan) { p.Argv = []string{""} }),
		"a NUL":               fault(func(p *runner.Plan) { p.Argv = []string{"true", "a\x00b"} }),
		"a NUL in a value":    fault(func(p *runner.Plan) { p.Env = map[string]string{"A": "\x00"} }),
		"a variable's name":   fault(func(p *runner.Plan) { p.Env = map[string]string{"A;id": "1"} }),
		"an empty name":       fault(func(p *runner.Plan) { p.Env = map[string]string{"": "1"} }),
		"a relative folder":   fault(func(p *runner.Plan) { p.Dir = "x" }),
		"no stdout":           fault(func(p *runner.Plan) { p.Stdout = "" }),
		"no stderr":           fault(func(p *runner.Plan) { p.Stderr = "" }),
		"a NUL in the stdout": fault(func(p *runner.Plan) { p.Stdout = "\x00" }),
	} {
		if _, err := b.Runner.Launch(t.Context(), k, p); job.KindOf(err) != job.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []runner.Key{{}, {Job: k.Job, Attempt: 1}, {Job: k.Job, Launch: 1}, {Attempt: 1, Launch: 1}, {Job: k.Job, Attempt: -1, Launch: 1}} {
		_, launch := b.Runner.Launch(t.Context(), bad, good)
		_, settle := b.Runner.Settle(t.Context(), bad, good.Dir)
		for call, err := range map[string]error{"Launch": launch, "Settle": settle, "Clean": b.Runner.Clean(t.Context(), bad, good.Dir)} {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%s of %+v: %v", call, bad, err)
			}
		}
	}
	if err := b.Runner.Kill(t.Context(), runner.Handle{Key: k, Host: "another", Dir: good.Dir}, 0); job.KindOf(err) != job.Invalid {
		t.Errorf("Kill on another host: %v", err)
	}
	infos, err := b.Host.Files().List(t.Context(), path.Join(good.Dir, runner.Folder))
	if err != nil || len(infos) != 0 {
		t.Errorf("something was touched: %v, %v", infos, err)
	}
}

// until waits for what no event announces.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute until %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
