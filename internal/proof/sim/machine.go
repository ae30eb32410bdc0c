package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	filesfake "github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// spool is where ends appear on each machine, and rooms where there is room for them: until their
// job's folder goes.
const (
	spool = "/spool"
	rooms = spool + "/.rooms"
)

// A machine is a host in memory. The one program that it can start is the wrapper of
// runner/process, whose script it reads as far as it has to; what the wrapper starts does what the
// job's order says.
type machine struct {
	w  *world
	id string
	fs *filesfake.FS

	mu      sync.Mutex
	boot    int                    // guarded by mu: how often it was booted
	booted  time.Time              // guarded by mu
	pid     int                    // guarded by mu: the newest
	procs   map[host.Process]*proc // guarded by mu: those that are alive
	watches []watch                // guarded by mu: in the order in which they began
	here    []*process             // guarded by mu: of the service
	doubt   map[job.ID]bool        // guarded by mu: nobody can tell what has become of their programs
}

// A watch is one that the machine keeps for somebody.
type watch struct {
	dir    string
	events chan host.Event
}

// A proc is a wrapper with its program.
type proc struct {
	host.Process
	job     job.ID
	runs    bool                // guarded by the machine's mu: its program does, and gets its signals
	signals chan syscall.Signal // closed when the wrapper is killed
	parent  []*process          // that hear of its death
}

var _ host.Host = (*machine)(nil)

func (w *world) newMachine(n int) *machine {
	m := &machine{
		w: w, id: fmt.Sprintf("m%d", n), fs: filesfake.New(), booted: time.Now(), procs: map[host.Process]*proc{},
		doubt: map[job.ID]bool{},
	}
	for _, dir := range []string{"/work", "/archive", spool} {
		if err := m.fs.Mkdir(context.Background(), dir); err != nil {
			panic(err) // it is empty
		}
	}
	return m
}

// adopt and forget tell who hears of children that die.
func (m *machine) adopt(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here = append(m.here, p)
}

func (m *machine) forget(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here = slices.DeleteFunc(m.here, func(o *process) bool { return o == p })
}

// reboot kills all that runs on the machine.
func (m *machine) reboot() {
	m.mu.Lock()
	m.boot++
	m.booted = time.Now()
	here, procs := slices.Clone(m.here), m.procs
	m.procs = map[host.Process]*proc{}
	m.mu.Unlock()
	m.w.note(m.id, "boots anew")
	for _, p := range here {
		p.die("its machine boots anew")
	}
	for _, c := range slices.SortedFunc(maps.Values(procs), func(a, b *proc) int { return a.PID - b.PID }) {
		close(c.signals)
	}
}

// mischief does something to what the machine tells of programs.
func (m *machine) mischief(r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r.IntN(2) {
	case 0:
		for _, w := range m.watches {
			select {
			case w.events <- host.Event{Overflow: true}:
			default:
			}
		}
	case 1:
		for _, o := range m.w.known() {
			if oneIn(r, 4) {
				m.doubt[o] = true
			}
		}
		m.w.note(m.id, "cannot tell of %d programs", len(m.doubt))
		time.AfterFunc(between(r, time.Second, time.Minute), func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			clear(m.doubt)
		})
	}
}

// drops reports whether watches keep silent about a name: at times about the first message of an
// end, which is found otherwise.
func (m *machine) drops(name string) bool {
	return !m.w.calm && oneIn(m.w.dice("drops/"+m.id+name, 0), 5)
}

// lying is a runner that cannot tell of some programs.
type lying struct {
	runner.Runner
	m *machine
}

func (l lying) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	all, err := l.Runner.Probe(ctx, hs)
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	for i := range all {
		if l.m.doubt[hs[i].Key.Job] {
			all[i] = runner.Status{State: runner.Unknown}
		}
	}
	return all, err
}

// ID implements [host.Host].
func (m *machine) ID() string { return m.id }

// Files implements [host.Host].
func (m *machine) Files() files.FS { return watched{m.fs, m} }

// Boot implements [host.Host].
func (m *machine) Boot(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID(), nil
}

// Machine implements [host.Host].
func (m *machine) Machine(context.Context) (string, error) { return m.id, nil }

// bootID is called with mu held.
func (m *machine) bootID() string { return fmt.Sprintf("boot-%s-%d", m.id, m.boot) }

// Uptime implements [host.Host].
func (m *machine) Uptime(context.Context) (time.Duration, error) { return m.uptime(), nil }

func (m *machine) uptime() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.booted)
}

// Environ implements [host.Host].
func (m *machine) Environ(context.Context) ([]string, error) { return nil, nil }

// Alive implements [host.Host].
func (m *machine) Alive(_ context.Context, ps []host.Process) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	alive := make([]bool, len(ps))
	for i, p := range ps {
		alive[i] = m.procs[p] != nil
	}
	return alive, nil
}

// Members implements [host.Host]: a program that runs is a member of its wrapper's family.
func (m *machine) Members(_ context.Context, fs []host.Family) ([][]host.Member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([][]host.Member, len(fs))
	for i, f := range fs {
		if p := m.procs[f.Leader]; p != nil && p.runs {
			all[i] = []host.Member{{
				Process: program(f.Leader), Parent: f.Leader.PID, Name: "program", State: 'S',
				Numbered: true,
			}}
		}
	}
	return all, nil
}

// program is the process of a wrapper's program.
func program(wrapper host.Process) host.Process {
	wrapper.PID += programs
	return wrapper
}

// programs is by how much the pid of a program is above that of its wrapper.
const programs = 1 << 24

// Signal implements [host.Host].
func (m *machine) Signal(_ context.Context, ps []host.Process, sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range ps {
		wrapper := p
		if p.PID > programs {
			wrapper.PID -= programs
		}
		c := m.procs[wrapper]
		switch {
		case c == nil:
		case wrapper != p && c.runs:
			c.signals <- sig // there is room for as many as anybody sends
		case wrapper == p && sig == syscall.SIGKILL:
			delete(m.procs, p)
			close(c.signals)
		case wrapper == p && !c.runs:
			c.signals <- sig
		}
	}
	return nil
}

// LockLimit implements [host.Host].
func (m *machine) LockLimit(context.Context) (uint64, error) { return 1 << 62, nil }

// Watch implements [host.Host].
func (m *machine) Watch(ctx context.Context, dir string) (<-chan host.Event, error) {
	w := watch{dir, make(chan host.Event, 1000)}
	m.mu.Lock()
	m.watches = append(m.watches, w)
	m.mu.Unlock()
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watches = slices.DeleteFunc(m.watches, func(o watch) bool { return o == w })
		close(w.events)
	})
	return w.events, nil
}

// appeared tells the watches of a name, twice.
func (m *machine) appeared(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watches {
		if w.dir == path.Dir(name) {
			w.events <- host.Event{Name: path.Base(name)}
			w.events <- host.Event{Name: path.Base(name)}
		}
	}
}

// Start implements [host.Host].
func (m *machine) Start(ctx context.Context, c host.Command) (host.Process, error) {
	script, err := files.ReadFile(ctx, m.fs, path.Join(c.Dir, c.Argv[1]), 1<<20)
	if err != nil {
		return host.Process{}, err
	}
	said := map[string]string{} // what the script says first
	for l := range strings.Lines(string(script)) {
		if name, v, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "="); ok && said[name] == "" {
			said[name] = v
		}
	}
	k, _, err := runner.ParseEndName(said["name"])
	if err != nil {
		panic(err) // the script is another one now
	}
	m.mu.Lock()
	m.pid++
	p := &proc{
		Process: host.Process{
			PID: m.pid, Start: uint64(time.Since(m.booted) / (10 * time.Millisecond)),
			Boot: m.bootID(),
		},
		job: k.Job, signals: make(chan syscall.Signal, 1<<12), parent: slices.Clone(m.here),
	}
	m.procs[p.Process] = p
	m.mu.Unlock()
	go m.wrapper(p, k, c.Dir, said)
	return p.Process, nil
}

// wrapper does what the script of a launch does.
func (m *machine) wrapper(p *proc, k runner.Key, dir string, said map[string]string) {
	defer m.gone(p)
	r := m.w.dice(fmt.Sprint("wrapper/", k), 0)
	if m.sleep(p, between(r, time.Millisecond, 100*time.Millisecond)) != 0 {
		return
	}
	own := path.Join(dir, runner.Folder)
	me := fmt.Sprintf("taken %s %s %d %d %s\n", said["token"], p.Boot, p.PID, p.Start, said["locks"])
	take, taken := path.Join(own, "take."+said["at"]+"."+said["token"]), path.Join(own, "taken."+said["at"])
	if m.put(take, me) != nil {
		return
	}
	// It creates the name, and could be frozen before it writes what the name holds: so that is not
	// read.
	empty := take + ".empty"
	if m.put(empty, "") != nil {
		return
	}
	if m.fs.Link(context.Background(), empty, taken) != nil {
		return
	}
	room, name := path.Join(rooms, said["name"]), path.Join(spool, said["name"])
	if m.put(room, me+" ") != nil {
		return
	}
	began := m.uptime()
	m.w.ledger.launched(k, m)
	m.runs(p, true)
	code, told := m.program(p, k, dir)
	m.runs(p, false)
	m.w.ledger.over(k)
	if !told {
		return
	}
	signal := ""
	if code > 128 {
		signal = "signal\n"
	}
	end := fmt.Sprintf("%scode %d\nbegan %.2f\nended %.2f\nbooted %s\n0m0.00s 0m0.00s\n0m0.00s 0m0.00s\n%send\n",
		me, code, began.Seconds(), m.uptime().Seconds(), said["booted"], signal)
	if m.put(room, end) != nil {
		return
	}
	if m.sleep(p, between(r, 0, 20*time.Millisecond)) != 0 {
		return
	}
	if m.put(name, end[:r.IntN(len(end))]) != nil {
		return
	}
	m.w.note(m.id, "tells the end of %s: %d", k, code)
	if !m.drops(said["name"]) {
		m.appeared(name)
	}
	if m.sleep(p, between(r, 0, 20*time.Millisecond)) != 0 {
		return
	}
	_ = m.put(name, end)
	if !m.w.calm && oneIn(r, 10) { // and once more, when it was taken in
		d := between(r, time.Second, 30*time.Second)
		time.AfterFunc(d, func() {
			_ = m.put(name, end)
			m.appeared(name)
		})
	}
	m.sleep(p, between(r, 0, 300*time.Millisecond))
}

// runs says whether a wrapper's program does.
func (m *machine) runs(p *proc, runs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.runs = runs
}

// gone takes a process out, and tells the process of the service that started it.
func (m *machine) gone(p *proc) {
	m.mu.Lock()
	delete(m.procs, p.Process)
	m.mu.Unlock()
	for _, s := range p.parent {
		if !s.dead() {
			s.launcher.Exited(p.Process)
		}
	}
}

// program does what an order says. told says that it ended by itself, or for a signal that its
// wrapper outlived.
func (m *machine) program(p *proc, k runner.Key, dir string) (code int, told bool) {
	o := m.w.order(k.Job)
	for n := range o.Beats {
		r := m.w.dice("beat/"+k.String(), n)
		if sig := m.sleep(p, between(r, o.Every/2, o.Every), o.Deaf); sig != 0 {
			return 128 + int(sig), sig != gone
		}
		m.w.ledger.ran(k)
		if o.Kills && n == o.Beats/2 {
			return 0, false
		}
	}
	if m.put(path.Join(dir, "stdout"), fmt.Sprintln(k)) != nil {
		return 1, true
	}
	if k.Attempt <= o.Fails {
		return 3, true
	}
	return 0, true
}

// gone is what sleep returns of a process whose wrapper is dead.
const gone = syscall.Signal(-1)

// sleep lets a process wait, and returns the signal that ends it meanwhile. A deaf one does not
// listen to SIGTERM.
func (m *machine) sleep(p *proc, d time.Duration, deaf ...bool) syscall.Signal {
	stopped := false
	for until := time.Now().Add(d); ; {
		var tick <-chan time.Time
		if !stopped {
			tick = time.After(time.Until(until))
		}
		select {
		case <-tick:
			return 0
		case sig, ok := <-p.signals:
			switch {
			case !ok:
				return gone
			case sig == syscall.SIGKILL:
				return sig
			case sig == syscall.SIGTERM && !slices.Contains(deaf, true):
				time.Sleep(time.Until(time.Now().Add(700 * time.Millisecond))) // it takes a moment to go
				return sig
			case sig == syscall.SIGSTOP:
				stopped = true
			case sig == syscall.SIGCONT:
				stopped = false
			}
		}
	}
}

func (m *machine) put(name, text string) error {
	if _, err := m.fs.Stat(context.Background(), path.Dir(name)); err != nil {
		return err
	}
	return m.fs.Put(context.Background(), name, bytes.NewReader([]byte(text)), files.PutOptions{})
}

// watched is a file system of which watches are told. It sees to it that the message of an end is
// kept while it may be needed.
type watched struct {
	files.FS
	m *machine
}

func (f watched) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	err := f.FS.Put(ctx, name, r, o)
	if err == nil {
		f.m.appeared(name)
	}
	return err
}

func (f watched) Remove(ctx context.Context, name string) error {
	if k, _, err := runner.ParseEndName(path.Base(name)); err == nil && path.Dir(name) == spool {
		j, there := f.m.w.judge.rows(k.Job)[k.Job]
		if _, told := f.FS.Stat(ctx, name); told == nil && there && j.Live && j.Launch == k.Launch &&
			j.Attempt == k.Attempt {
			f.m.w.breaks(k.Job, "the message of the end of %s is removed, and the database does not know of it", k)
		}
	}
	return f.FS.Remove(ctx, name)
}
