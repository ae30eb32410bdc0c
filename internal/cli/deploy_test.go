package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnit has systemd read the unit, with a binary that is there.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	b, err := os.ReadFile("../../deploy/pawl.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := string(b)
	for _, want := range []string{"KillMode=process", "RestartPreventExitStatus=78", "StateDirectoryMode=0700", "/usr/local/bin/pawl serve"} {
		if !strings.Contains(unit, "\n"+want) && !strings.Contains(unit, "="+want) {
			t.Errorf("the unit does not say %s", want)
		}
	}
	name := filepath.Join(t.TempDir(), "pawl.service")
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(unit, "/usr/local/bin/pawl ", os.Args[0]+" ")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
