package sftp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// A part of a file is copied by one request. That is a sign of life, and other scripts wait
// for it.
const (
	blockSize = 1 << 20
	partSize  = 16 * blockSize
)

// CopyFile implements [files.Copier], by dd of the machine. If that fails, nothing is copied: the
// caller reads and writes the file instead, and that says what is wrong.
func (f *FS) CopyFile(ctx context.Context, from, to string, o files.PutOptions, progress func(n int)) (int64, error) {
	if f.Shell == nil {
		return 0, fmt.Errorf("copy %s: %w", from, errors.ErrUnsupported)
	}
	info, err := f.Stat(ctx, from)
	switch {
	case err != nil:
		return 0, fmt.Errorf("copy: %w", &files.ReadError{Err: err})
	case !info.Mode().IsRegular():
		return 0, &files.ReadError{Err: job.Errorf(job.Invalid, "copy %s: not a regular file but %s", from,
			info.Mode().Type())}
	case progress == nil:
		progress = func(int) {}
	}
	if err := f.Put(ctx, to, &parts{fs: f, from: from, size: info.Size(), progress: progress}, o); err != nil {
		return 0, fmt.Errorf("copy %s: %w", from, err)
	}
	return info.Size(), nil
}

// parts are a file of the same machine, for a writer to copy.
type parts struct {
	fs       *FS
	from     string
	size     int64
	progress func(n int)
}

// Read is never called: a writer copies.
func (p *parts) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// copy copies the file to another one.
func (p *parts) copy(ctx context.Context, to *sftp.File) error {
	if p.size == 0 {
		return nil
	}
	for at := int64(0); at < p.size; at += partSize {
		n, err := p.fs.copyPart(ctx, p.from, to.Name(), at)
		want := min(partSize, p.size-at)
		if err == nil && n == cloned {
			p.progress(int(p.size))
			return nil
		}
		if err == nil && n == want {
			p.progress(int(n))
			continue
		}
		p.progress(int(-at))
		if err != nil && job.KindOf(err) == job.Unavailable || ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%d bytes of %d: %w", n, want, errors.Join(err, errors.ErrUnsupported))
	}
	return to.Truncate(p.size) // it may end in a hole
}

// cloned stands for all bytes of a file: the copy shares them on the disk, until one is changed.
const cloned = -1

// copyPart copies a part of a file to the same place in another one, or all of it at once if the
// file system can. It returns how many bytes it read.
func (f *FS) copyPart(ctx context.Context, from, to string, offset int64) (int64, error) {
	script := fmt.Sprintf("dd if=%s of=%s bs=%d skip=%d seek=%[4]d count=%d conv=notrunc,nocreat,sparse 2>&1; echo exit $?",
		quote(from), quote(to), blockSize, offset/blockSize, partSize/blockSize)
	if offset == 0 {
		script = fmt.Sprintf("if cp --reflink=always %s %s 2>/dev/null; then echo cloned; else %s; fi", quote(from), quote(to),
			script)
	}
	out, err := f.Shell(ctx, paths+"LC_ALL=C; export LC_ALL; "+script)
	if err != nil {
		return 0, err
	}
	if out == "cloned\n" {
		return cloned, nil
	}
	for line := range strings.Lines(out) {
		number, _, ok := strings.Cut(line, " bytes")
		copied, err := strconv.ParseInt(number, 10, 64)
		if ok && err == nil && strings.HasSuffix(out, "exit 0\n") {
			return copied, nil
		}
	}
	return 0, fmt.Errorf("dd: %q", out[:min(len(out), 200)])
}
