package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// A shell that cannot fork ends. It tells that there was no program.
func TestNoProcess(t *testing.T) {
	nobody := os.Getuid()
	if nobody == 0 { // no limit holds for root
		nobody = 64999
	}
	shells := []string{"dash", "busybox sh"}
	if testenv.Long() {
		shells = append(shells, "bash") // it tries for 15 s
	}
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(strings.Fields(shell)[0]); err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			ends := filepath.Join(dir, "ends")
			r := &Runner{Spool: spool.New(spool.Config{Host: &model{}, Dir: ends})}
			k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
			text, err := r.script(k, runner.Plan{Dir: dir, Argv: []string{"/bin/true"}, Stdout: "o", Stderr: "e"}, "token",
				time.Now(), 0, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, sub := range []string{ends, filepath.Join(ends, spool.Rooms), filepath.Join(dir, ".pawl")} {
				if err := os.Mkdir(sub, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, content := range map[string]string{"run.sh": text, "ends/" + spool.Reserve: "reserved"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
				if err := os.Chmod(at, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{dir, ends, filepath.Join(ends, spool.Rooms), filepath.Join(dir, ".pawl")} {
				if err := os.Chown(name, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", "ulimit -u 1 && exec "+shell+" run.sh")
			cmd.Dir = dir
			if os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(nobody), Gid: uint32(nobody)}}
			}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "fork") {
				t.Fatalf("it had a process: %v\n%s", err, out)
			}
			name := runner.EndName(k, 0)
			for _, file := range []string{name, spool.Rooms + "/" + name} {
				content, err := os.ReadFile(filepath.Join(ends, file))
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if e, err := runner.ParseEnd(name, content); err != nil || e.NotStarted != runner.CannotFork || e.Code != 126 {
					t.Errorf("%s: %+v, %v\n%s", file, e, err, content)
				}
			}
		})
	}
}
