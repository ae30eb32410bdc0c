package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// MaxHole is the most bytes of holes that [Copy] digests as zeros. A file with more gets
// [DigestBlocks] instead, unless [CopyOptions].Whole is set. A program can make a hole of 8 EiB in
// an instant, and its zeros would take a processor for centuries.
const MaxHole = 256 << 20

// BlockSize is the size in bytes of the blocks of [DigestBlocks].
const BlockSize = 4096

// Digest returns the SHA-256 of a regular file's content as lower-case hex. A hole counts as zeros.
func Digest(ctx context.Context, f FS, name string) (string, error) {
	c, err := measure(ctx, f, name, byContent, nil)
	return c.SHA256, err
}

// DigestBlocks returns a SHA-256 of a regular file that leaves out its zeros, as lower-case hex. It
// reads blocks of 4096 bytes; the last one may be shorter. For each block that is not all zeros it
// digests the block's offset as 8 bytes, big-endian, and then the block.
func DigestBlocks(ctx context.Context, f FS, name string) (string, error) {
	c, err := measure(ctx, f, name, byBlocks, nil)
	return c.Blocks, err
}

// A digester chooses the digest of a file that has so many bytes of holes.
type digester func(holes int64) digest

func byContent(int64) digest { return &content{sha256.New()} }
func byBlocks(int64) digest  { return &blocks{sum: sha256.New()} }

func digestFor(o CopyOptions) digester {
	switch {
	case o.Whole:
		return byContent
	case o.NoDigest:
		return func(int64) digest { return none{} }
	}
	return func(holes int64) digest {
		if holes > MaxHole {
			return byBlocks(holes)
		}
		return byContent(holes)
	}
}

// A digest takes in a file.
type digest interface {
	Write(p []byte) (int, error) // never fails
	zeros(n int64) int64         // takes in up to n zeros, and returns how many
	put(c *Copied)
}

// content is the digest of all bytes.
type content struct{ hash.Hash }

// none is the digest where none is asked for.
type none struct{}

func (none) Write(p []byte) (int, error) { return len(p), nil }
func (none) zeros(n int64) int64         { return n }
func (none) put(*Copied)                 {}

var nothing [64 << 10]byte

func (c *content) zeros(n int64) int64 {
	n = min(n, int64(len(nothing)))
	c.Write(nothing[:n])
	return n
}

func (c *content) put(to *Copied) { to.SHA256 = hex.EncodeToString(c.Sum(nil)) }

// blocks is the digest of [DigestBlocks].
type blocks struct {
	sum   hash.Hash
	at    int64 // where block begins
	block []byte
}

func (b *blocks) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part := min(len(p), BlockSize-len(b.block))
		b.block, p = append(b.block, p[:part]...), p[part:]
		if len(b.block) == BlockSize {
			b.flush()
		}
	}
	return n, nil
}

func (b *blocks) zeros(n int64) int64 {
	if len(b.block) > 0 || n < BlockSize {
		n = min(n, int64(BlockSize-len(b.block)))
		b.Write(nothing[:n]) //nolint:errcheck // a digest takes all
		return n
	}
	n -= n % BlockSize
	b.at += n
	return n
}

func (b *blocks) flush() {
	if !bytes.Equal(b.block, nothing[:len(b.block)]) {
		b.sum.Write(binary.BigEndian.AppendUint64(nil, uint64(b.at)))
		b.sum.Write(b.block)
	}
	b.at += int64(len(b.block))
	b.block = b.block[:0]
}

func (b *blocks) put(to *Copied) {
	b.flush()
	to.Blocks = hex.EncodeToString(b.sum.Sum(nil))
}
