package local

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/host"
)

// Who was started since the list is found without another one, whether it bears a mark or was met in a session that has
// lost its leader since; threads and zombies are nobody.
func TestCensusGoesOn(t *testing.T) {
	if lastPID() == 0 {
		t.Skip("this kernel does not tell which pid it gave last")
	}
	h := open(t, Config{})
	boot, err := h.Boot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	members := func(f host.Family) []host.Member {
		t.Helper()
		all, err := h.Members(t.Context(), []host.Family{f})
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	marked := host.Family{Launch: "TestCensusGoesOn"}
	if got := members(marked); len(got) > 0 {
		t.Fatalf("nobody is there yet: %+v", got)
	}
	h.census.mu.Lock()
	h.census.most = 1 << 20 // no new list, however much the machine starts
	first := h.census.first
	h.census.mu.Unlock()
	if first == 0 {
		t.Fatal("there is no list to go on from")
	}

	c := exec.Command("sh", "-c", "sleep 600 & echo; exec sleep 600")
	c.Env = append(c.Environ(), host.LaunchVariable+"="+marked.Launch)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	out.Read(make([]byte, 1))
	leader, err := readStat(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	inSession := host.Family{Leader: host.Process{PID: c.Process.Pid, Start: leader.start, Boot: boot}}
	for len(members(marked)) != 2 { // who becomes another program has no environment meanwhile
	}
	if got := members(inSession); len(got) != 1 {
		t.Errorf("by the session: %+v", got)
	}
	c.Process.Kill() // and it stays a zombie
	for done := false; !done; {
		s, err := readStat(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		done = !s.alive()
	}
	left := members(inSession)
	if len(left) != 1 {
		t.Fatalf("when its leader has ended: %+v", left)
	}
	if got := members(marked); len(got) != 1 || got[0].PID != left[0].PID {
		t.Errorf("what bears the mark when one has ended: %+v, not %+v", got, left)
	}
	syscall.Kill(left[0].PID, syscall.SIGKILL)
	for len(members(marked)) > 0 || len(members(inSession)) > 0 {
	}
	c.Wait()
	h.census.mu.Lock()
	defer h.census.mu.Unlock()
	if h.census.first != first {
		t.Error("there was a new list")
	}
	for pid := range h.census.others {
		if syscall.Tgkill(pid, pid, 0) == syscall.ESRCH && syscall.Kill(pid, 0) == nil {
			t.Errorf("%d is a thread", pid)
		}
	}
}

// A list is made anew before a pid can pass to another process.
func TestCensusEnds(t *testing.T) {
	c := census{first: 32_000, last: 32_000, most: 1000, pids: 32_768}
	for last, want := range map[int]bool{32_000: true, 32_500: true, 32_768: true, 232: true, 233: false, 31_999: false, 0: false} {
		if got := c.goesOn(c.at, last); got != want {
			t.Errorf("from %d to %d of %d: %t", c.first, last, c.pids, got)
		}
	}
	if later := c.at.Add(soon); c.goesOn(later, 32_100) {
		t.Error("it goes on after a pause though nobody has counted what was started")
	}
	if now := started(); now > 0 {
		if later := c.at.Add(soon); !c.goesOn(later, 32_100) { // it was counted just now
			t.Error("it does not go on though little was started")
		}
		c.forks = now - uint64(c.pids)
		if later := c.at.Add(soon); c.goesOn(later, 32_100) {
			t.Error("it goes on though pids may have gone round")
		}
	}
}

func TestCensusOrder(t *testing.T) {
	c := census{first: 32_700, last: 100, pids: 32_768}
	for pid, want := range map[int]bool{32_700: true, 32_701: false, 1: false, 100: false, 101: true, 5000: true} {
		if got := c.older([]host.Family{{Leader: host.Process{PID: pid}}}); got != want {
			t.Errorf("%d: older %t", pid, got)
		}
	}
}
