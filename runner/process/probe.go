package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// Probe tells the states of launches. If any wrapper is gone, it looks at the host's processes
// once. It reads one file for each launch without a wrapper, unless a watch has told its end.
func (r *Runner) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	return r.Spool.Probe(ctx, hs, r.probe)
}

func (r *Runner) probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	all := make([]runner.Status, len(hs))
	var ours []int // indices of those that can be looked at
	var launches []launch
	for i, h := range hs {
		l, err := r.find(h)
		if err != nil {
			all[i].State = runner.Unknown
			continue
		}
		ours, launches = append(ours, i), append(launches, l)
	}
	alive, err := r.alive(ctx, launches)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	var gone []int // indices in launches of those whose wrapper is
	var families []host.Family
	for n := range launches {
		if alive[n] {
			all[ours[n]].State = runner.Active
		} else {
			gone, families = append(gone, n), append(families, launches[n].family())
		}
	}
	if len(gone) > 0 {
		members, err := r.Host.Members(ctx, families)
		if err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
		// the exit code is written before the wrapper ends, so it is looked for after it was seen
		// dead
		for f, n := range gone {
			left, kept := remnants(members[f])
			s, err := r.evidence(ctx, &launches[n], len(left) > 0)
			if err != nil {
				return nil, fmt.Errorf("probe %s: %w", launches[n].Key, err)
			}
			s.Left, s.Kept = left, kept
			all[ours[n]] = s
		}
	}
	return all, r.age(ctx, all, ours, launches)
}

// alive reports which wrappers are alive. It does not ask about those that a watch has seen gone.
func (r *Runner) alive(ctx context.Context, launches []launch) ([]bool, error) {
	alive := make([]bool, len(launches))
	var ask []int
	var wrappers []host.Process
	for n := range launches {
		if _, gone := r.Notified(launches[n].Key, 0, launches[n].Token); !gone {
			ask, wrappers = append(ask, n), append(wrappers, launches[n].Process)
		}
	}
	if len(ask) == 0 {
		return alive, nil
	}
	are, err := r.Host.Alive(ctx, wrappers)
	if err != nil {
		return nil, err
	}
	for i, n := range ask {
		alive[n] = are[i]
	}
	return alive, nil
}

// age tells when the launches began that are under way.
func (r *Runner) age(ctx context.Context, all []runner.Status, ours []int, launches []launch) error {
	var uptime time.Duration
	var now time.Time
	for n, i := range ours {
		s := &all[i]
		if s.State != runner.Active && len(s.Left) == 0 || launches[n].Process.PID == 0 {
			continue
		}
		if now.IsZero() {
			var err error
			if uptime, err = r.Host.Uptime(ctx); err != nil {
				return fmt.Errorf("probe: %w", err)
			}
			now = time.Now()
		}
		s.Started = now.Add(launches[n].Process.Started() - uptime)
	}
	return nil
}

// remnants divides processes into those to be killed and those to be kept.
func remnants(ms []host.Member) (left, kept []runner.Remnant) {
	for _, m := range ms {
		r := runner.Remnant{PID: m.PID, Name: m.Name, User: m.User}
		if m.Kept {
			kept = append(kept, r)
		} else {
			left = append(left, r)
		}
	}
	return left, kept
}

// evidence judges a launch whose wrapper is dead. Only the end of ctx is an error.
func (r *Runner) evidence(ctx context.Context, l *launch, left bool) (runner.Status, error) {
	end, err := r.EndOf(ctx, l.Handle, 0)
	if end != nil {
		s := runner.Status{State: runner.Ended, End: end}
		if a, ok := r.Host.(host.Accountant); ok {
			// The wrapper has waited for the program. One that was killed has not, and knows
			// nothing of it.
			if u, ok := a.Usage(l.Process); ok {
				s.Usage = &u
			}
		}
		return s, nil
	}
	if ctx.Err() != nil {
		return runner.Status{}, ctx.Err()
	}
	if left {
		return runner.Status{State: runner.Orphaned}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		// Nobody wrote it, or somebody removed it. Where not even the folder is there in which it
		// would be, the file system may just not be mounted.
		_, err = r.FS.Stat(ctx, path.Join(r.Dir, spool.Rooms))
	}
	if err != nil && job.KindOf(err) != job.Corrupt {
		return runner.Status{State: runner.Unknown}, ctx.Err()
	}
	if err := r.here(ctx, l.Process.Boot); errors.Is(err, errElsewhere) {
		return runner.Status{State: runner.Active, Reason: err.Error()}, nil
	} else if err != nil {
		return runner.Status{State: runner.Unknown}, ctx.Err()
	}
	said := r.Said(ctx, l.Key, l.Dir, l.Token)
	if r.untaken(ctx, l) {
		return runner.Status{State: runner.Ended, End: r.GaveUp(ctx, l.Handle, l.Dir, l.Process.Boot, said)}, ctx.Err()
	}
	return runner.Status{State: runner.Lost, Said: said}, ctx.Err()
}

// untaken reports whether a wrapper that is gone never took its launch, and nobody revoked that.
func (r *Runner) untaken(ctx context.Context, l *launch) bool {
	m := spool.NamesOf(l.Key, l.Dir, l.Token)
	taken, err := r.Read(ctx, m.Taken())
	if err != nil || taken != nil {
		return false
	}
	armed, err := r.Read(ctx, m.Arming()) // somebody may have removed what would tell
	boot, bootErr := r.Host.Boot(ctx)
	return err == nil && bootErr == nil && armed.Is("armed", 2) && armed[1] == l.Token && armed[2] == boot
}
