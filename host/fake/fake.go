// Package fake is a [host.Host] for tests. It passes calls on to another host, and misbehaves on
// command.
//
// The commands are the methods of [fault.Faults] and of [Host]. Faults knows calls by the names of
// the methods of host.Host and [files.FS].
package fake

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/fault"
)

// Host is a host that misbehaves on command. Commands and calls are safe for concurrent use.
//
// A dead host refuses all calls but ID and Usage, those of its file system too, and closes its
// watches. Its programs run on.
type Host struct {
	*fault.Faults
	under host.Host

	mu      sync.Mutex // guards what follows
	lies    map[host.Process]bool
	drop    func(name string) bool
	watches map[*watch]bool // those that stand
}

type watch struct{ overflow chan struct{} }

var (
	_ host.Host       = (*Host)(nil)
	_ host.Accountant = (*Host)(nil)
)

// New returns a fake that passes its calls on to under.
func New(under host.Host) *Host {
	return &Host{
		Faults: fault.New("Boot", "Machine", "Uptime", "Environ", "Start", "Alive", "Members", "Signal", "LockLimit", "Watch",
			"Open", "Put", "Stat", "List", "Mkdir", "Rename", "Link", "Remove"),
		under: under, lies: map[host.Process]bool{}, watches: map[*watch]bool{},
	}
}

// Lie makes Alive answer alive for a process, until Truth is called.
func (h *Host) Lie(p host.Process, alive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lies[p] = alive
}

// Truth ends what Lie began for a process.
func (h *Host) Truth(p host.Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lies, p)
}

// Drop makes watches keep silent about the names for which drop returns true. With nil they tell
// all names again.
func (h *Host) Drop(drop func(name string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop = drop
}

// Overflow makes each watch that is open say that names were dropped.
func (h *Host) Overflow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		select {
		case w.overflow <- struct{}{}:
		default: // it is still to say so
		}
	}
}

// ID returns the id of the host below.
func (h *Host) ID() string { return h.under.ID() }

// Files returns the file system of the host below. It misbehaves as well.
func (h *Host) Files() files.FS { return fileSystem{h.Faults, h.under.Files()} }

// Boot implements [host.Host].
func (h *Host) Boot(ctx context.Context) (string, error) {
	return fault.Do(ctx, h.Faults, "Boot", func() (string, error) { return h.under.Boot(ctx) })
}

// Machine implements [host.Host].
func (h *Host) Machine(ctx context.Context) (string, error) {
	return fault.Do(ctx, h.Faults, "Machine", func() (string, error) { return h.under.Machine(ctx) })
}

// Uptime implements [host.Host].
func (h *Host) Uptime(ctx context.Context) (time.Duration, error) {
	return fault.Do(ctx, h.Faults, "Uptime", func() (time.Duration, error) { return h.under.Uptime(ctx) })
}

// Environ implements [host.Host].
func (h *Host) Environ(ctx context.Context) ([]string, error) {
	return fault.Do(ctx, h.Faults, "Environ", func() ([]string, error) { return h.under.Environ(ctx) })
}

// Start implements [host.Host].
func (h *Host) Start(ctx context.Context, c host.Command) (host.Process, error) {
	return fault.Do(ctx, h.Faults, "Start", func() (host.Process, error) { return h.under.Start(ctx, c) })
}

// Alive implements [host.Host].
func (h *Host) Alive(ctx context.Context, ps []host.Process) ([]bool, error) {
	alive, err := fault.Do(ctx, h.Faults, "Alive", func() ([]bool, error) { return h.under.Alive(ctx, ps) })
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range alive {
		if lie, ok := h.lies[ps[i]]; ok {
			alive[i] = lie
		}
	}
	return alive, err
}

// Members implements [host.Host].
func (h *Host) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	return fault.Do(ctx, h.Faults, "Members", func() ([][]host.Member, error) { return h.under.Members(ctx, fs) })
}

// Signal implements [host.Host].
func (h *Host) Signal(ctx context.Context, ps []host.Process, sig syscall.Signal) error {
	return fault.Run(ctx, h.Faults, "Signal", func() error { return h.under.Signal(ctx, ps, sig) })
}

// LockLimit implements [host.Host].
func (h *Host) LockLimit(ctx context.Context) (uint64, error) {
	return fault.Do(ctx, h.Faults, "LockLimit", func() (uint64, error) { return h.under.LockLimit(ctx) })
}

// Usage implements [host.Accountant]. It is unknown if the host below is no Accountant.
func (h *Host) Usage(p host.Process) (host.Usage, bool) {
	if a, ok := h.under.(host.Accountant); ok {
		return a.Usage(p)
	}
	return host.Usage{}, false
}

// Watch implements [host.Host].
func (h *Host) Watch(ctx context.Context, dir string) (<-chan host.Event, error) {
	death := h.Death() // before the call: one that comes in between is not missed
	ctx, stop := context.WithCancel(ctx)
	in, err := fault.Do(ctx, h.Faults, "Watch", func() (<-chan host.Event, error) { return h.under.Watch(ctx, dir) })
	if err != nil {
		stop()
		return nil, err
	}
	w, out := &watch{make(chan struct{}, 1)}, make(chan host.Event)
	h.mu.Lock()
	h.watches[w] = true
	h.mu.Unlock()
	go func() {
		defer close(out)
		defer stop()
		h.relay(ctx, death, w, in, out)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watches, w)
	}()
	return out, nil
}

// relay passes news on until the watch below ends, ctx does, or the fake dies.
func (h *Host) relay(ctx context.Context, death <-chan struct{}, w *watch, in <-chan host.Event,
	out chan<- host.Event,
) {
	for {
		e, ok := host.Event{Overflow: true}, true
		select {
		case e, ok = <-in:
		case <-w.overflow:
		case <-death:
			return
		case <-ctx.Done():
			return
		}
		if !ok {
			return
		}
		h.mu.Lock()
		drop := h.drop
		h.mu.Unlock()
		if drop != nil && !e.Overflow && drop(e.Name) {
			continue
		}
		select {
		case out <- e:
		case <-death:
			return
		case <-ctx.Done():
			return
		}
	}
}

// fileSystem is the file system of a fake.
type fileSystem struct {
	faults *fault.Faults
	under  files.FS
}

func (s fileSystem) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	var f io.ReadSeekCloser
	err := fault.Run(ctx, s.faults, "Open", func() (err error) {
		f, err = s.under.Open(ctx, name)
		return err
	})
	if err != nil && f != nil { // its answer was lost
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

func (s fileSystem) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	return fault.Run(ctx, s.faults, "Put", func() error { return s.under.Put(ctx, name, r, o) })
}

func (s fileSystem) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return fault.Do(ctx, s.faults, "Stat", func() (fs.FileInfo, error) { return s.under.Stat(ctx, name) })
}

func (s fileSystem) List(ctx context.Context, dir string) ([]fs.FileInfo, error) {
	return fault.Do(ctx, s.faults, "List", func() ([]fs.FileInfo, error) { return s.under.List(ctx, dir) })
}

func (s fileSystem) Mkdir(ctx context.Context, dir string) error {
	return fault.Run(ctx, s.faults, "Mkdir", func() error { return s.under.Mkdir(ctx, dir) })
}

func (s fileSystem) Rename(ctx context.Context, from, to string) error {
	return fault.Run(ctx, s.faults, "Rename", func() error { return s.under.Rename(ctx, from, to) })
}

func (s fileSystem) Link(ctx context.Context, from, to string) error {
	return fault.Run(ctx, s.faults, "Link", func() error { return s.under.Link(ctx, from, to) })
}

func (s fileSystem) Remove(ctx context.Context, name string) error {
	return fault.Run(ctx, s.faults, "Remove", func() error { return s.under.Remove(ctx, name) })
}

// Space implements [files.Sizer], if the host below can tell. It has no faults.
func (s fileSystem) Space(ctx context.Context, name string) (files.Space, error) {
	sizer, can := s.under.(files.Sizer)
	if !can {
		return files.Space{}, errors.ErrUnsupported
	}
	return sizer.Space(ctx, name)
}
