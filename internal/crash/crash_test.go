package crash

import (
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
		os.Exit(0)
	}
	for _, test := range []struct {
		value, out string
		killed     bool
	}{
		{"", "123", false},
		{"launch.started", "123", false},
		{"launch.armed", "1", true},
		{"launch.armed:3", "123", true},
		{"launch.armed:4", "123", false},
	} {
		t.Run("PAWL_CRASH="+test.value, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestAt$")
			c.Env = append(os.Environ(), "CRASH_TEST_CHILD=1", "PAWL_CRASH="+test.value)
			out, err := c.Output()
			killed := c.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			if string(out) != test.out || killed != test.killed {
				t.Errorf("wrote %q, killed %t (%v); want %q, %t", out, killed, err, test.out, test.killed)
			}
		})
	}
}

func TestUnknownNamesPanic(t *testing.T) {
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, "no.such.point") {
			t.Errorf("recovered %q", v)
		}
	}()
	At("no.such.point")
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
