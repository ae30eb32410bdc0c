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
	sessions []store.SessionInfo // where a job may wait for one of them
}

// look looks at who is there, for jobs.
func (s *Service) look(ctx context.Context, jobs ...job.Job) (l look, err error) {
	l.served = s.cfg.Served(ctx)
	if l.served && slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Custody == job.Ready || bound(&j) }) {
		l.sessions, err = s.sessions.there(ctx)
	}
	return l, err
}

// bound reports whether only processes of one machine can do something for the job.
func bound(j *job.Job) bool { return j.Machine != "" && !j.State.Terminal() }

// note notes in a view that nobody is there for its job.
func (l *look) note(v *View) {
	if !l.served {
		return // which the sentence says
	}
	if v.MachineGone = l.gone(&v.Job); v.MachineGone != nil {
		v.Unserved = v.Custody == job.Ready
		v.Why = v.MachineGone.why(v)
		return
	}
	if v.Custody != job.Ready {
		return
	}
	drained := false
	for i := range l.sessions {
		s := &l.sessions[i]
		if !s.Live || !s.Process.Serves(job.Line{Queue: v.Queue, Kind: v.Kind}, v.Machine) || !s.Process.ServesTenant(v.Tenant) {
			continue
		}
		if s.Command == store.Work {
			return
		}
		drained = true
	}
	v.Unserved = true
	v.Why = "no live process claims jobs of kind " + v.Kind + " in queue " + v.Queue
	if v.Machine != "" {
		v.Why += " on machine " + v.Machine
	}
	if drained {
		v.Why += ": those that would were told to drain"
	}
}

// gone returns the machine of a job if no process of it lives.
func (l *look) gone(j *job.Job) *Gone {
	if !bound(j) {
		return nil
	}
	g := &Gone{Machine: j.Machine}
	for i := range l.sessions {
		s := &l.sessions[i]
		if s.Process.Machine != j.Machine {
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

// why says why a job of the machine stands where it stands.
func (g *Gone) why(v *View) string {
	is := "machine " + g.Machine + ", where no process is"
	if !g.Since.IsZero() {
		is = "machine " + g.Machine + ", which is gone since " + g.Since.Local().Format(time.RFC3339)
	}
	switch v.Custody {
	case job.Ready:
		return "waits for a process of " + is
	case job.Worker:
		return "was in the hands of a process of " + is
	case job.Monitor:
		return "its program runs, or has ended meanwhile, on " + is
	}
	return v.Why + "; it belongs to " + is
}
