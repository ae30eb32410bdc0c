package local

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/host"
)

// A census is what is known of the processes of the machine. To list /proc takes milliseconds where there are thousands
// of processes, so that is done now and then. In between only those are looked at that were started since: Linux gives
// pids in a circle and tells which one it gave last. Before it has gone round no pid passes to another process, so who
// was met once need not be read again.
//
// A pid is given before its process can be seen, but only while the one that starts it is alive. So all pids that were
// given since the list are looked at each time, in their order, whether somebody had them or not: who has ended by then
// can have started nobody who comes later and is not there yet. For a family that is older than the list the pids that
// were given shortly before it are looked at too.
type census struct {
	mu     sync.Mutex        // guards what follows
	first  int               // the pid that was given last before the list; 0: there is no list to go on from
	last   int               // the pid that was given last before the newest look
	most   int               // how many may be given until there is a new list
	pids   int               // how many there are
	at     time.Time         // when the newest look began
	forks  uint64            // how many processes and threads had been started since the boot when they were counted last
	others map[int]sight     // by pid: all but those that were met in the session of a child that ran
	young  map[int]time.Time // those of them that may become another program at once: until when they are read again
	inside map[int][]int     // those: their pids, by session; negative of one that has ended
}

// A sight is a process with the marks that it bore when it was met.
type sight struct {
	stat
	marks
}

const (
	fewest = 1024 // how many pids may be given until there is a new list, at the least
	margin = 2048 // how many pids that were given before the list are looked at for a family that is older
	rounds = 50   // how often a look goes on while processes are started all the time
	tries  = 5    // how often members are looked for while one after the other ends

	// soon is a time in which pids cannot go round: the fastest machines start some ten thousand processes in a second.
	soon = 100 * time.Millisecond

	// youth is for how long a process may be what its parent was, and bear the marks that the parent had.
	youth = time.Second

	ticks = 100 // clock ticks of /proc in a second (USER_HZ): it is part of the kernel's interface, and the same on all that Go runs on
)

// scan brings the census up to date.
func (h *Host) scan() error {
	h.census.mu.Lock()
	defer h.census.mu.Unlock()
	return h.census.update(h, h.wide.Swap(false))
}

// update looks at what was started since the list. A wide look is also for families that are older.
func (c *census) update(h *Host, wide bool) error {
	now, last := time.Now(), lastPID()
	if !c.goesOn(now, last) {
		return c.list(h)
	}
	c.grow(now)
	from, n := c.first, c.distance(last)
	if wide {
		from, n = from-margin, n+margin
	}
	for range rounds {
		for i := range n {
			err := c.meet(h, (from+i+c.pids)%c.pids+1)
			if err != nil && !gone(err) {
				c.first = 0
				return err
			}
		}
		c.at, c.last = now, last
		next := lastPID()
		if next == last {
			break
		}
		from, n, last = last, (next-last+c.pids)%c.pids, next
	}
	return nil
}

// grow reads again what bears marks that may have been its parent's.
func (c *census) grow(now time.Time) {
	for pid, until := range c.young {
		s, known := c.others[pid]
		if !known {
			delete(c.young, pid)
			continue
		}
		m := readMarks(pid)
		m.locks, m.launch = cmp.Or(m.locks, s.locks), cmp.Or(m.launch, s.launch)
		s.marks = m
		c.others[pid] = s
		if m.whole && now.After(until) {
			delete(c.young, pid)
		}
	}
}

// goesOn reports whether no pid can have passed to another process since the list.
func (c *census) goesOn(now time.Time, last int) bool {
	if c.first == 0 || last == 0 || c.distance(last) > c.most {
		return false
	}
	if now.Sub(c.at) < soon {
		return true
	}
	forks, before := started(), c.forks
	c.forks = forks
	return before != 0 && forks != 0 && forks-before < uint64(c.pids/2)
}

// distance returns how many pids were given since the list when last was.
func (c *census) distance(last int) int { return (last - c.first + c.pids) % c.pids }

// older reports whether a family may have begun before the list.
func (c *census) older(fs []host.Family) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first != 0 && slices.ContainsFunc(fs, func(f host.Family) bool {
		d := (f.Leader.PID - c.first + c.pids) % c.pids
		return d == 0 || d > c.distance(c.last)
	})
}

// list begins anew with all processes. It lists them until no pid was given meanwhile, or a list holds none that is new.
func (c *census) list(h *Host) error {
	known, now, first := c.others, time.Now(), lastPID()
	c.first, c.forks = 0, started()
	c.pids = max(1, number("/proc/sys/kernel/pid_max"))
	c.others, c.young, c.inside = make(map[int]sight, len(known)), map[int]time.Time{}, map[int][]int{}
	var read []int // in order
	for range rounds {
		before := lastPID()
		pids, err := pids()
		if err != nil {
			return err
		}
		again := false
		for i, pid := range pids {
			if _, is := slices.BinarySearch(read, pid); is {
				continue
			}
			again = true
			if err := c.meetAs(h, pid, known[pid], true); gone(err) {
				pids[i] = 0
			} else if err != nil {
				return err
			}
		}
		if read = append(read, pids...); !again || before != 0 && before == lastPID() {
			break
		}
		slices.Sort(read)
		read = slices.Compact(read)
	}
	c.most = min(max(fewest, 2*len(read)), c.pids/4-margin)
	if first != 0 && c.most > 0 {
		c.first, c.last, c.at = first, first, now
	}
	return nil
}

// meet looks at a pid that was given.
func (c *census) meet(h *Host, pid int) error {
	if _, is := c.others[pid]; is {
		return nil
	}
	return c.meetAs(h, pid, sight{}, false)
}

// meetAs meets a process that may be one that was known before the list. One that is not listed may be a thread.
func (c *census) meetAs(h *Host, pid int, before sight, listed bool) error {
	// A session costs a fiftieth of what /proc/PID/stat costs.
	session, err := unix.Getsid(pid)
	switch {
	case gone(err):
		return err
	case err == nil && session == 0: // a thread of the kernel, or what came into this container from outside
		return nil
	case err == nil && (slices.Contains(c.inside[session], pid) || slices.Contains(c.inside[session], -pid)):
		return nil
	case !listed && errors.Is(unix.Tgkill(pid, pid, 0), unix.ESRCH): // a thread, whose process has another pid
		return nil
	case err == nil && h.leads(session):
		c.inside[session] = append(c.inside[session], pid)
		return nil
	}
	s, err := readStat(pid)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		return err
	case !s.alive():
		return nil
	}
	now := sight{stat: s, marks: before.marks}
	if !before.whole || before.start != s.start || before.session != s.session || before.name != s.name {
		now.marks = readMarks(pid)
	}
	c.others[pid] = now
	if !now.whole || age(s) < youth {
		c.young[pid] = time.Now().Add(youth)
	}
	return nil
}

// age returns how long ago a process was started.
func age(s stat) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano()) - time.Duration(s.start)*(time.Second/ticks)
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
func lastPID() int { return number("/proc/sys/kernel/ns_last_pid") }

// number reads a file of /proc that holds one number; 0: it is not there.
func number(name string) int {
	var room [32]byte
	n, err := readOnce(name, room[:])
	if err != nil {
		return 0
	}
	i, _ := strconv.Atoi(string(bytes.TrimSpace(room[:n])))
	return i
}

// started returns how many processes and threads were started since the boot; 0: it is not told.
func started() uint64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("\nprocesses "))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseUint(string(line), 10, 64)
	return n
}
