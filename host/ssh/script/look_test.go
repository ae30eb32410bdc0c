package script

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Once the numbers of processes have begun anew, those that run since before are not read each
// time: on a machine that is up for long these are nearly all. One that is asked for is read.
func TestLookAfterNumbersBeginAnew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root sets the number of the next process")
	}
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("it takes a system that makes name spaces: %v: %s", err, out)
	}
	const old = 20_000
	look := func(list string, above int) (listed string) {
		t.Helper()
		set := fmt.Sprintf("echo %d >/proc/sys/kernel/ns_last_pid && { sleep 1000 & } && "+
			"echo 300 >/proc/sys/kernel/ns_last_pid && { sleep 1000 & } && pawl_head=head\n", old-1)
		// The first process of a name space of its own takes all others with it when it ends.
		out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c",
			set+fmt.Sprintf(Look, list, above, "0", "", 0)).CombinedOutput()
		first, _, _ := strings.Cut(string(out), "\n")
		if err != nil || first == "" {
			t.Fatalf("%v: %s", err, out)
		}
		return first + " "
	}
	if got := look("", 300); strings.Contains(got, fmt.Sprintf(" %d ", old)) || !strings.Contains(got, " 301 ") {
		t.Errorf("it reads %s, want those after 300", got)
	}
	if got := look(fmt.Sprint(old), 300); !strings.Contains(got, fmt.Sprintf(" %d ", old)) {
		t.Errorf("it reads %s, want %d too", got, old)
	}
}
