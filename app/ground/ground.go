// Package ground compares folders of the machine of the service. With mounts one folder has several
// names, so folders are compared by their identity and by that of the folders above them.
//
// The package uses the contract of files, and no backend.
package ground

import (
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/files"
)

// A Landmark is a folder as it is compared with others.
type Landmark struct {
	Named string // the service's name for it; empty: it is not the service's
	Real  string
	self  fs.FileInfo   // nil: it is not there yet
	way   []fs.FileInfo // itself, and the folders above it
}

// Holds reports whether other is m, or is in it.
func (m *Landmark) Holds(other *Landmark) bool {
	return other.Real == m.Real || strings.HasPrefix(other.Real, strings.TrimSuffix(m.Real, "/")+"/") ||
		slices.ContainsFunc(other.way, func(at fs.FileInfo) bool { return os.SameFile(at, m.self) })
}

// life is how long a look holds. Only root and the account of the service can change what is seen.
const life = time.Second

// A Ground holds the part of a comparison that all share: it costs a stat for each folder above
// each place. Its methods are safe for concurrent use.
type Ground struct {
	FS     files.FS
	Places []string // the service's own; empty names are left out

	mu   sync.Mutex               // guards what follows
	at   time.Time                // when the look was begun
	own  []Landmark               // the service's own places; nil: not looked up yet
	ways map[string][]fs.FileInfo // folders, and those above them
}

// with calls f with what was seen in the last second, under the lock.
func (g *Ground) with(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) > life {
		g.at, g.own, g.ways = time.Now(), nil, map[string][]fs.FileInfo{}
	}
	f()
}

// Own returns the service's own places as they were in the last second.
func (g *Ground) Own(ctx context.Context) (own []Landmark) {
	g.with(func() { own = g.own })
	if own != nil {
		return own
	}
	for _, name := range g.Places {
		if name == "" {
			continue
		}
		real, err := files.Real(ctx, g.FS, path.Clean(name))
		if err != nil {
			real = path.Clean(name)
		}
		m := g.Landmark(ctx, real)
		m.Named = name
		own = append(own, m)
	}
	if ctx.Err() != nil || slices.ContainsFunc(own, func(m Landmark) bool { return m.self == nil }) {
		return own // a place that is not there, or could not be looked at, is looked for again
	}
	g.with(func() { g.own = own })
	return own
}

// Landmark returns a folder, whose name has no links in it.
func (g *Ground) Landmark(ctx context.Context, real string) (m Landmark) {
	m.Real = real
	if info, err := g.FS.Stat(ctx, real); err == nil {
		m.self = info
		m.way = append(m.way, info)
	}
	if real != "/" {
		m.way = append(m.way, g.way(ctx, path.Dir(real))...)
	}
	return m
}

// way returns a folder and those above it. Only root mounts, so a way holds for the time of a look.
func (g *Ground) way(ctx context.Context, dir string) (way []fs.FileInfo) {
	known := false
	g.with(func() { way, known = g.ways[dir] })
	if known {
		return way
	}
	if info, err := g.FS.Stat(ctx, dir); err == nil {
		way = append(way, info)
	}
	if dir != "/" {
		way = append(way, g.way(ctx, path.Dir(dir))...)
	}
	if ctx.Err() == nil {
		g.with(func() { g.ways[dir] = way })
	}
	return way
}
