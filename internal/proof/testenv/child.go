package testenv

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A child is a server that runs in the foreground as a direct child of this process, and dies with
// it.
type child struct {
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when the process has been waited for
}

// startChild starts cmd and returns when it has logged a line that contains ready; "": at once. It
// fails when the process ends before that, or when ctx does; the process is then gone.
func startChild(ctx context.Context, cmd *exec.Cmd, ready string) (*child, error) {
	c := &child{cmd: cmd, log: newTail(ready), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	// A grandchild may hold the pipe for a moment after the server is gone.
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, 5*time.Second)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C at the terminal is for the tests, which then end the server
	dieWithParent(cmd.SysProcAttr)

	started := make(chan error, 1)
	go func() {
		// The kernel counts as the parent the thread that forked, so that thread has to live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is seen in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	select {
	case <-c.log.ready:
		return c, nil
	case <-c.done:
		return nil, fmt.Errorf("%s ended at its start (%v); it said:\n%s", cmd.Path, cmd.ProcessState, c.log)
	case <-ctx.Done():
		c.end(syscall.SIGKILL)
		return nil, fmt.Errorf("%s did not become ready: %w; it said:\n%s", cmd.Path, context.Cause(ctx), c.log)
	}
}

// end sends sig and waits for the process; SIGKILL follows after ten seconds.
func (c *child) end(sig syscall.Signal) {
	select {
	case <-c.done:
		return
	default:
	}
	_ = c.cmd.Process.Signal(sig) // an error means that it has ended
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// A tail keeps the end of a server's log, and sees when the server says that it is ready.
type tail struct {
	ready chan struct{} // closed when the line was seen

	mu     sync.Mutex // guards what follows
	line   string     // what to wait for; empty when it was seen
	text   []byte
	maxLen int
}

func newTail(ready string) *tail {
	l := &tail{ready: make(chan struct{}), line: ready, maxLen: 16 << 10}
	if ready == "" {
		close(l.ready)
	}
	return l
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if l.line != "" && bytes.Contains(l.text, []byte(l.line)) {
		l.line = ""
		close(l.ready)
	}
	if len(l.text) > 2*l.maxLen {
		l.text = append(l.text[:0], l.text[len(l.text)-l.maxLen:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// environ is this process's environment without the variables whose names begin with without, and
// with more.
func environ(without string, more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, without) {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}
