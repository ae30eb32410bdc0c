package crash

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPointsAreSortedAndUnique(t *testing.T) {
	got := Points()
	if !slices.IsSorted(got) || len(slices.Compact(got)) != len(points) {
		t.Errorf("points: %v", points)
	}
}

func TestAt(t *testing.T) {
	if os.Getenv("CRASH_TEST_CHILD") != "" {
		for _, n := range []string{"1", "2", "3"} {
			os.Stdout.WriteString(n)
			At("launch.armed")
		}
		defer func() {
			if v := recover(); v != nil {
				fmt.Fprint(os.Stderr, v)
			}
			os.Exit(0)
		}()
		At("no.such.point")
		return
	}
	for _, test := range []struct {
		value, out string
		killed     bool
		panics     bool // at a name that is in no table
	}{
		{"", "123", false, false},
		{"launch.started", "123", false, true},
		{"launch.armed", "1", true, false},
		{"launch.armed:3", "123", true, false},
		{"launch.armed:4", "123", false, true},
	} {
		t.Run("PAWL_CRASH="+test.value, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestAt$")
			c.Env = append(os.Environ(), "CRASH_TEST_CHILD=1", "PAWL_CRASH="+test.value)
			var said strings.Builder
			c.Stderr = &said
			out, err := c.Output()
			killed := c.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			if string(out) != test.out || killed != test.killed {
				t.Errorf("wrote %q, killed %t (%v); want %q, %t", out, killed, err, test.out, test.killed)
			}
			if panics := strings.Contains(said.String(), `"no.such.point" is not in the table`); panics != test.panics {
				t.Errorf("an unknown name panics: %t, want %t\n%s", panics, test.panics, &said)
			}
		})
	}
}

func TestParse(t *testing.T) {
	if s, err := parse("freeze launch.armed:2"); err != nil || s.name != "launch.armed" || !s.freeze || s.left.Load() != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, v := range []string{"no.such.point", "launch.armed:", "launch.armed:0", "launch.armed:x", ":1", "freeze", "freeze ", "freeze no.such.point"} {
		if _, err := parse(v); err == nil {
			t.Errorf("PAWL_CRASH=%s was accepted", v)
		}
	}
}
