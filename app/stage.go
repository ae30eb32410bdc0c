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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A stock tells what was staged, by the names of files in the job's folder: as they were before the program could
// change them.
type stock map[string]stamp

type stamp struct {
	archived
	Modified time.Time `json:"modified,omitzero"`
	Link     string    `json:"link,omitempty"` // it is a link to this, and the rest says nothing
}

// has reports whether a file is as it was staged.
func (s stock) has(e files.Entry) bool {
	was, ok := s[e.Name]
	if !ok || was.Link != "" {
		return ok
	}
	return e.Err == nil && e.Info.Mode().IsRegular() && e.Info.Size() == was.Size && e.Info.ModTime().Equal(was.Modified)
}

// describedFile is where the stock is kept, in the job's folder, beside the resolved spec for people who look there.
const describedFile = runner.Folder + "/job.json"

// mostDescribed is how large that file may be, in bytes: enough for 300,000 inputs.
const mostDescribed = 64 << 20

// described is what that file holds.
type described struct {
	Resolved json.RawMessage `json:"resolved"`
	Staged   []stamp         `json:"staged"`
}

// staged reads the stock. Where it is gone everything counts as made by the program.
func (k *Kind) staged(ctx context.Context, s *sheet) stock {
	b, err := files.ReadFile(ctx, k.cfg.Host.Files(), path.Join(s.dir, describedFile), mostDescribed)
	var d described
	if err != nil || json.Unmarshal(b, &d) != nil {
		return nil
	}
	all := stock{}
	for _, f := range d.Staged {
		all[f.String()] = f
	}
	return all
}

// A stager puts the inputs of one job into its folder.
type stager struct {
	*Kind
	*sheet
	list stock
	move func(n int) // tells progress
	left []string    // what is no file, no folder and no link
}

// stageInputs puts the inputs into the job's folder. Each file appears whole; done again, it is copied again.
func (k *Kind) stageInputs(ctx context.Context, s *sheet) engine.Outcome {
	var r Resolved
	if err := json.Unmarshal(s.job.Resolved, &r); err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	move, done := k.track(s.job, "staging inputs", r.Staged.Bytes)
	defer done()
	g := &stager{Kind: k, sheet: s, list: stock{}, move: move}
	for i, in := range s.spec.Inputs {
		to, err := s.inside(fmt.Sprintf("inputs[%d].to", i), in.To)
		from := in.From
		if err == nil && k.source(from) == nil {
			from, err = Path(in.From)
		}
		if err != nil {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		}
		into := k.workRoom(s, r.Staged.Bytes)
		if err = g.input(ctx, in, from, to); errors.Is(err, syscall.ENOSPC) {
			if size, fits := into.fits(ctx); !fits { // it would wait in vain, and with it all for whom it closes the line
				return engine.Fail(job.Entry{Code: job.FilesystemFull, Message: fmt.Sprintf(
					"%s: the inputs have %d bytes, and on the file system of %s there would be room for %d at most", nameOf(in), into.need, into.root, size)})
			}
		}
		err = k.full(ctx, into, err)
		switch changed := (*changedError)(nil); {
		case errors.As(err, &changed):
			return engine.Fail(job.Entry{Code: job.InputChanged, Message: fmt.Sprintf("%s: %v", nameOf(in), err)})
		case in.Optional && errors.Is(err, fs.ErrNotExist) && !isLink(err):
		case err != nil:
			if job.Blocking(err) != nil {
				g.takeBack(ctx)
			}
			return k.inputTrouble(ctx, in, err)
		}
		crash.At("stage.copied")
	}
	b, err := json.Marshal(described{
		Resolved: s.job.Resolved,
		Staged:   slices.SortedFunc(maps.Values(g.list), func(a, b stamp) int { return strings.Compare(a.Name, b.Name) }),
	})
	if err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	if err := k.cfg.Host.Files().Put(ctx, path.Join(s.dir, describedFile), bytes.NewReader(b), files.PutOptions{NoSync: true}); err != nil {
		return k.trouble(ctx, job.StagingFailed, "write the job's description", k.full(ctx, k.workRoom(s, 0), err))
	}
	crash.At("stage.listed")
	o := engine.Next(job.StagingJob)
	if msg := g.String(); msg != "" {
		o = o.Note(msg, nil)
	}
	return o
}

// takeBack removes what was copied. Who waits takes no room from others, who may then go on, while all would hold a part of what they need.
func (g *stager) takeBack(ctx context.Context) {
	for name, f := range g.list {
		if f.Link == "" {
			g.cfg.Host.Files().Remove(ctx, path.Join(g.dir, name)) //nolint:errcheck // it is copied again anyway
		}
	}
}

// String says what was staged, for the history.
func (g *stager) String() string {
	if len(g.list) == 0 && g.left == nil {
		return ""
	}
	var size Size
	for _, f := range g.list {
		if f.Link == "" {
			size.Files, size.Bytes = size.Files+1, size.Bytes+f.Size
		}
	}
	msg := size.String() + " staged"
	if links := len(g.list) - size.Files; links > 0 {
		msg += fmt.Sprintf(", %d in place", links)
	}
	return msg + leftOut(g.left)
}

// String writes a size for people.
func (s Size) String() string {
	n := "1 file"
	if s.Files != 1 {
		n = fmt.Sprintf("%d files", s.Files)
	}
	return n + " (" + quantity(s.Bytes) + ")"
}

// quantity writes a number of bytes for people.
func quantity(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB"} {
		if f /= 1000; f < 999.5 {
			break
		}
	}
	return fmt.Sprintf("%.3g %s", f, unit)
}

// leftOut names what was not copied.
func leftOut(names []string) string {
	const most = 10
	if len(names) == 0 {
		return ""
	}
	msg := "; left out: " + strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		msg += fmt.Sprintf(", and %d more", more)
	}
	return msg
}

// input puts a file, or a folder with everything below it, into the job's folder, or links it there.
func (g *stager) input(ctx context.Context, in job.Input, from, to string) error {
	dst, name := g.cfg.Host.Files(), path.Clean(in.To)
	if source := g.source(from); source != nil {
		if err := dst.Mkdir(ctx, path.Dir(to)); err != nil {
			return err
		}
		c, err := files.Fetch(ctx, dst, to, source, from, files.CopyOptions{Progress: g.move})
		return g.noted(ctx, to, name, in.SHA256, c, err)
	}
	info, err := g.cfg.Files.Stat(ctx, from)
	if err != nil {
		return g.dangling(ctx, from, err)
	}
	if err := dst.Mkdir(ctx, path.Dir(to)); err != nil {
		return err
	}
	switch {
	case in.InPlace:
		linker, ok := dst.(files.Linker)
		if !ok {
			return job.Errorf(job.Invalid, "in_place: the system has no symbolic links: remove in_place, and it is copied")
		}
		g.list[name] = stamp{archived: archived{fileName: named(name)}, Link: from}
		return linker.Symlink(ctx, from, to)
	case !info.IsDir():
		return g.file(ctx, from, to, name, in.SHA256)
	}
	if err := dst.Mkdir(ctx, to); err != nil {
		return err
	}
	return files.Tree(ctx, g.cfg.Files, from, func(e files.Entry) error {
		at := path.Join(to, e.Name)
		switch {
		case e.Err != nil:
			return e.Err
		case e.Info.IsDir():
			return dst.Mkdir(ctx, at)
		case e.Info.Mode().IsRegular():
			return g.file(ctx, e.Path, at, path.Join(name, e.Name), "")
		}
		g.left = append(g.left, fmt.Sprintf("%s (%s)", path.Join(name, e.Name), typeName(e.Info.Mode())))
		return nil
	})
}

// changedError says that an input is not what its sum says.
type changedError struct{ want, is string }

func (e *changedError) Error() string {
	return fmt.Sprintf("its content has the SHA-256 %s, not %s", e.is, e.want)
}

// file copies a file of an input to a name in the job's folder, and notes it.
func (g *stager) file(ctx context.Context, from, to, name, want string) error {
	c, err := files.Copy(ctx, g.cfg.Host.Files(), to, g.cfg.Files, from, files.CopyOptions{Progress: g.move})
	return g.noted(ctx, to, name, want, c, err)
}

// noted notes a file that was copied, unless err says that it was not. Its content must have the digest want, unless that is empty.
func (g *stager) noted(ctx context.Context, to, name, want string, c files.Copied, err error) error {
	if err != nil {
		return err
	}
	dst := g.cfg.Host.Files()
	if want != "" && c.SHA256 != want {
		return errors.Join(&changedError{want, c.SHA256}, dst.Remove(ctx, to))
	}
	made, err := dst.Stat(ctx, to)
	if err != nil {
		return err
	}
	g.list[name] = stamp{archived: archived{named(name), made.Size(), c.SHA256}, Modified: made.ModTime().UTC()}
	return nil
}

// typeName says what something is that is no file and no folder.
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
