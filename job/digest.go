package job

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

// Digest returns a hash that tells changes of one job apart. A change that is repeated to the
// letter has the same digest. Equal changes of different jobs have the same digest too.
func (c *Change) Digest() int64 {
	h := fnv.New64a()
	var b [8]byte
	number := func(n int64) {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	text := func(s string) {
		number(int64(len(s)))
		io.WriteString(h, s) //nolint:errcheck // a hash takes everything
	}
	text(string(c.From.Place.State))
	text(string(c.From.Place.Custody))
	number(c.From.Epoch)
	number(c.From.N)
	h.Write(c.From.Fence.Session[:])
	text(c.From.Fence.Duty)
	number(c.From.Fence.Term)
	for i := range c.Path {
		e := &c.Path[i]
		text(string(e.State))
		text(string(e.Code))
		text(e.Message)
		text(string(e.Data))
	}
	text(string(c.To))
	var flags int64
	for i, set := range [...]bool{c.Set.Intent, c.Set.Over, c.Set.Retry, c.Set.Recovery, c.Set.Crash, c.Set.Clear} {
		if set {
			flags |= 1 << i
		}
	}
	number(flags)
	number(int64(c.Set.Delay))
	text(string(c.Set.Resume))
	if b := c.Set.Block; b != nil {
		text(b.Group(""))
		text(b.Line)
	}
	text(string(c.Set.Resolved))
	text(string(c.Set.Result))
	text(string(c.Work))
	return int64(h.Sum64())
}
