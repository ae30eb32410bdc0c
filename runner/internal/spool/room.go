package spool

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Rooms is the folder of the rooms in the spool. A list or a watch of the spool leaves it out.
const Rooms = ".rooms"

// RoomName returns the name of the room of a run of a launch.
func (s *Spool) RoomName(k runner.Key, run int) string {
	return path.Join(s.Dir, Rooms, runner.EndName(k, run))
}

// Room reads a room: who took the launch, and its end, which is nil until it is whole.
func (s *Spool) Room(ctx context.Context, k runner.Key, run int) (Words, *runner.End, error) {
	return s.readRoom(ctx, s.RoomName(k, run), k, run)
}

func (s *Spool) readRoom(ctx context.Context, name string, k runner.Key, run int) (Words, *runner.End, error) {
	b, err := files.ReadFile(ctx, s.FS, name, runner.MaxEnd)
	if err != nil {
		return nil, nil, err
	}
	taken, end, err := parse(runner.EndName(k, run), b)
	if err != nil {
		return taken, nil, nil //nolint:nilerr // nobody has told the end, or a part of it
	}
	return taken, end, nil
}

// parse reads a message, and who took the launch that it is about.
func parse(name string, content []byte) (Words, *runner.End, error) {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	taken := Words(strings.Fields(string(line)))
	end, err := runner.ParseEnd(name, content)
	if err != nil {
		return taken, nil, err
	}
	if t, ok := taken.Taker(); ok {
		end.Waited = max(0, end.Since-t.Process.Started())
	}
	return taken, &end, nil
}

// Renew has a network file system look at the folder of rooms anew: a client of NFS does where it
// has changed a folder itself. token is that of a launch.
func (s *Spool) Renew(ctx context.Context, token string) {
	name := path.Join(s.Dir, Rooms, token)
	_ = s.FS.Put(ctx, name, strings.NewReader(""), files.PutOptions{NoSync: true})
	_ = s.FS.Remove(ctx, name)
}

// Roomed returns who took a run of a launch, if it has a room: its program was started. If not, or
// if the room was cut by a power failure or by somebody, what is in the job's folder tells.
func (s *Spool) Roomed(ctx context.Context, k runner.Key, run int) (t Taker, ok bool, err error) {
	taken, _, err := s.Room(ctx, k, run)
	switch {
	case errors.Is(err, fs.ErrNotExist), job.KindOf(err) == job.Corrupt:
		return t, false, nil
	case err != nil:
		return t, false, err
	}
	t, ok = taken.Taker()
	return t, ok, nil
}

// EndOf returns the end of a run of a launch. It is nil if nobody has told it yet. The error is
// [fs.ErrNotExist] if nobody can have.
func (s *Spool) EndOf(ctx context.Context, h runner.Handle, run int) (end *runner.End, err error) {
	if end, _ = s.Notified(h.Key, run, h.Token); end == nil {
		_, end, err = s.Room(ctx, h.Key, run)
	}
	if errors.Is(err, fs.ErrNotExist) { // it may be what became the job's mark
		if _, marked, markErr := s.MarkOf(ctx, h.Key.Job); markErr == nil {
			end, err = marked, nil
		}
	}
	if was := s.before(h); errors.Is(err, fs.ErrNotExist) && was != "" {
		_, end, err = s.readRoom(ctx, path.Join(was, Rooms, runner.EndName(h.Key, run)), h.Key, run)
	}
	if err != nil || end == nil || end.Token != h.Token {
		return nil, err
	}
	end.Key = h.Key
	return end, nil
}

// rooms returns the rooms of a job's launches that may be there. k is the last one.
func (s *Spool) rooms(ctx context.Context, k runner.Key) ([]string, error) {
	names := []string{s.RoomName(k, 0)}
	if k.Launch == 1 && k.Attempt == 1 && !s.Scheduled {
		return names, nil
	}
	all, err := files.Names(ctx, s.FS, path.Join(s.Dir, Rooms))
	for _, name := range all {
		if strings.HasPrefix(name, k.Job.String()+".") {
			names = append(names, path.Join(s.Dir, Rooms, name))
		}
	}
	return names, err
}

// Newest returns the newest run of a launch that has a room. It is 0 also if there is none. A run
// after run 1 makes a room for each run before it that has none, so there are no gaps.
func (s *Spool) Newest(ctx context.Context, k runner.Key) (run int, err error) {
	for s.Scheduled && err == nil {
		if _, err = s.FS.Stat(ctx, s.RoomName(k, run+1)); err == nil {
			run++
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return run, err
}
