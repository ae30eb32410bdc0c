// Package hosttest is the test suite that every [host.Host] passes. The machine must have a POSIX
// shell, setsid and timeout.
package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// A Trait is what a host does not do, within the contract.
type Trait string

// Polls: the host looks at a watched folder from time to time. So it does not tell a name that came
// and went between two looks.
const Polls Trait = "polls"

// Plain: the account of the host is not root, whoever runs the tests.
const Plain Trait = "plain"

// Brief: the host is tested whole elsewhere, and differs here in the shell with which it is
// reached. The tests are a few of those that start something.
const Brief Trait = "brief"

var brief = []string{
	"a program is detached", "arguments and environment arrive", "what cannot be started",
	"members are found by their number", "a watch tells what appears", "a script gets what it is given",
	"scripts are apart",
}

// Run tests a host. For each test, open returns the host and an empty folder on it, and registers
// the clean-up with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) (host.Host, string), traits ...Trait) {
	tests := map[string]func(*testing.T, fixture){
		"a program is detached":                     detached,
		"arguments and environment arrive":          intact,
		"outputs are appended to":                   appended,
		"a program outlives the context":            outlives,
		"what cannot be started":                    cannotStart,
		"alive, then gone":                          aliveThenGone,
		"a recycled pid is gone":                    recycled,
		"another boot is gone":                      otherBoot,
		"pids that nobody has are gone":             nobody,
		"a zombie is gone":                          zombie,
		"members are found by their session":        bySession,
		"members are found by their number":         byNumber,
		"members are found by their variable":       byVariable,
		"a program that leaves its session":         leaver,
		"a family that moves on is found":           runners,
		"what is to be kept says so":                kept,
		"members stand as they were started":        oldestFirst,
		"what may not be signaled":                  refused,
		"stopped and continued":                     stopped,
		"many are inspected in order":               many,
		"a watch tells what appears":                watch,
		"who watches and then lists misses nothing": watchThenList,
		"a watch with a bell":                       watchBell,
		"a watch ends with its context":             watchEnds,
		"a watch ends with its folder":              watchLost,
		"a folder that is not there":                watchAbsent,
		"the boot id stays":                         boot,
		"the boot clock is that of processes":       uptime,
		"the environment of programs is known":      environ,
		"what a program had used":                   usage,
		"a script gets what it is given":            scripts,
		"scripts are apart":                         scriptsApart,
		"scripts are run at once":                   scriptsAtOnce,
	}
	for name, test := range tests {
		if slices.Contains(traits, Brief) && !slices.Contains(brief, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h, dir := open(t)
			test(t, fixture{h, h.Files(), dir, slices.Contains(traits, Polls), slices.Contains(traits, Plain)})
		})
	}
}

type fixture struct {
	host host.Host
	fs   files.FS
	dir  string

	polls, plain bool
}

// sh starts a shell script with the arguments $1, $2, ... in the folder; what it leaves is killed
// at the end.
func (f fixture) sh(t *testing.T, script string, args ...string) host.Process {
	t.Helper()
	p, err := f.host.Start(t.Context(), f.command(append([]string{"/bin/sh", "-c", script, "sh"}, args...)...))
	must(t, err)
	t.Cleanup(func() { f.kill(t, p) })
	return p
}

func (f fixture) command(argv ...string) host.Command {
	return host.Command{Argv: argv, Dir: f.dir, Stdout: path.Join(f.dir, "out"), Stderr: path.Join(f.dir, "err")}
}

// kill ends what is left of a process's session.
func (f fixture) kill(t *testing.T, p host.Process) {
	t.Helper()
	f.killAll(t, host.Family{Leader: p})
}

func (f fixture) alive(t *testing.T, p host.Process) bool {
	t.Helper()
	alive, err := f.host.Alive(context.WithoutCancel(t.Context()), []host.Process{p})
	must(t, err)
	return alive[0]
}

func (f fixture) signal(t *testing.T, sig syscall.Signal, ps ...host.Process) {
	t.Helper()
	must(t, f.host.Signal(t.Context(), ps, sig))
}

func (f fixture) read(t *testing.T, name string) string {
	t.Helper()
	b, err := files.ReadFile(t.Context(), f.fs, path.Join(f.dir, name), 1<<20)
	must(t, err)
	return string(b)
}

func detached(t *testing.T, f fixture) {
	spare, err := os.Open(os.DevNull) // on the own machine the program must not inherit it
	must(t, err)
	defer spare.Close()
	wait := f.appears(t)
	p := f.sh(t, `read -r _ _ _ _ group session _ </proc/$$/stat
		read -r nothing; echo "stdin $? $nothing"
		echo "group $group session $session"
		echo "folder $(pwd)"
		ls /proc/$$/fd
		echo to stderr >&2
		: >done`)
	wait("done")
	if p.PID <= 1 || p.Start == 0 || p.Boot == "" {
		t.Errorf("process %+v", p)
	}
	want := fmt.Sprintf("stdin 1 \ngroup %d session %d\nfolder %s\n0\n1\n2\n", p.PID, p.PID, f.dir)
	if diff := cmp.Diff(want, f.read(t, "out")); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
	if got := f.read(t, "err"); got != "to stderr\n" {
		t.Errorf("stderr %q", got)
	}
}

// strange holds text that a careless way through a shell would change.
var strange = []string{
	"", " ", "a b", "it's", `"quoted"`, "new\nline\n", "$HOME", "`id`", "$(id)", "-n", "--", "*",
	`back\slash\`, "ümläut", "\xff", ";", "&", "#", "~", "!",
}

func intact(t *testing.T, f fixture) {
	wait := f.appears(t)
	c := f.command(append([]string{"/bin/sh", "-c", `printf '%s\000' "$@" "$STRANGE" "$TWICE"; : >done`, "sh"},
		strange...)...)
	c.Env = []string{"STRANGE=" + strings.Join(strange, ","), "TWICE=first", "TWICE=last"}
	p, err := f.host.Start(t.Context(), c)
	must(t, err)
	wait("done")
	f.kill(t, p)
	want := append(append([]string{}, strange...), strings.Join(strange, ","), "last", "")
	if diff := cmp.Diff(want, strings.Split(f.read(t, "out"), "\x00")); diff != "" {
		t.Errorf("arguments and environment (-want +got):\n%s", diff)
	}
}

func appended(t *testing.T, f fixture) {
	for i := range 2 {
		c := f.command("/bin/sh", "-c", "echo out; echo err >&2")
		c.Stderr = c.Stdout
		p, err := f.host.Start(t.Context(), c)
		must(t, err)
		Until(t, "it ends", func() bool { return !f.alive(t, p) })
		if got, want := f.read(t, "out"), strings.Repeat("out\nerr\n", i+1); got != want {
			t.Errorf("output %q, want %q", got, want)
		}
	}
}

func outlives(t *testing.T, f fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := f.host.Start(ctx, f.command("/bin/sleep", "1000"))
	must(t, err)
	t.Cleanup(func() { f.kill(t, p) })
	cancel()
	if !f.alive(t, p) {
		t.Error("dead after the context's end")
	}
	if _, err := f.host.Start(ctx, f.command("/bin/sleep", "1000")); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with a context that has ended: %v", err)
	}
}

func cannotStart(t *testing.T, f fixture) {
	absent := path.Join(f.dir, "absent")
	must(t, f.fs.Put(t.Context(), path.Join(f.dir, "plain"), strings.NewReader("#!/bin/sh\n"),
		files.PutOptions{Mode: 0o644}))
	change := func(edit func(*host.Command)) host.Command {
		c := f.command("/bin/sleep", "1000")
		edit(&c)
		return c
	}
	for name, c := range map[string]host.Command{
		"a program that is not there": f.command(absent),
		"a folder":                    change(func(c *host.Command) { c.Dir = absent }),
		"an output folder":            change(func(c *host.Command) { c.Stdout = path.Join(absent, "out") }),
	} {
		if _, err := f.host.Start(t.Context(), c); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
		}
	}
	if _, err := f.host.Start(t.Context(), f.command(path.Join(f.dir, "plain"))); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that is not executable: %v, want fs.ErrPermission", err)
	}
	for _, c := range []host.Command{f.command(), f.command("sleep", "1000"), f.command("")} {
		if _, err := f.host.Start(t.Context(), c); job.KindOf(err) != job.Invalid {
			t.Errorf("Start of %q: %v, want kind invalid", c.Argv, err)
		}
	}
}

func aliveThenGone(t *testing.T, f fixture) {
	p := f.sh(t, "exec sleep 1000")
	if !f.alive(t, p) {
		t.Error("dead, want alive")
	}
	f.kill(t, p)
	if f.alive(t, p) {
		t.Error("alive, want dead")
	}
	f.signal(t, syscall.SIGKILL, p) // nothing left is no error
}

func recycled(t *testing.T, f fixture) {
	p := f.sh(t, "exec sleep 1000")
	earlier := p
	earlier.Start--
	f.isStrange(t, p, earlier)
}

func otherBoot(t *testing.T, f fixture) {
	p := f.sh(t, "exec sleep 1000")
	earlier := p
	earlier.Boot = "00000000-0000-0000-0000-000000000000"
	f.isStrange(t, p, earlier)
}

// isStrange tests that other, which has the pid of p, is gone and that a signal to it does not
// reach p.
func (f fixture) isStrange(t *testing.T, p, other host.Process) {
	t.Helper()
	f.signal(t, syscall.SIGKILL, other)
	alive, err := f.host.Alive(t.Context(), []host.Process{other, p})
	must(t, err)
	if diff := cmp.Diff([]bool{false, true}, alive); diff != "" {
		t.Errorf("Alive (-want +got):\n%s", diff)
	}
}

func nobody(t *testing.T, f fixture) {
	boot, err := f.host.Boot(t.Context())
	must(t, err)
	for _, pid := range []int{-1, 0, 1} {
		p := host.Process{PID: pid, Boot: boot, Start: f.stat(t, 1).start}
		if f.alive(t, p) {
			t.Errorf("pid %d is alive", pid)
		}
		if ms := f.members(t, host.Family{Leader: p}); len(ms) != 0 {
			t.Errorf("pid %d has members: %+v", pid, ms)
		}
		f.signal(t, syscall.SIGCONT, p)
	}
}

func zombie(t *testing.T, f fixture) {
	wait := f.appears(t)
	// The parent becomes a program that never waits for its child, which is a session leader.
	f.sh(t, `setsid sh -c 'echo $$ >temp; mv temp pid' & exec sleep 1000`)
	wait("pid")
	pid, err := strconv.Atoi(strings.TrimSpace(f.read(t, "pid")))
	must(t, err)
	Until(t, "the child is a zombie", func() bool { return f.stat(t, pid).state == "Z" })
	boot, err := f.host.Boot(t.Context())
	must(t, err)
	p := host.Process{PID: pid, Start: f.stat(t, pid).start, Boot: boot}
	if f.alive(t, p) {
		t.Error("a zombie is alive")
	}
	if ms := f.members(t, host.Family{Leader: host.Process{
		PID: f.stat(t, pid).session, Start: p.Start,
		Boot: boot,
	}}); len(ms) != 0 {
		t.Errorf("a zombie is a member: %+v", ms)
	}
	f.signal(t, syscall.SIGKILL, p)
}

// refused: the signal reaches the others.
func refused(t *testing.T, f fixture) {
	boot, err := f.host.Boot(t.Context())
	must(t, err)
	if os.Geteuid() == 0 && !f.plain {
		t.Skip("root may signal everybody")
	}
	p := f.sh(t, "exec sleep 1000")
	pid := 2 // a thread of the kernel
	if os.Geteuid() == 0 {
		ours := exec.CommandContext(t.Context(), "sleep", "1000")
		must(t, ours.Start())
		t.Cleanup(func() { ours.Wait() }) //nolint:errcheck // it is killed
		pid = ours.Process.Pid
	}
	other := host.Process{PID: pid, Start: f.stat(t, pid).start, Boot: boot}
	if err := f.host.Signal(t.Context(), []host.Process{other, p}, syscall.SIGKILL); !errors.Is(err, syscall.EPERM) {
		t.Errorf("Signal: %v, want EPERM", err)
	}
	Until(t, "the other one is dead", func() bool { return !f.alive(t, p) })
}

func stopped(t *testing.T, f fixture) {
	p := f.sh(t, "exec sleep 1000")
	f.signal(t, syscall.SIGSTOP, p)
	Until(t, "it is stopped", func() bool { return f.stat(t, p.PID).state == "T" })
	if !f.alive(t, p) {
		t.Error("stopped, it is dead")
	}
	f.signal(t, syscall.SIGCONT, p)
	Until(t, "it goes on", func() bool { return f.stat(t, p.PID).state == "S" })
}

func many(t *testing.T, f fixture) {
	const n = 20
	var ps []host.Process
	var want []bool
	for i := range n {
		p := f.sh(t, "exec sleep 1000")
		alive := i%3 != 0
		if !alive {
			f.kill(t, p)
		}
		for range 50 {
			ps, want = append(ps, p), append(want, alive)
		}
	}
	got, err := f.host.Alive(t.Context(), ps)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Alive (-want +got):\n%s", diff)
	}
	if got, err := f.host.Alive(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("Alive of none: %v, %v", got, err)
	}
	if got, err := f.host.Members(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("Members of none: %v, %v", got, err)
	}
}

func boot(t *testing.T, f fixture) {
	a, err := f.host.Boot(t.Context())
	must(t, err)
	b, err := f.host.Boot(t.Context())
	must(t, err)
	if a == "" || a != b || f.host.ID() == "" || strings.ContainsAny(a, " \n") {
		t.Errorf("boot %q, then %q; host %q", a, b, f.host.ID())
	}
	a, err = f.host.Machine(t.Context())
	must(t, err)
	b, err = f.host.Machine(t.Context())
	must(t, err)
	name, err := os.Hostname()
	must(t, err)
	if a != b || a != "" && strings.Fields(a)[0] != name {
		t.Errorf("machine %q, then %q; it is %q", a, b, name)
	}
}

func uptime(t *testing.T, f fixture) {
	before, err := f.host.Uptime(t.Context())
	must(t, err)
	p := f.sh(t, "exec sleep 1000")
	after, err := f.host.Uptime(t.Context())
	must(t, err)
	if s := p.Started(); s < before.Truncate(10*time.Millisecond) || s > after {
		t.Errorf("it started at %s, and not from %s to %s", s, before, after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.host.Uptime(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Uptime with a context that has ended: %v", err)
	}
}

func environ(t *testing.T, f fixture) {
	env, err := f.host.Environ(t.Context())
	must(t, err)
	wait := f.appears(t)
	f.sh(t, `cat /proc/self/environ >temp; mv temp environ`)
	wait("environ")
	want, got := map[string]string{}, map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		want[name] = value
	}
	for v := range strings.SplitSeq(f.read(t, "environ"), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		if _, ok := want[name]; ok { // what the shell adds of its own does not matter
			got[name] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func usage(t *testing.T, f fixture) {
	a, ok := f.host.(host.Accountant)
	if !ok {
		t.Skip("it keeps no accounts")
	}
	const memory = 50 << 20
	p := f.sh(t, `dd if=/dev/zero of=/dev/null bs=$1 count=1; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`,
		strconv.Itoa(memory))
	alive := f.sh(t, "exec sleep 1000")
	Until(t, "it is dead", func() bool { return !f.alive(t, p) })
	u, ok := a.Usage(p)
	if !ok || u.User+u.System <= 0 || u.MaxRSS != 0 && u.MaxRSS < memory || u.Read < 0 || u.Written < 0 {
		t.Errorf("Usage: %+v, %t", u, ok)
	}
	if again, ok := a.Usage(p); !ok || again != u {
		t.Errorf("asked again: %+v, %t; before: %+v", again, ok, u)
	}
	other := p
	other.Start--
	for what, p := range map[string]host.Process{
		"one that is alive": alive, "one that nobody knows": other,
		"none": {},
	} {
		if u, ok := a.Usage(p); ok {
			t.Errorf("Usage of %s: %+v", what, u)
		}
	}
}

type stat struct {
	state   string
	session int
	start   uint64
}

// stat reads the stat file of a process whose program has no parenthesis in its name.
func (f fixture) stat(t *testing.T, pid int) stat {
	t.Helper()
	b, err := files.ReadFile(t.Context(), f.fs, fmt.Sprintf("/proc/%d/stat", pid), 1<<20)
	must(t, err)
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	start, err := strconv.ParseUint(fields[19], 10, 64)
	must(t, err)
	session, err := strconv.Atoi(fields[3])
	must(t, err)
	return stat{fields[0], session, start}
}

// Until waits for what no event announces, and fails where that does not come.
func Until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), testenv.Patience) // cleanups wait, too
	defer stop()
	if !testenv.Until(ctx, done) {
		t.Fatalf("it does not come that %s", what)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
