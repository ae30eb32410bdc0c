package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// A Master is an OpenSSH client that keeps a connection open, and opens sessions on it for others:
// ControlMaster of ssh_config(5). A person starts it, with [Master.Login], and answers what the
// host asks. What opens sessions here speaks with the master alone, so it never connects by itself.
type Master struct {
	// Socket is where it listens. Required. The folder has to be there.
	Socket string
	// Host is a Host of ssh_config, or a name or an address. Required.
	Host string
	// Options come first on the command line of ssh, such as -F FILE. Default: none.
	Options []string
}

// Login returns the command that starts a master. Who logs in gives it the terminal. It ends when
// the connection is there, and the master stays, in the background. Its ssh runs in the folder of
// the socket, so that the name of the socket is short.
//
// A master asks the far side whether it is there. It ends after three questions without an answer.
func (m Master) Login(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ssh", append(m.Options[:len(m.Options):len(m.Options)],
		"-S", "./"+filepath.Base(m.Socket), "-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-f", "-N",
		"-o", "ClearAllForwardings=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
		"--", m.Host)...)
	cmd.Dir = filepath.Dir(m.Socket)
	return cmd
}

// Alone keeps others from a login until release is called. The error is of kind [job.Conflict]
// while another login is under way: it would leave a second connection, which nobody finds. The
// folder of the socket is made if it is not there.
func (m Master) Alone() (release func(), err error) {
	if err := os.Mkdir(filepath.Dir(m.Socket), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, job.Errorf(job.Unavailable, "a folder for the connection: %w", err)
	}
	lock, err := os.OpenFile(m.Socket+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "the lock of the connection: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, job.Errorf(job.Conflict, "another login is under way: finish it, or end it, and then try again (%w)", err)
	}
	return func() { lock.Close() }, nil
}

// Logout ends the master. Programs run on.
func (m Master) Logout(ctx context.Context) error {
	err := m.tell(ctx, muxTerminate, muxOK)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // it has ended before it could say so
		return nil
	}
	return err
}

// Check returns nil if the master is there.
func (m Master) Check(ctx context.Context) error { return m.tell(ctx, muxAlive, muxIsAlive) }

func (m Master) tell(ctx context.Context, what, want uint32) error {
	c, err := m.control(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	kind, rest, err := c.ask(ctx, message(what, 0))
	if err == nil && kind != want {
		err = fmt.Errorf("its ssh refuses: %s", why(rest))
	}
	return err
}

// joining is the way to a machine by a master.
type joining Config

// dial finds the master.
func (j joining) dial(ctx context.Context) (connection, error) {
	watch, err := j.Master.control(ctx)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = errors.New("nobody is logged in")
	}
	if err != nil {
		return nil, &host.Trouble{Code: job.LoginRequired, Err: fmt.Errorf(
			"ssh to %s: %w: run `pawl systems login %s`", j.Master.Host, err, Config(j).system())}
	}
	c := &shared{master: j.Master, watch: watch, lost: make(chan struct{}), sessions: map[*muxed]bool{}}
	c.ctx, c.end = context.WithCancel(context.Background())
	go func() {
		_, _, _ = watch.receive() // nothing comes but its end
		c.lose()
	}()
	return c, nil
}

// shared is the connection of a master. To close it leaves the master as it is.
type shared struct {
	master Master
	watch  control         // it is closed when the master ends
	ctx    context.Context // ends when the master does, or with close
	end    context.CancelFunc
	lost   chan struct{}

	mu       sync.Mutex
	sessions map[*muxed]bool // nil: it is lost; guarded by mu
}

func (c *shared) done() <-chan struct{} { return c.lost }

// close has the goroutine of dial end all.
func (c *shared) close() { _ = c.watch.Close() }

func (c *shared) lose() {
	c.close()
	c.end()
	c.mu.Lock()
	all := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	for s := range all {
		s.close()
	}
	close(c.lost)
}

// ping asks the master alone: it asks the far side by itself.
func (c *shared) ping() error { return c.master.Check(c.ctx) }

// open hands the far ends of three pipes to the master.
func (c *shared) open(ctx context.Context, command string, sftp bool) (_ session, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	s := &muxed{of: c, words: &tail{}}
	if s.control, err = c.master.control(ctx); err != nil {
		return nil, err
	}
	var theirs [3]*os.File
	var errs [3]error
	theirs[0], s.in, errs[0] = os.Pipe()
	s.out, theirs[1], errs[1] = os.Pipe()
	s.err, theirs[2], errs[2] = os.Pipe()
	err = errors.Join(errs[:]...)
	if err == nil {
		const noEscape = uint32(0xffffffff)
		subsystem := 0
		if sftp {
			subsystem, command = 1, "sftp"
		}
		err = s.begin(ctx, message(muxSession, 0, "", 0, 0, 0, subsystem, noEscape, "", command), theirs[:])
	}
	for _, f := range theirs {
		f.Close()
	}
	if err == nil {
		c.mu.Lock()
		if c.sessions == nil {
			err = errors.New("the connection is lost")
		} else {
			c.sessions[s] = true
		}
		c.mu.Unlock()
	}
	if err != nil {
		s.end()
		return nil, err
	}
	go io.Copy(s.words, s.err) //nolint:errcheck // it ends with the session
	return s, nil
}

// muxed is a session of a master. It ends with its control connection.
type muxed struct {
	of           *shared
	control      control
	in, out, err *os.File
	words        *tail // what has come from err
}

func (s *muxed) begin(ctx context.Context, request []byte, files []*os.File) error {
	kind, rest, err := s.control.ask(ctx, request, files...)
	switch {
	case err != nil:
		return err
	case kind == muxFailed && why(rest) == full:
		return errFull
	case kind != muxOpened:
		return fmt.Errorf("its ssh opens no session: %s", why(rest))
	}
	return nil
}

func (s *muxed) Read(p []byte) (int, error) { return s.out.Read(p) }

func (s *muxed) said() *tail { return s.words }

func (s *muxed) Write(p []byte) (int, error) { return s.in.Write(p) }

// kill does nothing: a master passes no signals on.
func (s *muxed) kill() {}

func (s *muxed) close() {
	s.of.mu.Lock()
	delete(s.of.sessions, s)
	s.of.mu.Unlock()
	s.end()
}

func (s *muxed) end() {
	s.control.Close()
	for _, f := range []*os.File{s.in, s.out, s.err} {
		f.Close()
	}
}
