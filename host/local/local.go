// Package local is the machine that Pawl itself runs on. It implements [host.Host] and
// [host.Accountant].
//
// It starts programs by fork and exec, without package os/exec: an [os.Process] keeps a descriptor
// for each child, and its Release leaves zombies.
package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/files"
	filelocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// Config configures a Host.
type Config struct {
	// ID is the machine id. Required.
	ID string
	// Base is a folder that Pawl never makes: no folder is made below it while it is missing. See
	// [filelocal.FS]. Default: there is none.
	Base string
	// Env is the environment that every program gets, as NAME=value. That of its command is added
	// to it. Default: what [Environ] returns.
	Env []string
	// OnExit is called once for each child, after it ended and was reaped; after Close it is not
	// called. The reaper calls it, one child at a time, so OnExit must not block and must not call
	// Close. Default: nothing is called.
	OnExit func(Exit)
}

// Inherited names the variables of this process that programs get by default, beside all that begin
// with LC_. They say who and where one is. The others may hold Pawl's own secrets.
var Inherited = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"}

// An Exit is the end of a process that this host started.
type Exit struct {
	Process host.Process
	Status  syscall.WaitStatus
	Usage   host.Usage
}

// Host is the machine that this process runs on. It reaps the children that it started, and no
// others.
type Host struct {
	id     string
	base   string
	env    []string
	onExit func(Exit)
	looks  looks
	census census

	mu       sync.Mutex    // guards what follows
	children map[int]child // started and not yet reaped, by pid
	used     accounts      // of those that were reaped
	exits    []Exit        // of those that were reaped, that OnExit is still to be told

	chld    chan os.Signal
	dropped chan os.Signal // nobody reads it
	stop    func()
	stopped chan struct{} // closed when the reaper has returned
}

var (
	_ host.Host       = (*Host)(nil)
	_ host.Accountant = (*Host)(nil)
)

// Open returns the machine and begins to reap children. Close ends that.
//
// It marks descriptors above 2 that this process inherited from its own parent as close-on-exec.
// Otherwise programs would hold them open for as long as they run. Go marks all that it opens
// itself.
func Open(c Config) (*Host, error) {
	if c.ID == "" {
		return nil, job.Errorf(job.Invalid, "local host: no machine id")
	}
	if c.Env == nil {
		c.Env = Environ()
	}
	if err := closeInherited(); err != nil {
		return nil, fmt.Errorf("local host: %w", err)
	}
	quit := make(chan struct{})
	h := &Host{
		id: c.ID, base: c.Base, env: c.Env, onExit: c.OnExit,
		children: map[int]child{},
		chld:     make(chan os.Signal, 1),
		dropped:  make(chan os.Signal),
		stop:     sync.OnceFunc(func() { close(quit) }),
		stopped:  make(chan struct{}),
	}
	h.looks.scan = h.scan
	signal.Notify(h.chld, syscall.SIGCHLD)
	for _, sig := range ignorable {
		if signal.Ignored(sig) {
			signal.Notify(h.dropped, sig)
		}
	}
	go h.reap(quit)
	return h, nil
}

// ignorable are signals that a process may have been started to ignore: nohup ignores SIGHUP, and a
// shell without job control SIGINT and SIGQUIT in what it starts in the background. What it starts
// would ignore them, too, but not one that it handles. So such signals are taken, and dropped.
var ignorable = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// Close stops reaping and waits for the reaper to return. Programs run on, and all calls but Start
// still work. Close can be called again.
func (h *Host) Close() error {
	h.stop()
	<-h.stopped
	return nil
}

// ID returns [Config.ID].
func (h *Host) ID() string { return h.id }

// Files returns the file system of the machine.
func (h *Host) Files() files.FS { return filelocal.FS{Base: h.base} }

// Boot returns the kernel's boot id.
func (h *Host) Boot(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return boot()
}

var boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})

// Machine returns the machine's host name and its id, see machine-id(5). In a container, whose name
// may be another one each time, it returns nothing: its programs end with it.
func (h *Host) Machine(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if space, err := os.Readlink("/proc/self/ns/pid"); err != nil || space != firstSpace {
		return "", nil //nolint:nilerr // it is not known
	}
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	id, _ := os.ReadFile("/etc/machine-id") // not every machine has one
	return strings.Join(strings.Fields(name+" "+string(id)), " "), nil
}

// firstSpace is the PID namespace of the machine itself (PROC_PID_INIT_INO in Linux's proc_ns.h).
const firstSpace = "pid:[4026531836]"

// Uptime reads the boot clock.
func (h *Host) Uptime(ctx context.Context) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("uptime: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// Environ returns [Config.Env], or its default.
func (h *Host) Environ(ctx context.Context) ([]string, error) {
	return slices.Clone(h.env), ctx.Err()
}

// Start starts a detached program.
func (h *Host) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if err := ctx.Err(); err != nil {
		return host.Process{}, err
	}
	if len(c.Argv) == 0 || !path.IsAbs(c.Argv[0]) {
		return host.Process{}, job.Errorf(job.Invalid, "start %q: the program is not an absolute path", c.Argv)
	}
	p, err := h.start(ctx, c)
	if err != nil {
		return host.Process{}, fmt.Errorf("start: %w", err)
	}
	return p, nil
}

func (h *Host) start(ctx context.Context, c host.Command) (host.Process, error) {
	boot, err := boot()
	if err != nil {
		return host.Process{}, err
	}
	// These descriptors are close-on-exec, like all that Go opens; the child gets copies as 0, 1
	// and 2.
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return host.Process{}, err
	}
	defer stdin.Close()
	stdout, err := output(c.Stdout)
	if err != nil {
		return host.Process{}, err
	}
	defer stdout.Close()
	stderr, err := output(c.Stderr)
	if err != nil {
		return host.Process{}, err
	}
	defer stderr.Close()

	// Under mu: the reaper meets the child only after it is known, so its pid cannot pass to
	// another meanwhile.
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := syscall.ForkExec(c.Argv[0], c.Argv, &syscall.ProcAttr{
		Dir:   c.Dir,
		Env:   append(h.env[:len(h.env):len(h.env)], c.Env...),
		Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return host.Process{}, &fs.PathError{Op: "fork/exec", Path: c.Argv[0], Err: err} // as package os says it
	}
	p := child{Process: host.Process{PID: pid, Boot: boot}, mark: ownMaxRSS()}
	h.children[pid] = p
	s, err := begun(ctx, pid, nameOf(c.Argv[0]))
	if err != nil {
		return host.Process{}, err // the reaper knows the child
	}
	p.Start = s.Start
	h.children[pid] = p
	return p.Process, nil
}

func output(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

func closeInherited() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd) // no harm if it is closed since
		}
	}
	return nil
}

// Environ returns the environment that programs get by default: those variables of this process
// that [Inherited] allows.
func Environ() []string { return inherited(os.Environ()) }

func inherited(environ []string) []string {
	env := []string{} // not nil: an empty environment is a choice
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "LC_") {
			env = append(env, v)
			continue
		}
		for _, n := range Inherited {
			if n == name {
				env = append(env, v)
			}
		}
	}
	return env
}
