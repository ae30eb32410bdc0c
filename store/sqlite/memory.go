package sqlite

import "modernc.org/libc"

// A reserve keeps memory at hand of each size that statements ask for and free again. SQLite's allocator (modernc.org/memory) maps
// 64 KiB when no block of a size is free, and unmaps them with their last block: where all others are in use, which is so by
// chance and then for long, each statement costs half a dozen system calls. With a block of it in use the rest of such a piece stays.
type reserve struct {
	tls  *libc.TLS
	held [9]uintptr // of 64 bytes, 128, and so on: the sizes that the allocator knows, up to the largest
}

// atOnce is how many blocks of a size are looked for: about as many as a statement has in use at once, which are a cursor for the table
// and for each of its indexes. Of those of 4 KiB and more there are few in a piece, and a statement asks for one or two.
func atOnce(size int) int {
	if size > 2048 {
		return 2
	}
	return 24
}

func newReserve() *reserve {
	r := &reserve{tls: libc.NewTLS()}
	r.renew()
	return r
}

// renew sees to it that as many blocks as are asked for at once are free in pieces that stay, as what was free may be in use by now: it
// takes them, and keeps the last one, which is in a new piece if there had to be one.
func (r *reserve) renew() {
	var taken [24]uintptr
	for i, before := range r.held {
		size := 64 << i
		n := atOnce(size)
		for k := range n {
			taken[k] = libc.Xmalloc(r.tls, libc.Tsize_t(size))
		}
		for _, block := range taken[:n-1] {
			libc.Xfree(r.tls, block)
		}
		libc.Xfree(r.tls, before)
		r.held[i] = taken[n-1]
	}
}

func (r *reserve) close() {
	for _, block := range r.held {
		libc.Xfree(r.tls, block)
	}
	r.tls.Close()
}
