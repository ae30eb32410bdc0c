package engine

import (
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// plays reports whether this process has a role.
func (e *Engine) plays(r store.Role) bool { return slices.Contains(e.cfg.Roles, r) }

// process returns what this process tells about itself now.
func (e *Engine) process() store.Process {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p := store.Process{Host: host, PID: os.Getpid(), Version: e.cfg.Version, Roles: e.cfg.Roles, Machine: e.cfg.Machine}
	if e.cfg.Address != nil {
		p.Address = e.cfg.Address()
	}
	if len(e.kinds) == 0 {
		return p
	}
	p.Queues, p.Kinds, p.Tenants, p.Slots = e.served.Load().queues, e.kinds, e.cfg.Tenants, map[job.Lane]int{}
	p.Reads = e.cfg.Reads
	for lane, n := range e.cfg.Slots {
		if lane != job.LaneAlone && slices.ContainsFunc(e.kinds, lane.Takes) { // that one is for emergencies
			p.Slots[lane] = n
		}
	}
	return p
}

// A report is what the store knows about this process from its session.
type report struct {
	process store.Process
	used    map[job.Lane]int
}

// report returns what the store should know now.
func (s *session) report() report {
	p := s.e.process()
	p.Silent = s.duties.silences()
	s.mu.Lock()
	defer s.mu.Unlock()
	used := maps.Clone(s.used)
	maps.DeleteFunc(used, func(_ job.Lane, n int) bool { return n == 0 })
	return report{p, used}
}

// tell puts the changes since old into a renewal.
func (now *report) tell(r *store.Renew, old *report) {
	if !reflect.DeepEqual(now.process, old.process) {
		r.Process = &now.process
	}
	if !maps.Equal(now.used, old.used) {
		r.Used = now.used
	}
}

// mode returns how this process works.
func (e *Engine) mode() store.Mode {
	if c := e.told.Load(); c != nil {
		return *c
	}
	return store.Work
}

// setMode notes the mode that a renewal answered. The loop of claims acts on it.
func (e *Engine) setMode(c store.Mode) {
	if c == e.mode() {
		return
	}
	e.told.Store(&c)
	switch c {
	case store.Work:
		e.cfg.Log.Info("told to go on: claiming again")
		e.hint.set()
	case store.Drain:
		e.cfg.Log.Info("told to drain: claiming nothing more")
	case store.Stop:
		e.cfg.Log.Info("told to stop: claiming nothing more, and ending when what runs has ended")
	}
	e.ordered.set()
}

// idle reports whether the session holds nothing.
func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs) == 0
}
