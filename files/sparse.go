package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// Sparse is a file with holes that [FS.Open] has opened. A backend that cannot tell holes does not
// return it.
type Sparse interface {
	io.ReadSeeker
	// Extent returns where the next data at or after from begins and ends. After the last data,
	// both are the size of the file.
	Extent(from int64) (begin, end int64, err error)
	// Size returns the size of the file and how many bytes of it are holes, at the time when it was
	// opened.
	Size() (size, holes int64)
}

// Poured is a reader that can write its file with holes. [FS.Put] may use that instead of Read.
type Poured interface {
	// Pour writes the file to w, which is empty.
	Pour(w Pool) error
}

// A Pool is an open file that can have holes.
type Pool interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// Allocated returns how many bytes a file takes on its file system. If that cannot be told, it is
// the size of the file.
func Allocated(info fs.FileInfo) int64 {
	if at, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(at.Blocks*512, info.Size()) // of a unit that stat(2) has fixed
	}
	return info.Size()
}

// Identity returns the inode number of a file, and when its content or its attributes last changed.
// If the file system has no such number, both are zero.
func Identity(info fs.FileInfo) (number uint64, changed time.Time) {
	if at, ok := info.Sys().(*syscall.Stat_t); ok {
		return at.Ino, time.Unix(at.Ctim.Sec, at.Ctim.Nsec).UTC()
	}
	return 0, time.Time{}
}

// A feed reads a file once, from its beginning, for its digest and for its writer.
type feed struct {
	ctx      context.Context
	r        io.Reader
	holes    Sparse // nil: it has none
	digest   digest
	progress func(int)
	n        int64 // that were read

	begin, end int64 // the data that is next, of a file with holes
}

func newFeed(ctx context.Context, r io.Reader, d digester, progress func(int)) *feed {
	f := &feed{ctx: ctx, r: r, progress: progress}
	var holes int64
	if s, ok := r.(Sparse); ok {
		f.holes = s
		_, holes = s.Size()
	}
	f.digest = d(holes)
	return f
}

func (f *feed) copied() Copied {
	c := Copied{Size: f.n}
	f.digest.put(&c)
	return c
}

// reader returns what [FS.Put] gets.
func (f *feed) reader() io.Reader {
	if f.holes == nil {
		return f
	}
	return poured{f}
}

type poured struct{ *feed }

// Pour implements [Poured].
func (f poured) Pour(w Pool) error {
	size, _ := f.holes.Size()
	if err := w.Truncate(size); err != nil {
		return err
	}
	data := make([]byte, len(nothing))
	for {
		hole, err := f.hole()
		if err != nil {
			return err
		}
		if hole > 0 {
			if _, err := w.Seek(hole, io.SeekCurrent); err != nil {
				return err
			}
			continue
		}
		n, err := f.Read(data)
		if _, writeErr := w.Write(data[:n]); writeErr != nil {
			return writeErr
		}
		switch {
		case errors.Is(err, io.EOF) && f.n != size: // it has changed meanwhile
			return w.Truncate(f.n)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// drain reads the file for its digest alone.
func (f *feed) drain() error {
	for f.holes != nil {
		n, err := f.hole()
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if _, err := io.CopyN(io.Discard, f, max(1, f.end-f.n)); err == io.EOF { //nolint:errorlint // as Read returns it
			return nil
		} else if err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, f)
	return err
}

// hole passes over what is a hole here, and returns how many bytes that were.
func (f *feed) hole() (passed int64, err error) {
	if err := f.seek(); err != nil {
		return 0, err
	}
	for f.n < f.begin {
		if err := f.ctx.Err(); err != nil {
			return passed, err
		}
		n := f.digest.zeros(f.begin - f.n)
		f.took(n, false)
		passed += n
	}
	return passed, nil
}

// seek finds the data that is next, once what was found before has been read.
func (f *feed) seek() error {
	if f.holes == nil || f.n < f.end {
		return nil
	}
	var err error
	if f.begin, f.end, err = f.holes.Extent(f.n); err == nil {
		_, err = f.holes.Seek(f.begin, io.SeekStart)
	}
	if err != nil {
		return &ReadError{err}
	}
	return nil
}

func (f *feed) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.seek(); err != nil {
		return 0, err
	}
	if f.n < f.begin { // a reader gets zeros for holes
		n := f.digest.zeros(min(f.begin-f.n, int64(len(p))))
		clear(p[:n])
		f.took(n, false)
		return int(n), nil
	}
	if f.n < f.end {
		p = p[:min(int64(len(p)), f.end-f.n)]
	}
	n, err := f.r.Read(p)
	f.digest.Write(p[:n]) //nolint:errcheck // a digest takes all
	f.took(int64(n), true)
	if err != nil && err != io.EOF { // a reader's own
		err = &ReadError{err}
	}
	return n, err
}

// took counts bytes. For a hole it tells progress of 0 bytes, so that the caller sees that the copy
// moves.
func (f *feed) took(n int64, moved bool) {
	f.n += n
	switch {
	case f.progress == nil:
	case moved:
		f.progress(int(n))
	default:
		f.progress(0)
	}
}
