package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// made are the folders that Pawl makes for a job, and may remove for it.
type made struct{ folder, results string }

// made returns the folders of a job. They follow from its id and tenant, because its documents may
// name any folder.
func (k *Kind) made(y *System, j *job.Job) (made, error) {
	if err := job.CheckTenant(j.Tenant); err != nil {
		return made{}, job.Errorf(job.Conflict, "the files of job %s have to be removed by hand: %w", j.ID, err)
	}
	return made{y.folder(j), path.Join(k.cfg.Archive, j.Tenant, j.ID.String())}, nil
}

// where returns the folder of a job far away. now is where it would be made now: the document of
// its system may have named another work folder when it was made. s may be nil.
func (s *program) where(now string) string {
	if s != nil && elsewhere(s.job) && strings.HasSuffix(s.dir, path.Join("/", s.job.Tenant, s.job.ID.String())) {
		return s.dir
	}
	return now
}

// Remove implements [engine.Remover]. It removes the job's folder, its results in the service's own
// archive, and copies of results that were never published. Results in a folder of the user stay.
// What is on a machine that cannot be reached goes when it can.
func (k *Kind) Remove(ctx context.Context, j *job.Job) error {
	if !elsewhere(j) || k.cfg.Remote == nil {
		return k.remove(ctx, j)
	}
	since, away := k.away.Load(j.Watch)
	if !away || time.Since(since.(time.Time)) > awayFor {
		err := k.remove(ctx, j)
		if kind := job.KindOf(err); kind != job.NotFound && silent(j, err) == nil || ctx.Err() != nil {
			return err
		}
		k.away.Store(j.Watch, time.Now())
	}
	made, err := k.made(&System{}, j)
	if err == nil {
		err = files.RemoveAll(ctx, k.cfg.Files, made.results)
	}
	if err != nil {
		return stays("files", j.ID, err)
	}
	note, err := json.Marshal(j)
	dir := k.removals(j.Watch)
	if err == nil {
		err = k.cfg.Local.Host.Files().Mkdir(ctx, dir)
	}
	if err == nil {
		err = k.cfg.Local.Host.Files().Put(ctx, path.Join(dir, j.ID.String()), bytes.NewReader(note),
			files.PutOptions{Mode: 0o600})
	}
	return err
}

// awayFor is how long a machine that could not be reached is not asked to remove more.
const awayFor = 10 * time.Second

// removals returns the folder of notes of the jobs whose files on the machine of a watch have to be
// removed: their rows are gone.
func (k *Kind) removals(watch string) string {
	return path.Join(k.cfg.Local.Work, ".removals", strings.ReplaceAll(watch, "/", "@"))
}

// removeLate removes what could not be removed on a system when its jobs were.
func (k *Kind) removeLate(ctx context.Context, y *System) error {
	fsys, dir := k.cfg.Local.Host.Files(), k.removals(y.Watch)
	names, err := files.Names(ctx, fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		var j job.Job
		note, readErr := files.ReadFile(ctx, fsys, path.Join(dir, name), maxDescribed)
		if readErr == nil {
			readErr = json.Unmarshal(note, &j)
		}
		if readErr == nil {
			readErr = k.remove(ctx, &j)
		}
		err = errors.Join(err, readErr)
		if job.KindOf(readErr) == job.Unavailable {
			return err
		}
		err = errors.Join(err, fsys.Remove(ctx, path.Join(dir, name))) // else a person has been told
	}
	k.away.Delete(y.Watch)
	return err
}

func (k *Kind) remove(ctx context.Context, j *job.Job) error {
	y, err := k.system(ctx, j)
	if err != nil {
		return err
	}
	made, err := k.made(y, j)
	if err != nil {
		return err
	}
	s, err := k.open(ctx, j)
	if job.KindOf(err) == job.Unavailable {
		return err
	} else if err != nil {
		s = nil
	}
	made.folder = s.where(made.folder)
	// It may have ended while it was archived: then there are copies that nobody finds once the
	// row is gone.
	if err := k.tidy(ctx, y, j.ID, s); err != nil {
		return stays("copies of results", j.ID, err)
	}
	if j.Launch > 0 && y.Runner != nil {
		if err := y.Runner.Clean(ctx, key(j), made.folder); err != nil {
			return stays("launch files", j.ID, err)
		}
	}
	for _, at := range []struct {
		fs   files.FS
		name string
	}{{y.Host.Files(), made.folder}, {k.cfg.Files, made.results}} {
		if err := files.RemoveAll(ctx, at.fs, at.name); err != nil {
			return stays("files", j.ID, err)
		}
	}
	return nil
}

// stays returns the error about files that could not be removed. It is of kind Conflict if a person
// has to help.
func stays(what string, id job.ID, err error) error {
	kind := job.Unavailable
	if job.KindOf(err) == job.Conflict {
		kind = job.Conflict
	}
	return job.Errorf(kind, "remove the %s of job %s: %w", what, id, err)
}
