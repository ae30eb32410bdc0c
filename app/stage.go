package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/app/share"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// stagedFiles tells what was staged, by the names of files in the job's folder, before the program
// could change it.
type stagedFiles map[string]stagedFile

type stagedFile struct {
	archived
	Modified time.Time `json:"modified,omitzero"` // zero: its time tells nothing
	Number   uint64    `json:"number,omitempty"`  // the number of the file: see [files.Identity]
	Changed  time.Time `json:"changed,omitzero"`
	Link     string    `json:"link,omitempty"` // it is a link to this, and the other fields say nothing
}

// asStaged reports whether an entry of the job's folder is still what was staged there: the same
// link, or the same file with the same content. top is the job's folder.
func asStaged(ctx context.Context, fsys files.FS, list stagedFiles, top string, e files.Entry) bool {
	was, ok := list[e.Name]
	if !ok {
		return false
	}
	if was.Link != "" {
		to := was.Link
		if !path.IsAbs(to) {
			to = path.Join(top, path.Dir(e.Name), to)
		}
		if !isLink(e.Err) {
			return false
		}
		want, wantErr := files.Resolve(ctx, fsys, to)
		got, err := files.Resolve(ctx, fsys, path.Join(top, e.Name))
		return want == got && (wantErr == nil) == (err == nil)
	}
	number, changed := files.Identity(e.Info)
	switch timeless := was.Modified.IsZero(); {
	case e.Err != nil, !e.Info.Mode().IsRegular(), e.Info.Size() != was.Size, timeless && was.SHA256+was.Blocks == "":
		return false
	case timeless: // what is in it tells
	case !e.Info.ModTime().Equal(was.Modified), number != was.Number:
		return false
	case changed.Equal(was.Changed):
		return true
	}
	same, err := was.digested(ctx, fsys, e.Path) // the time of a change can be set back, and not that of this one
	return err == nil && same
}

// describedFile holds the list of staged files, in the job's folder. It also has the resolved spec,
// for people who look there. Its bound in bytes is enough for [jobfolder.MostListed] inputs.
const describedFile, maxDescribed = runner.Folder + "/job.json", 64 << 20

// described is the content of that file.
type described struct {
	Resolved json.RawMessage            `json:"resolved"`
	Staged   jobfolder.List[stagedFile] `json:"staged"`
}

// staged reads the list of staged files. If it is gone, everything counts as made by the program.
func staged(ctx context.Context, fsys files.FS, s *program) stagedFiles {
	if len(s.spec.Inputs) == 0 {
		return nil
	}
	b, err := files.ReadFile(ctx, fsys, path.Join(s.dir, describedFile), maxDescribed)
	var d described
	if err != nil || json.Unmarshal(b, &d) != nil {
		return nil
	}
	all := stagedFiles{}
	for _, f := range d.Staged {
		all[f.String()] = f
	}
	return all
}

// A stager puts the inputs of one job into its folder.
type stager struct {
	*Kind
	*program
	list    stagedFiles
	folders []folder         // of inputs, the outer ones first
	move    func(n int)      // tells progress
	left    []string         // names that are no file, no folder and no link
	aside   files.PutOptions // a program does not find among its inputs what is copied by half
	past    time.Time        // when copies say that they were last changed, where that is needed
}

// A folder in the job's folder gets its mode when everything is in it.
type folder struct {
	name string
	mode fs.FileMode
}

// mkdir makes a folder of an input in the job's folder.
func (g *stager) mkdir(ctx context.Context, field, name string, mode fs.FileMode) error {
	if err := g.staysInside(ctx, g.program, field, name); err != nil {
		return err
	}
	dst := g.sys.Host.Files()
	if name == g.dir {
		return dst.Mkdir(ctx, name)
	}
	g.folders = append(g.folders, folder{name, mode})
	return files.Mkdir(ctx, dst, name, mode)
}

// stageInputs puts the inputs into the job's folder. Each file appears whole. A repetition copies
// it again.
func (k *Kind) stageInputs(ctx context.Context, s *program, _ recorder) engine.Outcome {
	var r Resolved
	if err := json.Unmarshal(s.job.Resolved, &r); err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	move, done := k.track(ctx, s.job, "staging inputs", r.Staged.Bytes-r.Staged.Holes)
	defer done()
	g := &stager{Kind: k, program: s, list: stagedFiles{}, move: move}
	g.aside.Aside = path.Join(s.dir, runner.Folder)
	g.past = time.Now().Add(-24 * time.Hour).Truncate(time.Second) // clocks differ by less, and nobody thinks it old
	if s.atOnce() {
		if g.fill(ctx) {
			crash.At("stage.filled")
			return engine.Next(job.StagingJob).Explain(g.String(), nil)
		}
		if err := k.makeFolder(ctx, s); err != nil {
			return k.trouble(ctx, s, job.StagingFailed, "make the job's folder", k.full(ctx, k.workRoom(s, 0), err))
		}
	}
	border := k.border()
	for i, in := range s.spec.Inputs {
		to, err := s.inside(fmt.Sprintf("inputs[%d].to", i), in.To)
		if err != nil {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		}
		into := k.workRoom(s, r.Staged.Bytes-r.Staged.Holes)
		from, err := k.origin(ctx, border, s, i)
		if err == nil {
			err = g.input(ctx, i, &from, to)
		}
		if noRoom(err) {
			g.takeBack(ctx)
			k.copies.Drop(ctx, s.sys.shared()) //nolint:errcheck // they are removed later
			// it would wait in vain, and so would the jobs in the line that it closes
			if size, fits := into.fits(ctx); !fits {
				return engine.Fail(job.Entry{Code: job.FilesystemFull, Message: fmt.Sprintf(
					"%s: the inputs have %d bytes, and on the file system of %s there would be room for %d at most",
					nameOf(in), into.need, into.root, size)})
			}
		}
		err = k.full(ctx, into, err)
		switch changed := (*changedError)(nil); {
		case trespass(err):
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		case errors.As(err, &changed):
			return engine.Fail(job.Entry{Code: job.InputChanged, Message: fmt.Sprintf("%s: %v", nameOf(in), err)})
		case in.Optional && errors.Is(err, fs.ErrNotExist) && !isLink(err):
		case err != nil:
			if job.Blocking(err) != nil {
				g.takeBack(ctx)
			}
			return k.inputTrouble(ctx, s, in, err)
		}
		crash.At("stage.copied")
	}
	for _, f := range slices.Backward(g.folders) {
		if err := files.Seal(ctx, s.sys.Host.Files(), f.name, f.mode); err != nil {
			return k.trouble(ctx, s, job.StagingFailed, "set the rights of "+f.name, err)
		}
	}
	b, err := g.describe()
	if err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	if err := s.sys.Host.Files().Put(ctx, path.Join(s.dir, describedFile), bytes.NewReader(b),
		files.PutOptions{Mode: 0o600, NoSync: true}); err != nil {
		if noRoom(err) {
			g.takeBack(ctx)
		}
		into := k.workRoom(s, r.Staged.Bytes-r.Staged.Holes+int64(len(b)))
		return k.trouble(ctx, s, job.StagingFailed, "write the job's description", k.full(ctx, into, err))
	}
	crash.At("stage.listed")
	return engine.Next(job.StagingJob).Explain(g.String(), nil)
}

// describe returns the content of describedFile.
func (g *stager) describe() ([]byte, error) {
	return json.Marshal(described{
		Resolved: g.job.Resolved,
		Staged: slices.SortedFunc(maps.Values(g.list),
			func(a, b stagedFile) int { return strings.Compare(a.Name, b.Name) }),
	})
}

// takeBack removes the copies. A job that waits for room takes none from others: they may go on,
// while otherwise all would hold a part of what they need.
func (g *stager) takeBack(ctx context.Context) {
	for name, f := range g.list {
		at := path.Join(g.dir, name)
		if f.Link == "" && g.staysInside(ctx, g.program, "", path.Dir(at)) == nil {
			g.sys.Host.Files().Remove(ctx, at) //nolint:errcheck // it is copied again anyway
		}
	}
}

// String says for the history what was staged.
func (g *stager) String() string {
	if len(g.list) == 0 && g.left == nil {
		return ""
	}
	var size Size
	places, links := 0, 0
	for _, f := range g.list {
		switch {
		case f.Link == "":
			size.add(f.Size, f.Holes)
		case path.IsAbs(f.Link):
			places++
		default:
			links++
		}
	}
	msg := size.String() + " staged"
	if places > 0 {
		msg += fmt.Sprintf(", %d in place", places)
	}
	if links > 0 {
		msg += fmt.Sprintf(", links to folders: %d", links)
	}
	return msg + leftOut(g.left)
}

// String writes a size for people.
func (s Size) String() string {
	n := "1 file"
	if s.Files != 1 {
		n = fmt.Sprintf("%d files", s.Files)
	}
	n += " (" + Quantity(s.Bytes)
	if s.Holes > 0 {
		n += ", of which " + Quantity(s.Holes) + " are holes"
	}
	return n + ")"
}

// Quantity writes a number of bytes for people.
func Quantity(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB", "EB"} {
		if f /= 1000; f < 999.5 {
			break
		}
	}
	return fmt.Sprintf("%.3g %s", f, unit)
}

// leftOut names the files that were not copied.
func leftOut(names []string) string {
	const most = 10
	if len(names) == 0 {
		return ""
	}
	msg := "; left out: "
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			msg += ", "
		}
		if half := 100; len(name) > 2*half { // a path may have some thousand bytes
			name = strings.ToValidUTF8(name[:half]+"…"+name[len(name)-half:], "")
		}
		msg += name
	}
	if more := len(names) - most; more > 0 {
		msg += fmt.Sprintf(", and %d more", more)
	}
	return msg
}

// input puts a file, or a folder with everything in it, into the job's folder, or links it there.
// It takes what the links of from lead to: what was looked at is what is copied.
func (g *stager) input(ctx context.Context, i int, from *origin, to string) error {
	in, dst := g.spec.Inputs[i], g.sys.Host.Files()
	name, field := path.Clean(in.To), fmt.Sprintf("inputs[%d].to", i)
	if err := g.staysInside(ctx, g.program, field, path.Dir(to)); err != nil {
		return err
	}
	if from.source != nil {
		if err := dst.Mkdir(ctx, path.Dir(to)); err != nil {
			return err
		}
		c, err := files.Fetch(ctx, dst, to, from.source, from.name, files.CopyOptions{PutOptions: g.aside, Progress: g.move})
		return g.record(ctx, to, name, in.SHA256, c, err)
	}
	info, err := from.fs.Stat(ctx, from.real)
	if err != nil {
		return from.fault(from.dangling(ctx, err))
	}
	if err := dst.Mkdir(ctx, path.Dir(to)); err != nil {
		return err
	}
	switch {
	case in.InPlace && !from.on(g.sys) && (from.sys != nil || g.sys != g.Local()):
		return job.Errorf(job.Invalid,
			"in_place: %s is not on the system of the program: remove in_place, and it is copied", in.From)
	case in.InPlace:
		linker, ok := dst.(files.Linker)
		if !ok {
			return job.Errorf(job.Invalid,
				"in_place: the system has no symbolic links: remove in_place, and it is copied")
		}
		g.list[name] = stagedFile{archived: archived{fileName: named(name)}, Link: from.name}
		return linker.Symlink(ctx, from.name, to)
	case !info.IsDir():
		if err := regular(from.name, info); err != nil {
			return err
		}
		return g.file(ctx, from, from.real, to, name, in.SHA256)
	}
	if err := g.mkdir(ctx, field, to, info.Mode()); err != nil {
		return err
	}
	var putting error
	var list []files.CopyItem
	var names []string // of them in the job's folder
	err = files.Tree(ctx, from.fs, from.real, func(e files.Entry) error {
		reportAt(ctx, e.Path)
		at := path.Join(to, e.Name)
		switch {
		case e.Err != nil:
			putting = g.link(ctx, e, to, name)
		case e.Info.IsDir():
			putting = g.mkdir(ctx, field, at, e.Info.Mode())
		case e.Info.Mode().IsRegular() && e.Info.Size() >= share.Least: // others may need it, too
			putting = g.file(ctx, from, e.Path, at, path.Join(name, e.Name), "")
		case e.Info.Mode().IsRegular():
			list = append(list, files.CopyItem{From: e.Path, To: at, Info: e.Info})
			names = append(names, path.Join(name, e.Name))
		default:
			g.left = append(g.left, fmt.Sprintf("%s (%s)", path.Join(name, e.Name), typeName(e.Info.Mode())))
		}
		return putting
	})
	switch {
	case putting != nil:
		return putting
	case err != nil:
		return from.fault(err)
	}
	return g.many(ctx, from, list, names)
}

// many copies files of a folder to their names in the job's folder, and notes them.
func (g *stager) many(ctx context.Context, from *origin, list []files.CopyItem, names []string) error {
	dst, copied := g.sys.Host.Files(), make([]files.Copied, len(list))
	err := files.CopyMany(ctx, dst, from.fs, list,
		files.CopyOptions{PutOptions: g.aside, Progress: g.move, NoDigest: g.distant()},
		func(i int, c files.Copied, err error) error {
			reportAt(ctx, list[i].From)
			if _, ok := errors.AsType[*files.ReadError](err); ok {
				err = from.fault(err)
			}
			if err == nil { // it is taken back if another one cannot be copied
				copied[i], g.list[names[i]] = c, stagedFile{archived: archived{fileName: named(names[i]), Size: c.Size}}
			}
			return err
		})
	if err != nil {
		return err
	}
	places := make([]string, len(list))
	for i, item := range list {
		places[i] = item.To
	}
	made, err := files.Stamped(ctx, dst, g.past, places...)
	for i := 0; i < len(list) && err == nil; i++ {
		err = g.note(names[i], copied[i], made[i])
	}
	return err
}

// link makes a link in the job's folder for a link to a folder of the same input. The input is
// staged at to and called name. For any other entry without content it returns the error.
func (g *stager) link(ctx context.Context, e files.Entry, to, name string) error {
	l, ok := errors.AsType[*files.LinkError](e.Err)
	dst, can := g.sys.Host.Files().(files.Linker)
	if !ok || !can || l.Folder == "" {
		return e.Err
	}
	target, err := filepath.Rel(path.Dir(e.Name), l.Folder)
	if err != nil {
		return err
	}
	g.list[path.Join(name, e.Name)] = stagedFile{
		archived: archived{fileName: named(path.Join(name, e.Name))}, Link: target,
	}
	return dst.Symlink(ctx, target, path.Join(to, e.Name))
}

// regular refuses an input that is neither a file nor a folder. It does not open it: that alone may
// wait for ever, or move a device.
func regular(name string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return job.Errorf(job.Invalid, "%s is not a regular file but %s: give a file or a folder, or set in_place, "+
		"and the program gets a link to it", name, typeName(info.Mode()))
}

// A changedError says that the content of an input does not fit its sum.
type changedError struct{ want, is string }

func (e *changedError) Error() string {
	return fmt.Sprintf("its content has the SHA-256 %s, not %s", e.is, e.want)
}

// file copies a file of an input to a name in the job's folder, and notes it. Where both are on one
// far system and no sum is asked for, its content does not leave that.
func (g *stager) file(ctx context.Context, from *origin, real, to, name, want string) error {
	if info, err := from.fs.Stat(ctx, real); err == nil && from.sys == nil {
		f := share.File{Owner: g.Local().Watch + " " + g.job.Tenant, FS: from.fs, Name: real, Info: info, SHA256: want}
		if c, err := g.copies.Copy(ctx, g.sys.shared(), to, g.aside.Aside, f, g.move); err == nil {
			return g.record(ctx, to, name, want, c, nil)
		}
	}
	c, err := files.Copy(ctx, g.sys.Host.Files(), to, from.fs, real,
		files.CopyOptions{PutOptions: g.aside, Progress: g.move, Whole: want != "", NoDigest: want == "" && g.distant()})
	if _, ok := errors.AsType[*files.ReadError](err); ok {
		err = from.fault(err)
	}
	return g.record(ctx, to, name, want, c, err)
}

// record records a file that was copied, unless err says that it was not. Its content must have the
// digest want, unless want is empty.
func (g *stager) record(ctx context.Context, to, name, want string, c files.Copied, err error) error {
	if err != nil {
		return err
	}
	if want != "" && c.SHA256 != want {
		return errors.Join(&changedError{want, c.SHA256}, g.sys.Host.Files().Remove(ctx, to))
	}
	made, err := files.Stamped(ctx, g.sys.Host.Files(), g.past, to)
	if err != nil {
		return err
	}
	return g.note(name, c, made[0])
}

// note notes a file that was copied, as it is described there.
func (g *stager) note(name string, c files.Copied, made fs.FileInfo) error {
	if made.Size() != c.Size {
		return fmt.Errorf("the copy of %s has %d bytes and not %d", name, made.Size(), c.Size)
	}
	number, changed := files.Identity(made)
	g.list[name] = stagedFile{
		archived: archivedAs(name, c, made), Modified: made.ModTime().UTC(), Number: number, Changed: changed,
	}
	return nil
}

// typeName says what something is that is neither a file nor a folder.
func typeName(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a link"
}
