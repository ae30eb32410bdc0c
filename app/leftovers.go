package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A job that is canceled while it is archived ends at once. After a crash there may be no worker
// that knows its copies. Copies for the service's own archive lie in one folder until they are
// published; their names tell their jobs. Before the first copy in a folder of the user a marker is
// made. It goes when only published files are left. Who finds copies or a marker of an
// ended job removes the copies. The folder that tries whether the user's folder can be written has
// a marker, too.

// markersFolder is the folder of the markers, beside those of the tenants. A marker is an empty
// folder with the id of the job as its name: a folder is there or not.
const markersFolder = ".archiving"

func (y *System) marker(id job.ID) string { return path.Join(y.Work, markersFolder, id.String()) }

// stagingFolder returns the folder of copies for the service's own archive.
func (k *Kind) stagingFolder() string { return path.Join(k.cfg.Archive, ".staging") }

// tidy removes the rest of copying results to an archive, of all runs of the job, and then the
// marker. s tells the folder that the user named for the results; nil: it is not known. Without a
// marker that may be out of reach.
func (k *Kind) tidy(ctx context.Context, y *System, id job.ID, s *program) error {
	marker := y.marker(id)
	err := removeCopies(ctx, k.cfg.Files, id, k.stagingFolder(), false)
	if s != nil && !s.own() {
		_, unmarked := y.Host.Files().Stat(ctx, marker)
		away := errors.Is(unmarked, fs.ErrNotExist)
		if s.depot == nil && !away { // whoever has nothing to do on a system dials none
			// What may not be touched any more stays, and what is on a system that is gone.
			if reachErr := k.border().reach(ctx, s); !trespass(reachErr) && job.Blocking(reachErr) == nil {
				err = errors.Join(err, reachErr)
			}
		}
		if s.depot != nil {
			err = errors.Join(err, removeCopies(ctx, s.depot, id, s.to, away))
		}
	}
	if err != nil {
		return err
	}
	return y.Host.Files().Remove(ctx, marker)
}

// removeCopies removes the copies of results of a job that lie in a folder. With away the folder
// may be out of reach.
func removeCopies(ctx context.Context, fsys files.FS, id job.ID, dir string, away bool) error {
	names, err := files.Names(ctx, fsys, dir)
	if away || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, staging(id)) {
			err = errors.Join(err, fsys.Remove(ctx, path.Join(dir, name)))
		}
	}
	return err
}

// RemoveLeftovers tidies up behind jobs of a system that ended while they were archived. It goes on
// after an error and returns all errors together. It may be called at any time.
func (k *Kind) RemoveLeftovers(ctx context.Context, y *System, rows store.Reader) error {
	marked, err := files.Names(ctx, y.Host.Files(), path.Join(y.Work, markersFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	staged, err := files.Names(ctx, k.cfg.Files, k.stagingFolder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	var ids []job.ID
	for _, name := range append(marked, staged...) {
		if id, ok := copied(name); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := rows.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	var left []error
	for _, j := range found {
		if !j.State.Terminal() || j.Watch != y.Watch {
			continue
		}
		s, err := k.open(ctx, &j)
		if err == nil {
			err = k.tidy(ctx, y, j.ID, s)
		}
		if err != nil {
			left = append(left, fmt.Errorf("leftovers of job %s: %w", j.ID, err))
		}
	}
	return errors.Join(left...)
}

// copied returns the job after which a marker or a folder of copies is named.
func copied(name string) (job.ID, bool) {
	if rest, ok := strings.CutPrefix(name, stagingPrefix); ok {
		if i := strings.LastIndexByte(rest, '-'); i >= 0 {
			name = rest[:i]
		}
	}
	id, err := job.ParseID(name)
	return id, err == nil
}
