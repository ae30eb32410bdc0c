package local

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
)

// tries is how often Members looks again because a member has ended.
const tries = 5

// Members looks through the processes of the machine. Calls that come while a look is under way
// share the next one.
func (h *Host) Members(ctx context.Context, fs []host.Family) (all [][]host.Member, err error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	r := roll{
		boot: boot, families: fs, since: math.MaxUint64,
		leaders: map[int]int{}, locks: map[uint64]int{}, launches: map[string]int{},
	}
	for i, f := range fs {
		if f.Leader.Boot != boot && f.Leader != (host.Process{}) {
			continue // nothing outlives a boot
		}
		r.since = min(r.since, f.Leader.Start)
		if f.Leader.PID > 1 && !taken(f.Leader) {
			r.leaders[f.Leader.PID] = i
		}
		if f.Locks != 0 {
			r.locks[f.Locks] = i
		}
		if f.Launch != "" {
			r.launches[f.Launch] = i
		}
	}
	for round := range tries {
		err := h.looks.begin(ctx)
		var ended bool
		if err == nil {
			// A process that has ended since the look may have started others before, so look
			// again. If processes start others and end all the time, those that were alive just
			// now count.
			all, ended, err = r.call(&h.census, round == tries-1)
		}
		if err != nil {
			return nil, fmt.Errorf("look for processes: %w", err)
		}
		if !ended {
			break
		}
	}
	return all, nil
}

// taken reports whether another process has the pid of a leader. The kernel gives a pid to nobody
// while it names a session, so then the session is gone.
func taken(leader host.Process) bool {
	s, err := readStat(leader.PID)
	return err == nil && s.Start != leader.Start
}

// A roll finds the members of families.
type roll struct {
	boot     string
	families []host.Family
	since    uint64      // when the oldest of their leaders was started
	leaders  map[int]int // what follows are indices of families, by what shows that a process belongs to one
	locks    map[uint64]int
	launches map[string]int
}

// call returns the members that are alive, of each family. With met it also returns those that
// ended just now. ended reports whether one has ended.
func (r *roll) call(c *census, met bool) (all [][]host.Member, ended bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended = c.read(r.since)
	all = make([][]host.Member, len(r.families))
	add := func(s *sight, i int) error {
		leader := r.families[i].Leader
		if s.ended || s.PID == leader.PID && (s.Start == 0 || s.Start == leader.Start) {
			return nil
		}
		m, err := r.member(s.PID, i)
		if err != nil {
			return err
		}
		if m.PID == 0 || s.Start != 0 && m.Start != s.Start {
			if s.ended, ended = true, true; !met {
				return nil
			}
			m = host.Member{
				Process: host.Process{PID: s.PID, Start: cmp.Or(s.Start, leader.Start), Boot: r.boot},
				Parent:  s.Parent, Name: s.Name,
			}
		}
		if m.Start >= leader.Start { // else it is of another session, which had the number before
			all[i] = append(all[i], m)
		}
		return nil
	}
	for s := range c.marked {
		if i, ours := r.bears(s); ours {
			if err := add(s, i); err != nil {
				return nil, false, err
			}
		}
	}
	for session, i := range r.leaders {
		for _, s := range c.sessions[session] {
			if _, other := r.bears(s); !other {
				if err := add(s, i); err != nil {
					return nil, false, err
				}
			}
		}
	}
	for _, members := range all {
		slices.SortFunc(members, func(a, b host.Member) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
		})
	}
	return all, ended, nil
}

// bears returns the family whose marks a process bears.
func (r *roll) bears(s *sight) (i int, ours bool) {
	if i, ours = r.locks[s.locks]; !ours && s.launch != "" {
		i, ours = r.launches[s.launch]
	}
	return i, ours
}

// member returns a process as it is now, as a member of family i. Its PID is 0 if the process is
// dead.
func (r *roll) member(pid, i int) (m host.Member, err error) {
	s, err := readStat(pid)
	switch {
	case gone(err) || err == nil && !s.Alive():
		return m, nil
	case err != nil:
		return m, err
	}
	now := readMarks(pid)
	return host.Member{
		Process: host.Process{PID: pid, Start: s.Start, Boot: r.boot}, Parent: s.Parent, Name: s.Name,
		User: ownerOf(pid), State: s.State,
		Numbered: now.locks != 0 && now.locks == r.families[i].Locks, Kept: now.keep,
	}, nil
}

// marks show to which family a process belongs, beside its session.
type marks struct {
	whole  bool   // its environment was there: it is not while a process becomes another program
	locks  uint64 // its limit of file locks; 0 if there is none
	launch string // its LaunchVariable
	keep   bool   // its KeepVariable
}

// environment is how many bytes of an environment are read. Linux takes at most 6 MiB with the
// arguments (execve(2)).
const environment = 8 << 20

// readMarks reads the marks of a process. It takes a mark that it may not read for missing.
func readMarks(pid int) marks {
	var m marks
	var room [2048]byte
	dir := "/proc/" + strconv.Itoa(pid)
	if n, err := readOnce(dir+"/limits", room[:]); err == nil {
		m.locks = procfs.LockLimit(room[:n])
	}
	env, whole := environOf(pid)
	m.whole = whole
	m.launch, m.keep = procfs.Marks(env)
	return m
}

// A process that becomes another program has no environment for a moment. That is waited for,
// becoming at a time, so many times.
const (
	becoming = 200 * time.Microsecond
	becomes  = 50
)

// environOf reads the environment with which a process was started, and reports whether it is
// whole. What may not be read is empty. It is whole if the process was the same program before and
// after.
func environOf(pid int) (env []byte, whole bool) {
	before, err := readStat(pid)
	if err != nil {
		return nil, true
	}
	for range becomes {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			return nil, true
		}
		env, _ = io.ReadAll(io.LimitReader(f, environment)) // it may be gone by now
		f.Close()
		now, err := readStat(pid)
		if err != nil || !now.Alive() || now.Image != 0 && now.Image == before.Image {
			return env, true
		}
		if before = now; now.Image == 0 {
			<-time.After(becoming) // too short for a context to end it
		}
	}
	return env, false
}

// ownerOf returns the name of a process's user, or the number if the user has no name. It is "" if
// the process is gone.
func ownerOf(pid int) string {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(st.Uid), 10)
	if name, is := users.Load(id); is {
		return name.(string)
	}
	name := id
	if u, err := user.LookupId(id); err == nil {
		name = u.Username
	}
	users.Store(id, name)
	return name
}

// users are the names of users by their numbers. To look one up reads all of /etc/passwd.
var users sync.Map
