package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
)

// Where each call to the files of a system costs a round trip, the job's folder is made in one,
// with small inputs and the list of them. So it is not made before they are staged.

// distant reports whether that is so.
func (s *program) distant() bool {
	_, ok := s.sys.Host.Files().(files.Filler)
	return ok
}

// atOnce reports whether the folder is made in that way. What an earlier attempt left is looked at
// one by one.
func (s *program) atOnce() bool { return s.distant() && s.job.Attempt == 1 }

// fill makes the job's folder with the inputs in it, if they are a few small files and the folder
// is not there. It reports whether it has. If not, they are staged one by one, which tells what is
// wrong.
func (g *stager) fill(ctx context.Context) bool {
	small, ok := g.small(ctx)
	if ok {
		b, err := g.describe()
		at := path.Join(g.dir, describedFile)
		list := append([]files.Small{{Name: g.dir, Mode: fs.ModeDir}}, small...)
		f := g.sys.Host.Files().(files.Filler)
		ok = err == nil && f.Fill(ctx, append(list, files.Small{Name: at, Mode: 0o600, Content: b, NoSync: true})) == nil
	}
	if !ok {
		g.list = stagedFiles{}
		return false
	}
	for _, s := range small {
		g.move(len(s.Content))
	}
	return true
}

// small reads the inputs, and lists them.
func (g *stager) small(ctx context.Context) (all []files.Small, ok bool) {
	const most = 4 * files.MaxSmall
	border, bytes := g.border(), 0
	for i, in := range g.spec.Inputs {
		to, err := g.inside(fmt.Sprintf("inputs[%d].to", i), in.To)
		if err != nil || in.InPlace || g.source(in.From) != nil {
			return nil, false
		}
		from, err := g.origin(ctx, border, g.program, i)
		if in.Optional && errors.Is(err, fs.ErrNotExist) && !isLink(err) {
			continue
		}
		if err != nil || from.sys != nil { // its system may copy it there
			return nil, false
		}
		info, err := from.fs.Stat(ctx, from.real)
		if err != nil || !info.Mode().IsRegular() || info.Size() > files.MaxSmall {
			return nil, false
		}
		content, err := files.ReadFile(ctx, from.fs, from.real, files.MaxSmall)
		sum := sha256.Sum256(content)
		digest := hex.EncodeToString(sum[:])
		if bytes += len(content); err != nil || bytes > most || in.SHA256 != "" && in.SHA256 != digest {
			return nil, false
		}
		all = append(all, files.Small{Name: to, Mode: info.Mode().Perm(), Content: content})
		name := path.Clean(in.To)
		g.list[name] = stagedFile{archived: archived{fileName: named(name), Size: int64(len(content)), SHA256: digest}}
	}
	return all, true
}

// putSmall puts a file into the job's folder that need not be durable.
func (s *program) putSmall(ctx context.Context, name, content string, mode fs.FileMode) error {
	fsys := s.sys.Host.Files()
	if f, ok := fsys.(files.Filler); ok && s.atOnce() &&
		f.Fill(ctx, []files.Small{{Name: name, Mode: mode, Content: []byte(content), NoSync: true}}) == nil {
		return nil
	}
	return fsys.Put(ctx, name, strings.NewReader(content), files.PutOptions{Mode: mode, NoSync: true})
}
