package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/pawl-jobs/pawl/host"
)

// Members looks through the processes of the machine. Calls that come while another looks share the next look.
func (h *Host) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	look, err := h.looks.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	leaders, locks, launches := map[int]int{}, map[uint64]int{}, map[string]int{}
	for i, f := range fs {
		if f.Leader.Boot != boot && f.Leader != (host.Process{}) {
			continue // nothing outlives a boot
		}
		if f.Leader.PID > 1 {
			leaders[f.Leader.PID] = i
		}
		if f.Locks != 0 {
			locks[f.Locks] = i
		}
		if f.Launch != "" {
			launches[f.Launch] = i
		}
	}
	// The kernel gives a pid to nobody while it names a session: another process that has it shows that the session is gone.
	for _, s := range look {
		if i, ok := leaders[s.pid]; ok && s.start != fs[i].Leader.Start {
			delete(leaders, s.pid)
		}
	}
	all := make([][]host.Member, len(fs))
	for _, s := range look {
		i, ours := locks[s.locks]
		if !ours && s.launch != "" {
			i, ours = launches[s.launch]
		}
		if !ours {
			if i, ours = leaders[s.session]; ours && s.start < fs[i].Leader.Start {
				continue // of another session, which had the number before
			}
		}
		if !ours || s.pid == fs[i].Leader.PID && s.start == fs[i].Leader.Start {
			continue
		}
		m := host.Member{
			Process: host.Process{PID: s.pid, Start: s.start, Boot: boot}, Parent: s.parent, Name: s.name, User: ownerOf(s.pid), State: s.state,
		}
		now := s.marks
		if !now.read { // nobody asked for them: its session was enough
			now = readMarks(s.pid)
		}
		m.Numbered, m.Kept = now.locks != 0 && now.locks == fs[i].Locks, now.keep
		all[i] = append(all[i], m)
	}
	return all, nil
}

// marks are what shows to which family a process belongs, beside its session.
type marks struct {
	read   bool
	whole  bool   // its environment was there: it is not while a process becomes another program
	locks  uint64 // its limit of file locks; 0 if there is none
	launch string // its LaunchVariable
	keep   bool   // its KeepVariable
}

// A bearer is a process whose marks were read. They are read anew when it went to another session, for it gets its
// number while it is in its wrapper's, and when it became another program, which may have another environment.
type bearer struct {
	start   uint64
	session int
	name    string
	marks
}

// marksOf returns the marks of a process that a look has met. Those of the present session of a child that runs are not
// read: they are known by their session. Only scan calls it, one at a time.
func (h *Host) marksOf(s stat, known map[int]bearer) marks {
	if s.kernel {
		return marks{}
	}
	h.mu.Lock()
	_, ours := h.children[s.session]
	h.mu.Unlock()
	if ours {
		return marks{}
	}
	b, ok := known[s.pid]
	if !ok || b.start != s.start || b.session != s.session || b.name != s.name {
		b = bearer{s.start, s.session, s.name, readMarks(s.pid)}
	}
	if b.whole {
		h.marked[s.pid] = b
	}
	return b.marks
}

// environment is how much is read of an environment, in bytes. Linux takes no more than 6 MiB with arguments (execve(2)).
const environment = 8 << 20

// readMarks reads the marks of a process. What may not be read is not there.
func readMarks(pid int) marks {
	m := marks{read: true}
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
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
