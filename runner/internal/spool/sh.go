package spool

import (
	"context"
	"crypto/rand"
	"path"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
)

// memory is a folder in memory. What a script prints goes there, as the disk may be full.
const memory = "/dev/shm"

// Sh runs a script on the host, and returns what it printed. Where the host is no [host.Shell], all
// users of the machine can read both meanwhile.
func (s *Spool) Sh(ctx context.Context, script string) (string, error) {
	if sh := s.Shell(); sh != nil {
		out, _, err := sh.Run(ctx, script, nil)
		return string(out), err
	}
	dir := memory
	if _, err := s.FS.Stat(ctx, dir); err != nil || s.full(ctx, dir) {
		dir = s.Dir
	}
	name := path.Join(dir, "."+rand.Text())
	p, err := s.Host.Start(ctx, host.Command{
		Argv: []string{"/bin/sh", "-c", script}, Dir: "/", Stdout: name, Stderr: name + ".err",
	})
	defer files.RemoveAll(context.WithoutCancel(ctx), s.FS, name, name+".err") //nolint:errcheck // a hidden file stays
	if err != nil {
		return "", err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		alive, err := s.Host.Alive(ctx, []host.Process{p})
		if err != nil {
			return "", err
		}
		if !alive[0] {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	b, err := files.ReadFile(ctx, s.FS, name, 64<<20)
	return string(b), err
}
