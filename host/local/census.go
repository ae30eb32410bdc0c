package local

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host/internal/procfs"
)

// A census is what is known of the processes of the machine. Linux hands out pids in a circle,
// skips those in use, and tells which one it handed out last. So a process that was read once need
// not be read again until its pid may belong to another one, and only pids that were handed out
// since the last list can be new. Where these are fewer than all processes, a look goes through
// them and makes no new list.
//
// A pid is handed out before its process can be seen, but only while its parent is alive. So each
// look goes through all pids since the list, and some before it, whether they are in use or not: a
// parent that has ended by then has no child that is still to come.
type census struct {
	mu    sync.Mutex // guards what follows
	pids  int        // how many there are
	first int        // the last pid before the newest list; 0: no look can go on from there
	last  int        // the last pid before the newest look
	at    time.Time  // when that look began
	forks uint64     // how many tasks had been started since the boot when they were counted last

	known    map[int]*sight   // by pid
	doubted  map[int]*sight   // those that were known and whose pids may have passed on
	sessions map[int][]*sight // the known ones, by the session in which they were seen
	unread   map[*sight]bool  // of them, those whose marks were not read yet
	marked   map[*sight]bool  // those that bear marks
}

// A sight is a process as it was when it was first seen. For a process in the session of a running
// child only pid and session are known.
type sight struct {
	procfs.Stat
	marks
	ended bool
}

const (
	margin = 2048 // how many pids before the list a look goes through besides
	rounds = 50   // how often a look goes on while processes are started all the time

	// fastest is how many processes and threads a machine can start in a second: more than any of
	// today's.
	fastest = 300_000

	// youth is for how long a process may live and be gone before anybody asks for its marks.
	youth = time.Second

	// ticks is how many clock ticks of /proc make a second (USER_HZ). The kernel's interface fixes
	// it.
	ticks = 100
)

// scan brings the census up to date.
func (h *Host) scan() error {
	h.census.mu.Lock()
	defer h.census.mu.Unlock()
	return h.census.look(h, time.Now(), lastPID())
}

func (c *census) look(h *Host, now time.Time, last int) error {
	list, first := true, last
	if c.goesOn(now, last) {
		if c.distance(last)+margin < len(c.known) {
			list, first = false, c.first
		}
		c.doubt(c.last, last)
	} else { // nobody is known any more
		c.pids, c.forks = max(1, maxPID()), started()
		c.doubted = c.known
		c.known, c.sessions = map[int]*sight{}, map[int][]*sight{}
		c.unread, c.marked = map[*sight]bool{}, map[*sight]bool{}
	}
	c.first = 0
	for from, round := first-margin, 0; round < rounds; round++ {
		fresh, err := true, error(nil)
		if list {
			fresh, err = c.list(h)
		} else {
			err = c.follow(h, from, last)
		}
		if err != nil {
			return err
		}
		next := lastPID()
		if !fresh || next != 0 && next == last {
			break
		}
		c.doubt(last, next)
		from, last = last, next
	}
	c.doubted = nil
	c.first, c.last, c.at = first, last, now
	return nil
}

// goesOn reports whether the pids cannot have gone round since the list.
func (c *census) goesOn(now time.Time, last int) bool {
	half := c.pids / 2
	if c.first == 0 || last == 0 || last > c.pids || c.distance(last) >= half {
		return false
	}
	if now.Sub(c.at) < time.Duration(half)*time.Second/fastest {
		return true
	}
	before := c.forks
	c.forks = started()
	return before != 0 && c.forks-before < uint64(half)
}

// distance returns how many pids were given since the list when last was.
func (c *census) distance(last int) int { return (last - c.first + c.pids) % c.pids }

// given goes through the pids that were given after from, up to last.
func (c *census) given(from, last int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range (last - from + 2*c.pids) % c.pids {
			if !yield((from+i+c.pids)%c.pids + 1) {
				return
			}
		}
	}
}

// doubt marks the sights whose pids or sessions may belong to others by now, so that they are read
// again.
func (c *census) doubt(from, last int) {
	if c.doubted == nil {
		c.doubted = map[int]*sight{}
	}
	for pid := range c.given(from, last) {
		if s := c.known[pid]; s != nil {
			c.forget(s)
			c.doubted[pid] = s
		}
		for _, s := range slices.Clone(c.sessions[pid]) { // they have left it, or another could not have its number
			c.forget(s)
			c.doubted[s.PID] = s
		}
	}
}

// follow looks at pids that were given.
func (c *census) follow(h *Host, from, last int) error {
	for pid := range c.given(from, last) {
		if c.known[pid] != nil || errors.Is(unix.Tgkill(pid, pid, 0), unix.ESRCH) { // nobody has it, or a thread
			continue
		}
		if err := c.meet(h, pid); err != nil {
			return err
		}
	}
	return nil
}

// list lists all processes, and reports whether there were new ones.
func (c *census) list(h *Host) (fresh bool, err error) {
	pids, err := pids()
	if err != nil {
		return false, err
	}
	there := make(map[int]bool, len(pids))
	for _, pid := range pids {
		there[pid] = true
		if c.known[pid] != nil {
			continue
		}
		fresh = true
		if err := c.meet(h, pid); err != nil {
			return fresh, err
		}
	}
	for pid, s := range c.known {
		if !there[pid] {
			c.forget(s)
		}
	}
	return fresh, nil
}

// meet looks at a process that is not known.
func (c *census) meet(h *Host, pid int) error {
	s, err := c.sight(h, pid)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.known[pid] = s
	c.sessions[s.Session] = append(c.sessions[s.Session], s)
	return nil
}

func (c *census) sight(h *Host, pid int) (*sight, error) {
	// A session costs a fiftieth of what /proc/PID/stat costs.
	session, err := unix.Getsid(pid)
	s := &sight{Stat: procfs.Stat{PID: pid, Session: session}}
	switch {
	case gone(err):
		return nil, err
	case err == nil && session == 0: // a thread of the kernel, or what came into this container from outside
		return s, nil
	case err == nil && h.leads(session):
		return s, nil
	}
	st, err := readStat(pid)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return s, nil
	case err != nil:
		return nil, err
	}
	s.Stat, s.ended = st, !st.Alive()
	if d := c.doubted[pid]; d != nil && d.whole && d.Start == s.Start && d.Session == s.Session && d.Name == s.Name {
		c.mark(s, d.marks)
	} else if age(st) < youth { // it may be gone soon
		c.learn(s)
	} else {
		c.unread[s] = true
	}
	return s, nil
}

// learn reads the marks of a process. If it is just becoming another program, it is read again
// later.
func (c *census) learn(s *sight) {
	if c.mark(s, readMarks(s.PID)); s.whole {
		delete(c.unread, s)
	} else {
		c.unread[s] = true
	}
}

// read reads the marks of the processes that were started since a time, in ticks since the boot. An
// older process is in no family. It reports whether one of them is gone, which may have been a
// member.
func (c *census) read(since uint64) (gone bool) {
	for s := range c.unread {
		if s.Start < since || s.ended {
			continue
		}
		c.learn(s)
		if now, err := readStat(s.PID); err != nil || now.Start != s.Start || !now.Alive() {
			s.ended, gone = true, true
		}
	}
	return gone
}

// mark gives a process its marks. It keeps the number and the launch that it had.
func (c *census) mark(s *sight, m marks) {
	m.locks, m.launch = cmp.Or(m.locks, s.locks), cmp.Or(m.launch, s.launch)
	if s.marks = m; m.locks != 0 || m.launch != "" {
		c.marked[s] = true
	}
}

func (c *census) forget(s *sight) {
	delete(c.known, s.PID)
	delete(c.unread, s)
	delete(c.marked, s)
	rest := slices.DeleteFunc(c.sessions[s.Session], func(other *sight) bool { return other == s })
	if c.sessions[s.Session] = rest; len(rest) == 0 {
		delete(c.sessions, s.Session)
	}
}

// age returns how long ago a process was started.
func age(s procfs.Stat) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano()) - time.Duration(s.Start)*(time.Second/ticks)
}

// leads reports whether a session is the one of a child that runs.
func (h *Host) leads(session int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, is := h.children[session]
	return is
}

// pids lists the processes of the machine that the own account can see.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// lastPID returns the pid that was given last in this container; 0: it is not told.
func lastPID() int {
	var room [32]byte
	n, _ := strconv.Atoi(string(bytes.TrimSpace(lastGiven.read(room[:]))))
	return n
}

// maxPID returns how many pids there are; 0: it is not told.
func maxPID() int {
	var room [32]byte
	n, _ := strconv.Atoi(string(bytes.TrimSpace(pidMax.read(room[:]))))
	return n
}

// started returns how many processes and threads were started since the boot; 0: it is not told.
func started() uint64 {
	for _, size := range []int{4 << 10, 1 << 20} { // a line of it has a number for each interrupt of the machine
		_, rest, _ := bytes.Cut(stat.read(make([]byte, size)), []byte("\nprocesses "))
		if line, _, whole := bytes.Cut(rest, []byte("\n")); whole {
			n, _ := strconv.ParseUint(string(line), 10, 64)
			return n
		}
	}
	return 0
}

var (
	lastGiven = counter{name: "/proc/sys/kernel/ns_last_pid"}
	pidMax    = counter{name: "/proc/sys/kernel/pid_max"}
	stat      = counter{name: "/proc/stat"}
)

// A counter is a file of /proc that is read again and again. It stays open, because to open it
// costs more than to read it.
type counter struct {
	name string
	once sync.Once
	fd   int
}

// read reads the file into b, as far as there is room; nothing: it is not told.
func (c *counter) read(b []byte) []byte {
	c.once.Do(func() {
		var err error
		c.fd, err = again(func() (int, error) { return unix.Open(c.name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
		if err != nil {
			c.fd = -1
		}
	})
	n, err := again(func() (int, error) { return unix.Pread(c.fd, b, 0) })
	if err != nil {
		return nil
	}
	return b[:n]
}
