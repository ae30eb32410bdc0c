package pawl

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Gone is a machine without any process of Pawl.
type Gone struct {
	Machine string    `json:"machine"`
	Since   time.Time `json:"since,omitzero"` // when the last one was heard of; zero: none is known
}

// A look is who was there when jobs were looked at.
type look struct {
	served   bool                // some process runs the jobs of the store
	machine  string              // of this process, which is there
	sessions []store.SessionInfo // where a job may wait for one of them
}

// look looks at who is there, for jobs. That nobody is there for one of them is not said from memory.
func (s *Service) look(ctx context.Context, jobs ...job.Job) (l look, err error) {
	l.served, l.machine = s.cfg.Served(ctx), s.cfg.Machine
	if !l.served || !slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Custody == job.Ready || bound(&j) }) {
		return l, nil
	}
	if l.sessions, err = s.sessions.there(ctx); err != nil {
		return l, err
	}
	if slices.ContainsFunc(jobs, func(j job.Job) bool { return l.gone(&j) != nil || l.unserved(&j) != "" }) {
		l.sessions, err = s.sessions.now(ctx)
	}
	return l, err
}

// bound reports whether only processes of one machine can do something for the job.
func bound(j *job.Job) bool { return j.Machine != "" && !j.State.Terminal() }

// note notes in a view that nobody is there for its job, and where that stands among others.
func (l *look) note(v *View, among string) {
	if !l.served {
		return // which the sentence says
	}
	if v.MachineGone = l.gone(&v.Job); v.MachineGone != nil {
		v.Unserved = v.Custody == job.Ready
		v.Why = v.MachineGone.why(v, among)
		return
	}
	if why := l.unserved(&v.Job); why != "" {
		v.Unserved, v.Why = true, why+ready(&v.Job)+among
	}
}

// unserved says that a job is ready and nobody is there who claims it; empty: somebody is, or it is not ready.
func (l *look) unserved(j *job.Job) string {
	if j.Custody != job.Ready {
		return ""
	}
	drained := false
	for i := range l.sessions {
		s := &l.sessions[i]
		if !s.Live || !s.Process.Serves(job.Line{Queue: j.Queue, Kind: j.Kind}, j.Machine) || !s.Process.ServesTenant(j.Tenant) {
			continue
		}
		if s.Command == store.Work {
			return ""
		}
		drained = true
	}
	why := "no live process claims jobs of kind " + j.Kind + " in queue " + j.Queue
	if j.Machine != "" {
		why += " on machine " + j.Machine
	}
	if drained {
		why += ": those that would were told to drain"
	}
	return why
}

// gone returns the machine of a job if no process of it lives.
func (l *look) gone(j *job.Job) *Gone {
	if !bound(j) || j.Machine == l.machine {
		return nil
	}
	return goneFrom(j.Machine, l.sessions)
}

// goneFrom returns a machine if no process of it is among sessions that lives.
func goneFrom(machine string, sessions []store.SessionInfo) *Gone {
	g := &Gone{Machine: machine}
	for i := range sessions {
		s := &sessions[i]
		if s.Process.Machine != machine {
			continue
		}
		if s.Live {
			return nil
		}
		heard := s.Renewed
		if !s.Ended.IsZero() && !s.Crashed {
			heard = s.Ended
		}
		if heard.After(g.Since) {
			g.Since = heard
		}
	}
	return g
}

// since says since when it is gone.
func (g *Gone) since() string {
	if g.Since.IsZero() {
		return ", where no process is"
	}
	return ", which is gone since " + g.Since.Local().Format(time.RFC3339)
}

// ready says since when a job is ready, after that for which it waits.
func ready(j *job.Job) string { return "; ready since " + j.Since.Local().Format(time.RFC3339) }

// why says why a job of the machine stands where it stands.
func (g *Gone) why(v *View, among string) string {
	is := "machine " + g.Machine + g.since()
	switch v.Custody {
	case job.Ready:
		return "waits for a process of " + is + ready(&v.Job) + among
	case job.Worker:
		return "was in the hands of a process of " + is
	case job.Monitor:
		return "its program runs, or has ended meanwhile, on " + is
	}
	return v.Why + "; it belongs to " + is
}
