package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
)

// A node is a process that is started again whenever it has ended.
type node struct {
	s             *storm
	name, machine string
	role          string // serve or worker
	rnd           *rand.Rand
	listen        string // where it serves; empty: nowhere
	api           *way   // to there
	db            *way   // to the database; nil: it is in the folder
	starts        int

	mu    sync.Mutex
	proc  *proc // guarded by mu: that runs, or ended last
	awry  int   // guarded by mu: seconds by which the clock of the next start is wrong
	later bool  // guarded by mu: the next start is of the next version
}

// A proc is one start of a process.
type proc struct {
	cmd    *exec.Cmd
	said   string // file with what it wrote
	ended  chan struct{}
	killed atomic.Bool
	told   atomic.Bool // to stop
}

func (s *storm) newNode(name, machine, role string) (n *node, err error) {
	n = &node{s: s, name: name, machine: machine, role: role, rnd: s.random("node " + name)}
	if role == "serve" {
		if n.listen, err = freeAddr(); err != nil {
			return nil, err
		}
		if n.api, err = s.net.open(name+".api", n.listen); err != nil {
			return nil, err
		}
	}
	if s.server != nil {
		n.db, err = s.net.open(name+".database", s.server.Addr())
	}
	return n, err
}

// live starts the process until the storm is over.
func (n *node) live(ctx context.Context) {
	for ctx.Err() == nil {
		p, err := n.start()
		if err == nil && p == nil {
			return
		}
		if err != nil {
			n.s.breaks("harness: start %s: %v", n.name, err)
			return
		}
		select {
		case <-p.ended:
		case <-ctx.Done():
			p.signal(syscall.SIGKILL)
			<-p.ended
			return
		}
		n.judge(p)
		pause(ctx, between(n.rnd, 0, 1500*time.Millisecond))
	}
}

func (s *storm) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// start starts the process, unless all are to have ended: then it is nil.
func (n *node) start() (*proc, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.s.over() {
		return nil, nil
	}
	n.starts++
	p := &proc{ended: make(chan struct{}), said: filepath.Join(n.s.dir, fmt.Sprintf("said.%s.%03d", n.name, n.starts))}
	bin := n.s.binaries.this
	if n.later {
		bin = n.s.binaries.next
	}
	args := []string{n.role, "--dir", n.s.folder(n.machine), "--lease", lease.String()}
	if n.role == "serve" {
		args = append(args, "--listen", n.listen)
	}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Dir = n.s.dir
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.s.dir, "STORM_LEDGER=" + n.s.jobsLedger(), "STORM_WITHOUT=" +
			n.s.without,
	}
	if n.role == "serve" {
		// what tasks need is on this machine
		p.cmd.Env = append(p.cmd.Env, "STORM_STRANGERS="+n.stranger(), "PAWL_HTTP_INPUTS=all")
	}
	if n.db != nil {
		dsn, err := n.s.through(n.db)
		if err != nil {
			return nil, err
		}
		p.cmd.Env = append(p.cmd.Env, "PAWL_DB="+dsn)
	}
	if n.awry != 0 {
		p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("STORM_AWRY=%d", n.awry))
	}
	if n.s.clock != nil {
		p.cmd.Env = append(p.cmd.Env, "STORM_CLOCK="+n.s.clock.file.Name())
	}
	if !n.s.sweep {
		p.cmd.Env = append(p.cmd.Env, "STORM_SWEEP=never")
	}
	f, err := os.Create(p.said)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %s, clock wrong by %d s\n", bin, strings.Join(args, " "), n.awry)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	n.proc = p
	go func() {
		defer close(p.ended)
		p.cmd.Wait() //nolint:errcheck // its state tells
	}()
	return p, nil
}

// now returns the process that runs, or nil.
func (n *node) now() *proc {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || n.proc.gone() {
		return nil
	}
	return n.proc
}

func (p *proc) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *proc) signal(sig syscall.Signal) bool {
	if sig == syscall.SIGKILL {
		p.killed.Store(true) // whoever sees its end knows
	}
	return p.cmd.Process.Signal(sig) == nil
}

// stop tells a process to stop, which it must within its grace and a while.
func (n *node) stop(ctx context.Context, p *proc) {
	if !p.told.Swap(true) { // told twice it would not be in good order
		p.signal(syscall.SIGTERM)
	}
	over := time.NewTimer(n.s.patience.stop)
	defer over.Stop()
	select {
	case <-p.ended:
	case <-ctx.Done():
	case <-over.C:
		n.s.breaks("stuck: %s did not stop within %s, see %s", n.name, n.s.patience.stop, p.said)
		p.signal(syscall.SIGQUIT)
		pause(ctx, 5*time.Second)
		p.signal(syscall.SIGKILL)
	}
}

// began are the words with which a process says that it works.
var began = [][]byte{[]byte("pawl serves the folder"), []byte("pawl works on the jobs")}

func (p *proc) began() bool {
	said, err := os.ReadFile(p.said)
	return err == nil && (bytes.Contains(said, began[0]) || bytes.Contains(said, began[1]))
}

// up waits until the process works.
func (n *node) up(ctx context.Context) error {
	begun := time.Now()
	for {
		if p := n.now(); p != nil && p.began() {
			return nil
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("%s does not work after a minute, see %s", n.name, n.s.dir)
		}
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// judge says whether a process ended as it should.
func (n *node) judge(p *proc) {
	said, err := os.ReadFile(p.said)
	if err != nil {
		n.s.breaks("harness: %v", err)
		return
	}
	for line := range bytes.Lines(said) {
		if _, what, found := bytes.Cut(line, []byte("found what no wake-up told of")); found {
			n.s.repaired(n, strings.TrimSpace(string(what)))
		}
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		n.s.breaks("harness: no wait status")
	case status.Signaled() && status.Signal() == syscall.SIGKILL && p.killed.Load(), status.ExitStatus() == 0 &&
		p.told.Load():
	// it was told very early
	case status.Signaled() && status.Signal() == syscall.SIGTERM && p.told.Load() && !p.began():
	case status.Signaled(), bytes.Contains(said, []byte("panic:")), bytes.Contains(said, []byte("fatal error:")):
		n.s.breaks("exit: %s: %s, see %s", n.name, p.cmd.ProcessState, p.said)
	case status.ExitStatus() == 0:
		n.s.breaks("exit: %s stopped, and nobody told it to, see %s", n.name, p.said)
	case !p.began(): // it could not begin
		n.s.count(startRefused)
	default:
		n.s.breaks("exit: %s: %s: %s, see %s", n.name, p.cmd.ProcessState, lastLine(said), p.said)
	}
}

// startRefused counts processes that could not begin: their database was away, say.
const startRefused = "start_refused"

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// ofTurns are what a sweep says where it finds turns or lines wrong. Nothing that goes wrong around
// the service may bring that about.
var ofTurns = []string{"a turn that nobody had a use for", "a free place beside a line"}

func (s *storm) repaired(by *node, what string) {
	s.mu.Lock()
	s.sum.Repaired[what]++
	s.mu.Unlock()
	if slices.ContainsFunc(ofTurns, func(turns string) bool { return strings.Contains(what, turns) }) {
		s.breaks("repaired: %s found %s", by.name, what)
	}
}

// client returns a client of what the node serves, for people: they do not wait for an answer for
// ever.
func (n *node) client(tries int) (*client.Client, error) { return n.dial(people, tries) }

func (n *node) dial(by *http.Client, tries int) (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(n.s.folder(n.machine), auth.TokenFile))
	if err != nil {
		return nil, err
	}
	return client.Dial("http://"+n.api.addr,
		client.Options{Token: strings.TrimSpace(string(token)), Tries: tries, HTTP: by})
}

// servers returns the nodes that serve.
func (s *storm) servers() (all []*node) {
	for _, n := range s.nodes {
		if n.role == "serve" {
			all = append(all, n)
		}
	}
	return all
}

// end stops all processes in good order, and returns when nothing of the storm runs any more.
func (s *storm) end(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, n := range s.nodes {
		if p := n.now(); p != nil {
			all.Go(func() { n.stop(ctx, p) })
		}
	}
	all.Wait()
	s.living.Wait()
	begun := time.Now()
	for {
		left, err := checks.Processes(s.dir)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Since(begun) > s.gone {
			s.breaks("process_left: %v", left)
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}
