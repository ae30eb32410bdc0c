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
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// Kill ends what is left of a launch. One that waits is revoked, and canceled. One that runs gets
// SIGTERM, with all its steps, and then SIGKILL. Its script outlives SIGTERM and tells the end. It
// does not outlive SIGKILL: then Kill itself tells the end.
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

func (r *Runner) kill(ctx context.Context, l *launch, grace time.Duration) error {
	m, err := spool.NewNames(l.Key, l.Dir)
	if err != nil {
		return err
	}
	if end, err := r.end(ctx, l); err == nil && end != nil {
		return nil
	}
	// No later run starts the program. Without the folder none can.
	err = r.FS.Put(ctx, l.own("stop"), strings.NewReader(""), files.PutOptions{})
	if err == nil {
		err = r.LinkOnce(ctx, m, "settle", "revoked "+m.Token, m.Taken())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	begun, _, err := r.taken(ctx, l)
	if err != nil {
		return err
	}
	if !begun {
		return r.client.Cancel(ctx, l.Name, "")
	}
	forced := time.Now().Add(grace)
	if grace > 0 {
		if err := r.client.Cancel(ctx, l.Name, "--signal=TERM --full"); err != nil {
			return err
		}
	}
	var sent time.Time // when SIGKILL was
	for wait := time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		if end, err := r.end(ctx, l); err == nil && end != nil {
			return nil
		}
		if !time.Now().Before(forced) && time.Since(sent) > r.cfg.Soon {
			if err := r.client.Cancel(ctx, l.Name, "--signal=KILL --full"); err != nil {
				return err
			}
			sent = time.Now()
		}
		s, err := r.queue.look(ctx, r.cfg.Soon)
		if ctx.Err() != nil {
			return job.Errorf(job.Unavailable, "Slurm job %s is still alive: %w", l.ID, ctx.Err())
		}
		if err != nil {
			return err
		}
		w, there := s.Find(l.Name)
		if there && w.Phase() == squeue.Over || !there && r.queue.missing(s, l) {
			return r.tell(ctx, l, w)
		}
		select {
		case <-time.After(min(wait, max(time.Millisecond, time.Until(forced)))):
		case <-time.After(wait):
		case <-ctx.Done():
			return job.Errorf(job.Unavailable, "Slurm job %s is still alive: %w", l.ID, ctx.Err())
		}
	}
}

// tell tells the end of a launch whose script was killed with its program. If it had told the end
// itself, that stands.
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
	began, ended := w.Start, w.End
	if ended.IsZero() {
		ended = time.Now()
	}
	if began.IsZero() || began.After(ended) {
		began = ended
	}
	none := "0m0.00s 0m0.00s\n"
	text := fmt.Sprintf("%s\ncode 137\nbegan 0\nended %d\nbooted %d\n%s%ssignal\nasked\nend\n", strings.Join(taken, " "),
		ended.Unix()-began.Unix(), began.Unix(), none, none)
	for _, name := range []string{r.RoomName(l.Key, run), path.Join(r.Dir, runner.EndName(l.Key, run))} {
		if err := r.FS.Put(ctx, name, strings.NewReader(text), files.PutOptions{}); err != nil {
			return err
		}
	}
	return nil
}
