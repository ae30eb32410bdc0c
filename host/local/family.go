package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/pawl-jobs/pawl/host"
)

// Members looks through the processes of the machine. Calls that come while another looks share the next look.
func (h *Host) Members(ctx context.Context, fs []host.Family) (all [][]host.Member, err error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	r := roll{boot: boot, families: fs, leaders: map[int]int{}, locks: map[uint64]int{}, launches: map[string]int{}}
	for i, f := range fs {
		if f.Leader.Boot != boot && f.Leader != (host.Process{}) {
			continue // nothing outlives a boot
		}
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
		if h.census.older(fs) {
			h.wide.Store(true)
		}
		err := h.looks.begin(ctx)
		var ended bool
		if err == nil {
			// Who has ended since the look may have started others before, so there is another look. A program that starts
			// others and ends all the time gives no rest: then who was alive just now counts.
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

// taken reports whether another process has the pid of a leader. The kernel gives a pid to nobody while it names a
// session, so then the session is gone.
func taken(leader host.Process) bool {
	s, err := readStat(leader.PID)
	return err == nil && s.start != leader.Start
}

// A roll finds the members of families.
type roll struct {
	boot     string
	families []host.Family
	leaders  map[int]int // what follows are indices of families, by what shows that a process belongs to one
	locks    map[uint64]int
	launches map[string]int
}

// call returns who is alive of each family, or was when it was met. It also says whether a member has ended, and forgets it.
func (r *roll) call(c *census, met bool) (all [][]host.Member, ended bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = make([][]host.Member, len(r.families))
	for pid, known := range c.others {
		i, ours := r.locks[known.locks]
		if !ours && known.launch != "" {
			i, ours = r.launches[known.launch]
		}
		if !ours {
			i, ours = r.leaders[known.session]
		}
		if !ours {
			continue
		}
		m, err := r.member(pid, i)
		if err != nil {
			return nil, false, err
		}
		if m.PID == 0 || m.Start != known.start {
			delete(c.others, pid)
			if ended = true; !met {
				continue
			}
			m = host.Member{Process: host.Process{PID: pid, Start: known.start, Boot: r.boot}, Parent: known.parent, Name: known.name}
		}
		all[i] = append(all[i], m)
	}
	for session, i := range r.leaders {
		pids := c.inside[session]
		for n, pid := range pids {
			if pid < 0 {
				continue
			}
			m, err := r.member(pid, i)
			if err != nil {
				return nil, false, err
			}
			if m.PID == 0 {
				pids[n], ended = -pid, true // it may stay for long, as a zombie
				if !met {
					continue
				}
				m = host.Member{Process: host.Process{PID: pid, Start: r.families[i].Leader.Start, Boot: r.boot}}
			}
			all[i] = append(all[i], m)
		}
	}
	for i := range all {
		leader := r.families[i].Leader
		all[i] = slices.DeleteFunc(all[i], func(m host.Member) bool {
			return m.PID == leader.PID && m.Start == leader.Start || m.Start < leader.Start && !m.Numbered
		})
	}
	return all, ended, nil
}

// member returns a process as a member of a family, as it is now; one without a pid if it is not alive.
func (r *roll) member(pid, i int) (m host.Member, err error) {
	s, err := readStat(pid)
	switch {
	case gone(err) || err == nil && !s.alive():
		return m, nil
	case err != nil:
		return m, err
	}
	now := readMarks(pid)
	return host.Member{
		Process: host.Process{PID: pid, Start: s.start, Boot: r.boot}, Parent: s.parent, Name: s.name, User: ownerOf(pid), State: s.state,
		Numbered: now.locks != 0 && now.locks == r.families[i].Locks, Kept: now.keep,
	}, nil
}

// marks are what shows to which family a process belongs, beside its session.
type marks struct {
	whole  bool   // its environment was there: it is not while a process becomes another program
	locks  uint64 // its limit of file locks; 0 if there is none
	launch string // its LaunchVariable
	keep   bool   // its KeepVariable
}

// environment is how much is read of an environment, in bytes. Linux takes no more than 6 MiB with arguments (execve(2)).
const environment = 8 << 20

// readMarks reads the marks of a process. What may not be read is not there.
func readMarks(pid int) marks {
	var m marks
	var room [2048]byte
	dir := "/proc/" + strconv.Itoa(pid)
	if n, err := readOnce(dir+"/limits", room[:]); err == nil {
		m.locks = lockLimit(room[:n])
	}
	f, err := os.Open(dir + "/environ")
	if err != nil {
		m.whole = true // nobody lets this account read it
		return m
	}
	defer f.Close()
	env, _ := io.ReadAll(io.LimitReader(f, environment)) // it may be gone by now
	m.whole = len(env) > 0
	for v := range bytes.SplitSeq(env, []byte{0}) {
		name, value, _ := bytes.Cut(v, []byte("="))
		switch string(name) {
		case host.LaunchVariable:
			m.launch = string(value)
		case host.KeepVariable:
			m.keep = string(value) == "1"
		}
	}
	return m
}

// lockLimit reads the hard limit of file locks out of /proc/PID/limits; 0: there is none.
func lockLimit(limits []byte) uint64 {
	_, rest, _ := bytes.Cut(limits, []byte("Max file locks"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil { // "unlimited"
		return 0
	}
	return n
}

// ownerOf returns the name of the user whose a process is, the number where there is no name, "" if it is gone.
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
