package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Disk puts a small file system of its own where a folder is, until the test is over: btrfs, which
// clones files. All that is written there together may take so many bytes, as if that were the
// quota of its users; 0: there is no quota. The folder keeps its owner.
func Disk(tb testing.TB, dir string, quota int64) {
	tb.Helper()
	mkfs, err := exec.LookPath("mkfs.btrfs")
	if err != nil {
		missing(tb, fmt.Errorf("mkfs.btrfs is %w: install btrfs-progs", ErrMissing))
	}
	if os.Getuid() != 0 {
		tb.Skip("only root can mount a file system")
	}
	before, err := os.Stat(dir)
	if err != nil {
		tb.Fatal(err)
	}
	image := filepath.Join(tb.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 400<<20)); err != nil {
		tb.Fatal(err)
	}
	run := func(args ...string) {
		tb.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			tb.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	run(mkfs, "-q", image)
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		tb.Skipf("this machine mounts no image: %v: %s", err, out)
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v: %s", err, out)
		}
	})
	if quota > 0 {
		run("btrfs", "quota", "enable", dir)
		run("btrfs", "qgroup", "limit", strconv.FormatInt(quota, 10), "0/5", dir) // 0/5 is the whole file system
	}
	of := before.Sys().(*syscall.Stat_t)
	if err := errors.Join(os.Chown(dir, int(of.Uid), int(of.Gid)), os.Chmod(dir, before.Mode().Perm())); err != nil {
		tb.Fatal(err)
	}
}
