package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/victims"
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
	proc  *victims.Process // guarded by mu: that runs, or ended last
	awry  int              // guarded by mu: seconds by which the clock of the next start is wrong
	later bool             // guarded by mu: the next start is of the next version
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
		case <-p.Ended:
		case <-ctx.Done():
			p.Signal(syscall.SIGKILL)
			<-p.Ended
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
func (n *node) start() (*victims.Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.s.over() {
		return nil, nil
	}
	n.starts++
	bin := n.s.binaries.this
	if n.later {
		bin = n.s.binaries.next
	}
	args := []string{n.role, "--dir", n.s.folder(n.machine), "--lease", lease.String()}
	if n.role == "serve" {
		args = append(args, "--listen", n.listen)
	}
	cmd := exec.Command(bin, args...)
	cmd.Dir = n.s.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + n.s.dir, "STORM_LEDGER=" + n.s.jobsLedger(), "STORM_WITHOUT=" + n.s.without,
	}
	if n.role == "serve" {
		// What tasks need is on this machine.
		cmd.Env = append(cmd.Env, "STORM_STRANGERS="+n.stranger(), "PAWL_HTTP_INPUTS=all")
	}
	if n.db != nil {
		dsn, err := n.s.through(n.db)
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, "PAWL_DB="+dsn)
	}
	if n.awry != 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("STORM_AWRY=%d", n.awry))
	}
	if n.s.clock != nil {
		cmd.Env = append(cmd.Env, "STORM_CLOCK="+n.s.clock.file.Name())
	}
	if !n.s.sweep {
		cmd.Env = append(cmd.Env, "STORM_SWEEP=never")
	}
	said := filepath.Join(n.s.dir, fmt.Sprintf("said.%s.%03d", n.name, n.starts))
	p, err := victims.Start(cmd, said, fmt.Sprintf("%s %s, clock wrong by %d s", bin, strings.Join(args, " "), n.awry))
	if err == nil {
		n.proc = p
	}
	return p, err
}

// now returns the process that runs, or nil.
func (n *node) now() *victims.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || n.proc.Gone() {
		return nil
	}
	return n.proc
}

// stop tells a process to stop, which it must within its grace and a while.
func (n *node) stop(ctx context.Context, p *victims.Process) {
	if !p.Told.Swap(true) { // told twice it would not be in good order
		p.Signal(syscall.SIGTERM)
	}
	over := time.NewTimer(n.s.patience.stop)
	defer over.Stop()
	select {
	case <-p.Ended:
	case <-ctx.Done():
	case <-over.C:
		n.s.breaks("stuck: %s did not stop within %s, see %s", n.name, n.s.patience.stop, p.Said)
		p.Interrogate()
	}
}

// began reports whether a process has said that it works.
func began(p *victims.Process) bool {
	return p.Says("pawl serves the folder", "pawl works on the jobs")
}

// up waits until the process works.
func (n *node) up(ctx context.Context) error {
	begun := time.Now()
	for {
		if p := n.now(); p != nil && began(p) {
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
func (n *node) judge(p *victims.Process) {
	said, err := os.ReadFile(p.Said)
	if err != nil {
		n.s.breaks("harness: %v", err)
		return
	}
	for line := range bytes.Lines(said) {
		if _, what, found := bytes.Cut(line, []byte(victims.Swept)); found {
			n.s.repaired(n, strings.TrimSpace(string(what)))
		}
	}
	status := p.Status()
	switch {
	case p.Died() && p.Killed.Load(), status.ExitStatus() == 0 && p.Told.Load():
	case status.Signaled() && status.Signal() == syscall.SIGTERM && p.Told.Load() && !began(p): // it was told very early
	case status.Signaled(), bytes.Contains(said, []byte("panic:")), bytes.Contains(said, []byte("fatal error:")):
		n.s.breaks("exit: %s: %s, see %s", n.name, p.Cmd.ProcessState, p.Said)
	case status.ExitStatus() == 0:
		n.s.breaks("exit: %s stopped, and nobody told it to, see %s", n.name, p.Said)
	case !began(p): // it could not begin
		n.s.count(startRefused)
	default:
		n.s.breaks("exit: %s: %s: %s, see %s", n.name, p.Cmd.ProcessState, victims.Last(said, 1), p.Said)
	}
}

// startRefused counts processes that could not begin: their database was away, say.
const startRefused = "start_refused"

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
	return client.Dial("http://"+n.api.addr, client.Options{Token: strings.TrimSpace(string(token)), Tries: tries, HTTP: by})
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
	left, err := checks.Gone(ctx, s.dir, s.gone)
	if len(left) > 0 {
		s.breaks("process_left: %v", left)
	}
	return errors.Join(err, ctx.Err())
}
