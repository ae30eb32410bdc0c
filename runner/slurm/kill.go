package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/script"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// Kill ends what is left of a launch. One that waits is revoked, and canceled. One that runs gets
// SIGTERM, with all its steps. Then its script is told to end it by force: the script knows all of
// it by its marks, while Slurm may not. Where Slurm keeps all of it in a control group, or if the
// script does not do so within [Config.Patience], all get SIGKILL from Slurm. The script does not
// outlive that, and Kill itself tells the end.
func (r *Runner) Kill(ctx context.Context, h runner.Handle, grace time.Duration) error {
	l, err := r.find(h)
	if err != nil {
		return err
	}
	if err := r.kill(ctx, &l, grace); err != nil {
		return fmt.Errorf("kill %s: %w", h.Key, err)
	}
	return nil
}

func (r *Runner) kill(ctx context.Context, l *launch, grace time.Duration) (err error) {
	m, err := spool.NewNames(l.Key, l.Dir)
	if err != nil {
		return err
	}
	quiet, err := r.quiet(ctx, l)
	again := false
	if err == nil && quiet {
		again, err = r.again(ctx, l)
	}
	if err != nil || quiet && !again {
		return err
	}
	// No later run starts the program. Without the folder none can.
	err = r.FS.Put(ctx, l.own("stop"), strings.NewReader(""), files.PutOptions{})
	if err == nil {
		err = r.LinkOnce(ctx, m, "settle", "revoked "+m.Token, m.Taken())
	}
	_, begun, _, unknown := r.taken(ctx, l)
	full := begun && spool.NoRoom(err)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !full:
		return err
	case unknown != nil:
		return unknown
	case !begun || again:
		return r.client.Cancel(ctx, l.Name, "")
	}
	defer func() {
		if full && err == nil { // no file says so: that there is no later run Slurm sees to
			err = r.client.Cancel(ctx, l.Name, "")
		}
	}()
	s, err := r.queue.Look(ctx, r.cfg.Soon)
	if err != nil {
		return err
	}
	forced := time.Now().Add(grace)
	switch w, there := s.Find(l.Name); {
	case w.Suspended() && !w.Stopped(), there && w.Phase() == squeue.Waits: // Slurm lets it have no other signal
		err = r.client.Cancel(ctx, l.Name, "")
	case grace > 0:
		err = r.client.Cancel(ctx, l.Name, "--signal=TERM --full")
		if err == nil && w.Stopped() { // it sees that only when it goes on
			err = r.halter.Tell(ctx, l.Name, false)
		}
	}
	if err != nil {
		return err
	}
	var sent time.Time // when it was told last to end it by force
	waits := false     // its next run
	for wait := time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		if quiet, err := r.quiet(ctx, l); err != nil || quiet {
			return err
		}
		if !time.Now().Before(forced) && time.Since(sent) > r.cfg.Soon {
			if err := r.force(ctx, l, waits || time.Since(forced) > r.cfg.Patience); err != nil {
				return err
			}
			sent = time.Now()
		}
		s, err := r.queue.Look(ctx, r.cfg.Soon)
		if ctx.Err() != nil {
			return job.Errorf(job.Unavailable, "Slurm job %s is still alive: %w", l.ID, ctx.Err())
		}
		if err != nil {
			return err
		}
		w, there := s.Find(l.Name)
		waits = there && w.Phase() == squeue.Waits
		if there && w.Phase() == squeue.Over || !there && r.queue.Missing(s, l.Name, l.armed()) {
			return r.tell(ctx, l, w)
		}
		select {
		case <-time.After(min(wait, max(time.Millisecond, time.Until(forced)))):
		case <-ctx.Done():
			return job.Errorf(job.Unavailable, "Slurm job %s is still alive: %w", l.ID, ctx.Err())
		}
	}
}

// quiet reports whether a launch has told its end, and nothing of it is alive. The script looks for
// what is left before it tells the end. What is left on other nodes, where it cannot look, Slurm
// ends after that.
func (r *Runner) quiet(ctx context.Context, l *launch) (bool, error) {
	end, err := r.end(ctx, l)
	if err != nil || end == nil {
		return false, nil //nolint:nilerr // nobody can tell
	}
	taken, _, err := r.Room(ctx, l.Key, end.Run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if t, _ := taken.Taker(); len(t.Rest) < 5 || t.Rest[4] == "1" { // without a room it is long over
		return true, nil
	}
	s, err := r.queue.Look(ctx, r.cfg.Soon)
	if err != nil {
		return false, err
	}
	w, there := s.Find(l.Name)
	return there && w.Phase() != squeue.Runs || !there && r.queue.Missing(s, l.Name, l.armed()), nil
}

// again reports whether Slurm will run a launch again that has told an end.
func (r *Runner) again(ctx context.Context, l *launch) (bool, error) {
	end, err := r.end(ctx, l)
	if err != nil || end == nil || !doubtful(end) {
		return false, err
	}
	s, err := r.queue.Look(ctx, min(r.cfg.Soon, max(0, time.Since(end.Ended))))
	if err != nil {
		return false, err
	}
	w, there := s.Find(l.Name)
	return there && w.Phase() == squeue.Waits, nil
}

// force has a launch end by force: by its script, or by Slurm, which needs no room for that.
func (r *Runner) force(ctx context.Context, l *launch, bySlurm bool) error {
	signal := "KILL"
	if !bySlurm {
		run, err := r.Newest(ctx, l.Key)
		if err != nil {
			return err
		}
		taken, _, err := r.Room(ctx, l.Key, run)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if t, _ := taken.Taker(); len(t.Rest) < 6 || t.Rest[5] != script.BySlurm {
			room := r.RoomName(l.Key, run)
			err = r.FS.Put(ctx, script.Order(room), strings.NewReader(""), files.PutOptions{})
			if spool.NoRoom(err) { // a second name needs none
				err = files.QuickLink(ctx, r.FS, room, script.Order(room))
			}
			if err == nil || errors.Is(err, fs.ErrExist) {
				signal = "CONT"
			} else if !spool.NoRoom(err) {
				return err
			}
		}
	}
	return r.client.Cancel(ctx, l.Name, "--signal="+signal+" --full")
}

// tell tells the end of a launch whose script was killed with its program. If it had told the end
// itself, that stands. Where there is no room for it, it is lost.
func (r *Runner) tell(ctx context.Context, l *launch, w squeue.Row) error {
	run, err := r.Newest(ctx, l.Key)
	if err != nil {
		return err
	}
	taken, end, err := r.Room(ctx, l.Key, run)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (end != nil || len(taken) < 3) {
		return nil // it ended by itself, or before the program began
	}
	if err != nil {
		return err
	}
	text := runner.KilledEnd(taken, w.Start, w.End)
	for _, name := range []string{r.RoomName(l.Key, run), path.Join(r.Dir, runner.EndName(l.Key, run))} {
		if err := r.FS.Put(ctx, name, strings.NewReader(text), files.PutOptions{}); err != nil && !spool.NoRoom(err) {
			return err
		}
	}
	return nil
}
