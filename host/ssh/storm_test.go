package ssh_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/bench/bed"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestLookInAStorm: processes of the same account that start and end all the time, and are of no
// family, do not hold up a look. They are those of the account that runs the test, so as root each
// process of the machine may count.
func TestLookInAStorm(t *testing.T) {
	testenv.Aside(t)
	testenv.Program(t, "/usr/sbin/sshd")
	s, err := bed.StartSSHD(t.Context(), filepath.Join(t.TempDir(), "sshd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h := open(t, config(&testenv.SSH{Host: "127.0.0.1", Port: s.Port, User: s.User, HostKey: s.HostKey, Key: s.Key}))
	boot, err := h.Boot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	up, err := h.Uptime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	for range 3 {
		storm := exec.CommandContext(ctx, "/bin/sh", "-c", "i=0; while [ $((i += 1)) -lt 5000 ]; do sh -c 'sh -c : & sh -c : & wait'; done")
		storm.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		storm.Cancel = func() error { return syscall.Kill(-storm.Process.Pid, syscall.SIGKILL) }
		if err := storm.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = storm.Wait() }() // it was killed
	}
	defer stop()
	gone := host.Family{
		Leader: host.Process{PID: 1 << 22, Start: uint64(up.Seconds() * 100), Boot: boot}, Locks: 1 << 40, Launch: "gone",
	}
	const looks, most = 5, 20
	before := h.Requests()
	for range looks {
		found, err := h.Members(t.Context(), []host.Family{gone})
		if err != nil || len(found[0]) > 0 {
			t.Fatalf("found %v: %v", found, err)
		}
	}
	if n := h.Requests() - before; n > most*looks {
		t.Errorf("%d requests for %d looks, %d are enough", n, looks, most*looks)
	} else {
		t.Logf("%d requests", n)
	}
}
