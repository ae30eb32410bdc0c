package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
)

// publish gives the files of the manifest their names. It replaces files that were there only if
// the spec says so, and finds files that it published before a crash. If it fails it takes back
// what it has published, because the next attempt may have other content.
func (k *Kind) publish(ctx context.Context, s *program) (err error) {
	var made []archiveFolder
	var published []string
	defer func() {
		if err == nil || ctx.Err() != nil || s.spec.Archive.Overwrite {
			return
		}
		border := k.border()
		for _, f := range made { // it may be sealed
			border.makeFolder(ctx, s, path.Join(s.to, f.String()), f.Mode) //nolint:errcheck // what stays for that is told below
		}
		for _, name := range published {
			if border.outside(ctx, s, path.Dir(name)) != nil {
				continue // the name leads elsewhere by now
			}
			if removeErr := s.depot.Remove(ctx, name); removeErr != nil {
				err = errors.Join(err, removeErr)
			}
		}
	}()
	m := s.progress.Manifest
	if m.whole() {
		return k.publishWhole(ctx, s)
	}
	border, staged := k.border(), m.folder(s.to)
	if made, err = k.archiveFolders(ctx, border, s); err != nil {
		return err
	}
	if published, err = k.giveNames(ctx, border, s, staged); err != nil {
		return err
	}
	for _, f := range slices.Backward(made) {
		if err := border.seal(ctx, s, path.Join(s.to, f.String()), f.Mode); err != nil {
			return err
		}
	}
	list, err := s.list(m)
	if err != nil {
		return err
	}
	// The manifest comes out of the same folder as the files, so that what a crash leaves of it
	// goes with that folder; it may have gone already.
	if err := border.mkdir(ctx, s, staged); err != nil {
		return err
	}
	if err := s.depot.Put(ctx, path.Join(staged, ManifestFile), bytes.NewReader(list),
		files.PutOptions{Passing: true}); err != nil {
		return err
	}
	_, err = s.give(ctx, path.Join(staged, ManifestFile), path.Join(s.to, ManifestFile), true)
	if errors.Is(err, fs.ErrExist) && s.listed(ctx) {
		err = nil // published before a crash
	}
	if err != nil {
		return err
	}
	crash.At("archive.listed")
	k.leaveNothing(ctx, s) // runs that lost their epoch may have uploaded copies
	return ctx.Err()
}

// archiveFolders makes the folders of an archive in a folder of the user, and returns the new ones.
// Others keep their mode.
func (k *Kind) archiveFolders(ctx context.Context, border *border, s *program) (made []archiveFolder, err error) {
	if err := border.mkdir(ctx, s, s.to); err != nil {
		return nil, err
	}
	for _, f := range s.progress.Manifest.Folders {
		name := path.Join(s.to, f.String())
		_, err := s.depot.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			made = append(made, f)
			err = border.makeFolder(ctx, s, name, f.Mode)
		} else {
			err = border.mkdir(ctx, s, name)
		}
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// list returns the content of the manifest file in the archive.
func (s *program) list(m *manifest) ([]byte, error) {
	return json.MarshalIndent(struct {
		Job     job.ID     `json:"job"`
		Name    string     `json:"name"`
		Attempt int        `json:"attempt"`
		Files   []archived `json:"files"`
		Skipped []string   `json:"skipped,omitempty"`
	}{s.job.ID, s.job.Name, s.job.Attempt, m.Files, m.Skipped}, "", "  ")
}

// publishWhole gives the folder of an archive its name. The manifest is in it already.
func (k *Kind) publishWhole(ctx context.Context, s *program) error {
	err := s.depot.Mkdir(ctx, path.Dir(s.to))
	if err == nil {
		err = s.depot.Rename(ctx, s.progress.Manifest.folder(s.to), s.to)
	}
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)) && s.listed(ctx) {
		err = nil // before a crash, or before the database was restored to an earlier point in time
	}
	if err != nil {
		return err
	}
	crash.At("archive.renamed")
	k.leaveNothing(ctx, s)
	return ctx.Err()
}

// listed reports whether the archive that is there is the one of the manifest. It might be that
// of an earlier attempt.
func (s *program) listed(ctx context.Context) bool {
	list, err := s.list(s.progress.Manifest)
	if err != nil {
		return false
	}
	was, err := files.ReadFile(ctx, s.depot, path.Join(s.to, ManifestFile), int64(len(list)))
	return err == nil && bytes.Equal(was, list)
}

// namesAtOnce is how many files of a far archive get their names at once.
const namesAtOnce = 16

// giveNames gives the files of the manifest their names, and returns the names that are new. Far
// away many are under way at once, and in each folder the last name is made durable, and with it
// those before it.
func (k *Kind) giveNames(ctx context.Context, border *border, s *program, staged string) (published []string, err error) {
	all := s.progress.Manifest.Files
	var mu sync.Mutex // guards published
	give := func(f archived, durable bool) error {
		name := path.Join(s.to, f.String())
		put, err := s.give(ctx, path.Join(staged, f.String()), name, durable)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			if same, lookErr := s.holds(ctx, name, f); lookErr == nil && same {
				err = nil // published before a crash
			}
		}
		if err != nil {
			return err
		}
		if put {
			mu.Lock()
			published = append(published, name)
			mu.Unlock()
		}
		crash.At("archive.linked")
		return nil
	}
	outside := func(f archived) error {
		name, from := path.Join(s.to, f.String()), path.Join(staged, f.String())
		reportAt(ctx, name)
		return errors.Join(border.outside(ctx, s, path.Dir(from)), border.outside(ctx, s, path.Dir(name)))
	}
	if s.far == nil {
		for i := 0; i < len(all) && err == nil; i++ {
			if err = outside(all[i]); err == nil {
				err = give(all[i], true)
			}
		}
		return published, err
	}
	last := map[string]int{}
	for i, f := range all {
		last[path.Dir(f.String())] = i
	}
	for _, durable := range []bool{false, true} {
		g, failed := errgroup.WithContext(ctx)
		g.SetLimit(namesAtOnce)
		for i, f := range all {
			if (last[path.Dir(f.String())] == i) != durable || failed.Err() != nil {
				continue
			}
			// A call is not given up, so what it did is known.
			if err := outside(f); err != nil {
				g.Go(func() error { return err })
			} else {
				g.Go(func() error { return give(f, durable) })
			}
		}
		if err := g.Wait(); err != nil {
			return published, err
		}
	}
	return published, nil
}

// give gives a file that was uploaded its name in the archive, and reports whether it did. A name
// that is not durable may be missing after a power failure.
func (s *program) give(ctx context.Context, from, name string, durable bool) (bool, error) {
	var err error
	switch overwrite := s.spec.Archive.Overwrite; {
	case overwrite && durable:
		err = s.depot.Rename(ctx, from, name)
	case overwrite:
		err = files.Move(ctx, s.depot, from, name)
	case durable:
		err = s.depot.Link(ctx, from, name)
	default:
		err = files.QuickLink(ctx, s.depot, from, name)
	}
	if !s.spec.Archive.Overwrite && errors.Is(err, fs.ErrExist) {
		err = &fs.PathError{Op: "publish", Path: name, Err: fs.ErrExist}
	}
	return err == nil, err
}

// holds reports whether a file has the content that the manifest says.
func (s *program) holds(ctx context.Context, name string, f archived) (bool, error) {
	info, err := s.depot.Stat(ctx, name)
	if err != nil || info.Size() != f.Size {
		return false, err
	}
	return f.digested(ctx, s.depot, name)
}
