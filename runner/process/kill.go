package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// wrapperGrace is how long a wrapper may take to tell the end when nothing else of the launch is
// left. It may be waiting for room on a disk, or it may have been stopped.
const wrapperGrace = 2 * time.Second

// unkillable is how long a process may outlive SIGKILL before it counts as one that cannot be
// ended. The kernel does not end a process that waits for a disk or a file server (state D).
const unkillable = 5 * time.Second

// Kill ends what is left of a launch. It returns when it looks and nothing is alive.
func (r *Runner) Kill(ctx context.Context, h runner.Handle, grace time.Duration) error {
	l, err := r.find(h)
	if err != nil {
		return err
	}
	err = r.here(ctx, l.Process.Boot)
	if err == nil {
		err = r.end(ctx, &l, grace)
	}
	if err != nil {
		return fmt.Errorf("kill %s: %w", h.Key, err)
	}
	return nil
}

func (r *Runner) end(ctx context.Context, h *launch, grace time.Duration) error {
	over := time.NewTimer(grace)
	defer over.Stop()
	var (
		asked   bool
		forced  time.Time // since when it is; zero: not yet
		alone   time.Time // since when nothing but the wrapper is left; zero: there is something
		stayed  []host.Member
		refused bool // of what stayed, something may not be signaled
	)
	if grace <= 0 {
		forced = time.Now()
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		p, err := r.look(ctx, h)
		if err != nil {
			return err
		}
		if len(p.program) > 0 {
			alone = time.Time{}
		}
		switch {
		case !p.wrapper && len(p.program) == 0:
			return nil
		case len(p.program) == 0:
			if alone.IsZero() {
				alone = time.Now()
			}
			sig := syscall.SIGCONT // it may have been stopped together with its program
			if time.Since(alone) > wrapperGrace {
				sig = syscall.SIGKILL
			}
			err = r.Host.Signal(ctx, append(processes(p.helpers), h.Process), sig)
		case forced.IsZero() && !asked:
			// A stopped process sees SIGTERM only when it goes on.
			asked = true
			ps := processes(p.program)
			err = errors.Join(r.Host.Signal(ctx, ps, syscall.SIGTERM), r.Host.Signal(ctx, ps, syscall.SIGCONT))
		case !forced.IsZero():
			same := slices.Equal(processes(p.program), processes(stayed))
			if same && (refused || time.Since(forced) > unkillable) {
				return &runner.Alive{Left: reasons(p.program, refused)}
			}
			if !same {
				stayed, forced = p.program, time.Now()
			}
			// each time: one may have been started since
			err = r.Host.Signal(ctx, processes(p.program), syscall.SIGKILL)
			refused = errors.Is(err, syscall.EPERM)
		}
		if err != nil && !errors.Is(err, syscall.EPERM) {
			return err
		}
		select {
		case <-ctx.Done():
			return job.Errorf(job.Unavailable, "%s: %w", p, ctx.Err())
		case <-over.C:
			if forced.IsZero() {
				forced, wait = time.Now(), time.Millisecond
			}
		case <-time.After(wait): // nothing announces the end of somebody else's child
		}
	}
}

// parts are what is alive of a launch.
type parts struct {
	wrapper bool
	program []host.Member // without what is to be kept
	helpers []host.Member // what the wrapper started for itself
}

func (p parts) String() string {
	left, _ := remnants(p.program)
	if len(left) == 0 {
		return "its wrapper is still alive"
	}
	return "still alive: " + runner.Remnants(left)
}

func (r *Runner) look(ctx context.Context, h *launch) (p parts, err error) {
	alive, err := r.Host.Alive(ctx, []host.Process{h.Process})
	if err != nil {
		return p, err
	}
	p.wrapper = alive[0]
	members, err := r.Host.Members(ctx, []host.Family{h.family()})
	if err != nil {
		return p, err
	}
	for _, m := range members[0] {
		switch {
		case m.Kept:
		case p.wrapper && m.Parent == h.Process.PID && h.Locks != 0 && !m.Numbered:
			p.helpers = append(p.helpers, m)
		default:
			p.program = append(p.program, m)
		}
	}
	return p, nil
}

func processes(ms []host.Member) []host.Process {
	ps := make([]host.Process, len(ms))
	for i, m := range ms {
		ps[i] = m.Process
	}
	return ps
}

// reasons says of each process why it cannot be ended.
func reasons(ms []host.Member, refused bool) []runner.Remnant {
	left, _ := remnants(ms)
	for i, m := range ms {
		switch {
		case strings.ContainsRune("DU", rune(m.State)):
			left[i].Why = "which waits for a disk or a file server and does not listen to signals"
		case refused:
			left[i].Why = "which this account may not signal"
		default:
			left[i].Why = "which does not end by SIGKILL"
		}
	}
	return left
}

// Suspend stops every process of a launch. It stops the wrapper too, so that a wrapper that has not
// started its program does not start it.
func (r *Runner) Suspend(ctx context.Context, h runner.Handle) error {
	return r.signal(ctx, "suspend", h, syscall.SIGSTOP)
}

// Resume lets every process of a launch go on.
func (r *Runner) Resume(ctx context.Context, h runner.Handle) error {
	return r.signal(ctx, "resume", h, syscall.SIGCONT)
}

// signal sends a signal to each process of a launch once, until a look finds none that has not got
// it. What a program that goes on starts meanwhile needs none: the first look counts, and after it
// only what stands still. Those that this account may not signal are the [runner.Alive] of the
// error.
func (r *Runner) signal(ctx context.Context, what string, h runner.Handle, sig syscall.Signal) error {
	l, err := r.find(h)
	if err != nil {
		return err
	}
	if err := r.here(ctx, l.Process.Boot); err != nil {
		return fmt.Errorf("%s %s: %w", what, h.Key, err)
	}
	told := map[host.Process]bool{}
	var deaf []host.Member
	send := func(ms []host.Member) error {
		if err := ctx.Err(); err != nil { // whoever lost the program while it was frozen does nothing to it any more
			return err
		}
		err := r.Host.Signal(ctx, processes(ms), sig)
		if errors.Is(err, syscall.EPERM) && len(ms) == 1 {
			deaf = append(deaf, ms...)
			return nil
		}
		return err
	}
	ms := []host.Member{{Process: l.Process}}
	for first := true; len(ms) > 0; first = false {
		err := send(ms)
		if errors.Is(err, syscall.EPERM) { // the others have got it
			err = nil
			for i := 0; i < len(ms) && err == nil; i++ {
				err = send(ms[i : i+1])
			}
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, h.Key, err)
		}
		for _, m := range ms {
			told[m.Process] = true
		}
		p, err := r.look(ctx, &l)
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, h.Key, err)
		}
		ms = slices.DeleteFunc(append(p.program, p.helpers...), func(m host.Member) bool {
			return told[m.Process] || sig == syscall.SIGCONT && !first && m.State != 'T'
		})
	}
	if deaf != nil {
		return fmt.Errorf("%s %s: %w", what, h.Key, &runner.Alive{Left: reasons(deaf, true)})
	}
	return nil
}
