package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// SSHFS mounts the folder Work of a server, as sshfs(1) does, and returns where. To the system that
// is a file system of the network: it has no sockets, and no lock on it is seen by another mount.
// Two mounts of one server are what two machines have of one folder. Only root can mount: else the
// test is skipped.
func SSHFS(tb testing.TB, s *SSH) string {
	tb.Helper()
	dir, err := s.mount(tb)
	if errors.Is(err, ErrMissing) {
		missing(tb, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func (s *SSH) mount(tb testing.TB) (string, error) {
	for _, name := range []string{"sshfs", "fusermount3"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%s is %w: install it (Debian: sshfs)", name, ErrMissing)
		}
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Getuid() != 0 {
		return "", fmt.Errorf("a mount is %w: it needs root, and /dev/fuse: %w", ErrMissing, err)
	} else if err := f.Close(); err != nil {
		return "", err
	}
	dir := tb.TempDir()
	before, err := device(dir)
	if err != nil {
		return "", err
	}
	known := filepath.Join(tb.TempDir(), "known_hosts")
	line := fmt.Sprintf("[%s]:%d %s\n", s.Host, s.Port, s.HostKey)
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "sshfs", "-f", "-p", strconv.Itoa(s.Port),
		"-o", "idmap=user,IdentityAgent=none,IdentitiesOnly=yes,IdentityFile="+s.Key+",UserKnownHostsFile="+known,
		s.User+"@"+s.Host+":"+s.Work, dir)
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	c, err := startChild(ctx, cmd, "")
	if err != nil {
		return "", fmt.Errorf("start sshfs: %w", err)
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("fusermount3", "-u", "-z", dir).CombinedOutput(); err != nil {
			tb.Errorf("fusermount3: %v: %s", err, out)
		}
		c.end(syscall.SIGTERM)
	})
	mounted := func() bool {
		now, err := device(dir)
		return err == nil && now != before
	}
	if !Until(ctx, mounted) {
		return "", fmt.Errorf("sshfs does not mount: %s", c.log)
	}
	return dir, nil
}

// device returns the number of the file system of a folder.
func device(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return uint64(info.Sys().(*syscall.Stat_t).Dev), nil //nolint:unconvert // it is smaller elsewhere
}
