package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A job that is canceled while it is archived ends at once, wherever it stands; after a crash there may be no worker
// that knows what was copied already. So a note is made of each archive before the first copy, and goes when nothing
// but the published files is left. Whoever finds the note of a job that has ended takes the copies away.

// notesFolder is the folder of the notes, beside those of the tenants. A note is an empty folder, for that is there or
// not, with the job's id for its name.
const notesFolder = ".archiving"

func (k *Kind) note(id job.ID) string { return path.Join(k.cfg.Work, notesFolder, id.String()) }

// tidy removes what is left of copying results to an archive, of all runs of the job, and then the note.
func (k *Kind) tidy(ctx context.Context, id job.ID, to string) error {
	names, err := k.cfg.Files.List(ctx, to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), staging(id)) {
			if err := k.cfg.Files.Remove(ctx, path.Join(to, n.Name())); err != nil {
				return err
			}
		}
	}
	return k.cfg.Host.Files().Remove(ctx, k.note(id))
}

// Sweep tidies up behind jobs that ended while they were archived.
func (k *Kind) Sweep(ctx context.Context, rows store.Reader) error {
	list, err := k.cfg.Host.Files().List(ctx, path.Join(k.cfg.Work, notesFolder))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var ids []job.ID
	for _, f := range list {
		if id, err := job.ParseID(f.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	found, err := rows.Find(ctx, ids)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, j := range found {
		if _, to := Places(&j); to != "" && j.State.Terminal() {
			if err := k.tidy(ctx, j.ID, to); err != nil {
				return fmt.Errorf("sweep behind job %s: %w", j.ID, err)
			}
		}
	}
	return nil
}
