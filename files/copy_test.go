package files_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

// hollow makes a file of some size with data at some places.
func hollow(t *testing.T, name string, size int64, data map[int64]string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, text := range data {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func allocated(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return files.Allocated(info)
}

func TestCopyKeepsHoles(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int64
		data map[int64]string
	}{
		{"nothing but a hole", 1 << 20, nil},
		{"a hole before the data", 1<<20 + 3, map[int64]string{1 << 20: "end"}},
		{"a hole behind the data", 1 << 20, map[int64]string{0: "begin"}},
		{"holes between data", 3 << 20, map[int64]string{0: "a", 1 << 20: "b", 2 << 20: "c"}},
		{"an odd size", 1<<20 + 77, map[int64]string{70_000: "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := realTemp(t)
			src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
			hollow(t, src, tt.size, tt.data)
			var moved int64
			c, err := files.Copy(t.Context(), local.FS{}, dst, local.FS{}, src, files.CopyOptions{Progress: func(n int) { moved += int64(n) }})
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(src)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, want) {
				t.Errorf("another content, %v", err)
			}
			sum := sha256.Sum256(want)
			if c.Size != tt.size || c.SHA256 != hex.EncodeToString(sum[:]) || c.Blocks != "" {
				t.Errorf("%+v", c)
			}
			if got, want := allocated(t, dst), allocated(t, src); got > want || moved > want {
				t.Errorf("it takes %d bytes instead of %d, and %d were moved", got, want, moved)
			}
			again, err := files.Digest(t.Context(), local.FS{}, dst)
			if err != nil || again != c.SHA256 {
				t.Errorf("digest %s, %v", again, err)
			}
			if _, err := files.Copy(t.Context(), fake.New(), "/dst", local.FS{}, src, files.CopyOptions{}); err != nil {
				t.Errorf("to a file system without holes: %v", err)
			}
		})
	}
}

// A file that is larger than all disks is copied, and told apart from others, without its zeros.
func TestCopyOfAVeryLargeHole(t *testing.T) {
	dir := realTemp(t)
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const size, at = 1 << 40, 1<<39 + 5
	hollow(t, src, size, map[int64]string{at: "needle"})
	c, err := files.Copy(t.Context(), local.FS{}, dst, local.FS{}, src, files.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, files.BlockSize)
	copy(block[5:], "needle")
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, 1<<39), block...))
	if want := (files.Copied{Size: size, Blocks: hex.EncodeToString(sum[:])}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if got := allocated(t, dst); got > 1<<20 {
		t.Errorf("it takes %d bytes", got)
	}
	if again, err := files.DigestBlocks(t.Context(), local.FS{}, dst); err != nil || again != c.Blocks {
		t.Errorf("digest %s, %v", again, err)
	}
}

// Nobody pays for a digest that is not asked for.
func TestCopyWithoutDigest(t *testing.T) {
	dir := realTemp(t)
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const size = 3 << 20
	hollow(t, src, size, map[int64]string{1 << 20: "needle"})
	for dst, to := range map[string]files.FS{dst: local.FS{}, "/dst": fake.New()} {
		c, err := files.Copy(t.Context(), to, dst, local.FS{}, src, files.CopyOptions{NoDigest: true})
		if want := (files.Copied{Size: size}); err != nil || c != want {
			t.Errorf("to %T: %+v, %v", to, c, err)
		}
		if info, err := to.Stat(t.Context(), dst); err != nil || info.Size() != size {
			t.Errorf("to %T: %v, %v", to, info, err)
		}
	}
}

// The whole of such a file is digested only where that is asked for, and then it can be broken off.
func TestDigestOfAVeryLargeHoleObeysItsContext(t *testing.T) {
	dir := realTemp(t)
	hollow(t, filepath.Join(dir, "src"), 1<<40, nil)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := files.Copy(ctx, local.FS{}, filepath.Join(dir, "dst"), local.FS{}, filepath.Join(dir, "src"),
		files.CopyOptions{Whole: true, Progress: func(int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The digest by blocks is that of the content, wherever a file system has its holes.
func TestDigestBlocks(t *testing.T) {
	dir := realTemp(t)
	hollow(t, filepath.Join(dir, "hollow"), 1<<20+10, map[int64]string{5000: "x", 1 << 20: "0123456789"})
	b, err := os.ReadFile(filepath.Join(dir, "hollow"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dense"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	one, err := files.DigestBlocks(t.Context(), local.FS{}, filepath.Join(dir, "hollow"))
	two, err2 := files.DigestBlocks(t.Context(), local.FS{}, filepath.Join(dir, "dense"))
	if err != nil || err2 != nil || one != two {
		t.Errorf("%s and %s; %v, %v", one, two, err, err2)
	}
}

// Of a copy that failed it is known whether its source was to blame.
func TestCopyTellsWhoFailed(t *testing.T) {
	source := func(fault fake.Fault) *fake.FS {
		f := fake.New()
		if err := f.Put(t.Context(), "/src", bytes.NewReader([]byte("text")), files.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		f.Inject(fault)
		return f
	}
	full := fake.New()
	full.Full(1)
	for _, tt := range []struct {
		from, to *fake.FS
		err      error
		read     bool
	}{
		{source(fake.Fault{Op: "Open", Err: fs.ErrPermission}), fake.New(), fs.ErrPermission, true},
		{source(fake.Fault{Op: "Stat", Err: syscall.ESTALE}), fake.New(), syscall.ESTALE, true},
		{source(fake.Fault{Op: "Put"}), full, syscall.ENOSPC, false},
	} {
		_, err := files.Copy(t.Context(), tt.to, "/dst", tt.from, "/src", files.CopyOptions{})
		if _, read := errors.AsType[*files.ReadError](err); !errors.Is(err, tt.err) || read != tt.read {
			t.Errorf("%v, of reading: %t", err, read)
		}
	}
	_, err := files.Copy(t.Context(), fake.New(), "/dst", brokenDisk{source(fake.Fault{Op: "Put"})}, "/src", files.CopyOptions{})
	if _, read := errors.AsType[*files.ReadError](err); !errors.Is(err, syscall.EIO) || !read {
		t.Errorf("%v, of reading: %t", err, read)
	}
}

// On a broken disk files can be opened.
type brokenDisk struct{ *fake.FS }

func (brokenDisk) Open(context.Context, string) (io.ReadSeekCloser, error) { return broken{}, nil }

type broken struct{ io.ReadSeekCloser }

func (broken) Read([]byte) (int, error) { return 0, syscall.EIO }
func (broken) Close() error             { return nil }

func TestText(t *testing.T) {
	for name, want := range map[string]string{
		"plain": "plain", "ümläut": "ümläut", "a\xffb": `a\xffb`, `back\slash`: `back\slash`, `\xff`: `\x5cxff`, `\x5cxff`: `\x5cx5cxff`,
		`\xFF`: `\xFF`, `\x`: `\x`, "\\\xff": `\\xff`, "\xc3/\xa4": `\xc3/\xa4`, "\uFFFD": "\uFFFD",
	} {
		if got := files.Text(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{`\xff`, "\xff", `\\x5cxff`, "a/\xc3\xa4", `\x\x00`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := files.Text(name)
		if got := files.Name(text); got != name {
			t.Errorf("%q is written as %q, which is read as %q", name, text, got)
		}
		if !utf8.ValidString(text) {
			t.Errorf("%q is no text", text)
		}
	})
}

// counting counts the bytes that are read of its files.
type counting struct {
	files.FS
	read int64
}

func (c *counting) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	f, err := c.FS.Open(ctx, name)
	return countingFile{f, c}, err
}

type countingFile struct {
	io.ReadSeekCloser
	of *counting
}

func (f countingFile) Read(p []byte) (int, error) {
	n, err := f.ReadSeekCloser.Read(p)
	f.of.read += int64(n)
	return n, err
}

// A file that is too long is seen by its size: it is not read as far as its bound.
func TestReadFileOfAVeryLargeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	hollow(t, name, 8<<30, nil)
	f := &counting{FS: local.FS{}}
	if _, err := files.ReadFile(t.Context(), f, name, 64<<20); job.KindOf(err) != job.Corrupt {
		t.Errorf("%v, want it to be Corrupt", err)
	}
	if f.read > 2<<20 {
		t.Errorf("%d bytes of it were read", f.read)
	}
	for _, size := range []int64{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20} {
		hollow(t, name, size, map[int64]string{0: "begin"}) // it has 5 bytes at least, until it is truncated
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := files.ReadFile(t.Context(), f, name, 3<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("of %d bytes %d were read: %v", size, len(got), err)
		}
	}
}
