package local

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
)

// Watch tells the names that appear in a folder, by inotify. A slow reader costs nothing: names
// wait in the kernel's queue (fs.inotify.max_queued_events, 16,384 by default). If the kernel drops
// some, the reader gets an event with Overflow.
func (h *Host) Watch(ctx context.Context, dir string) (<-chan host.Event, error) {
	if err := errors.Join(ctx.Err(), files.Check(dir)); err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.Close())
	}
	events := make(chan host.Event)
	go func() {
		defer close(events)
		defer w.Close()
		relay(ctx, w, dir, events)
	}()
	return events, nil
}

// relay passes news on until ctx ends or the watch is lost.
func relay(ctx context.Context, w *fsnotify.Watcher, dir string, events chan<- host.Event) {
	for {
		var e host.Event
		select {
		case <-ctx.Done():
			return
		case n, ok := <-w.Events:
			if !ok || n.Name == dir && n.Has(fsnotify.Remove|fsnotify.Rename) {
				return
			}
			if e.Name = path.Base(n.Name); !n.Has(fsnotify.Create) || strings.HasPrefix(e.Name, ".") {
				continue
			}
		case _, ok := <-w.Errors: // an overflow, or a read that failed: either way names may be missing
			if !ok {
				return
			}
			e.Overflow = true
		}
		select {
		case <-ctx.Done():
			return
		case events <- e:
		}
	}
}
