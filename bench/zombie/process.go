package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// childVariable names, in the environment of this program, the process that it is to be.
const childVariable = "ZOMBIE_PROCESS"

// A process is this program once more, as a process that works. It dies with the one that started
// it.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	told bool          // to end
}

// start starts a process that works. What it logs goes into a file.
func start(name, logFile string, args []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{name: name, cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+name)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The kernel counts as the parent the thread that forked, so that thread has to live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is seen in its state
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// freeze stops the process as it stands, and returns when all of it has come to a halt.
func (p *process) freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// stop ends the process in good order.
func (p *process) stop(ctx context.Context) error {
	p.told = true
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("process %s does not stop: %w", p.name, context.Cause(ctx))
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("process %s: %s", p.name, p.cmd.ProcessState)
	}
	return nil
}

// died returns an error for a process that has ended without being told to.
func (p *process) died() error {
	select {
	case <-p.done:
		if !p.told {
			return fmt.Errorf("process %s ended: %s", p.name, p.cmd.ProcessState)
		}
	default:
	}
	return nil
}

// kill ends the process, frozen or not.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}

// child is the whole of a process that works.
func child(name string, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("process %s: want system, variant, database and folder", name)
	}
	sys, ok := systems[args[0]]
	if !ok {
		return fmt.Errorf("there is no system %q", args[0])
	}
	v, err := variantOf(args[1])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := &seat{name: name, variant: v, dir: args[3]}
	if err := sys.work(ctx, args[2], s); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
