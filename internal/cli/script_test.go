package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/sshconfig"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func TestMain(m *testing.M) {
	testscript.Main(commands{testenv.Stopping(m)}, map[string]func(){
		"pawl":    func() { os.Exit(Main(context.Background(), Program{Version: "dev"})) },
		"counted": func() { os.Exit(Main(context.Background(), Program{Version: "dev", More: counting})) },
	})
}

// counting makes of pawl one that writes a line to the file checks for each check of a program's
// spec.
var counting = node.More{Change: func(c *service.Config) {
	c.Kinds[job.KindApp] = countedKind{c.Kinds[job.KindApp].(*app.Kind)}
}}

type countedKind struct{ *app.Kind }

func (k countedKind) Check(tenant string, s *job.Spec) []job.Problem {
	f, err := os.OpenFile("checks", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "checked")
	return k.Kind.Check(tenant, s)
}

// commands are tests that run pawl, which is found in their PATH.
type commands struct{ m testscript.TestingM }

func (c commands) Run() int {
	undo, err := besides()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pawl for the tests:", err)
		return 1
	}
	defer undo()
	return c.m.Run()
}

var update = flag.Bool("update", false, "write what commands print to the scripts in testdata")

// detector is the setting with which processes of a test report races. The test fails if one of
// them has, even where nobody looks at what it prints or how it ends. They end at once: the
// detector would let each wait for a second for races that come late. The chooser reads log_path.
func detector(tb testing.TB) string {
	dir := tb.TempDir()
	tb.Cleanup(func() {
		reports, _ := filepath.Glob(filepath.Join(dir, "race.*"))
		for _, name := range reports {
			text, err := os.ReadFile(name)
			tb.Errorf("a process has a data race: %v\n%s", err, text)
		}
	})
	log := " log_path='" + filepath.Join(dir, "race") + "'" // names of tests may have commas
	return "GORACE=atexit_sleep_ms=10 " + os.Getenv("GORACE") + log
}

// TestScripts runs the commands as a user would; see testdata.
func TestScripts(t *testing.T) { runScripts(t, "testdata", nil) }

// TestPostgresScripts runs commands on a database that many processes share.
func TestPostgresScripts(t *testing.T) {
	server := testenv.Postgres(t)
	runScripts(t, "testdata/postgres", func(env *testscript.Env) {
		tb := env.T().(testing.TB)
		dsn := server.Database(tb)
		env.Setenv("PAWL_DB", dsn)
		env.Values[pooled{}] = func() string { return server.Pooler(tb, 3, "")(dsn) }
	})
}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env)) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	var root atomic.Pointer[string] // of the folders of all scripts
	t.Cleanup(func() {
		if dir := root.Load(); dir != nil {
			_ = os.Remove(*dir) // package testscript does, unless -run leaves a script out
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:           dir,
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			dir := filepath.Dir(env.WorkDir)
			root.Store(&dir)
			env.Setenv("EXAMPLES", examples)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("USER", "ada")
			env.Values[serversOf{}] = sshServers{env.T().(testing.TB), map[string]*testenv.SSH{}}
			env.Values[slurmOf{}] = new(*testenv.Scheduler)
			env.Vars = append(env.Vars, detector(env.T().(testing.TB)))
			env.Defer(func() { // a script that fails waits for what it began, and no one else ends that
				if err := checks.End(env.WorkDir); err != nil {
					env.T().Log(err)
				}
			})
			if setup != nil {
				setup(env)
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "long":
				return testenv.Long(), nil
			case "every":
				return testenv.Every(), nil
			case "namespaces": // a user may have file systems of its own
				return exec.Command("setpriv", "--reuid=65534", "--clear-groups", "unshare", "-rm", "true").Run() == nil, nil
			}
			return false, fmt.Errorf("%s is no condition", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"awaitline": awaitLine,
			"until":     until,
			"url":       serverURL,
			"pooler":    startPooler,
			"example":   example,
			"normal":    normal,
			"kill9":     signaler(syscall.SIGKILL),
			"term":      signaler(syscall.SIGTERM),
			"sound":     soundJobs,
			"ranby":     ranBy,
			"sshd":      startSSHD,
			"sshfs":     mountSSHFS,
			"sshdown":   toSSHD(func(s *testenv.SSH, _ testing.TB) { s.Kill() }),
			"sshup":     toSSHD((*testenv.SSH).Start),
			"rekey":     replaceKey,
			"slurm":     startSlurm,
			"slurmdown": toSlurm(func(s *testenv.Scheduler, _ testing.TB) { s.StopController() }),
			"slurmup":   toSlurm((*testenv.Scheduler).StartController),
			"workdisk":  workDisk,
			"fill":      fill,
			"says":      says,
		},
	})
}

// normal writes what a command has printed to a file, with words for ids, times, spans and the
// folder of the test, so that it can be compared: normal stdout FILE.
func normal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: normal stdout FILE")
	}
	text := strings.ReplaceAll(ts.ReadFile(args[0]), ts.Getenv("WORK"), "$WORK")
	text = strings.ReplaceAll(text, ts.Getenv("EXAMPLES"), "$EXAMPLES")
	for _, r := range []struct{ re, word string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`, "TIME"},
		{`\b(\d+m)?\d+(\.\d+)?(s|ms|µs)\b`, "SPAN"},
		{`\b[0-9a-f]{12}\b`, "MACHINE"},
		{`(?m)^( *usage:)\n(?: +[a-z_]+: \S+\n)+`, "$1 WHAT IT USED\n"},
		{`("usage": )\{[^}]*\}`, `${1}"WHAT IT USED"`},
		{`(\S) {2,}`, "$1  "},
		{`(?m) +$`, ""},
	} {
		text = regexp.MustCompile(r.re).ReplaceAllString(text, r.word)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// until runs a command again and again until what it prints matches: until REGEXP COMMAND ARG....
// Between runs it lets others have the processor, for a tenth of the time that it has waited.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND ARG...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	late := time.After(testenv.Patience)
	for began := time.Now(); ; {
		err := ts.Exec(args[1], args[2:]...)
		if re.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-time.After(max(100*time.Millisecond, time.Since(began)/10)):
		case <-late:
			ts.Fatalf("%s does not come to print %q: %v", args[1], args[0], err)
		}
	}
}

// awaitLine waits until a file has a line that matches: awaitline FILE REGEXP. If none comes it
// fails with what there is.
func awaitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaitline FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	// tail follows the file, so that nothing here has to look again and again.
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	tail := exec.CommandContext(ctx, "tail", "-n", "+1", "-F", ts.MkAbs(args[0]))
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

// serverURL sets a variable to the URL that a server has left in its folder: url NAME FOLDER.
func serverURL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: url NAME FOLDER")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(filepath.Join(args[1], node.ServerFile))))
}

// pooled is the key of what starts a pooler before the database of a script, and returns the
// address there.
type pooled struct{}

// startPooler starts a pooler in transaction mode before the database, and sets a variable to the
// address there: pooler NAME.
func startPooler(ts *testscript.TestScript, neg bool, args []string) {
	start, ok := ts.Value(pooled{}).(func() string)
	if neg || len(args) != 1 || !ok {
		ts.Fatalf("usage, where many processes share the database: pooler NAME")
	}
	ts.Setenv(args[0], start())
}

// signaler sends a signal to the process that has a data folder; the folder's lock names it.
func signaler(sig syscall.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: kill9 FOLDER, or term FOLDER")
		}
		ts.Check(syscall.Kill(holder(ts, args[0]), sig))
	}
}

// holder returns the pid of the process that has a data folder.
func holder(ts *testscript.TestScript, folder string) int {
	b, err := os.ReadFile(filepath.Join(ts.MkAbs(folder), "lock"))
	ts.Check(err)
	var pid int
	if _, err := fmt.Sscanf(string(b), "process %d on", &pid); err != nil || pid <= 1 {
		ts.Fatalf("lock of %s: %q", folder, b)
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	ts.Check(err)
	if self, err := os.Executable(); err != nil || exe != self && filepath.Base(exe) != "pawl" {
		ts.Fatalf("process %d is %s, not pawl", pid, exe)
	}
	return pid
}

// sshServers are the OpenSSH servers of a script.
type sshServers struct {
	tb testing.TB
	of map[string]*testenv.SSH
}

// serversOf is the key of the servers in the values of a script.
type serversOf struct{}

// startSSHD starts an OpenSSH server, and sets variables to where it is and whom it lets in: sshd
// NAME LINE… sets NAME_PORT, NAME_USER, NAME_IDENTITY, NAME_KEY, NAME_PRINT, the key's fingerprint,
// and NAME_WORK, a folder there. The lines are of its configuration.
func startSSHD(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: sshd NAME [LINE…]")
	}
	all := ts.Value(serversOf{}).(sshServers)
	s := testenv.SSHD(all.tb, testenv.SSHOptions{Lines: args[1:]})
	ts.Setenv(args[0]+"_WORK", s.Work)
	all.of[args[0]] = s
	ts.Setenv(args[0]+"_PORT", strconv.Itoa(s.Port))
	ts.Setenv(args[0]+"_USER", s.User)
	ts.Setenv(args[0]+"_IDENTITY", s.Key)
	sayKey(ts, args[0], s)
}

// mountSSHFS mounts the work folder of a server, and sets a variable to where it is: sshfs NAME
// VARIABLE.
func mountSSHFS(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sshfs NAME VARIABLE")
	}
	all := ts.Value(serversOf{}).(sshServers)
	ts.Setenv(args[1], testenv.SSHFS(all.tb, all.of[args[0]]))
}

// toSSHD does something to a server: sshdown NAME, or sshup NAME.
func toSSHD(do func(*testenv.SSH, testing.TB)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: sshdown NAME, or sshup NAME")
		}
		all := ts.Value(serversOf{}).(sshServers)
		do(all.of[args[0]], all.tb)
	}
}

// slurmOf is the key of a script's Slurm in its values.
type slurmOf struct{}

// startSlurm starts a Slurm of the script's own and sets SLURM_CONF to its configuration. Its nodes
// do not see what is in the folder HIDDEN: slurm [HIDDEN].
func startSlurm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: slurm [HIDDEN]")
	}
	tb := ts.Value(serversOf{}).(sshServers).tb
	var s *testenv.Scheduler
	if len(args) == 0 {
		s = testenv.OwnSlurm(tb)
	} else {
		s = testenv.ApartSlurm(tb, ts.MkAbs(args[0]))
	}
	*ts.Value(slurmOf{}).(**testenv.Scheduler) = s
	ts.Setenv("SLURM_CONF", s.Conf)
}

// toSlurm does something to the Slurm of a script.
func toSlurm(do func(*testenv.Scheduler, testing.TB)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 0 {
			ts.Fatalf("usage: slurmdown, or slurmup")
		}
		do(*ts.Value(slurmOf{}).(**testenv.Scheduler), ts.Value(serversOf{}).(sshServers).tb)
	}
}

// replaceKey gives a server another key: rekey NAME. It sets OLD_PRINT to the fingerprint of the
// one before.
func replaceKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: rekey NAME")
	}
	all := ts.Value(serversOf{}).(sshServers)
	ts.Setenv("OLD_PRINT", ts.Getenv(args[0]+"_PRINT"))
	all.of[args[0]].ReplaceHostKey(all.tb)
	sayKey(ts, args[0], all.of[args[0]])
}

// workDisk puts a file system of its own where the work folder of a server is: workdisk NAME full
// has no room, and workdisk NAME noexec executes nothing.
func workDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[1] != "full" && args[1] != "noexec" {
		ts.Fatalf("usage: workdisk NAME full|noexec")
	}
	all := ts.Value(serversOf{}).(sshServers)
	s := all.of[args[0]]
	flags, size := uintptr(0), "1m"
	if args[1] == "noexec" {
		flags, size = syscall.MS_NOEXEC, "100m"
	}
	ts.Check(syscall.Mount("tmpfs", s.Work, "tmpfs", flags, fmt.Sprintf("size=%s,uid=%d,gid=%d", size, s.UID, s.GID)))
	all.tb.Cleanup(func() {
		if err := syscall.Unmount(s.Work, syscall.MNT_DETACH); err != nil {
			all.tb.Error(err)
		}
	})
	if args[1] == "noexec" {
		return
	}
	if err := os.WriteFile(filepath.Join(s.Work, "large"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		ts.Fatalf("it is not full: %v", err)
	}
}

func sayKey(ts *testscript.TestScript, name string, s *testenv.SSH) {
	ts.Setenv(name+"_KEY", s.HostKey)
	ts.Setenv(name+"_PRINT", sshconfig.Fingerprint(s.HostKey))
}

// fill writes a file with the variables of the script replaced: fill FILE TO.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE TO")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// says holds what a command has printed to a text that it has, in which nothing is a pattern:
// says stdout|stderr TEXT.
func says(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: says stdout|stderr TEXT")
	}
	if text := ts.ReadFile(args[0]); strings.Contains(text, args[1]) == neg {
		ts.Fatalf("%s in %s is %t:\n%s", args[1], args[0], !neg, text)
	}
}
