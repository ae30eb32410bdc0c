package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/engine"
	hostfake "github.com/pawl-jobs/pawl/host/fake"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	runnerfake "github.com/pawl-jobs/pawl/runner/fake"
	local "github.com/pawl-jobs/pawl/runner/process"
	"github.com/pawl-jobs/pawl/service"
)

// A slot is where one process runs after the other.
type slot struct {
	w       *world
	machine *machine
	n       int

	mu    sync.Mutex
	lives int      // guarded by mu
	now   *process // guarded by mu; nil: none runs
}

func (s *slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// keep starts processes in a slot until the world ends.
func (s *slot) keep() {
	for !s.w.is(&s.w.over) {
		s.mu.Lock()
		s.lives++
		p := s.w.newProcess(fmt.Sprintf("p%d.%d", s.n, s.lives), s.machine)
		s.now = p
		s.mu.Unlock()
		err := p.run()
		s.mu.Lock()
		s.now = nil
		s.mu.Unlock()
		if err != nil && !p.dead() {
			s.w.breaks(job.ID{}, "process %s ended: %v", p.name, err)
		}
		r := s.w.dice("restart", s.n*1000+s.lives)
		for pause := between(r, time.Millisecond, 2*s.w.lease); pause > 0 && !s.w.is(&s.w.over); pause -= time.Second {
			time.Sleep(min(pause, time.Second))
		}
	}
}

// A process is one life of a process of the service. Whatever it does outside of itself goes
// through it: so it can be frozen, cut off, and killed, and then does nothing any more that anybody
// could see.
type process struct {
	w        *world
	name     string
	machine  *machine
	client   bool // it runs nothing, and only asks
	svc      *service.Service
	launcher *local.Runner
	broker   *end
	late     time.Duration   // for how long moments that others hear of, too, are later for it
	ctx      context.Context // of its Run
	stop     context.CancelFunc
	death    chan struct{}

	mu              sync.Mutex
	killed          bool           // guarded by mu
	thaw            chan struct{}  // guarded by mu: closed when it goes on; nil: it is not frozen
	cut, deaf, mute bool           // guarded by mu: what is wrong with its connection to the store
	quiet           time.Time      // guarded by mu: since when nothing was wrong with it
	thawed          time.Time      // guarded by mu: when it went on last
	calls           map[string]int // guarded by mu: so far
}

// newProcess returns a process on a machine, which does not run yet.
func (w *world) newProcess(name string, m *machine) *process {
	p := &process{w: w, name: name, machine: m, death: make(chan struct{}), calls: map[string]int{}, quiet: time.Now()}
	p.late = between(w.dice("late/"+name, 0), 1, 999*time.Microsecond)
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.broker = w.hub.join(p)
	c := service.Config{
		Store: &link{Store: w.store, p: p}, Broker: p.broker, Principal: name, Machine: m.id,
		Testers: map[string]recovery.Tester{testerThing: recovery.Func(p.looks)}, Log: slog.New(logs{p}),
		Options: engine.Options{Lease: w.lease, Grace: w.grace, Sweep: time.Minute, Slots: w.lanes, Version: "sim"},
	}
	host := hostfake.New(m)
	run, err := local.Open(p.ctx, local.Config{Host: host, Spool: spool, Exits: true, Log: c.Log})
	if err != nil {
		panic(err) // nothing misbehaves yet
	}
	p.launcher = run
	launcher := runnerfake.New(run)
	host.Through(p.atHost)
	launcher.Through(p.atRunner)
	kind := app.New(app.Config{
		Local: app.System{Host: host, Runner: lying{launcher, m}, Work: "/work"},
		Files: host.Files(), Archive: "/archive", Grace: 3 * time.Second, Look: time.Minute, Log: c.Log,
	})
	c.Kinds = map[string]engine.Kind{job.KindApp: kind}
	c.Duties = []engine.Duty{app.NewWatcher(kind, kind.Local(), c.Store, p.broker).Duty()}
	p.svc = service.New(c)
	service.Handle(p.svc, taskKind, p.handle)
	return p
}

// run runs the process until it dies or is told to go.
func (p *process) run() error {
	p.w.note(p.name, "starts on %s", p.machine.id)
	p.machine.adopt(p)
	err := p.svc.Run(p.ctx)
	p.stop()
	p.machine.forget(p)
	p.w.hub.leave(p.broker)
	if p.dead() {
		return nil
	}
	p.w.note(p.name, "has ended: %v", err)
	return err
}

// die ends the process here and now.
func (p *process) die(why string) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	p.mu.Unlock()
	p.w.note(p.name, "dies: %s", why)
	p.w.count(&p.w.deaths)
	close(p.death)
	p.w.hub.leave(p.broker)
	p.stop()
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// goWell tells the process to end in good order.
func (p *process) goWell() {
	p.w.note(p.name, "is told to end")
	p.stop()
}

// freeze stops the process for a while. Its timers go on, but whatever it does about them waits.
func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		return
	}
	p.w.note(p.name, "is frozen for %v", d)
	thaw := make(chan struct{})
	p.thaw = thaw
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.w.note(p.name, "goes on")
		p.thaw, p.quiet, p.thawed = nil, time.Now(), time.Now()
		close(thaw)
	})
}

// awake waits until the process is not frozen, and reports whether it lives.
func (p *process) awake() bool {
	for {
		p.mu.Lock()
		thaw, killed := p.thaw, p.killed
		p.mu.Unlock()
		if killed || thaw == nil {
			return !killed
		}
		select {
		case <-thaw:
			p.step("thaw")
		case <-p.death:
		}
	}
}

// step lets a moment pass that is nobody else's: of those who are woken together one goes on after
// the other.
func (p *process) step(what string) {
	p.mu.Lock()
	p.calls[what]++
	n := p.calls[what]
	p.mu.Unlock()
	time.Sleep(between(p.w.dice(p.name+"/"+what, n), 1, 100*time.Microsecond))
}

// justBack reports whether p was frozen a moment ago: what it was about to do it does, before it
// finds out.
func (p *process) justBack() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.thawed) < time.Millisecond
}

// hinder sets one of the flags of p for a while.
func (p *process) hinder(flag *bool, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *flag {
		return
	}
	*flag = true
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		*flag, p.quiet = false, time.Now()
	})
}

// well reports whether nothing was wrong with p for some time.
func (p *process) well(since time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.killed && p.thaw == nil && !p.cut && !p.deaf && !p.mute && p.ctx.Err() == nil &&
		time.Since(p.quiet) > since
}

// taskKind is the kind of all tasks.
const taskKind = "work"

// An order is what a task, or a program, is to do.
type order struct {
	Beats  int           // how often it does something
	Every  time.Duration // how long it waits before that
	Fails  int           // how many attempts fail
	Panics bool          // in place of failing
	Deaf   bool          // it looks at nothing that it is told
	Kills  bool          // it kills its process, or for a program: it leaves no message of its end
	Bad    bool          // its result cannot be written
	Needs  string        // a thing without which it does nothing; empty: it needs none
}

// handle is the handler of all tasks.
func (p *process) handle(ctx context.Context, t *service.Task[order]) (string, error) {
	o, l := t.Args, p.w.ledger
	run := l.begin(t.Job.ID, t.Job.Epoch, p)
	defer func() {
		if !p.dead() {
			l.end(run)
		}
	}()
	for n := range o.Beats {
		r := p.w.dice("beat/"+t.Job.ID.String(), n+100*int(t.Job.Epoch))
		tick := time.NewTimer(between(r, o.Every/2, o.Every))
		over := ctx.Done()
		if o.Deaf {
			over = nil
		}
		select {
		case <-tick.C:
		case <-over:
		case <-p.death:
		}
		tick.Stop()
		if !p.awake() {
			return "", errDead
		}
		// those that are told to stop together do so one after the other
		time.Sleep(between(r, 1, 100*time.Microsecond))
		if ctx.Err() != nil && !o.Deaf {
			return "", context.Cause(ctx)
		}
		if o.Needs != "" && !p.w.trouble.there(o.Needs) {
			return "", lacks(o.Needs)
		}
		l.beat(run, o.Deaf)
		if o.Kills && n == o.Beats/2 {
			p.die("job " + t.Job.ID.String() + " kills it")
			return "", errDead
		}
	}
	switch {
	case t.Job.Attempt > o.Fails:
		return result(t.Job.Epoch), nil
	case o.Panics:
		panic("the task panics")
	}
	return "", errors.New("the task fails")
}

// result is what a run of a task returns.
func result(epoch int64) string { return fmt.Sprintf("epoch %d", epoch) }
