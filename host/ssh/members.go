package ssh

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

// census remembers the marks of processes: those of a program stay as they are.
type census struct {
	mu   sync.Mutex // guards what follows
	boot string
	of   map[int]sight
}

// A sight is a process, with its marks.
type sight struct {
	procfs.Stat
	uid    string
	locks  uint64
	dim    bool // it has ended, and its limits were not read
	turns  bool // it is about to become another program: its environment was not read
	launch string
	keep   bool
}

const (
	fewLooks = 3    // after so many looks it is enough that each family has somebody
	maxLooks = 50   // how often a look goes on because a process was not read
	perLook  = 1000 // how many processes a request reads whole
	behind   = 8    // a process gets its number a moment before it is in the list
)

// Members reads the stat files of all processes, and the marks of those that it does not know. Then
// it reads those that have started meanwhile. A process that ends before it is read may have
// started another, so Members looks again until it has read all that a look has listed.
func (h *Host) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	if len(fs) == 0 {
		return nil, nil
	}
	f, err := h.known(ctx)
	if err != nil {
		return nil, err
	}
	since := uint64(math.MaxUint64)
	for _, family := range fs {
		if family.Leader.Boot == f.boot || family.Leader == (host.Process{}) {
			since = min(since, family.Leader.Start)
		}
	}
	all, err := h.muster(ctx, f, fs, since)
	if err == nil && slices.ContainsFunc(all, func(ms []host.Member) bool { return len(ms) == 0 }) {
		// On a busy machine a process may get its number long before it is in the list, and a look
		// that went on meanwhile has missed it.
		all, err = h.muster(ctx, f, fs, since)
	}
	return all, err
}

// muster takes one look. If processes start and end all the time, those that were alive just now
// count.
func (h *Host) muster(ctx context.Context, f facts, fs []host.Family, since uint64) ([][]host.Member, error) {
	seen, err := h.survey(ctx, f, since, func(seen map[int]sight) (pids []int, enough bool) {
		enough = true
		for _, ms := range roll(f, fs, seen) {
			for _, m := range ms {
				pids = append(pids, m.PID)
			}
			enough = enough && len(ms) > 0
		}
		slices.Sort(pids)
		return slices.Compact(pids), enough
	}, procfs.Related(fs))
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	return roll(f, fs, seen), nil
}

// roll sorts processes into families. One that bears the marks of a family is of that family, and
// otherwise of the one in whose session it is.
func roll(f facts, fs []host.Family, seen map[int]sight) [][]host.Member {
	leaders, locks, launches := map[int]int{}, map[uint64]int{}, map[string]int{}
	for i, family := range fs {
		if family.Leader.Boot != f.boot && family.Leader != (host.Process{}) {
			continue // nothing outlives a boot
		}
		// The kernel gives a pid to nobody while it names a session.
		if s, is := seen[family.Leader.PID]; family.Leader.PID > 1 && (!is || s.Start == family.Leader.Start) {
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
	for pid, s := range seen {
		i, ours := locks[s.locks]
		if !ours {
			i, ours = launches[s.launch]
		}
		if !ours {
			i, ours = leaders[s.Session]
		}
		if !ours || !s.Alive() || s.Start < fs[i].Leader.Start ||
			pid == fs[i].Leader.PID && s.Start == fs[i].Leader.Start {
			continue
		}
		user := s.uid
		switch s.uid {
		case f.uid:
			user = f.user
		case "0":
			user = "root"
		}
		all[i] = append(all[i], host.Member{
			Process: host.Process{PID: pid, Start: s.Start, Boot: f.boot}, Parent: s.Parent, Name: s.Name, User: user,
			State: s.State, Numbered: s.locks != 0 && s.locks == fs[i].Locks, Kept: s.keep,
		})
	}
	for _, members := range all {
		slices.SortFunc(members, func(a, b host.Member) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
		})
	}
	return all
}

// survey returns the processes that have started since then, and were alive in the last look or
// just before. members tells which of them are of a family, and whether each family has one.
func (h *Host) survey(ctx context.Context, f facts, since uint64, members func(map[int]sight) ([]int, bool),
	related func(session int, locks uint64) bool,
) (map[int]sight, error) {
	h.census.mu.Lock()
	known := h.census.of
	if h.census.boot != f.boot {
		known = nil
	}
	h.census.mu.Unlock()
	for range 3 { // the numbers of processes may begin anew in the middle
		stats, last, err := h.stats(ctx)
		if err != nil {
			return nil, err
		}
		seen, unread := map[int]sight{}, []int(nil)
		for pid, s := range stats {
			old, is := known[pid]
			switch {
			case !s.Alive() || s.Start < since:
				seen[pid] = sight{Stat: s}
			case is && old.Start == s.Start && old.Image == s.Image:
				old.Stat = s
				seen[pid] = old
			default:
				unread = append(unread, pid)
			}
		}
		done, err := h.chase(ctx, f, seen, unread, last, members, related)
		if err != nil {
			return nil, err
		}
		known = maps.Clone(seen)
		maps.DeleteFunc(known, func(_ int, s sight) bool { return s.uid == "" })
		h.census.mu.Lock()
		h.census.boot, h.census.of = f.boot, known
		h.census.mu.Unlock()
		if done {
			return seen, nil
		}
	}
	return nil, &host.Trouble{Code: job.ShellBroken, Err: errors.New(
		"processes start and end faster than they can be read over this connection")}
}

// chase reads the processes that are unread, and those that have started since the one with the
// number last. It reports whether there was a look that read all that it had listed, and in which
// nobody had ended who is related to a family. If each family has somebody, a few looks are enough.
func (h *Host) chase(ctx context.Context, f facts, seen map[int]sight, unread []int, last int,
	members func(map[int]sight) ([]int, bool), related func(session int, locks uint64) bool,
) (bool, error) {
	for look := range maxLooks + len(unread)/perLook {
		few := unread[:min(perLook, len(unread))]
		unread = slices.Clone(unread[len(few):])
		found, _ := members(seen)
		l, err := h.marks(ctx, f.uid, found, few, last-behind)
		if err != nil || l.last < last {
			return false, err
		}
		last = l.last
		whole := len(unread) == 0
		for _, pid := range found {
			s, is := l.alive[pid]
			if is && s.Start == seen[pid].Start {
				old := seen[pid]
				if s.Image != old.Image { // it is another program by now: what is known of it is not its own
					unread, whole, s.Image = append(unread, pid), false, 0
				}
				old.Stat = s
				seen[pid] = old
			} else if whole = false; look < fewLooks {
				delete(seen, pid) // it may have started another
			}
		}
		maps.Copy(seen, l.others)
		for _, pid := range l.listed {
			s, is := l.read[pid]
			switch old, before := seen[pid]; {
			case !is, s.turns && related(s.Session, s.locks): // the next look reads it
				unread, whole = append(unread, pid), false
			case s.Alive(), !s.dim && !related(s.Session, s.locks):
				seen[pid] = s
			case !before || old.Alive() || old.Start != s.Start:
				// It was alive when it was listed, and may have started another since.
				if whole = false; look < fewLooks || !before || old.Start != s.Start {
					seen[pid] = s
				}
			}
		}
		if whole {
			return true, nil
		}
		if _, enough := members(seen); enough && look >= fewLooks {
			return true, nil
		}
	}
	return false, nil
}

// stats lists all processes, and the number of the one that started last before that.
func (h *Host) stats(ctx context.Context) (map[int]procfs.Stat, int, error) {
	out, err := h.tell(ctx, `(cd /proc && read -r one five fifteen runs last <loadavg &&
set -- [0-9]* && echo "$last $*" &&
printf '%s/stat\n' "$@" | "$pawl_xargs" "$pawl_head" -v -c 1024) 2>/dev/null; true`)
	if err != nil {
		return nil, 0, err
	}
	first, rest, _ := strings.Cut(out, "\n")
	pids, err := procfs.Numbers(first)
	if err != nil || len(pids) < 2 {
		return nil, 0, fmt.Errorf("a list of processes: %w: %q", err, clip([]byte(first)))
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
}

// marks asks whether members are alive, and reads others: those given, and those with a number
// above last. The shell itself reads the number and the limits of each at once, for it may end
// before a program has read all of it. A process that was a zombie before the list was made started
// nobody after it.
func (h *Host) marks(ctx context.Context, uid string, members, pids []int, last int) (look, error) {
	l := look{alive: map[int]procfs.Stat{}, read: map[int]sight{}, others: map[int]sight{}}
	var names []string
	for _, pid := range members {
		names = append(names, strconv.Itoa(pid)+"/stat")
	}
	// A process of another account can be of no family, unless this account is root.
	out, err := h.tell(ctx, fmt.Sprintf(script.Look,
		strings.Trim(fmt.Sprint(pids), "[]"), last, uid, strings.Join(names, " ")))
	if err != nil {
		return l, err
	}
	quick, rest, _ := strings.Cut(out, "\n@\n")
	first, quick, _ := strings.Cut(quick, "\n")
	all, err := procfs.Numbers(first)
	if err != nil || len(all) == 0 {
		return l, fmt.Errorf("a list of processes: %w: %q", err, clip([]byte(out)))
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
	for line := range strings.Lines(quick) {
		number, line, _ := strings.Cut(line, " ")
		locks, line, _ := strings.Cut(line, " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			continue // the rest of a name with a line break
		}
		l.listed = append(l.listed, pid)
		if s, err := procfs.ParseStat([]byte(line)); err == nil && (locks != "" || !s.Alive()) {
			n, _ := strconv.ParseUint(locks, 10, 64) // 0 for "unlimited"
			l.read[pid] = sight{Stat: s, locks: n, dim: locks == ""}
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
