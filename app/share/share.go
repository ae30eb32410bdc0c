// Package share sends a large file that many jobs need to a system once. Each job gets a copy of
// that copy, which takes no network. It is a copy and no link: a program may write to its input.
//
// A shared copy is in a folder of the hour of its last use, under a name that follows from what the
// file is on the machine of the service: its path, its number, its size, and when it was
// changed. Its own file says that it was changed long ago, so whoever changes it is found out. It
// gets its name when it is whole. What a process leaves that dies before goes with the folder.
//
// The package uses the contract of files, and no backend.
package share

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

const (
	// Least is the size of the smallest file that is shared, in bytes. A smaller one is sent in about
	// the time that it takes to copy it there.
	Least = 1 << 20
	// hours is how the folders of the hours are named.
	hours = "2006-01-02T15"
)

// sentAt is when each shared copy was changed last, by what its file says.
var sentAt = time.Unix(1e9, 0)

// ErrNot says that a file is not shared.
var ErrNot = errors.New("it is not shared")

// A Place is where shared copies of a system are.
type Place struct {
	System string   // its name and account
	FS     files.FS // shares nothing unless it is a [files.Stamper]
	Folder string
}

// A File is what jobs need.
type File struct {
	Owner  string // files of two owners are never shared
	FS     files.FS
	Name   string // with its links followed
	Info   fs.FileInfo
	SHA256 string // that its content must have; empty: any
}

// name returns the name of the shared copy; false: the file system does not tell files apart.
func (f *File) name() (string, bool) {
	number, changed := files.Identity(f.Info)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d %d %d %d %s", f.Owner, f.Name, number, f.Info.Size(),
		f.Info.ModTime().UnixNano(), changed.UnixNano(), f.SHA256))
	return hex.EncodeToString(sum[:16]), !changed.IsZero()
}

// Copies are the shared copies on all systems. The zero value is ready. Its methods are safe for
// concurrent use.
type Copies struct {
	mu       sync.Mutex
	sendings map[string]*sending // guarded by mu: under way, by system and name
	forgot   sync.Map            // by system the hour in which old copies were forgotten
}

// A sending is a shared copy that is looked for, or on its way.
type sending struct {
	done chan struct{} // closed when at and err are set
	at   string
	err  error

	mu      sync.Mutex
	waiting []func(n int) // guarded by mu: progress of the jobs that wait for it
}

// tell shows to the jobs that wait that bytes are on their way.
func (s *sending) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, progress := range s.waiting {
		progress(0)
	}
}

// Copy copies a file to a name on a system by way of a shared copy. aside is that of
// [files.PutOptions]. progress gets the number of bytes of each part, once, and 0 for a sign of
// life. After an error it got a negative number, so that the sum is 0, and whoever sends the file
// directly learns what is wrong.
func (c *Copies) Copy(ctx context.Context, y Place, to, aside string, f File, progress func(n int),
) (files.Copied, error) {
	fsys, can := y.FS.(files.Stamper)
	name, told := f.name()
	if !can || !told || f.Info.Size() < Least {
		return files.Copied{}, ErrNot
	}
	counted := 0
	move := func(n int) { counted += n; progress(n) }
	at, err := c.once(ctx, y.System+"\x00"+name, func(tell func()) (string, error) {
		return place(ctx, fsys, y.Folder, name, &f, func(n int) { move(n); tell() })
	}, progress)
	var copied files.Copied
	if err == nil {
		if counted > 0 { // the bytes have been counted on their way
			move = func(int) { progress(0) }
		}
		copied, err = files.Copy(ctx, fsys, to, fsys, at, files.CopyOptions{
			PutOptions: files.PutOptions{Mode: f.Info.Mode().Perm(), Aside: aside}, NoDigest: true, Progress: move,
		})
		good, statErr := intact(ctx, fsys, at, f.Info.Size()) // a program may have changed it, also meanwhile
		if err == nil && good {
			copied.SHA256 = f.SHA256
			return copied, nil
		}
		if err = errors.Join(err, statErr, ErrNot); statErr == nil && !good || full(err) { // without it there is room
			err = errors.Join(err, fsys.Remove(ctx, at))
		}
	}
	progress(-counted)
	return files.Copied{}, err
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// once calls place for one of the jobs that need the same copy at the same time. The others wait.
func (c *Copies) once(ctx context.Context, key string, place func(tell func()) (string, error), progress func(int),
) (string, error) {
	s := &sending{done: make(chan struct{})}
	for {
		c.mu.Lock()
		other := c.sendings[key]
		if other == nil {
			if c.sendings == nil {
				c.sendings = map[string]*sending{}
			}
			c.sendings[key] = s
		}
		c.mu.Unlock()
		if other == nil {
			break
		}
		other.mu.Lock()
		other.waiting = append(other.waiting, progress)
		other.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if !errors.Is(other.err, context.Canceled) { // else its job was, and not this one
			return other.at, other.err
		}
	}
	if s.at, s.err = place(s.tell); ctx.Err() != nil {
		s.err = context.Canceled
	}
	c.mu.Lock()
	delete(c.sendings, key)
	c.mu.Unlock()
	close(s.done)
	return s.at, s.err
}

// place finds a shared copy, or sends it.
func place(ctx context.Context, to files.Stamper, top, name string, f *File, progress func(n int)) (string, error) {
	now := time.Now().UTC()
	at := path.Join(top, now.Format(hours), name)
	if good, _ := intact(ctx, to, at, f.Info.Size()); good {
		return at, nil
	}
	if err := to.Mkdir(ctx, path.Dir(at)); err != nil {
		return "", err
	}
	before := path.Join(top, now.Add(-time.Hour).Format(hours), name)
	if good, _ := intact(ctx, to, before, f.Info.Size()); good && files.Move(ctx, to, before, at) == nil {
		return at, nil
	}
	tmp := at + "~" + rand.Text()
	err := send(ctx, to, tmp, f, progress)
	if err == nil {
		err = files.Move(ctx, to, tmp, at)
	}
	if err != nil {
		return "", errors.Join(err, to.Remove(context.WithoutCancel(ctx), tmp))
	}
	return at, nil
}

// send sends a file, unless there is no room for it and a copy, or it is not what it was.
func send(ctx context.Context, to files.Stamper, tmp string, f *File, progress func(n int)) error {
	if s, ok := to.(files.Sizer); ok {
		if space, err := s.Space(ctx, path.Dir(tmp)); err == nil && space.Free < 2*f.Info.Size() {
			return fmt.Errorf("there is no room for two copies: %w", ErrNot)
		}
	}
	c, err := files.Copy(ctx, to, tmp, f.FS, f.Name, files.CopyOptions{
		PutOptions: files.PutOptions{Mode: 0o400, Passing: true}, Whole: f.SHA256 != "", NoDigest: f.SHA256 == "",
		Progress: progress,
	})
	if err == nil {
		err = to.Stamp(ctx, sentAt, tmp)
	}
	if err != nil {
		return err
	}
	after := *f
	if after.Info, err = f.FS.Stat(ctx, f.Name); err != nil {
		return err
	}
	was, _ := f.name()
	if is, _ := after.name(); is != was || f.SHA256 != "" && c.SHA256 != f.SHA256 {
		return fmt.Errorf("it has changed: %w", ErrNot)
	}
	return nil
}

// intact reports whether a shared copy is what was sent.
func intact(ctx context.Context, fsys files.FS, at string, size int64) (bool, error) {
	info, err := fsys.Stat(ctx, at)
	return err == nil && info.Mode().IsRegular() && info.Size() == size && info.ModTime().Equal(sentAt), err
}

// Forget removes the copies that nobody has used since the hour before, once in each hour.
func (c *Copies) Forget(ctx context.Context, y Place) error {
	now := time.Now().UTC()
	hour, before := now.Format(hours), now.Add(-time.Hour).Format(hours)
	done, _ := c.forgot.Load(y.System)
	if _, can := y.FS.(files.Stamper); !can || done == hour {
		return nil
	}
	names, err := files.Names(ctx, y.FS, y.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if name < before {
			if err := y.FS.Remove(ctx, path.Join(y.Folder, name)); err != nil {
				return err
			}
		}
	}
	c.forgot.Store(y.System, hour)
	return nil
}

// Drop removes all copies on a system: others need the room.
func (c *Copies) Drop(ctx context.Context, y Place) error {
	if _, can := y.FS.(files.Stamper); !can {
		return nil
	}
	return y.FS.Remove(ctx, y.Folder)
}
