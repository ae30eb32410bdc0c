package spool

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
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// PastOf tells what the host knows of a job, as [runner.Runner.Past] does. It lists the job's
// folder, and reads who took each launch after k.
func (s *Spool) PastOf(ctx context.Context, k runner.Key, dir string) (runner.Past, error) {
	p, err := s.pastOf(ctx, k, dir)
	if err != nil {
		return runner.Past{}, fmt.Errorf("look for its launches: %w", err)
	}
	return p, nil
}

func (s *Spool) pastOf(ctx context.Context, k runner.Key, dir string) (p runner.Past, err error) {
	if p.Mark, err = s.mark(ctx, k.Job); err != nil {
		return p, err
	}
	folder := path.Join(dir, runner.Folder)
	all, err := files.Names(ctx, s.FS, folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return p, err
	}
	for _, name := range all {
		key := runner.Key{Job: k.Job}
		if n, _ := fmt.Sscanf(name, "launch.%d.%d", &key.Attempt, &key.Launch); n != 2 || key.Launch <= k.Launch {
			continue
		}
		fate, open, err := s.Fate(ctx, key, dir)
		if err != nil {
			return p, err
		}
		if open {
			p.Open = append(p.Open, key)
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

// MarkName returns the name of a job's mark.
func (s *Spool) MarkName(id job.ID) string {
	return path.Join(s.PastDir, id.Made().Format(days), id.String())
}

// Marks reports whether a job was cleaned here: one look at one name.
func (s *Spool) Marks(ctx context.Context, id job.ID) (bool, error) {
	_, err := s.FS.Stat(ctx, s.MarkName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// mark returns a job's mark, nil if it has none.
func (s *Spool) mark(ctx context.Context, id job.ID) (*runner.Mark, error) {
	if marked, err := s.Marks(ctx, id); !marked {
		return nil, err
	}
	info, err := s.FS.Stat(ctx, s.MarkName(id))
	if err != nil {
		return nil, err
	}
	_, end, err := s.MarkOf(ctx, id)
	if err != nil && job.KindOf(err) != job.Corrupt {
		return nil, err
	}
	if end != nil {
		end.Key = runner.Key{Job: id}
	}
	return &runner.Mark{At: info.ModTime().UTC(), End: end}, nil
}

// MarkOf reads a job's mark, which was a room.
func (s *Spool) MarkOf(ctx context.Context, id job.ID) (Words, *runner.End, error) {
	return s.readRoom(ctx, s.MarkName(id), runner.Key{Job: id, Attempt: 1, Launch: 1}, 0)
}

// Remember leaves the mark of a job if any launch of it was started. The mark is the room of launch
// k if there is one: that takes a rename and no more files. It need not be durable, since the
// removal of the folder that follows is not durable before it.
func (s *Spool) Remember(ctx context.Context, k runner.Key, dir string) error {
	err := s.keep(ctx, k)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Who began to clean may have removed a part of the runner's folder, so the mark comes first.
	if marked, err := s.Marks(ctx, k.Job); err != nil || marked {
		return err
	}
	p, err := s.pastOf(ctx, runner.Key{Job: k.Job}, dir)
	if err != nil || len(p.Started) == 0 {
		return err
	}
	for _, h := range slices.Backward(p.Started) {
		if err := s.keep(ctx, h.Key); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.FS.Put(ctx, s.MarkName(k.Job), strings.NewReader("ran\n"), files.PutOptions{NoSync: true})
}

// keep makes the room of a launch the mark of its job. The error is fs.ErrNotExist if there is
// none.
func (s *Spool) keep(ctx context.Context, k runner.Key) error {
	run, err := s.Newest(ctx, k)
	if err != nil {
		return err
	}
	from, to := s.RoomName(k, run), s.MarkName(k.Job)
	err = s.rename(ctx, from, to)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // it may be the first of its day
		if err := s.FS.Mkdir(ctx, path.Dir(to)); err != nil {
			return err
		}
		if err = s.rename(ctx, from, to); err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	content, readErr := files.ReadFile(ctx, s.FS, from, runner.MaxEnd) // the marks may be on another file system
	if readErr != nil {
		return err
	}
	if err := s.FS.Mkdir(ctx, path.Dir(to)); err != nil { // else it would look as if there were no room
		return err
	}
	return s.FS.Put(ctx, to, strings.NewReader(string(content)), files.PutOptions{NoSync: true})
}

// rename gives a room the name of a mark. Where many files are removed in one round trip the mark
// is a second name, for a moment: then the room is removed with the other files of the launch.
func (s *Spool) rename(ctx context.Context, from, to string) error {
	if _, many := s.FS.(files.RemoverOfMany); !many {
		return files.Move(ctx, s.FS, from, to)
	}
	err := files.QuickLink(ctx, s.FS, from, to)
	if errors.Is(err, fs.ErrExist) {
		return nil // the job was cleaned before
	}
	return err
}

// Marked returns the jobs that have a mark.
func (s *Spool) Marked(ctx context.Context, newest int) (ids []job.ID, err error) {
	all, err := files.Names(ctx, s.FS, s.PastDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("marks: %w", err)
	}
	for _, day := range slices.Backward(all) {
		marks, err := files.Names(ctx, s.FS, path.Join(s.PastDir, day))
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

// sweepGap is the least time between two looks for messages that nobody takes.
const sweepGap = time.Hour

// Forget removes the marks of a day if none was added for as long as age. It also removes messages
// that are older: their jobs are of another service that is gone, or of none.
func (s *Spool) Forget(ctx context.Context, age time.Duration) error {
	all, err := s.FS.List(ctx, s.PastDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget marks: %w", err)
	}
	for _, day := range all {
		if time.Since(day.ModTime()) < age {
			continue
		}
		if err := s.FS.Remove(ctx, path.Join(s.PastDir, day.Name())); err != nil {
			return fmt.Errorf("forget marks: %w", err)
		}
	}
	s.mu.Lock()
	due := s.swept.IsZero() || time.Since(s.swept) >= sweepGap
	if due {
		s.swept = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	told, err := s.FS.List(ctx, s.Dir)
	for _, m := range told {
		if _, _, parseErr := runner.ParseEndName(m.Name()); parseErr == nil && time.Since(m.ModTime()) >= age {
			err = errors.Join(err, s.FS.Remove(ctx, path.Join(s.Dir, m.Name())))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget messages: %w", err)
	}
	return nil
}

// CleanFolder leaves a mark, and removes the runner's folder of a job, the messages of launch k,
// which is the last one, and a folder, if one is named.
func (s *Spool) CleanFolder(ctx context.Context, k runner.Key, dir, folder string) error {
	err := k.Check()
	if err == nil {
		err = s.Remember(ctx, k, dir)
	}
	crash.At("archive.marked")
	if err == nil {
		err = s.forgetLaunches(ctx, k, dir, folder)
	}
	if err != nil {
		return fmt.Errorf("clean %s: %w", k, err)
	}
	return nil
}

// forgetLaunches removes what is kept of a job's launches, but its mark, and a folder, if one is
// named. k is the last launch.
func (s *Spool) forgetLaunches(ctx context.Context, k runner.Key, dir, folder string) error {
	names, err := s.rooms(ctx, k)
	for _, room := range names {
		if name := path.Base(room); strings.HasPrefix(name, runner.EndName(k, 0)[:len(runner.EndName(k, 0))-1]) {
			names = append(names, path.Join(s.Dir, name))
		}
	}
	all := append(slices.Clone(names), path.Join(dir, runner.Folder))
	if folder != "" {
		all = append(all, folder)
	}
	if files.RemoveAll(ctx, s.FS, all...) == nil {
		return err
	}
	err = errors.Join(err, files.RemoveAll(ctx, s.FS, names...), s.unmake(ctx, dir))
	if err == nil && folder != "" {
		err = s.FS.Remove(ctx, folder)
	}
	return err
}

// unmake removes the runner's folder of a job. The program may have shut the job's folder.
func (s *Spool) unmake(ctx context.Context, dir string) error {
	name := path.Join(dir, runner.Folder)
	err := s.FS.Remove(ctx, name)
	m, ok := s.FS.(files.Moder)
	if err == nil || !ok || !errors.Is(err, fs.ErrPermission) && job.KindOf(err) != job.Conflict {
		return err
	}
	info, statErr := s.FS.Stat(ctx, dir)
	if statErr != nil || m.Chmod(ctx, dir, info.Mode()|0o700) != nil {
		return err
	}
	return s.FS.Remove(ctx, name)
}
