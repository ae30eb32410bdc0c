package checks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

// Gone waits until no process has to do with a folder, and returns those that still do when
// patience is over. The last act of a wrapper is to tell its end, so it may take a moment.
func Gone(ctx context.Context, dir string, patience time.Duration) ([]Process, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := Processes(dir)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil
		case <-over.C:
			return left, nil
		}
	}
}

// Rows looks for what is left of jobs that have ended in a database and in connections to it. It
// says so as "name: what".
func Rows(ctx context.Context, dsn, folder string, patience time.Duration) (all []string, err error) {
	db, err := Open(dsn, folder, "ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if dsn != "" {
		connected, err := Connections(ctx, db, patience)
		if err != nil {
			return nil, err
		}
		if len(connected) > 0 {
			all = append(all, "connection_left: "+strings.Join(connected, ", "))
		}
	}
	left, err := Left(ctx, db, dsn != "")
	return append(all, left...), err
}

// Folder looks for what is left in a data folder when all jobs have ended: messages of ends, notes
// of archives, and what is only there while something is written. It tells found each name.
// Temporary files may stay in the folder of a job that did not finish, with the rest of what it
// left.
func Folder(dir, tenant string, found func(name string)) error {
	for _, name := range []string{"ends", "slurm-ends", "work/.archiving"} {
		list, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was ever there
			return err
		}
		for _, e := range list {
			// In the folder of ends, rooms go with the folders of jobs, and others are notes of
			// watches.
			if name == "work/.archiving" || !strings.HasPrefix(e.Name(), ".") {
				found(filepath.Join(dir, name, e.Name()))
			}
		}
	}
	return Strays(dir, tenant, found)
}

// Strays looks below a folder for what is only there while something is written.
func Strays(dir, tenant string, found func(name string)) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Base(name) == tenant && filepath.Base(filepath.Dir(name)) == "work":
			return fs.SkipDir
		case files.Temporary(name), strings.HasSuffix(name, ".new"), strings.HasPrefix(d.Name(), ".pawl-"):
			found(name)
			if d.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
}
