package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/pawl-jobs/pawl/job"
)

// Copied says what [Copy] copied.
type Copied struct {
	Size   int64  // bytes
	SHA256 string // of the content, lower-case hex
}

// CopyOptions are the extras of [Copy]. The zero value writes a durable file with the mode of the source.
type CopyOptions struct {
	PutOptions // a Mode of 0 is the source's

	// Settled says that whoever made src has ended, and that its name goes soon. Where the file system can tell that its content
	// stands, dst is then a second name of it, with all that belongs to the file, and no copy.
	Settled bool

	// Progress, if it is set, is called with the number of bytes of each chunk on its way to dst, one call at a time.
	// When Copy has succeeded, the sum is the size of the file.
	Progress func(n int)
}

// Copy copies a regular file, which appears at dst whole or not at all. Size and digest are of the bytes that were
// written, so a source that changes meanwhile is told by its digest.
func Copy(ctx context.Context, to FS, dst string, from FS, src string, o CopyOptions) (Copied, error) {
	if a, ok := to.(Adopter); ok && o.Settled && o.Mode == 0 && from == to && a.Adopt(ctx, src, dst) == nil {
		return measure(ctx, to, dst, o.Progress)
	}
	if o.Mode == 0 {
		info, err := from.Stat(ctx, src)
		if err != nil {
			return Copied{}, fmt.Errorf("copy: %w", err)
		}
		o.Mode = info.Mode().Perm()
	}
	r, err := from.Open(ctx, src)
	if err != nil {
		return Copied{}, fmt.Errorf("copy: %w", err)
	}
	defer r.Close()
	return put(ctx, to, dst, r, src, o)
}

// put writes what r, which is called src, yields.
func put(ctx context.Context, to FS, dst string, r io.Reader, src string, o CopyOptions) (Copied, error) {
	sum := sha256.New()
	c := &counter{r: io.TeeReader(r, sum), progress: o.Progress}
	if err := to.Put(ctx, dst, c, o.PutOptions); err != nil {
		return Copied{}, fmt.Errorf("copy %s: %w", src, err)
	}
	return Copied{Size: c.n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// measure reads a file for what Copy says of one.
func measure(ctx context.Context, f FS, name string, progress func(int)) (Copied, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return Copied{}, err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, &counter{r: ContextReader(ctx, r), progress: progress})
	if err != nil {
		return Copied{}, fmt.Errorf("read %s: %w", name, err)
	}
	return Copied{Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

type counter struct {
	r        io.Reader
	n        int64
	progress func(int)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.progress != nil && n > 0 {
		c.progress(n)
	}
	return n, err
}

// ReadFile returns the content of a file of at most so many bytes. One that is longer is of kind [job.Corrupt]: a program
// can write to most names, and what is read of them is to fit into memory.
func ReadFile(ctx context.Context, f FS, name string, most int64) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(ContextReader(ctx, r), most+1))
	if err == nil && int64(len(b)) > most {
		return nil, job.Errorf(job.Corrupt, "%s is longer than %d bytes", name, most)
	}
	return b, err
}

// ContextReader returns a reader that stops with ctx's error once ctx has ended; for a backend's Put.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
