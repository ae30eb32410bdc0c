package sqlite

import "modernc.org/libc"

// A reserve keeps memory at hand of each size that statements ask for and free again. SQLite's
// allocator (modernc.org/memory) maps 64 KiB when no block of a size is free, and unmaps them with
// their last block: where all others are in use, which is so by chance and then for long, each
// statement costs half a dozen system calls. With a block of it in use the rest of such a piece
// stays.
type reserve struct {
	tls  *libc.TLS
	held [9]uintptr // of 64 bytes, 128, and so on: the sizes that the allocator knows, up to the largest
}

// How many blocks of a size are looked for: about as many as a statement has in use at once. These
// are a cursor for a table and for each of its indexes; of large blocks, which are for b-tree
// pages, there are few in a piece, and a statement asks for one or two.
const (
	cursors = 24
	pages   = 2
	large   = 4096 // bytes
)

func newReserve() *reserve {
	r := &reserve{tls: libc.NewTLS()}
	r.renew()
	return r
}

// renew sees to it that as many blocks as are asked for at once are free in pieces that stay, as
// what was free may be in use by now: it takes them, and keeps the last one, which is in a new
// piece if there had to be one.
func (r *reserve) renew() {
	var room [cursors]uintptr
	for i, before := range r.held {
		size, taken := 64<<i, room[:]
		if size >= large {
			taken = room[:pages]
		}
		for k := range taken {
			taken[k] = libc.Xmalloc(r.tls, libc.Tsize_t(size))
		}
		r.held[i] = taken[len(taken)-1]
		taken[len(taken)-1] = before
		for _, block := range taken {
			libc.Xfree(r.tls, block)
		}
	}
}

func (r *reserve) close() {
	for _, block := range r.held {
		libc.Xfree(r.tls, block)
	}
	r.tls.Close()
}
