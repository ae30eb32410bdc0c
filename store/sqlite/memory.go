package sqlite

import "modernc.org/libc"

// A reserve is one block of memory of each size that statements ask for and free again. SQLite's allocator (modernc.org/memory) maps
// 64 KiB when no block of a size is free, and unmaps them with their last block: where all others are in use, which is so by
// chance and then for long, each b-tree page that is split costs half a dozen system calls. With a block of it in use the rest
// of such a piece stays.
type reserve struct {
	tls  *libc.TLS
	held [9]uintptr
}

func newReserve() *reserve {
	r := &reserve{tls: libc.NewTLS()}
	r.renew()
	return r
}

// renew takes new blocks for those it has, as what was free beside them may be in use by now.
func (r *reserve) renew() {
	for i, before := range r.held {
		r.held[i] = libc.Xmalloc(r.tls, libc.Tsize_t(64<<i)) // the sizes that the allocator knows, up to the largest
		libc.Xfree(r.tls, before)
	}
}

func (r *reserve) close() {
	for _, block := range r.held {
		libc.Xfree(r.tls, block)
	}
	r.tls.Close()
}
