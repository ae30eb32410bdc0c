package process

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

// rooms is the folder of the rooms in the spool. A list or a watch of the spool leaves it out.
const rooms = ".rooms"

// roomName returns the name of a launch's room.
func (r *Runner) roomName(k runner.Key) string {
	return path.Join(r.spool, rooms, runner.EndName(k, 0))
}

// room reads a launch's room: who took the launch, and its end, which is nil until it is whole.
func (r *Runner) room(ctx context.Context, k runner.Key) (mark, *runner.End, error) {
	return r.readRoom(ctx, r.roomName(k), k)
}

func (r *Runner) readRoom(ctx context.Context, name string, k runner.Key) (mark, *runner.End, error) {
	b, err := files.ReadFile(ctx, r.fs, name, runner.MaxEnd)
	if err != nil {
		return nil, nil, err
	}
	taken, end, err := parse(runner.EndName(k, 0), b)
	if err != nil {
		return taken, nil, nil //nolint:nilerr // nobody has told the end, or a part of it
	}
	return taken, end, nil
}

// parse reads a message, and who took the launch that it is about.
func parse(name string, content []byte) (mark, *runner.End, error) {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	taken := mark(strings.Fields(string(line)))
	end, err := runner.ParseEnd(name, content)
	if err != nil {
		return taken, nil, err
	}
	if _, at, ok := taken.taker(); ok {
		end.Waited = max(0, end.Since-at.Process.Started())
	}
	return taken, &end, nil
}

// roomed returns the handle of a launch that has a room: its program was started.
func (r *Runner) roomed(ctx context.Context, k runner.Key, dir string) (runner.Handle, bool, error) {
	taken, _, err := r.room(ctx, k)
	switch {
	case errors.Is(err, fs.ErrNotExist), job.KindOf(err) == job.Corrupt:
		return runner.Handle{}, false, nil
	case err != nil:
		return runner.Handle{}, false, err
	}
	token, at, ok := taken.taker()
	if !ok { // cut by a power failure, or by somebody: what is in the folder tells
		return runner.Handle{}, false, nil
	}
	at.Dir = dir
	return r.handle(k, token, at), true, nil
}

// rooms returns the rooms of a job's launches that may be there. k is the last one.
func (r *Runner) rooms(ctx context.Context, k runner.Key) ([]string, error) {
	names := []string{r.roomName(k)}
	if k.Launch == 1 && k.Attempt == 1 {
		return names, nil
	}
	all, err := files.Names(ctx, r.fs, path.Join(r.spool, rooms))
	for _, name := range all {
		if strings.HasPrefix(name, k.Job.String()+".") {
			names = append(names, path.Join(r.spool, rooms, name))
		}
	}
	return names, err
}
