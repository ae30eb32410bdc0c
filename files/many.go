package files

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A ReaderOfMany is a file system that reads several small files in one round trip. Callers use
// [CopyMany].
type ReaderOfMany interface {
	// ReadMany returns what is in files of at most [MaxSmall] bytes each. It is for files that do
	// not change: otherwise, and if one of them is not such a file, the error is
	// [errors.ErrUnsupported].
	ReadMany(ctx context.Context, names []string) ([][]byte, error)
}

const (
	// MaxMany is the most files that a [Filler] or a [ReaderOfMany] takes in one call.
	MaxMany = 100
	// MaxManyBytes is the most bytes of them all.
	MaxManyBytes = 256 << 10
)

// A CopyItem is one of the files that [CopyMany] copies.
type CopyItem struct {
	From, To string
	Info     fs.FileInfo // of From
	Passing  bool        // as in [PutOptions]
}

// Up to copiesAtOnce files or groups of small files are on their way at once. A file of largeCopy
// bytes or more counts for several: it fills the connection, and takes memory, by itself.
const (
	copiesAtOnce = 8
	largeCopy    = 1 << 20
	largeWeight  = 4
)

// CopyMany copies regular files as [Copy] does. If one of the file systems costs round trips, many
// files are on their way at once, and small ones share round trips.
//
// It calls done for each file that was copied, or was not, in any order and one at a time. If done
// returns an error, the files that are on their way are given up, and CopyMany returns that error.
func CopyMany(ctx context.Context, to, from FS, list []CopyItem, o CopyOptions,
	done func(i int, c Copied, err error) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &many{to: to, from: from, list: list, o: o, done: done, cancel: cancel}
	m.filler, _ = to.(Filler)
	m.reader, _ = from.(ReaderOfMany)
	if o.Progress != nil {
		m.o.Progress = func(n int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			o.Progress(n)
		}
	}
	if m.filler == nil && m.reader == nil {
		for i := range list {
			if !m.single(ctx, i) {
				break
			}
		}
		return m.err
	}
	turns := make(chan struct{}, copiesAtOnce)
	var work sync.WaitGroup
	start := func(weight int, f func()) {
		for range weight {
			turns <- struct{}{}
		}
		work.Go(func() {
			f()
			for range weight {
				<-turns
			}
		})
	}
	var group []int
	size := int64(0)
	send := func() {
		if all := group; len(all) > 0 {
			start(1, func() { m.group(ctx, all) })
		}
		group, size = nil, 0
	}
	for i, item := range list {
		if ctx.Err() != nil {
			break
		}
		n := item.Info.Size()
		if n > MaxSmall {
			weight := 1
			if n >= largeCopy {
				weight = largeWeight
			}
			start(weight, func() { m.single(ctx, i) })
			continue
		}
		if len(group) == MaxMany || size+n > MaxManyBytes {
			send()
		}
		group, size = append(group, i), size+n
	}
	if ctx.Err() == nil {
		send()
	}
	work.Wait()
	if m.err == nil && len(list) > 0 {
		return context.Cause(ctx) // of the caller
	}
	return m.err
}

type many struct {
	to, from FS
	filler   Filler       // nil: to is none
	reader   ReaderOfMany // nil: from is none
	list     []CopyItem
	o        CopyOptions
	cancel   context.CancelFunc

	mu   sync.Mutex // guards what follows, and calls of done and of Progress
	done func(i int, c Copied, err error) error
	err  error // that done returned
}

// tell tells that a file was copied, or was not. It reports whether to go on.
func (m *many) tell(i int, c Copied, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		if m.err = m.done(i, c, err); m.err != nil {
			m.cancel()
		}
	}
	return m.err == nil
}

// single copies a file by itself.
func (m *many) single(ctx context.Context, i int) bool {
	item := m.list[i]
	c, err := Copy(ctx, m.to, item.To, m.from, item.From, m.options(&item))
	return m.tell(i, c, err)
}

func (m *many) options(item *CopyItem) CopyOptions {
	o := m.o
	o.Passing = item.Passing
	if o.Mode == 0 && m.from != m.to { // else the file may be adopted
		o.Mode = item.Info.Mode().Perm()
	}
	return o
}

// group copies small files. Those that cannot be copied together are copied one by one, and that
// says what is wrong with them.
func (m *many) group(ctx context.Context, all []int) {
	contents := m.read(ctx, all)
	var small []Small
	var ready, rest []int
	for n, i := range all {
		if contents == nil || contents[n] == nil {
			rest = append(rest, i)
			continue
		}
		item := m.list[i]
		mode := m.o.Mode
		if mode == 0 {
			mode = item.Info.Mode().Perm()
		}
		small = append(small, Small{Name: item.To, Mode: mode, Content: contents[n], NoSync: m.o.NoSync})
		ready = append(ready, i)
	}
	switch {
	case m.filler == nil:
		for n, i := range ready {
			c, err := put(ctx, m.to, m.list[i].To, bytes.NewReader(small[n].Content), m.list[i].From, m.options(&m.list[i]))
			if !m.tell(i, c, err) {
				return
			}
		}
	case len(ready) > 0 && m.filler.Fill(ctx, small) == nil:
		for n, i := range ready {
			content := small[n].Content
			c := Copied{Size: int64(len(content))}
			if !m.o.NoDigest {
				sum := sha256.Sum256(content)
				c.SHA256 = hex.EncodeToString(sum[:])
			}
			if m.o.Progress != nil {
				m.o.Progress(len(content))
			}
			if !m.tell(i, c, nil) {
				return
			}
		}
	default:
		rest = all
	}
	turns := make(chan struct{}, copiesAtOnce)
	var work sync.WaitGroup
	for _, i := range rest {
		turns <- struct{}{}
		work.Go(func() {
			m.single(ctx, i)
			<-turns
		})
	}
	work.Wait()
}

// read returns what is in small files; nil for one that has to be looked at by itself.
func (m *many) read(ctx context.Context, all []int) [][]byte {
	if m.reader != nil {
		names := make([]string, len(all))
		for n, i := range all {
			names[n] = m.list[i].From
		}
		contents, err := m.reader.ReadMany(ctx, names)
		if err != nil {
			return nil
		}
		return contents
	}
	contents := make([][]byte, len(all))
	for n, i := range all {
		content, err := ReadFile(ctx, m.from, m.list[i].From, MaxSmall)
		if err == nil {
			contents[n] = content
		}
	}
	return contents
}

// Describe describes regular files, like [FS.Stat], by a List of each of their folders.
func Describe(ctx context.Context, fsys FS, names []string) ([]fs.FileInfo, error) {
	infos, folders := make([]fs.FileInfo, len(names)), map[string]map[string]fs.FileInfo{}
	for i, name := range names {
		dir := path.Dir(name)
		if folders[dir] == nil {
			list, err := fsys.List(ctx, dir)
			if err != nil {
				return nil, err
			}
			folders[dir] = map[string]fs.FileInfo{}
			for _, info := range list {
				folders[dir][info.Name()] = info
			}
		}
		if infos[i] = folders[dir][path.Base(name)]; infos[i] == nil {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
		}
	}
	return infos, nil
}

// Stamped describes new regular files, so that a later change of one is found out by the time of
// its last change, even if its size is the same. Where the file system tells no time of a change of
// attributes (see [Identity]), a change within the same second would not be found out. There the
// files get the time at, which is long past. If one cannot get it, the time that is told is zero.
func Stamped(ctx context.Context, fsys FS, at time.Time, names ...string) (infos []fs.FileInfo, err error) {
	s, can := fsys.(Stamper)
	var stamping error
	var work sync.WaitGroup
	if can {
		work.Go(func() { stamping = s.Stamp(ctx, at, names...) })
	}
	if len(names) == 1 {
		infos = make([]fs.FileInfo, 1)
		infos[0], err = fsys.Stat(ctx, names[0])
	} else {
		infos, err = Describe(ctx, fsys, names)
	}
	work.Wait()
	if job.KindOf(stamping) == job.Unavailable {
		err = cmp.Or(err, stamping)
	}
	if !can || stamping != nil {
		at = time.Time{}
	}
	for i := 0; i < len(infos) && err == nil; i++ {
		if _, changed := Identity(infos[i]); can || changed.IsZero() {
			infos[i] = stamped{infos[i], at}
		}
	}
	return infos, err
}

// A stamped file was last changed at a time that it was given.
type stamped struct {
	fs.FileInfo
	at time.Time
}

func (s stamped) ModTime() time.Time { return s.at }
