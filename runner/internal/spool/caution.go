package spool

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/runner"
)

// A watch reads files that programs can write. If such a read ever kills its process, it also kills
// the next one, which begins with the same read. So after a watch that was killed the next watch is
// cautious until it has looked at all launches: it looks at one after the other, and first notes at
// which one. After [runner.MaxDeaths] it looks no more at that launch. A far machine reads them
// itself, and its answers have bounds: whoever is killed meanwhile was not killed by them.

// WatchingNote is a folder in the spool. It is there while a watch goes on, or after a watch was
// killed. While a cautious watch looks at a launch it makes a folder in it, which is named like a
// message; its run counts the looks that may have killed a watch, with this one. A folder is there
// or not; it is never half written.
const WatchingNote = ".watching"

// A caution is what a watch knows of the watch before it.
type caution struct {
	fs  files.FS
	dir string

	mu     sync.Mutex
	on     bool               // guarded by mu
	caught bool               // guarded by mu: what was told before this watch has been read
	died   map[runner.Key]int // guarded by mu: how many looks at a launch have killed a watch
}

// beCautious finds out whether the watch before was killed, and notes that this one goes on. If it
// cannot note that, only caution is lost. A watch after one that was lost knows what that one knew.
func (s *Spool) beCautious(ctx context.Context) *caution {
	if s.Shell() != nil {
		return &caution{}
	}
	s.mu.Lock()
	c := s.caution
	s.mu.Unlock()
	if c == nil {
		c = &caution{fs: s.FS, dir: path.Join(s.Dir, WatchingNote), died: map[runner.Key]int{}}
		infos, err := s.FS.List(ctx, c.dir)
		c.on = err == nil
		for _, f := range infos {
			if k, n, err := runner.ParseEndName(f.Name()); err == nil {
				c.died[k] = max(c.died[k], n)
			}
		}
	}
	_ = s.FS.Mkdir(ctx, c.dir)
	c.mu.Lock()
	c.caught = false
	c.mu.Unlock()
	s.mu.Lock()
	s.caution = c
	s.mu.Unlock()
	return c
}

// look reads what a launch left, unless that has killed too many watches.
func (c *caution) look(ctx context.Context, k runner.Key, read func() error) error {
	c.mu.Lock()
	on, n := c.on, c.died[k]
	c.mu.Unlock()
	switch {
	case n >= runner.MaxDeaths:
		return errDeadly
	case !on:
		return read()
	}
	note := path.Join(c.dir, runner.EndName(k, n+1))
	_ = c.fs.Mkdir(ctx, note)
	defer c.fs.Remove(ctx, note) //nolint:errcheck // then the next watch is cautious without need
	return read()
}

// errDeadly says that a launch is no longer looked at.
var errDeadly = fmt.Errorf("%d looks at what the program left have killed the process that looked, so nobody "+
	"looks any more", runner.MaxDeaths)

// Probe probes launches, by a function that reads what they left. Reads that kill the process are
// counted.
func (s *Spool) Probe(ctx context.Context, hs []runner.Handle,
	probe func(context.Context, []runner.Handle) ([]runner.Status, error),
) ([]runner.Status, error) {
	if c := s.careful(hs); c != nil {
		return c.probe(ctx, hs, probe)
	}
	return probe(ctx, hs)
}

// careful returns the caution that is needed for a look at launches; nil: none is.
func (s *Spool) careful(hs []runner.Handle) *caution {
	s.mu.Lock()
	c := s.caution
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on || slices.ContainsFunc(hs, func(h runner.Handle) bool { return c.died[h.Key] >= runner.MaxDeaths }) {
		return c
	}
	return nil
}

// probe looks at launches one by one. One that is no longer looked at may run, so it is to be
// ended. The caution is over when the first look at all launches is.
func (c *caution) probe(ctx context.Context, hs []runner.Handle,
	probe func(context.Context, []runner.Handle) ([]runner.Status, error),
) ([]runner.Status, error) {
	c.mu.Lock()
	caught := c.caught
	c.mu.Unlock()
	all := make([]runner.Status, len(hs))
	for i, h := range hs {
		err := c.look(ctx, h.Key, func() error {
			one, err := probe(ctx, hs[i:i+1])
			if err == nil {
				all[i] = one[0]
			}
			return err
		})
		if errors.Is(err, errDeadly) {
			all[i], err = runner.Status{State: runner.Orphaned, Said: errDeadly.Error()}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if caught {
		c.mu.Lock()
		c.on = false
		c.mu.Unlock()
	}
	return all, nil
}

// catchUp notes that the watch has told all that was there when it began.
func (c *caution) catchUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.caught = true
}

// relax notes that the watch ended in good order.
func (s *Spool) relax(ctx context.Context, c *caution) {
	s.mu.Lock()
	noted := s.caution == c
	if noted {
		s.caution = nil
	}
	s.mu.Unlock()
	if !noted {
		return
	}
	_ = c.fs.Remove(context.WithoutCancel(ctx), c.dir)
}
