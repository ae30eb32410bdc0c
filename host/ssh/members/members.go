// Package members finds the processes of families on a machine: a shell there reads /proc.
package members

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
	"github.com/pawl-jobs/pawl/host/ssh/script"
	"github.com/pawl-jobs/pawl/job"
)

// A Machine runs scripts of a shell. It has what that shell has learned.
type Machine struct {
	Tell      func(ctx context.Context, script string) (string, error)
	Boot      string
	UID, User string // of the account
	Locks     uint64 // the account's limit of file locks; 0: there is none
}

// A Census remembers the marks of processes: those of a program stay as they are. Its methods are
// safe for concurrent use.
type Census struct {
	mu   sync.Mutex // guards what follows
	boot string
	of   map[int]sight
}

// A sight is a process, with its marks.
type sight struct {
	procfs.Stat
	uid    string
	locks  uint64
	met    bool // it was alive after the look before the last one, and has ended
	turns  bool // it is about to become another program: its environment was not read
	launch string
	keep   bool
}

const (
	fewLooks = 3    // after so many looks it is enough that each family has somebody
	patience = 6    // after so many, what ended unread may be a stranger
	maxLooks = 50   // how often a look goes on because a process was not read
	births   = 16   // how many processes are awaited by each look after the first few
	perLook  = 1000 // how many processes a request reads whole
	behind   = 8    // a process gets its number a moment before it is in the list
)

// Find reads the stat files of all processes, and the marks of those that it does not know. Then it
// reads those that have started meanwhile. A process that ends before it is read may have started
// another, so Find looks again until it has read all that a look has listed.
func (c *Census) Find(ctx context.Context, m Machine, fs []host.Family) ([][]host.Member, error) {
	if len(fs) == 0 {
		return nil, nil
	}
	s := search{Machine: m, census: c, families: fs, since: math.MaxUint64, related: procfs.Related(fs, m.Locks)}
	for _, family := range fs {
		if family.Leader.Boot == m.Boot || family.Leader == (host.Process{}) {
			s.since = min(s.since, family.Leader.Start)
		}
	}
	err := s.all(ctx)
	if err == nil && s.moved && s.missing() {
		// On a busy machine a process may get its number long before it is in the list. Whoever
		// started it was in the list then, and has ended unread.
		err = s.all(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	return s.roll(), nil
}

// A search looks for the members of families.
type search struct {
	Machine
	census   *Census
	families []host.Family
	since    uint64                               // when the oldest of their leaders was started
	related  func(session int, locks uint64) bool // see [procfs.Related]
	seen     map[int]sight                        // those that have started since
	moved    bool                                 // a process has ended before it was read
}

// found returns the numbers of all members.
func (s *search) found() (pids []int) {
	for _, ms := range s.roll() {
		for _, m := range ms {
			pids = append(pids, m.PID)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// missing reports whether a family has nobody.
func (s *search) missing() bool {
	return slices.ContainsFunc(s.roll(), func(ms []host.Member) bool { return len(ms) == 0 })
}

// roll sorts processes into families. One that bears the marks of a family is of that family, and
// otherwise of the one in whose session it is.
func (s *search) roll() [][]host.Member {
	fs := s.families
	leaders, locks, launches := map[int]int{}, map[uint64]int{}, map[string]int{}
	for i, family := range fs {
		if family.Leader.Boot != s.Boot && family.Leader != (host.Process{}) {
			continue // nothing outlives a boot
		}
		// The kernel gives a pid to nobody while it names a session.
		if p, is := s.seen[family.Leader.PID]; family.Leader.PID > 1 && (!is || p.Start == family.Leader.Start) {
			leaders[family.Leader.PID] = i
		}
		if family.Locks != 0 {
			locks[family.Locks] = i
		}
		if family.Launch != "" {
			launches[family.Launch] = i
		}
	}
	all := make([][]host.Member, len(fs))
	for pid, p := range s.seen {
		i, ours := locks[p.locks]
		if !ours {
			i, ours = launches[p.launch]
		}
		if !ours {
			i, ours = leaders[p.Session]
		}
		if !ours || !p.Alive() && !p.met || p.Start < fs[i].Leader.Start ||
			pid == fs[i].Leader.PID && p.Start == fs[i].Leader.Start {
			continue
		}
		user := p.uid
		switch p.uid {
		case s.UID:
			user = s.User
		case "0":
			user = "root"
		}
		all[i] = append(all[i], host.Member{
			Process: host.Process{PID: pid, Start: p.Start, Boot: s.Boot}, Parent: p.Parent, Name: p.Name, User: user,
			State: p.State, Numbered: p.locks != 0 && p.locks == fs[i].Locks, Kept: p.keep,
		})
	}
	for _, members := range all {
		slices.SortFunc(members, func(a, b host.Member) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
		})
	}
	return all
}

// all looks at all processes.
func (s *search) all(ctx context.Context) error {
	known := s.census.known(s.Boot)
	for range 3 { // the numbers of processes may begin anew in the middle
		stats, last, err := s.stats(ctx)
		if err != nil {
			return err
		}
		s.seen = map[int]sight{}
		var unread []int
		for pid, st := range stats {
			old, is := known[pid]
			switch {
			case !st.Alive() || st.Start < s.since:
				s.seen[pid] = sight{Stat: st}
			case is && old.Start == st.Start && old.Image == st.Image:
				old.Stat = st
				s.seen[pid] = old
			default:
				unread = append(unread, pid)
			}
		}
		done, err := s.chase(ctx, unread, last)
		if err != nil {
			return err
		}
		known = s.census.keep(s.Boot, s.seen)
		if done {
			return nil
		}
	}
	return &host.Trouble{Code: job.ShellBroken, Err: errors.New(
		"processes start and end faster than they can be read over this connection")}
}

// known returns the processes that were read since the machine has booted.
func (c *Census) known(boot string) map[int]sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boot != boot {
		return nil
	}
	return c.of
}

// keep remembers the processes that were read whole, and returns them.
func (c *Census) keep(boot string, seen map[int]sight) map[int]sight {
	whole := maps.Clone(seen)
	maps.DeleteFunc(whole, func(_ int, s sight) bool { return s.uid == "" })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.of = boot, whole
	return whole
}

// chase reads the processes that are unread, and those that have started since the one with the
// number last. It reports whether there was a look that read all that it had listed, and in which
// nobody had ended who may be related to a family. If each family has somebody, a few looks are
// enough.
func (s *search) chase(ctx context.Context, unread []int, last int) (bool, error) {
	for look := range maxLooks + len(unread)/perLook {
		few := unread[:min(perLook, len(unread))]
		unread = slices.Clone(unread[len(few):])
		found, await := s.found(), 0
		if look >= fewLooks {
			await = births
		}
		l, err := s.marks(ctx, found, few, last-behind, await)
		if err != nil || l.last < last {
			return false, err
		}
		last = l.last
		again, whole := s.take(l, found, look < fewLooks)
		unread = append(unread, again...)
		if l.gone {
			s.moved = true
			// It cannot be told from a stranger. Those that were met as they started must do.
			whole = whole && look >= patience && !s.related(0, s.Locks)
		}
		if whole && len(unread) == 0 || look >= fewLooks && !s.missing() {
			return true, nil
		}
	}
	return false, nil
}

// take adds what a look has seen. It returns those that another look must read, and reports whether
// all were read, and nobody has ended who is related to a family. Whoever has ended counts as a
// member unless early.
func (s *search) take(l look, found []int, early bool) (again []int, whole bool) {
	whole = true
	for pid, old := range s.seen {
		if old.met {
			old.met = false
			s.seen[pid] = old
		}
	}
	for _, pid := range found {
		st, is := l.alive[pid]
		old := s.seen[pid]
		switch {
		case is && st.Start == old.Start:
			if st.Image != old.Image { // it is another program by now: what is known of it is not its own
				again, whole, st.Image = append(again, pid), false, 0
			}
			old.Stat = st
			s.seen[pid] = old
		case early:
			delete(s.seen, pid) // it may have started another
			s.moved, whole = true, false
		default:
			old.met = true
			s.seen[pid] = old
			s.moved, whole = true, false
		}
	}
	maps.Copy(s.seen, l.others)
	for _, pid := range l.listed {
		now, is := l.read[pid]
		old, before := s.seen[pid]
		known := before && !old.Alive() && old.Start == now.Start
		switch {
		case !is, now.turns && s.related(now.Session, now.locks): // the next look reads it
			again, whole = append(again, pid), false
		case now.Alive():
			s.seen[pid] = now
		case known:
		default: // it was alive when it was listed, and may have started another since
			s.moved = true
			if s.related(now.Session, now.locks) {
				whole, now.met = false, !early
			}
			s.seen[pid] = now
		}
	}
	return again, whole
}

// stats lists all processes, and the number of the one that started last before that.
func (s *search) stats(ctx context.Context) (map[int]procfs.Stat, int, error) {
	out, err := s.Tell(ctx, script.Stats)
	if err != nil {
		return nil, 0, err
	}
	first, rest, _ := strings.Cut(out, "\n")
	pids, err := procfs.Numbers(first)
	if err != nil || len(pids) < 2 {
		return nil, 0, fmt.Errorf("a list of processes: %w: %.200q", err, first)
	}
	names := make([]string, len(pids)-1)
	for i, pid := range pids[1:] {
		names[i] = strconv.Itoa(pid) + "/stat"
	}
	stats := map[int]procfs.Stat{}
	for _, text := range script.Heads([]byte(rest), names) {
		s, err := procfs.ParseStat(text)
		if err != nil {
			continue // it has ended
		}
		stats[s.PID] = s
	}
	return stats, pids[0], nil
}

// A look is what one request says of processes.
type look struct {
	last   int                 // the number of the process that started last before that
	alive  map[int]procfs.Stat // those asked for by their number alone
	listed []int               // those of this account that had to be read
	read   map[int]sight       // those of them that could be read
	others map[int]sight       // of other accounts
	gone   bool                // one of those that were listed has ended before it was read
}

// marks asks whether members are alive, and reads others: those given, those with a number above
// last, and as many more, as they start, as are awaited. The shell itself reads the number and the
// limits of each at once, for it may end before a program has read all of it. A process that was a
// zombie before the list was made started nobody after it.
func (s *search) marks(ctx context.Context, members, pids []int, last, await int) (look, error) {
	l := look{alive: map[int]procfs.Stat{}, read: map[int]sight{}, others: map[int]sight{}}
	var names []string
	for _, pid := range members {
		names = append(names, strconv.Itoa(pid)+"/stat")
	}
	// A process of another account can be of no family, unless this account is root.
	out, err := s.Tell(ctx, fmt.Sprintf(script.Look,
		strings.Trim(fmt.Sprint(pids), "[]"), last, s.UID, strings.Join(names, " "), await))
	if err != nil {
		return l, err
	}
	quick, rest, _ := strings.Cut(out, "\n@\n")
	first, quick, _ := strings.Cut(quick, "\n")
	all, err := procfs.Numbers(first)
	if err != nil || len(all) == 0 {
		return l, fmt.Errorf("a list of processes: %w: %.200q", err, out)
	}
	l.last, all = all[0], all[1:]
	for _, pid := range all {
		for _, file := range []string{"/./stat", "/status", "/limits", "/environ", "/././stat"} {
			names = append(names, strconv.Itoa(pid)+file)
		}
	}
	files := script.Heads([]byte(rest), names)
	for _, pid := range members {
		if s, err := procfs.ParseStat(files[strconv.Itoa(pid)+"/stat"]); err == nil && s.Alive() {
			l.alive[pid] = s
		}
	}
	l.gone = slices.ContainsFunc(pids, func(pid int) bool { return !slices.Contains(all, pid) })
	for line := range strings.Lines(quick) {
		number, line, _ := strings.Cut(line, " ")
		locks, line, _ := strings.Cut(line, " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			continue // the rest of a name with a line break
		}
		s, err := procfs.ParseStat([]byte(line))
		if locks == "" && (err != nil || !s.Alive()) {
			l.gone = true
			continue
		}
		l.listed = append(l.listed, pid)
		if err == nil && locks != "" {
			n, _ := strconv.ParseUint(locks, 10, 64) // 0 for "unlimited"
			l.read[pid] = sight{Stat: s, locks: n}
		}
	}
	for _, pid := range all {
		s, ok := whole(files, strconv.Itoa(pid))
		switch {
		case !slices.Contains(l.listed, pid):
			if ok {
				l.others[pid] = s
			}
		case ok && s.Alive():
			l.read[pid] = s
		case s.Alive():
			if quick, is := l.read[pid]; is {
				quick.turns = true
				l.read[pid] = quick
			}
		}
	}
	return l, nil
}

// whole makes a sight of the files of a process. It is not whole if the process became another
// program meanwhile, or has ended.
func whole(files map[string][]byte, pid string) (s sight, ok bool) {
	before, err1 := procfs.ParseStat(files[pid+"/./stat"])
	after, err2 := procfs.ParseStat(files[pid+"/././stat"])
	environ, readable := files[pid+"/environ"]
	_, uid, is := bytes.Cut(files[pid+"/status"], []byte("\nUid:"))
	if err1 != nil || err2 != nil || !is {
		return sight{Stat: procfs.Stat{State: 'X'}}, false
	}
	if before.Start != after.Start || before.Image != after.Image {
		return sight{Stat: after}, false
	}
	// It has no environment for now. Threads of the kernel never have one, and of what may not be
	// read the image is hidden too.
	if after.Alive() && after.Session != 0 && (readable && len(environ) == 0 && after.Image == 0 ||
		!readable && after.Image != 0) {
		return sight{Stat: after}, false
	}
	s = sight{Stat: after, uid: string(bytes.Fields(uid)[0]), locks: procfs.LockLimit(files[pid+"/limits"])}
	s.launch, s.keep = procfs.Marks(environ)
	return s, true
}
