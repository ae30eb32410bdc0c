// Package jobfolder finds files in the folder of a job. Its program may have left anything there,
// also links that lead elsewhere.
package jobfolder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Has reports whether a path can be that of a file in a job's folder. It does not look at
// links.
func Has(name string) bool {
	return fs.ValidPath(strings.ToValidUTF8(name, "?")) && name != "." && !strings.ContainsRune(name, 0)
}

// Outside is the error of a path that leads out of the folder.
func Outside(name string) error {
	return job.Errorf(job.Invalid, "%q is not the path of a file in the job's folder: give one without .. that "+
		"no link leads out of it", name)
}

// Within returns the name of a file in the folder root, with links followed if that is possible. It
// refuses a name that leads out of root. Pawl's own files there do not exist for it, because they
// hold the environment.
func Within(ctx context.Context, fsys files.FS, root, name string) (string, error) {
	full := path.Join(root, name)
	if r, ok := fsys.(files.Linker); ok {
		var err error
		if root, err = r.Resolve(ctx, root); err != nil {
			return "", err
		}
		if full, err = r.Resolve(ctx, full); err != nil {
			return "", err
		}
		var inside bool
		if name, inside = strings.CutPrefix(full, strings.TrimSuffix(root, "/")+"/"); !inside {
			return "", Outside(name)
		}
	} else if err := noLinks(ctx, fsys, root, name); err != nil {
		return "", err
	}
	if name == runner.Folder || strings.HasPrefix(name, runner.Folder+"/") {
		return "", fs.ErrNotExist
	}
	return full, nil
}

// Open opens a file in the folder root for reading, as [Within] finds it.
func Open(ctx context.Context, fsys files.FS, root, name string) (io.ReadSeekCloser, fs.FileInfo, error) {
	full, err := Within(ctx, fsys, root, name)
	if err != nil {
		return nil, nil, err
	}
	r, err := fsys.Open(ctx, full)
	if err != nil {
		return nil, nil, err
	}
	info, err := fsys.Stat(ctx, full)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, info, nil
}

// checkpointFile holds the checkpoint that a program has told the service.
const checkpointFile = runner.Folder + "/checkpoint"

type checkpoint struct {
	Launch int    `json:"launch"`
	Text   string `json:"text"`
}

// KeepCheckpoint keeps the checkpoint of a launch in the folder root.
func KeepCheckpoint(ctx context.Context, fsys files.FS, root string, launch int, text string) error {
	b, err := json.Marshal(checkpoint{launch, text})
	if err != nil {
		return err
	}
	return fsys.Put(ctx, path.Join(root, checkpointFile), bytes.NewReader(b), files.PutOptions{Mode: 0o600})
}

// Checkpoint returns what [KeepCheckpoint] has kept of a launch; empty: nothing.
func Checkpoint(ctx context.Context, fsys files.FS, root string, launch int) (string, error) {
	b, err := files.ReadFile(ctx, fsys, path.Join(root, checkpointFile), 8*job.MaxEventMessage)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var c checkpoint
	if err != nil || json.Unmarshal(b, &c) != nil || c.Launch != launch {
		return "", err
	}
	return job.Text(c.Text), nil
}

// noLinks refuses a path in root that goes through a symbolic link.
func noLinks(ctx context.Context, fsys files.FS, root, name string) error {
	dir := root
next:
	for part := range strings.SplitSeq(name, "/") {
		infos, err := fsys.List(ctx, dir)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Name() == part {
				if info.Mode().Type() == fs.ModeSymlink {
					return Outside(name)
				}
				dir = path.Join(dir, part)
				continue next
			}
		}
		return fs.ErrNotExist
	}
	return nil
}

// Tail returns the last n bytes of a file in the folder dir, if possible from the beginning of a
// line.
func Tail(ctx context.Context, fsys files.FS, dir, name string, n int64) ([]byte, error) {
	f, _, err := Open(ctx, fsys, dir, path.Clean(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, size-n), io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, n))
	if i := bytes.IndexByte(b, '\n'); size > n && i >= 0 && i+1 < len(b) {
		b = b[i+1:]
	}
	return b, err
}
