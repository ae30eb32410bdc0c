package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// disks are the file systems of the machines: each data folder is one of its own in memory, so that
// it can be full.
type disks struct {
	*storm
	mounted []string
	refused bool // there is none: this user may not make any

	mu     sync.Mutex
	filled []spell // guarded by mu
}

// A spell is a time.
type spell struct{ from, to time.Time }

// wasFull reports whether a disk was full at some time in a spell.
func (d *disks) wasFull(from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.filled, func(f spell) bool { return f.from.Before(to) && from.Before(f.to) })
}

const diskSize = "2g"

func (d *disks) mount(ctx context.Context, machine string) error {
	dir := d.folder(machine)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	err := syscall.Mount("storm", dir, "tmpfs", 0, "mode=0700,size="+diskSize)
	switch {
	case err == nil:
		d.mounted = append(d.mounted, dir)
	case !d.refused:
		d.refused = true
		d.sum.LeftOut = append(d.sum.LeftOut, fmt.Sprintf("disk_full: mount a file system: %v", err))
	}
	return nil
}

// full leaves no space on the disk of a machine until ctx ends.
func (d *disks) full(ctx context.Context, machine string) error {
	dir := d.folder(machine)
	err := fill(dir)
	for errors.Is(err, syscall.EINVAL) && ctx.Err() == nil { // somebody has written since it was asked how much is used
		err = fill(dir)
	}
	if err != nil {
		return fmt.Errorf("fill the disk of %s: %w", machine, err)
	}
	from := time.Now()
	<-ctx.Done()
	d.mu.Lock()
	d.filled = append(d.filled, spell{from, time.Now()})
	d.mu.Unlock()
	return syscall.Mount("storm", dir, "tmpfs", syscall.MS_REMOUNT, "size="+diskSize)
}

func fill(dir string) error {
	var now syscall.Statfs_t
	if err := syscall.Statfs(dir, &now); err != nil {
		return err
	}
	used := (now.Blocks - now.Bfree) * uint64(now.Bsize)
	return syscall.Mount("storm", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", used))
}

// close removes the file systems. What is in them is copied first where it is to be looked at.
func (d *disks) close() {
	for _, dir := range d.mounted {
		if len(d.sum.Broken) > 0 || d.keep {
			if err := command(context.Background(), "", "cp", "-a", dir, dir+".kept"); err != nil {
				d.printf("%v", err)
			}
		}
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			d.printf("unmount %s: %v", dir, err)
		}
	}
}
