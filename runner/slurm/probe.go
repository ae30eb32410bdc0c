package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// maxDoubt is how long an end waits for Slurm to say why it came, when nothing runs any more.
const maxDoubt = 2 * time.Minute

// doubtful reports whether Slurm may be the cause of an end. Of what a signal ended that is below
// the program, such as a task of srun, a program often tells as shells do.
func doubtful(e *runner.End) bool {
	const killed, terminated = 128 + int(syscall.SIGKILL), 128 + int(syscall.SIGTERM)
	return e.Asked || !e.OutOfMemory && (e.Code == killed || e.Code == terminated)
}

// undecided implements [spool.Config.Alive]: it reports whose end may have a cause that Slurm does
// not tell yet, and which launches Slurm will run again.
func (r *Runner) undecided(ctx context.Context, ends []*runner.End, taken []spool.Words) ([]bool, error) {
	all := make([]bool, len(ends))
	if !slices.ContainsFunc(ends, doubtful) {
		return all, nil
	}
	s, _ := r.queue.Look(ctx, r.cfg.Soon)
	if ctx.Err() != nil {
		return all, ctx.Err()
	}
	if s == nil {
		s = &squeue.Snapshot{}
	}
	r.book.Decide(ctx, func() (open bool) {
		for i, e := range ends {
			t, _ := taken[i].Taker()
			at, _ := placeOf(t)
			w, there := s.Find(at.Name)
			all[i] = doubtful(e) && there && w.Phase() == squeue.Waits || r.early(s, e, at.Name)
			if doubtful(e) && !there && !all[i] {
				_, _, all[i] = r.book.Find(at.Name, time.UnixMilli(at.Armed), maxDoubt)
				open = open || all[i]
			}
		}
		return open
	})
	return all, ctx.Err()
}

// early reports whether Slurm may yet tell why an end came: it has answered nothing since the end,
// or takes the job for one that runs. It waits without bound for one that Slurm has begun anew
// since then, and some time when that is over, too: its script has not said so yet, or that is not
// seen yet on a network file system.
func (r *Runner) early(s *squeue.Snapshot, e *runner.End, name string) bool {
	w, there := s.Find(name)
	anew := there && w.Start.After(e.Ended)
	switch {
	case !doubtful(e) || !s.At.After(e.Ended):
		return doubtful(e)
	case anew && w.Phase() == squeue.Over && w.Nodes != "": // it has none if it was canceled while it waited
		late, _ := r.queue.Late(name)
		return late
	}
	return there && w.Phase() == squeue.Runs && (anew || time.Since(e.Ended) < r.doubt)
}

// Test implements [runner.Tested]. It asks squeue, or has sbatch say whether it would take a job.
func (r *Runner) Test(ctx context.Context, ask map[string]string) error {
	if len(ask) > 0 {
		return r.client.Test(ctx, ask)
	}
	_, err := r.queue.Look(ctx, 0)
	return err
}

// hasBegun notes that a launch has begun, until squeue is asked again.
func (r *Runner) hasBegun(k runner.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, at := range r.begun {
		if time.Since(at) > 2*r.cfg.Interval {
			delete(r.begun, k)
		}
	}
	r.begun[k] = time.Now()
}

// Probe tells the states of launches. Unless something has come of a launch, it is told by an
// answer of squeue that may be as old as [Config.Interval].
func (r *Runner) Probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	return r.Spool.Probe(ctx, hs, r.probe)
}

func (r *Runner) probe(ctx context.Context, hs []runner.Handle) ([]runner.Status, error) {
	all := make([]runner.Status, len(hs))
	if len(hs) == 0 {
		return all, nil
	}
	s, err := r.queue.Look(ctx, r.age(hs))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s == nil {
		r.Log.Warn("Slurm does not tell of its jobs", "error", err)
		s = &squeue.Snapshot{}
	}
	away := err != nil && time.Since(s.At) > 3*r.cfg.Interval
	var failed error
	var left []bool // whether each is open, the second time
	r.book.Decide(ctx, func() (open bool) {
		was := left
		left = make([]bool, len(hs))
		for i, h := range hs {
			if failed == nil && (was == nil || was[i]) {
				all[i], left[i], failed = r.look(ctx, s, h, away)
				open = open || left[i]
			}
		}
		return open && failed == nil
	})
	return all, failed
}

// look tells the state of a launch. open: Slurm's accounting may tell more. away: Slurm does not
// answer.
func (r *Runner) look(
	ctx context.Context, s *squeue.Snapshot, h runner.Handle, away bool,
) (st runner.Status, open bool, _ error) {
	l, err := r.find(h)
	if err != nil {
		return runner.Status{State: runner.Unknown}, false, nil //nolint:nilerr // of another runner
	}
	if st, err = r.state(ctx, s, &l); err != nil {
		return st, false, fmt.Errorf("probe %s: %w", h.Key, err)
	}
	switch {
	case away && st.State == runner.Queued:
		if st.Reason != "" {
			st.Reason = "; when it last did: " + st.Reason
		}
		st.Reason, st.Expected, st.Vague = "Slurm does not answer"+st.Reason, time.Time{}, false
	case away && st.State == runner.Active && st.End != nil:
		st.Reason = "Slurm does not answer whether it has ended Slurm job " + l.ID
	}
	if l.record.Usage.MaxRSS > 0 && st.State != runner.Active && st.State != runner.Unknown {
		st.Usage = &l.record.Usage
	}
	return st, l.open, nil
}

// age returns how old an answer of squeue may be for launches: less, if it does not know one yet,
// or does not say why that waits. The first of them are answered soon: who has submitted a job
// looks.
func (r *Runner) age(hs []runner.Handle) time.Duration {
	s := r.queue.Last()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hs {
		l, err := r.find(h)
		if err != nil || s == nil || !r.begun[h.Key].IsZero() {
			continue
		}
		w, there := s.Find(l.Name)
		switch vague := there && w.Phase() == squeue.Waits && w.Vague(); {
		case !vague && !s.At.Before(l.armed()):
		case r.queue.Early(r.cfg.Soon):
			return r.cfg.Soon
		default:
			return r.cfg.Interval / 2
		}
	}
	return r.cfg.Interval
}

// state tells the state of one launch. What Slurm says of a job that waits or runs is taken as it
// is. Of one that is over, or gone, the files tell.
func (r *Runner) state(ctx context.Context, s *squeue.Snapshot, l *launch) (st runner.Status, err error) {
	w, there := s.Find(l.Name)
	r.mu.Lock()
	news := r.begun[l.Key].After(s.At)
	r.mu.Unlock()
	var end *runner.End
	run, err := r.Newest(ctx, l.Key)
	if err == nil {
		end, err = r.EndOf(ctx, l.Handle, run)
	}
	w, there = r.booked(s, l, end, w, there)
	switch {
	case err == nil && end != nil && (l.open || r.early(s, end, l.Name)):
		return runner.Status{State: runner.Active, End: end}, nil
	case err == nil && end != nil && !(there && doubtful(end) && w.Phase() == squeue.Waits && s.At.After(end.Ended)):
		st = runner.Status{State: runner.Ended, End: end}
		if there && doubtful(end) {
			st.Cause, st.Said = w.Cause(), l.said(w)
		}
		if st.Cause == "" && end.OutOfMemory {
			st.Cause, st.Said = job.SchedulerOutOfMemory, fmt.Sprintf("Slurm job %s had used all its memory, and the kernel "+
				"ended a process of it; exit code %d: ask for more by resources.memory", l.ID, end.Code)
		}
		return st, nil
	case ctx.Err() != nil:
		return st, ctx.Err()
	case there && w.Phase() == squeue.Waits && !news && w.Never():
		return r.reject(ctx, l, w)
	case there && w.Phase() == squeue.Waits && !news:
		return runner.Status{State: runner.Queued, Reason: w.Waiting(), Vague: w.Vague(), Expected: w.Expected()}, nil
	case there && w.Phase() == squeue.Runs:
		where := w.Running()
		if run > 0 {
			where += fmt.Sprintf(", run %d: Slurm runs it again", run+1)
		}
		return runner.Status{State: runner.Active, Reason: where, Started: w.Start}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		// Nobody wrote it, or somebody removed it. Where not even the folder is there in which it
		// would be, the file system may just not be mounted.
		_, err = r.FS.Stat(ctx, path.Join(r.Dir, spool.Rooms))
	}
	if err != nil && job.KindOf(err) != job.Corrupt {
		return runner.Status{State: runner.Unknown}, ctx.Err()
	}
	by, begun, revoked, err := r.taken(ctx, l)
	failed := there && w.State == "FAILED" // Slurm says so of a script that gave up
	switch {
	case err != nil:
		return runner.Status{State: runner.Unknown}, ctx.Err()
	case revoked && failed:
		return r.gaveUp(ctx, l, l.said(w)), ctx.Err()
	case revoked:
		return runner.Status{State: runner.Lost, Said: r.Said(ctx, l.Key, l.Dir, l.Token)}, nil
	case l.open && begun:
		return runner.Status{State: runner.Active, Reason: "Slurm job " + l.ID + unaccounted}, nil
	case l.open:
		return runner.Status{State: runner.Queued, Reason: "Slurm job " + l.ID + unaccounted}, nil
	case !there && !r.queue.Missing(s, l.Name, l.armed()), there && w.Phase() != squeue.Over:
		if begun {
			return runner.Status{State: runner.Active, Reason: whereOf(by)}, nil
		}
		return runner.Status{State: runner.Queued, Vague: true}, nil
	}
	st = runner.Status{State: runner.Lost, Said: r.Said(ctx, l.Key, l.Dir, l.Token)}
	if there {
		st.Cause, st.Said = w.Cause(), l.said(w)
	}
	if begun {
		switch late, first := r.queue.Late(l.Name); {
		case first:
			r.Renew(ctx, l.Token)
			return r.state(ctx, s, l)
		case late:
			st = runner.Status{State: runner.Active, Reason: "Slurm job " + l.ID + " is over, and its end is not seen yet"}
		}
		return st, nil
	}
	m, err := spool.NewNames(l.Key, l.Dir)
	if err == nil {
		var f runner.Fate
		if f, err = r.shut(ctx, l.Key, m, l.Dir); err == nil && f.Started {
			return runner.Status{State: runner.Active}, nil // it was taken in this moment
		}
	}
	switch {
	case failed && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS)):
		r.mu.Lock()
		r.cramped[l.Token] = true
		r.mu.Unlock()
		why := l.said(w) + ". It can be revoked when there is room: " + err.Error()
		return runner.Status{State: runner.Queued, Reason: why}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist): // without its folder it cannot begin
		return runner.Status{State: runner.Unknown}, ctx.Err()
	}
	switch {
	case s.Removed(l.Name):
		st.Cause, st.Said = job.SchedulerCanceled, "Slurm job "+l.ID+" was canceled while it waited"
	case !there:
		st.State, st.Said = runner.Dropped, ""
	case failed && err == nil:
		return r.gaveUp(ctx, l, l.said(w)), ctx.Err()
	}
	return st, nil
}

// unaccounted says of a job what it waits for: an answer of sacct.
const unaccounted = " is not in Slurm's queue any more, and its accounting does not tell how it ended"

// booked returns what the accounts say of a launch that Slurm's queue has forgotten, if the files
// do not tell enough. It notes in l whether that is open.
func (r *Runner) booked(s *squeue.Snapshot, l *launch, end *runner.End, w squeue.Row, there bool) (squeue.Row, bool) {
	patience := maxDoubt
	switch {
	case there, s.At.IsZero(), end != nil && (!doubtful(end) || r.early(s, end, l.Name)):
		return w, there
	case end == nil && (s.Removed(l.Name) || !r.queue.Missing(s, l.Name, l.armed())):
		return w, there
	case end == nil:
		patience = 0
	}
	l.record, there, l.open = r.book.Find(l.Name, l.armed(), patience)
	return l.record.Row, there
}

// said is what Slurm says of a job, for people.
func (l *launch) said(w squeue.Row) string {
	if l.record.State != "" {
		return l.record.String()
	}
	return w.String()
}

// reject revokes a launch that can never begin, and cancels it.
func (r *Runner) reject(ctx context.Context, l *launch, w squeue.Row) (st runner.Status, err error) {
	m, err := spool.NewNames(l.Key, l.Dir)
	var f runner.Fate
	if err == nil {
		f, err = r.shut(ctx, l.Key, m, l.Dir)
	}
	switch {
	case err != nil:
		return runner.Status{State: runner.Unknown}, ctx.Err()
	case f.Started:
		return runner.Status{State: runner.Active}, nil
	}
	if err := r.client.Cancel(ctx, l.Name, ""); err != nil { // it would find itself revoked
		r.Log.Warn("a job that can never begin is still in Slurm", "launch", l.Key, "id", l.ID, "error", err)
	}
	return runner.Status{State: runner.Lost, Cause: job.SchedulerRejected, Said: w.Waiting()}, nil
}

// gaveUp is the state of a launch whose script gave up before it took it.
func (r *Runner) gaveUp(ctx context.Context, l *launch, said string) runner.Status {
	said = cmp.Or(r.Said(ctx, l.Key, l.Dir, l.Token), said+", and has left no word: its node may not see "+l.Dir)
	end := r.GaveUp(ctx, l.Handle, l.Dir, "", said)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cramped[l.Token] {
		end.NotStarted = runner.NoRoom
		delete(r.cramped, l.Token)
	}
	return runner.Status{State: runner.Ended, End: end}
}

// end returns the end of the newest run of a launch. It is nil if nobody has told it yet. The error
// is fs.ErrNotExist if nobody can have.
func (r *Runner) end(ctx context.Context, l *launch) (*runner.End, error) {
	run, err := r.Newest(ctx, l.Key)
	if err != nil {
		return nil, err
	}
	return r.EndOf(ctx, l.Handle, run)
}

// taken reports whether a script took a launch, and which did so last, or whether that was revoked.
func (r *Runner) taken(ctx context.Context, l *launch) (by spool.Taker, begun, revoked bool, err error) {
	run, err := r.Newest(ctx, l.Key)
	if err != nil {
		return by, false, false, err
	}
	for ; run >= 0; run-- { // one that begins at this moment has not said so yet
		if by, begun, err = r.Roomed(ctx, l.Key, run); err != nil || begun {
			return by, begun, false, err
		}
	}
	words, err := r.Read(ctx, l.own("taken"))
	revoked = words.Is("revoked", 1)
	by, _ = words.Taker()
	return by, words != nil && !revoked, revoked, err
}
