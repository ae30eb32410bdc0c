package local

import (
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/host"
)

// remembered is how many ended programs a Host knows the usage of, the latest ones: they take about
// 3 MB.
const remembered = 16_384

// Usage returns what a child of this process used. It remembers the 16,384 that ended last.
//
// MaxRSS is 0 unless it is above the peak of this process at the time when it started the child.
// Before a child becomes another program it shares the memory of its parent, and Linux counts that
// too. So a smaller figure may be Pawl's own.
func (h *Host) Usage(p host.Process) (host.Usage, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u, ok := h.used.of[p]
	return u, ok
}

// A child is a process that was started and not yet reaped.
type child struct {
	host.Process
	mark int64 // the most memory that this process had had when it started the child, in bytes
}

// accounts remembers the usage of the programs that ended last.
type accounts struct {
	of     map[host.Process]host.Usage
	order  []host.Process // a ring, once it is full
	oldest int
}

func (a *accounts) add(p host.Process, u host.Usage) {
	if a.of == nil {
		a.of = map[host.Process]host.Usage{}
	}
	if len(a.order) < remembered {
		a.order = append(a.order, p)
	} else {
		delete(a.of, a.order[a.oldest])
		a.order[a.oldest] = p
		a.oldest = (a.oldest + 1) % remembered
	}
	a.of[p] = u
}

// usage translates the numbers of the kernel, see getrusage(2): memory is in KiB, and disk traffic
// in blocks of 512 bytes on every disk.
func usage(r syscall.Rusage, mark int64) host.Usage {
	u := host.Usage{
		User:    time.Duration(r.Utime.Nano()),
		System:  time.Duration(r.Stime.Nano()),
		MaxRSS:  int64(r.Maxrss) * 1024, //nolint:unconvert // it is an int32 on some machines
		Read:    int64(r.Inblock) * 512, //nolint:unconvert // the same
		Written: int64(r.Oublock) * 512, //nolint:unconvert // the same
	}
	if u.MaxRSS <= mark {
		u.MaxRSS = 0
	}
	return u
}

// ownMaxRSS returns the most memory that this process has had, in bytes. The call cannot fail.
func ownMaxRSS() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return usage(r, -1).MaxRSS
}
