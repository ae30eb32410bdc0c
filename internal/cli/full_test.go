package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// fullCalls are calls of commands that print something, in this order. JOB is a job, TMP a folder
// with what they need. What is in none of them prints its help.
var fullCalls = []string{
	"submit -- true", "submit -o json -- true", "submit -q -- true", "resubmit JOB", "run -- true",
	"annotate JOB k=v", "pause JOB", "resume JOB", "event JOB note", "list", "list -o json", "list -o name", "show JOB",
	"history JOB", "events", "events JOB -o json", "watch --state FINISHED", "wait --timeout 1ms JOB", "logs DONE",
	"output DONE", "output DONE stdout", "hide DONE", "unhide DONE", "cancel JOB", "delete job DONE",
	"init", "explain job", "validate TMP/job.yaml", "version", "version --notices", "doctor",
	"limits", "limits set k 3", "limits show k", "limits list", "limits remove k", "recovery", "recovery list",
	"apply -f TMP/queue.yaml", "get queues", "get queue q", "get queue q -o yaml", "disable queue q", "enable queue q",
	"delete queue q", "schedules add s --every 1h -- true", "schedules", "schedules list", "schedules show s",
	"schedules next s", "schedules run s", "schedules pause s", "schedules resume s", "schedules delete s",
	"systems", "workers", "workers list", "get systems", "serve --print-config",
	"migrate --status", "reconcile", "help", "help submit", "help exit-codes", "completion bash", "completion zsh",
	"__complete sub", "--help",
}

// TestFull calls every command with a standard output that takes nothing.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PAWL_DIR", filepath.Join(dir, "data"))
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PAWL_") && name != "PAWL_DIR" {
			t.Setenv(name, "") // which brings it back
			os.Unsetenv(name)
		}
	}
	for name, text := range map[string]string{
		"job.yaml":   "command: ['true']\ndelay: 1h\n",
		"queue.yaml": "kind: queue\nname: q\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	call := func(out *os.File, args ...string) (code int, said string) {
		t.Helper()
		errs, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer errs.Close()
		stdout, stderr, given := os.Stdout, os.Stderr, os.Args
		defer func() { os.Stdout, os.Stderr, os.Args = stdout, stderr, given }()
		os.Stdout, os.Stderr, os.Args = out, errs, append([]string{"pawl"}, args...)
		code = Main(context.Background(), Program{Version: "dev"})
		text, err := os.ReadFile(errs.Name())
		if err != nil {
			t.Fatal(err)
		}
		return code, string(text)
	}
	printed := func(args ...string) string {
		t.Helper()
		out, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if code, said := call(out, args...); code != 0 {
			t.Fatalf("pawl %q: exit code %d: %s", args, code, said)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	printed("run", "--name", "done", "--", "echo", "hello")
	names := strings.NewReplacer("JOB", printed("submit", filepath.Join(dir, "job.yaml")), "DONE", "done", "TMP", dir)

	calls, called := fullCalls, map[*cobra.Command]bool{}
	root := rootCommand(Program{})
	for _, c := range calls {
		if cmd, _, err := root.Find(strings.Fields(c)); err == nil {
			called[cmd] = true
		}
	}
	var help func(c *cobra.Command)
	help = func(c *cobra.Command) {
		if !called[c] && c.Runnable() {
			calls = append(calls, strings.TrimPrefix(c.CommandPath()+" --help", "pawl "))
		}
		for _, sub := range c.Commands() {
			help(sub)
		}
	}
	help(root)
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	for _, c := range calls {
		code, said := call(full, strings.Fields(names.Replace(c))...)
		if n := strings.Count(said, "/dev/full: no space left on device"); code == 0 || n != 1 {
			t.Errorf("pawl %s: exit code %d, and says %d times what is wrong: %q", c, code, n, said)
		}
		first, _, _ := strings.Cut(c, " ")
		made := first == "submit" || first == "resubmit" || c == "schedules run s"
		if made && (!strings.Contains(said, "done all the same") || !id.MatchString(said)) {
			t.Errorf("pawl %s does not say which job it has made: %q", c, said)
		}
	}
}
