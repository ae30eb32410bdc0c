package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/app/pattern"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/runner"
)

// leavings are the files that a program left in the job's folder.
type leavings struct {
	from     files.FS               // which has them
	files    []files.Entry          // to be archived
	folders  map[string]fs.FileMode // folders that were met
	bytes    int64                  // of the files, without holes
	skipped  []string               // files that are not archived, and why
	unread   []string               // results among them that cannot be read, or named
	required []pattern.Pattern
	met      []int // how many files fit each of these
}

// missing returns the patterns of archive.required that no file fits.
func (l *leavings) missing() (names []string) {
	for i, r := range l.required {
		if l.met[i] <= 0 {
			names = append(names, r.String())
		}
	}
	return names
}

// count adds n to the number of files with a name.
func (l *leavings) count(name string, n int) {
	for i, r := range l.required {
		if r.Match(name) {
			l.met[i] += n
		}
	}
}

// maxSkipped is how many names of files are kept that are not archived.
const maxSkipped = 1000

// skip notes a file that is not archived.
func (l *leavings) skip(name, why string) { l.skipped = noteSkipped(l.skipped, name, why) }

// lose notes a result that cannot be archived.
func (l *leavings) lose(name string, err error) {
	l.skip(name, cause(err))
	l.unread = noteSkipped(l.unread, name, cause(err))
}

func noteSkipped(list []string, name, why string) []string {
	switch len(list) {
	case maxSkipped:
		return append(list, "and more")
	case maxSkipped + 1:
		return list
	}
	return append(list, fmt.Sprintf("%s (%s)", files.Text(name), why))
}

// cause returns what the system says of a file whose name is said already.
func cause(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// load returns the files of the system, which tell what was in the job's folder when the step asked
// first.
func (s *program) load(ctx context.Context) files.FS {
	if s.loaded == nil {
		s.loaded = files.Load(ctx, s.sys.Host.Files(), s.dir)
	}
	return s.loaded
}

// survey looks through the job's folder. It leaves out inputs that are still as they were staged,
// and the files of the runner. If the folder is gone the error is [fs.ErrNotExist].
func (k *Kind) survey(ctx context.Context, s *program) (*leavings, error) {
	p, err := pattern.Of(s.spec.Archive)
	if err != nil {
		return nil, err
	}
	fsys := s.load(ctx)
	left := &leavings{from: fsys, folders: map[string]fs.FileMode{}, required: p.Required}
	left.met = make([]int, len(p.Required))
	inputs := staged(ctx, fsys, s)
	top, err := files.Resolve(ctx, fsys, s.dir)
	linked := func() bool { dir, err := k.realDir(ctx, s); return err == nil && dir != top }
	switch {
	case errors.Is(err, fs.ErrNotExist):
		top = s.dir
	case err != nil:
		return nil, err
	case top != s.dir && linked(): // the program put a link in the place of its folder
		left.skip(".", "a link to "+files.Text(top)+", which is not the job's folder")
		return left, nil
	}
	private := path.Join(top, runner.Folder) // also where a link leads there
	visit := func(e files.Entry) error {
		reportAt(ctx, e.Path)
		own := strings.HasPrefix(e.Path+"/", private+"/")
		switch {
		case own && !s.spec.Archive.LaunchFiles:
			return skip(e)
		case asStaged(ctx, fsys, inputs, top, e):
			return nil
		case e.Err != nil && e.Info.IsDir(): // it was counted when it was visited for the first time
			if left.count(e.Name, -1); !p.Excludes(e.Name) {
				left.lose(e.Name, e.Err)
			}
			return nil
		case !own && e.Err == nil:
			left.count(e.Name, 1)
		}
		if e.Err == nil && e.Info.IsDir() {
			left.folders[e.Name] = e.Info.Mode()
			return nil
		}
		switch wanted := p.Wants(e.Name) || own && !p.Excludes(e.Name); {
		case !wanted:
		case e.Name == ManifestFile:
			return fmt.Errorf("%s is the name of the archive's manifest: let the program write to another name", ManifestFile)
		case e.Err != nil:
			if isLink(e.Err) {
				left.skip(e.Name, whyNot(e.Err))
			} else {
				left.lose(e.Name, e.Err)
			}
		case e.Info.Mode().IsRegular():
			left.files = append(left.files, e)
			left.bytes = sum(left.bytes, files.Allocated(e.Info))
		default:
			left.skip(e.Name, typeName(e.Info.Mode()))
		}
		return nil
	}
	err = files.Tree(ctx, fsys, top, visit)
	if m, can := s.sys.Host.Files().(files.Moder); can && errors.Is(err, fs.ErrPermission) {
		// The program took the rights of its own folder away. What a link leads to is not Pawl's.
		if own, ownErr := k.realDir(ctx, s); ownErr == nil && own == top {
			if err = m.Chmod(ctx, top, 0o700); err == nil {
				err = files.Tree(ctx, fsys, top, visit)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the job's folder is gone: it was removed, or is not mounted (%w)", fs.ErrNotExist)
		left.skip(".", "the job's folder, which is gone")
	}
	return left, err
}

// skip passes over an entry and everything in it.
func skip(e files.Entry) error {
	if e.Err == nil && e.Info.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// whyNot says in few words why a link was left out.
func whyNot(err error) string {
	l, ok := errors.AsType[*files.LinkError](err)
	switch {
	case !ok:
		return err.Error()
	case l.Target == "":
		return "a link that " + l.Why
	case l.Folder != "":
		return "a link to " + files.Text(l.Folder) + ", which is archived under that name"
	}
	if strings.HasPrefix(l.Why, "is outside of ") {
		return "a link to " + l.Target + ", outside of the job's folder"
	}
	return "a link to " + l.Target + ", which " + l.Why
}

// upload copies files to be archived into a folder whose name has the epoch. With settled no
// attempt follows, and the job's folder goes: the files are not written again.
func (k *Kind) upload(ctx context.Context, s *program, left *leavings, settled bool) (*manifest, error) {
	m := &manifest{Staged: fmt.Sprintf("%s%d", staging(s.job.ID), s.job.Epoch)}
	if s.own() {
		m.Staged = path.Join(k.stagingFolder(), m.Staged)
	}
	staged := m.folder(s.to)
	if s.own() {
		k.spread(ctx, s.depot, path.Dir(staged))
	}
	border := k.border()
	if err := border.mkdir(ctx, s, staged); err != nil {
		return nil, err
	}
	move, done := k.track(ctx, s.job, "archiving", left.bytes)
	defer done()
	// lost notes a file that cannot be archived, unless the error is about more than that.
	lost := func(e files.Entry, err error) error {
		if !spoilsOne(err) {
			return err
		}
		if _, statErr := s.sys.Host.Files().Stat(ctx, s.dir); statErr != nil {
			return err // all of it is gone
		}
		left.lose(e.Name, err)
		left.count(e.Name, -1)
		return nil
	}
	var items []files.CopyItem
	var entries []files.Entry // of them
	for _, e := range left.files {
		to := path.Join(staged, e.Name)
		reportAt(ctx, e.Path)
		if err := k.copyFolder(ctx, border, s, m, left, path.Dir(e.Name)); err != nil {
			if err := lost(e, err); err != nil {
				return nil, err
			}
			continue
		}
		// its name is durable with that of the manifest, which comes last
		items = append(items, files.CopyItem{
			From: e.Path, To: to, Info: e.Info, Passing: m.whole() && path.Dir(to) == staged,
		})
		entries = append(entries, e)
	}
	copied := make([]*archived, len(items))
	err := files.CopyMany(ctx, s.depot, left.from, items, files.CopyOptions{Settled: settled, Progress: move},
		func(i int, c files.Copied, err error) error {
			e := entries[i]
			reportAt(ctx, e.Path)
			if err != nil {
				return lost(e, err)
			}
			a := archivedAs(e.Name, c, e.Info)
			copied[i] = &a
			crash.At("archive.copied")
			return nil
		})
	if err != nil {
		return nil, err
	}
	for _, a := range copied {
		if a != nil {
			m.Files = append(m.Files, *a)
		}
	}
	m.Skipped = left.skipped
	if !m.whole() {
		return m, nil
	}
	for _, f := range slices.Backward(m.Folders) {
		if err := files.Seal(ctx, s.depot, path.Join(staged, f.String()), f.Mode); err != nil {
			return nil, err
		}
	}
	list, err := s.list(m)
	if err == nil {
		err = s.depot.Put(ctx, path.Join(staged, ManifestFile), bytes.NewReader(list), files.PutOptions{})
	}
	crash.At("archive.completed")
	return m, err
}

// copyFolder makes the folder dir for copies, and those above it. In a folder of the user the
// folders get their modes later, when the files get their names.
func (k *Kind) copyFolder(ctx context.Context, border *border, s *program, m *manifest, left *leavings,
	dir string,
) error {
	at, mode := path.Join(m.folder(s.to), dir), left.folders[dir]
	if border.done[at] {
		return nil
	}
	err := k.copyFolder(ctx, border, s, m, left, path.Dir(dir))
	switch {
	case err != nil:
	case m.whole():
		err = border.makeFolder(ctx, s, at, mode)
	default:
		err = border.mkdir(ctx, s, at)
	}
	if err != nil {
		return err
	}
	m.Folders = append(m.Folders, archiveFolder{named(dir), mode & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky)})
	return nil
}

// spoilsOne reports whether only this file cannot be archived: it cannot be read, or the archive
// takes no such name or size.
func spoilsOne(err error) bool {
	if _, ok := errors.AsType[*files.ReadError](err); ok {
		return files.Alone(err)
	}
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EILSEQ) || errors.Is(err, syscall.EFBIG)
}
