package process

import (
	"sync"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner"
)

// children are the wrappers that this process has started and that have not ended. The host tells
// of their ends by the process alone, and may do so before the launch knows its process.
type children struct {
	mu       sync.Mutex
	keys     map[host.Process]runner.Key // guarded by mu; nil: nobody tells of ends
	starting int                         // guarded by mu: launches that do not know their process yet
	early    map[host.Process]bool       // guarded by mu: processes that ended meanwhile
}

// start notes that a wrapper is being started. Born, which must be called, says which process that
// is, if any, and reports whether it has ended already.
func (c *children) start() (born func(p host.Process, k runner.Key) (ended bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		return func(host.Process, runner.Key) bool { return false }
	}
	c.starting++
	return func(p host.Process, k runner.Key) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		ended := c.early[p]
		if c.starting--; c.starting == 0 {
			c.early = nil
		}
		if p.PID != 0 && !ended {
			c.keys[p] = k
		}
		return ended
	}
}

// ended takes out a process that has ended, and returns its launch.
func (c *children) ended(p host.Process) (k runner.Key, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok = c.keys[p]; ok {
		delete(c.keys, p)
	} else if c.starting > 0 {
		if c.early == nil {
			c.early = map[host.Process]bool{}
		}
		c.early[p] = true
	}
	return k, ok
}

// Exited tells the runner that a child of this process has ended. It does not block, and is safe
// for concurrent use.
func (r *Runner) Exited(p host.Process) {
	if k, ok := r.children.ended(p); ok {
		r.Spool.Exited(k)
	}
}
