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

// A job that is canceled while it is archived ends at once, wherever it stands; after a crash there
// may be no worker that knows what was copied already. Copies for the service's own archive lie in
// one folder until they are published, where they are found by their names. Of copies in a folder
// of the user's a note is made before the first one, which goes when nothing but the published
// files is left. Whoever finds either of a job that has ended takes the copies away. So it is with
// the folder that is made to see whether the user's can be written.

// notesFolder is the folder of the notes, beside those of the tenants. A note is an empty folder,
// for that is there or not, with the job's id for its name.
const notesFolder = ".archiving"

func (k *Kind) note(id job.ID) string { return path.Join(k.cfg.Work, notesFolder, id.String()) }

// stagingFolder is where copies lie that are to be an archive of the service's own.
func (k *Kind) stagingFolder() string { return path.Join(k.cfg.Archive, ".staging") }

// tidy removes what is left of copying results to an archive, of all runs of the job, and then the
// note. to is the folder that the user named for the results; "": none, or it is not known. Where
// there is no note it may be out of reach.
func (k *Kind) tidy(ctx context.Context, id job.ID, to string) error {
	note := k.note(id)
	_, noted := k.cfg.Host.Files().Stat(ctx, note)
	var left []error
	for _, dir := range []string{k.stagingFolder(), to} {
		if dir == "" {
			continue
		}
		names, err := files.Names(ctx, k.cfg.Files, dir)
		gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || dir == to &&
			errors.Is(noted, fs.ErrNotExist)
		if err != nil && !gone {
			left = append(left, err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, staging(id)) {
				left = append(left, k.cfg.Files.Remove(ctx, path.Join(dir, name)))
			}
		}
	}
	if err := errors.Join(left...); err != nil {
		return err
	}
	return k.cfg.Host.Files().Remove(ctx, note)
}

// Sweep tidies up behind jobs that ended while they were archived. What it cannot remove of one
// holds up no other.
func (k *Kind) Sweep(ctx context.Context, rows store.Reader) error {
	noted, err := files.Names(ctx, k.cfg.Host.Files(), path.Join(k.cfg.Work, notesFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep: %w", err)
	}
	staged, err := files.Names(ctx, k.cfg.Files, k.stagingFolder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sweep: %w", err)
	}
	var ids []job.ID
	for _, name := range append(noted, staged...) {
		if id, ok := copied(name); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := rows.Find(ctx, store.FindQuery{IDs: ids})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var left []error
	for _, j := range found {
		if !j.State.Terminal() {
			continue
		}
		to := ""
		s, err := k.open(ctx, &j)
		if err == nil {
			if !s.own() {
				to = s.to
			}
			err = k.tidy(ctx, j.ID, to)
		}
		if err != nil {
			left = append(left, fmt.Errorf("sweep behind job %s: %w", j.ID, err))
		}
	}
	return errors.Join(left...)
}

// copied returns the job that a note, or a folder of copies, is named after.
func copied(name string) (job.ID, bool) {
	if rest, ok := strings.CutPrefix(name, stagingPrefix); ok {
		if i := strings.LastIndexByte(rest, '-'); i >= 0 {
			name = rest[:i]
		}
	}
	id, err := job.ParseID(name)
	return id, err == nil
}
