package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Past tells what the host knows of a job. It lists the job's folder, and reads who took each
// launch after k.
func (r *Runner) Past(ctx context.Context, k runner.Key, dir string) (runner.Past, error) {
	if r.unknown(ctx, k, dir) {
		return runner.Past{}, nil
	}
	p, err := r.pastOf(ctx, k, dir)
	if err != nil {
		return runner.Past{}, fmt.Errorf("past of job %s: %w", k.Job, err)
	}
	return p, nil
}

func (r *Runner) pastOf(ctx context.Context, k runner.Key, dir string) (p runner.Past, err error) {
	if p.Mark, err = r.mark(ctx, k.Job); err != nil {
		return p, err
	}
	folder := path.Join(dir, runner.Folder)
	all, err := files.Names(ctx, r.fs, folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return p, err
	}
	for _, name := range all {
		key := runner.Key{Job: k.Job}
		if n, _ := fmt.Sscanf(name, "launch.%d.%d", &key.Attempt, &key.Launch); n != 2 || key.Launch <= k.Launch {
			continue
		}
		n := names{folder: folder, number: number(key)}
		taken, err := r.read(ctx, n.taken())
		if err != nil {
			return p, err
		}
		if taken == nil {
			armed, err := r.read(ctx, n.launch())
			if err != nil {
				return p, err
			}
			if !armed.is("revoked", 1) {
				p.Open = append(p.Open, key)
			}
			continue
		}
		fate, err := r.fate(ctx, key, dir, taken, nil)
		if err != nil {
			return p, err
		}
		if fate.Started {
			p.Started = append(p.Started, fate.Handle)
		}
	}
	slices.SortFunc(p.Started, func(a, b runner.Handle) int { return a.Key.Launch - b.Key.Launch })
	slices.SortFunc(p.Open, func(a, b runner.Key) int { return a.Launch - b.Launch })
	return p, nil
}

// days is how the folders of marks are named, by the day on which the jobs in them were made.
const days = time.DateOnly

func (r *Runner) markName(id job.ID) string {
	return path.Join(r.past, id.Made().Format(days), id.String())
}

// marked reports whether a job was cleaned here: one look at one name.
func (r *Runner) marked(ctx context.Context, id job.ID) (bool, error) {
	_, err := r.fs.Stat(ctx, r.markName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// mark returns a job's mark, nil if it has none.
func (r *Runner) mark(ctx context.Context, id job.ID) (*runner.Mark, error) {
	if marked, err := r.marked(ctx, id); !marked {
		return nil, err
	}
	info, err := r.fs.Stat(ctx, r.markName(id))
	if err != nil {
		return nil, err
	}
	_, end, err := r.markOf(ctx, id)
	if err != nil && job.KindOf(err) != job.Corrupt {
		return nil, err
	}
	if end != nil {
		end.Key = runner.Key{Job: id}
	}
	return &runner.Mark{At: info.ModTime().UTC(), End: end}, nil
}

// markOf reads a job's mark, which was a room.
func (r *Runner) markOf(ctx context.Context, id job.ID) (mark, *runner.End, error) {
	return r.readRoom(ctx, r.markName(id), runner.Key{Job: id, Attempt: 1, Launch: 1})
}

// remember leaves the mark of a job if any launch of it was started. The mark is the room of launch
// k if there is one: that takes a rename and no more files. It need not be durable, since the
// removal of the folder that follows is not durable before it.
func (r *Runner) remember(ctx context.Context, k runner.Key, dir string) error {
	err := r.keep(ctx, k)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Who began to clean may have removed a part of the runner's folder, so the mark comes first.
	if marked, err := r.marked(ctx, k.Job); err != nil || marked {
		return err
	}
	p, err := r.pastOf(ctx, runner.Key{Job: k.Job}, dir)
	if err != nil || len(p.Started) == 0 {
		return err
	}
	for _, h := range slices.Backward(p.Started) {
		if err := r.keep(ctx, h.Key); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.fs.Put(ctx, r.markName(k.Job), strings.NewReader("ran\n"), files.PutOptions{NoSync: true})
}

// keep makes the room of a launch the mark of its job. The error is fs.ErrNotExist if there is
// none.
func (r *Runner) keep(ctx context.Context, k runner.Key) error {
	from, to := r.roomName(k), r.markName(k.Job)
	err := r.rename(ctx, from, to)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // it may be the first of its day
		if err := r.fs.Mkdir(ctx, path.Dir(to)); err != nil {
			return err
		}
		if err = r.rename(ctx, from, to); err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	content, readErr := files.ReadFile(ctx, r.fs, from, runner.MaxEnd) // the marks may be on another file system
	if readErr != nil {
		return err
	}
	return r.fs.Put(ctx, to, strings.NewReader(string(content)), files.PutOptions{NoSync: true})
}

// rename gives a room the name of a mark. Where that takes fewer round trips the mark is a second
// name, for a moment: then the room is removed with the other files of the launch.
func (r *Runner) rename(ctx context.Context, from, to string) error {
	q, ok := r.fs.(files.QuickLinker)
	if !ok {
		return files.Move(ctx, r.fs, from, to)
	}
	err := q.QuickLink(ctx, from, to)
	if errors.Is(err, fs.ErrExist) {
		return nil // the job was cleaned before
	}
	return err
}

// Marked returns the jobs that have a mark.
func (r *Runner) Marked(ctx context.Context, newest int) (ids []job.ID, err error) {
	all, err := files.Names(ctx, r.fs, r.past)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("marks: %w", err)
	}
	for _, day := range slices.Backward(all) {
		marks, err := files.Names(ctx, r.fs, path.Join(r.past, day))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("marks: %w", err)
		}
		for _, m := range marks {
			if id, err := job.ParseID(m); err == nil {
				ids = append(ids, id)
			}
		}
		if newest > 0 && len(ids) >= newest {
			break
		}
	}
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	return ids, nil
}

// Forget removes the marks of a day if none was added for as long as age.
func (r *Runner) Forget(ctx context.Context, age time.Duration) error {
	all, err := r.fs.List(ctx, r.past)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget marks: %w", err)
	}
	for _, day := range all {
		if time.Since(day.ModTime()) < age {
			continue
		}
		if err := r.fs.Remove(ctx, path.Join(r.past, day.Name())); err != nil {
			return fmt.Errorf("forget marks: %w", err)
		}
	}
	return nil
}
