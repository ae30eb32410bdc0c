package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pawl": func() { os.Exit(run(context.Background())) },
	})
}

// TestScripts runs the commands as a user would; see testdata.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("USER", "ada")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"awaitline": awaitLine,
			"kill9":     kill9,
		},
	})
}

// awaitLine waits until a file has a line that matches: awaitline FILE REGEXP. It is bounded by the test's timeout.
func awaitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaitline FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	// tail follows the file, so that nothing here has to look again and again.
	tail := exec.Command("tail", "-n", "+1", "-F", ts.MkAbs(args[0]))
	tail.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := tail.StdoutPipe()
	ts.Check(err)
	ts.Check(tail.Start())
	defer tail.Wait()
	defer tail.Process.Kill()
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !re.MatchString(seen.String()) {
		n, err := out.Read(buf)
		if err != nil {
			ts.Fatalf("%s ended without a line like %s:\n%s", args[0], args[1], seen.String())
		}
		seen.Write(buf[:n])
	}
}

// kill9 kills the process that has a data folder: kill9 FOLDER. The folder's lock names it.
func kill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 FOLDER")
	}
	b, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), "lock"))
	ts.Check(err)
	var pid int
	if _, err := fmt.Sscanf(string(b), "process %d on", &pid); err != nil || pid <= 1 {
		ts.Fatalf("lock of %s: %q", args[0], b)
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	ts.Check(err)
	if self, err := os.Executable(); err != nil || exe != self && filepath.Base(exe) != "pawl" {
		ts.Fatalf("process %d is %s, not pawl", pid, exe)
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
}
