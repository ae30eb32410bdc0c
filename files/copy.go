package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pawl-jobs/pawl/job"
)

// Copied is what [Copy] did.
type Copied struct {
	Size   int64  // bytes, holes included
	SHA256 string // of the content, lower-case hex; empty if Blocks is set
	Blocks string // set for a file with holes above [MaxHole]: see [DigestBlocks]
}

// CopyOptions are options of [Copy]. The zero value writes a durable file with the mode of the
// source.
type CopyOptions struct {
	PutOptions // a Mode of 0 takes the mode of the source

	// Settled says that the maker of src has ended, and that the name src goes soon. If the file
	// system is an [Adopter] and adopts src, dst becomes a second name of the same file, with all
	// its attributes, and nothing is copied.
	Settled bool

	// NoDigest asks for no digest. If dst and src are on one file system that is a [Copier], the
	// content does not leave that.
	NoDigest bool

	// Whole asks for the SHA-256 of the whole content, even of a file with very large holes.
	Whole bool

	// Progress, if set, is called with the number of bytes of each chunk on its way to dst, and
	// with 0 for a part of a hole. It gets one call at a time. After success the sum is the size of
	// the file without its holes.
	Progress func(n int)
}

// A ReadError says that the source of a copy cannot be read. Other errors of [Copy] are about the
// destination.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// Copy copies a regular file. It appears at dst whole or not at all. Size and digest are those of
// the bytes that were written, so the digest shows whether the source changed meanwhile. Holes stay
// holes if both file systems have them.
func Copy(ctx context.Context, to FS, dst string, from FS, src string, o CopyOptions) (Copied, error) {
	if a, ok := to.(Adopter); ok && o.Settled && o.Mode == 0 && from == to && a.Adopt(ctx, src, dst) == nil {
		c, err := measure(ctx, to, dst, digestFor(o), o.Progress)
		if err != nil {
			return c, errors.Join(err, to.Remove(ctx, dst))
		}
		return c, nil
	}
	if o.Mode == 0 {
		info, err := from.Stat(ctx, src)
		if err != nil {
			return Copied{}, fmt.Errorf("copy: %w", &ReadError{err})
		}
		o.Mode = info.Mode().Perm()
	}
	if own, ok := to.(Copier); ok && o.NoDigest && from == to {
		size, err := own.CopyFile(ctx, src, dst, o.PutOptions, o.Progress)
		if !errors.Is(err, errors.ErrUnsupported) {
			return Copied{Size: size}, err
		}
	}
	r, err := from.Open(ctx, src)
	if err != nil {
		return Copied{}, fmt.Errorf("copy: %w", &ReadError{err})
	}
	defer r.Close()
	return put(ctx, to, dst, r, src, o)
}

// put writes what r, which is called src, yields.
func put(ctx context.Context, to FS, dst string, r io.Reader, src string, o CopyOptions) (Copied, error) {
	f := newFeed(ctx, r, digestFor(o), o.Progress)
	if err := to.Put(ctx, dst, f.reader(), o.PutOptions); err != nil {
		return Copied{}, fmt.Errorf("copy %s: %w", src, err)
	}
	return f.copied(), nil
}

// measure reads a file for what Copy says of one.
func measure(ctx context.Context, f FS, name string, d digester, progress func(int)) (Copied, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return Copied{}, &ReadError{err}
	}
	defer r.Close()
	feed := newFeed(ctx, r, d, progress)
	if err := feed.drain(); err != nil {
		return Copied{}, fmt.Errorf("read %s: %w", name, err)
	}
	return feed.copied(), nil
}

// ReadFile returns the content of a file of at most most bytes. A longer file is of kind
// [job.Corrupt]: programs can write to most names, and the content must fit into memory.
func ReadFile(ctx context.Context, f FS, name string, most int64) ([]byte, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const few = 1 << 20
	in, size := io.LimitReader(ContextReader(ctx, r), most+1), int64(0)
	var b bytes.Buffer
	switch _, err = io.CopyN(&b, in, few); {
	case errors.Is(err, io.EOF):
		err = nil
	case err == nil: // how much more there is is asked only now: elsewhere that is a round trip
		if size, err = r.Seek(0, io.SeekEnd); err == nil && size <= most {
			b.Grow(max(int(size)-few, 0) + bytes.MinRead) // it may be shorter by now
			if _, err = r.Seek(few, io.SeekStart); err == nil {
				_, err = b.ReadFrom(in)
			}
		}
	}
	if err == nil && max(size, int64(b.Len())) > most {
		return nil, job.Errorf(job.Corrupt, "%s is longer than %d bytes", name, most)
	}
	return b.Bytes(), err
}

// ContextReader returns a reader that returns ctx's error once ctx has ended. It is for the Put of
// a backend.
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
