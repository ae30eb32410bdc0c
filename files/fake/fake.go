// Package fake is a file system in memory that misbehaves on command. It is for tests of callers of
// [files.FS].
//
// Without a command it passes the suite in files/filestest, symbolic links included. The commands
// are [FS.Inject], for calls that fail, lose their answer or wait, [FS.Full], [FS.Die] and
// [FS.Lie].
package fake

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// FS is a file system in memory. All of its methods are safe for concurrent use. It stores modes
// and does not enforce them.
type FS struct {
	mu     sync.Mutex // guards everything below, and the nodes
	root   *node
	faults []*Fault
	lies   map[string]Lie
	room   int64 // bytes until the file system is full; below 0 there is no end
	life   int64 // bytes until it dies; below 0 there is no end
	dead   bool
}

// New returns a file system with nothing but the folder "/".
func New() *FS {
	return &FS{root: folder(), lies: map[string]Lie{}, room: -1, life: -1}
}

// A Fault is what goes wrong with some calls. If several faults fit a call, they act in the order
// in which they were injected, until one of them fails the call.
type Fault struct {
	Op   string // the name of a method of files.FS or files.Linker, such as "Put"; empty for each
	Name string // a [path.Match] pattern for one name of the call, or for its last element; empty for each
	Once bool   // only the first such call

	Gate <-chan struct{} // if set, the call waits until it receives from Gate or its context ends
	Err  error           // if set, the call then fails with it and does nothing
	Lost bool            // the call does its work, and then returns that the file system cannot be reached
}

var ops = []string{"Open", "Put", "Stat", "List", "Mkdir", "Rename", "Link", "Remove", "Symlink", "Resolve"}

// Inject makes calls go wrong from now on, until heal is called. It panics if Op is no operation or
// Name is no pattern, since then the test is wrong.
//
// When a send to the Gate of a fault returns, a call waits there. So no test needs to guess.
func (f *FS) Inject(fault Fault) (heal func()) {
	if fault.Op != "" && !slices.Contains(ops, fault.Op) {
		panic(fmt.Sprintf("fake: no operation is called %q", fault.Op))
	}
	if _, err := path.Match(fault.Name, ""); err != nil {
		panic(fmt.Sprintf("fake: %q: %v", fault.Name, err))
	}
	own := &fault
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, own)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(o *Fault) bool { return o == own })
	}
}

func (f *Fault) meant(op string, names []string) bool {
	return (f.Op == "" || f.Op == op) && (f.Name == "" || slices.ContainsFunc(names, func(name string) bool {
		whole, _ := path.Match(f.Name, name) // Inject has seen that it is a pattern
		last, _ := path.Match(f.Name, path.Base(name))
		return whole || last
	}))
}

// Full leaves room for n more bytes. A Put that needs more fails with [syscall.ENOSPC]. Removing
// files makes no room. Below 0, room has no end, as at first.
func (f *FS) Full(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = n
}

// Die makes the file system die as soon as n more bytes have been put. The Put that reaches n
// leaves its temporary file, and its content gets no name. From then on every call fails, until
// [FS.Revive]; calls that are under way fail too. Below 0 the file system does not die.
func (f *FS) Die(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life = n
}

// Revive brings a dead file system back, with the content that it had when it died.
func (f *FS) Revive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life, f.dead = -1, false
}

// A Lie is what the file system says about a file instead of the truth. A nil field tells the
// truth.
type Lie struct {
	Size    func(true int64) int64   // the size that Stat and List return
	Content func(true []byte) []byte // the content that Open returns; it must not change its argument
}

// Lie makes the file system lie about the file with a name, also if the file is reached by another
// name or a link. The zero [Lie] ends that.
func (f *FS) Lie(name string, l Lie) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lies[name] = l
}

// Temporaries returns the temporary names, sorted: those of Puts that are under way, and those that
// a death left. List hides them.
func (f *FS) Temporaries() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	var look func(dir string, n *node)
	look = func(dir string, n *node) {
		for base, child := range n.inside {
			name := path.Join(dir, base)
			if files.Temporary(name) {
				names = append(names, name)
			}
			look(name, child)
		}
	}
	look("/", f.root)
	slices.Sort(names)
	return names
}

var errDead = job.Errorf(job.Unavailable, "the file system cannot be reached")

// call does the work of an operation, unless a knob has it otherwise. f.mu is not held, here and in
// work.
func (f *FS) call(ctx context.Context, op string, work func() error, names ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, name := range names {
		if err := files.Check(name); err != nil {
			return err
		}
	}
	lost := false
	for _, fault := range f.meant(op, names) {
		if fault.Gate != nil {
			select {
			case <-fault.Gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if fault.Err != nil {
			return fmt.Errorf("%s %s: %w", strings.ToLower(op), strings.Join(names, " "), fault.Err)
		}
		lost = lost || fault.Lost
	}
	if err := work(); err != nil {
		return err
	}
	if lost {
		return job.Errorf(job.Unavailable, "%s %s: the answer is lost", strings.ToLower(op), strings.Join(names, " "))
	}
	return nil
}

// meant returns the faults that are meant for a call, and uses up those for one call.
func (f *FS) meant(op string, names []string) []*Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*Fault
	f.faults = slices.DeleteFunc(f.faults, func(fault *Fault) bool {
		if !fault.meant(op, names) {
			return false
		}
		list = append(list, fault)
		return fault.Once
	})
	return list
}

// locked returns work as it is done with f.mu held, by a file system that is alive.
func (f *FS) locked(work func() error) func() error {
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.dead {
			return errDead
		}
		return work()
	}
}

// spend takes room and life for n bytes, and returns how many can be written. Called with f.mu
// held.
func (f *FS) spend(n int) (can int, err error) {
	if f.room >= 0 {
		if int64(n) > f.room {
			n, err = int(f.room), syscall.ENOSPC
		}
		f.room -= int64(n)
	}
	if f.life >= 0 {
		if int64(n) >= f.life {
			n, err, f.dead = int(f.life), errDead, true
		}
		f.life -= int64(n)
	}
	return n, err
}
