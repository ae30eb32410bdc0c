package local

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
)

// crowd makes the census know of so many processes that a look goes through the pids since the
// list, while there are fewer than some.
func crowd(h *Host, some func(pids int) int) {
	scan := h.looks.scan
	h.looks.scan = func() error {
		err := scan()
		h.census.mu.Lock()
		defer h.census.mu.Unlock()
		for i := range margin + some(h.census.pids) {
			if pid := -1 - i; h.census.known[pid] == nil {
				h.census.known[pid] = &sight{Stat: procfs.Stat{PID: pid}}
			}
		}
		return err
	}
}

func TestAmongMany(t *testing.T) {
	hosttest.Run(t, func(t *testing.T) (host.Host, string) {
		h := open(t, Config{})
		crowd(h, func(int) int { return 500 })
		return h, t.TempDir()
	})
}

// Who was started since the list is found without another one.
func TestGivenPids(t *testing.T) {
	if lastPID() == 0 {
		t.Skip("this kernel does not tell which pid it gave last")
	}
	h := open(t, Config{})
	crowd(h, func(pids int) int { return pids / 2 })
	if err := h.looks.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &h.census
	first := c.first
	var started []int
	for range 10 {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		started = append(started, cmd.Process.Pid)
		if err := c.look(h, c.at, lastPID()); err != nil {
			t.Fatal(err)
		}
		if c.first != first {
			t.Fatal("there was a new list")
		}
		for _, pid := range started {
			if s := c.known[pid]; s == nil || s.ended {
				t.Fatalf("%d is not known: %+v", pid, s)
			}
		}
	}
	for pid := range c.known {
		if pid > 0 && syscall.Tgkill(pid, pid, 0) == syscall.ESRCH && syscall.Kill(pid, 0) == nil {
			t.Errorf("%d is a thread", pid)
		}
	}
}

// Nobody is taken for who had his pid before.
func TestCensusEnds(t *testing.T) {
	c := census{first: 32_000, last: 32_000, pids: 32_768}
	for last, want := range map[int]bool{
		32_000: true, 32_500: true, 32_768: true, 232: true, 20_000: false, 31_999: false, 0: false,
	} {
		if got := c.goesOn(c.at, last); got != want {
			t.Errorf("from %d to %d of %d: %t", c.first, last, c.pids, got)
		}
	}
	later := c.at.Add(time.Second)
	if c.goesOn(later, 32_100) {
		t.Error("it goes on after a pause though nobody has counted what was started")
	}
	if now := started(); now > 0 {
		if !c.goesOn(later, 32_100) { // it was counted just now
			t.Error("it does not go on though little was started")
		}
		c.forks = now - uint64(c.pids)
		if c.goesOn(later, 32_100) {
			t.Error("it goes on though pids may have gone round")
		}
	}
	c.known, c.sessions = map[int]*sight{}, map[int][]*sight{}
	for pid, session := range map[int]int{
		1: 1, 5: 1, 6: 6, 7: 6, 20: 2, 31_999: 31_999, 32_000: 32_000, 32_001: 32_000, 32_767: 32_767,
	} {
		s := &sight{Stat: procfs.Stat{PID: pid, Session: session}}
		c.known[pid], c.sessions[session] = s, append(c.sessions[session], s)
	}
	c.doubt(32_000, 5)
	if got := slices.Sorted(maps.Keys(c.doubted)); !slices.Equal(got, []int{1, 5, 20, 32_001, 32_767}) {
		t.Errorf("doubted: %v", got)
	}
	if got := slices.Sorted(maps.Keys(c.known)); !slices.Equal(got, []int{6, 7, 31_999, 32_000}) {
		t.Errorf("known: %v", got)
	}
}

// A process that becomes other programs all the time has its environment whenever it is asked, and
// an empty one is known for empty.
func TestMarksOfTheBusy(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func(env []string, argv ...string) int {
		t.Helper()
		c := exec.Command(argv[0], argv[1:]...)
		c.Env = env
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c.Process.Pid
	}
	busy := begin([]string{host.KeepVariable + "=1"}, script)
	found := 0
	for range 5000 {
		m := readMarks(busy)
		if m.keep {
			found++
		} else if m.whole {
			t.Fatal("its environment is empty")
		}
	}
	if found < 4900 { // a machine that is busy may hold it up for longer than is waited
		t.Errorf("its environment was found %d times of 5000", found)
	}
	empty := begin([]string{}, "/bin/sleep", "600")
	hosttest.Until(t, "it is another program", func() bool {
		s, err := readStat(empty)
		return err == nil && s.Name == "sleep"
	})
	if m := readMarks(empty); !m.whole {
		t.Error("it is not known that an environment is empty")
	}
}
