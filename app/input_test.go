package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/app"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/job"
)

// stdout returns what the program of a job that finished has written.
func (h *house) stdout(j *job.Job) string {
	h.Helper()
	if j.State != job.Finished {
		h.Fatalf("%s %s: %s\n%s", j.State, j.Code, j.Message, h.history(j.ID))
	}
	_, results := app.Places(j)
	return h.read(results, "stdout")
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func TestScript(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string
	}{
		"without an interpreter it is for sh": {"echo $0 $1 | sed 's/.*[/]//'; [ -x /bin/sh ] && echo ok", "script one\nok\n"},
		"with one it is for that":             {"#!/usr/bin/awk -f\nBEGIN { print ARGC, ARGV[1]; exit }", "2 one\n"},
		"it takes no macros":                  {"echo '${PAWL_JOB_ID}' '${x}'", "${PAWL_JOB_ID} ${x}\n"},
		"it finds them in its environment":    {`[ "$PWD" = "$PAWL_JOB_DIR" ] && echo $PAWL_ATTEMPT $PAWL_CORES`, "1 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			j := h.end(h.submit(job.Spec{Script: test.script, Arguments: []string{"one"}}))
			if got := h.stdout(&j); got != test.want {
				t.Errorf("stdout %q, want %q", got, test.want)
			}
		})
	}
}

func TestMacros(t *testing.T) {
	h := open(t)
	h.write("content", h.dir, "data")
	t.Setenv("HOME", "/home/ann") // what programs inherit was read when the machine was opened: it stays as it was
	var lines []string
	for _, m := range job.Macros {
		lines = append(lines, m.Name+"=${"+m.Name+"}")
	}
	id := h.submit(job.Spec{
		Name: "all", Command: []string{"/bin/sh", "-c", `printf '%s\n' "$@"; echo "$MIXED"; cat sub/data-1`, "sh"}, Arguments: lines,
		Env:       map[string]string{"MIXED": "<${PAWL_JOB_NAME}> $${PAWL_JOB_NAME} $HOME ${ENV:PATH}"},
		Inputs:    []job.Input{{From: h.dir + "/data", To: "sub/data-${PAWL_ATTEMPT}"}},
		Resources: &job.Resources{Tasks: 4, Cores: 2, Memory: 3<<20 + 1, Minutes: 1.5, Account: "acc", Partition: "part"},
		Stdout:    "out-${PAWL_ATTEMPT}", Archive: &job.Archive{To: h.dir + "/results/${PAWL_JOB_NAME}"},
	})
	j := h.end(id)
	if j.State != job.Finished {
		t.Fatalf("%s %s", j.State, j.Message)
	}
	folder, results := app.Places(&j)
	if want := h.dir + "/results/all"; results != want {
		t.Errorf("results are in %s, want %s", results, want)
	}
	want := strings.Join([]string{
		"PAWL_JOB_ID=" + id.String(), "PAWL_JOB_NAME=all", "PAWL_JOB_DIR=" + folder, "PAWL_TENANT=default", "PAWL_OWNER=ada",
		"PAWL_ATTEMPT=1", "PAWL_SYSTEM=local", "PAWL_APP=", "PAWL_APP_VERSION=", "PAWL_NODES=1", "PAWL_TASKS=4", "PAWL_CORES=2",
		"PAWL_MEMORY_MB=4", "PAWL_GPUS=0", "PAWL_MINUTES=1.5", "PAWL_ACCOUNT=acc", "PAWL_PARTITION=part", "PAWL_ARCHIVE=" + results,
		"PAWL_CREATED=" + j.Created.UTC().Format("2006-01-02T15:04:05Z"),
		"<all> ${PAWL_JOB_NAME} $HOME " + os.Getenv("PATH"), "content",
	}, "\n")
	if diff := cmp.Diff(want, h.read(results, "out-1")); diff != "" {
		t.Errorf("macros (-want +got):\n%s", diff)
	}
}

// forbidding files may not be read where their name says so: the tests may run as root, who may
// read all.
type forbidding struct{ fileslocal.FS }

func (f forbidding) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if strings.HasSuffix(name, "/forbidden") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
	}
	return f.FS.Open(ctx, name)
}

func TestInputs(t *testing.T) {
	h := open(t)
	h.write("text", h.dir, "file")
	h.write("secret", h.dir, "forbidden")
	h.write("deep", h.dir, "tree", "a", "b")
	for target, link := range map[string]string{"a/b": "inside", "/etc/passwd": "outside", ".": "loop", "nowhere": "dangling"} {
		dir := filepath.Join(h.dir, "with-"+link)
		h.write("x", dir, "a", "b")
		if err := os.Symlink(target, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(h.dir, "tree", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("gone", filepath.Join(h.dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	odd := "a \n'\"\\ $(x) ü\xff"
	h.write("odd", h.dir, "odd", odd)
	in := func(from string, change func(*job.Input)) job.Input {
		i := job.Input{From: filepath.Join(h.dir, from)}
		if change != nil {
			change(&i)
		}
		return i
	}
	for _, test := range []struct {
		name   string
		script string
		input  job.Input
		stdout string
		code   job.Code
		says   string // in the message of a failure, or the history
	}{
		{"a file", "cat file", in("file", nil), "text", "", "1 file (4 bytes) staged"},
		{"a file with its sum, and another name", "cat sub/f", in("file", func(i *job.Input) { i.To, i.SHA256 = "sub/f", strings.ToUpper(sum("text")) }), "text", "", ""},
		{"another content than its sum says", "", in("file", func(i *job.Input) { i.SHA256 = sum("other") }), "", job.InputChanged, "has the SHA-256 " + sum("text") + ", not " + sum("other")},
		{"a sum of a folder", "", in("tree", func(i *job.Input) { i.SHA256 = sum("x") }), "", job.InputUnreadable, "it is a folder, and sha256 is the sum of a file"},
		{"a folder, in which a pipe is left out", "cat tree/a/b; ls tree", in("tree", nil), "deepa\n", "", "left out: tree/pipe (a pipe)"},
		{"a variable", `cat "$DATA"`, in("file", func(i *job.Input) { i.Env = "DATA" }), "text", "", ""},
		{"what is optional and there", `cat "$DATA"`, in("file", func(i *job.Input) { i.Env, i.Optional = "DATA", true }), "text", "", ""},
		{"what is optional and not there", `echo $${DATA-unset}`, in("none", func(i *job.Input) { i.Env, i.Optional = "DATA", true }), "unset\n", "", "optional and not there: " + h.dir + "/none"},
		{"a pipe", "", in("tree/pipe", nil), "", job.InputUnreadable, "not a regular file"},
		{"what may not be read", "", in("forbidden", nil), "", job.InputUnreadable, "input " + h.dir + "/forbidden cannot be read: " + h.dir + "/forbidden: permission denied"},
		{"what is not there", "", in("none", nil), "", job.InputMissing, "input " + h.dir + "/none is not there"},
		{"what has a name, and is not there", "", in("none", func(i *job.Input) { i.Name = "mesh" }), "", job.InputMissing, "input mesh (" + h.dir + "/none) is not there"},
		{"a link that leads nowhere", "", in("dangling", nil), "", job.InputMissing, h.dir + "/gone: "},
		{"in place", "cat tree/a/b; readlink tree", in("tree", func(i *job.Input) { i.InPlace = true }), "deep" + h.dir + "/tree\n", "", "1 in place"},
		{"a link inside it", "cat with-inside/link", in("with-inside", nil), "x", "", ""},
		{"a link that leaves it", "", in("with-outside", nil), "", job.InputUnreadable, "with-outside/link is a symbolic link to /etc/passwd, which is outside of with-outside"},
		{"a link that holds itself", "", in("with-loop", nil), "", job.InputUnreadable, "with-loop/link is a symbolic link to " + h.dir + "/with-loop, which holds the link itself"},
		{"a link in it that leads nowhere", "", in("with-dangling", nil), "", job.InputUnreadable, "with-dangling/link is a symbolic link to " + h.dir + "/with-dangling/nowhere, which does not exist"},
		{"a file name of any bytes", "cat odd/*", in("odd", nil), "odd", "", ""},
		{"a macro that leaves the folder", "", in("file", func(i *job.Input) { i.To = "${ENV:PATH}/x" }), "", job.InvalidDefinition, "leaves the job's folder"},
		{"a variable of the system that is not set", "", in("${ENV:NO_SUCH}", nil), "", job.InvalidDefinition, "needs the variable NO_SUCH, which is not set on the system"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := open(t, func(p *parts) { p.Files = forbidding{} })
			s := shell(test.script)
			s.Inputs = []job.Input{test.input}
			j := h.end(h.submit(s))
			if test.code == "" {
				if got := h.stdout(&j); got != test.stdout {
					t.Errorf("stdout %q, want %q", got, test.stdout)
				}
				if _, results := app.Places(&j); len(h.archived(results)) != 2 {
					t.Errorf("archived %q: an input that is as it was is none of the results", h.archived(results))
				}
			} else if j.State != job.Failed || j.Code != test.code || !strings.Contains(j.Message, test.says) {
				t.Errorf("%s %s: %s; want %s: … %s", j.State, j.Code, j.Message, test.code, test.says)
			}
			if got := h.history(j.ID); !strings.Contains(got, test.says) {
				t.Errorf("the history says nothing of %q:\n%s", test.says, got)
			}
			if folder, _ := app.Places(&j); test.code == job.InputChanged && exists(folder, "file") {
				t.Error("the wrong content is left in the folder")
			}
		})
	}
}

// What is written through a link in place is the user's own; the archive does not take it away.
func TestInPlaceIsNotArchivedNorRemoved(t *testing.T) {
	h := open(t)
	h.write("before", h.dir, "data", "f")
	s := shell(`echo after >data/f; echo new >data/g`)
	s.Inputs = []job.Input{{From: filepath.Join(h.dir, "data"), InPlace: true}}
	j := h.end(h.submit(s))
	h.stdout(&j)
	_, results := app.Places(&j)
	if got := h.archived(results); len(got) != 2 {
		t.Errorf("archived %q", got)
	}
	if h.read(h.dir, "data", "f") != "after\n" || h.read(h.dir, "data", "g") != "new\n" {
		t.Error("the folder in place is not as the program left it")
	}
}

func TestPrograms(t *testing.T) {
	h := open(t)
	for name, text := range map[string]string{"plain": "echo hi\n", "bad": "#!/no/such/shell -x\n", "crlf": "#!/bin/sh\r\necho\r\n", "relative": "#!python3\n", "good": "#!/bin/sh\necho good\n"} {
		h.write(text, h.dir, name)
		if name != "plain" {
			if err := os.Chmod(filepath.Join(h.dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		spec  job.Spec
		input string
		code  job.Code
		says  string
	}{
		{"an input as program", job.Spec{Command: []string{"./good"}}, "good", job.NormalCompletion, ""},
		{"a prefix for it", job.Spec{Command: []string{"./good"}, Launch: []string{"env", "-i"}}, "good", job.NormalCompletion, ""},
		{"none of that name in the path", job.Spec{Command: []string{"no-such-program"}}, "", job.LaunchFailed, "no-such-program: not found"},
		{"none at that path", job.Spec{Command: []string{"/no/such"}}, "", job.LaunchFailed, "there is no /no/such: correct the path"},
		{"none in the folder", job.Spec{Command: []string{"bin/prog"}}, "", job.LaunchFailed, "there is no bin/prog in the job's folder"},
		{"a folder", job.Spec{Command: []string{"/etc"}}, "", job.LaunchFailed, "/etc is a folder"},
		{"one that may not be executed", job.Spec{Command: []string{"./plain"}}, "plain", job.LaunchFailed, "make it executable (chmod +x), or name its interpreter"},
		{"an interpreter that is not there", job.Spec{Command: []string{"./bad"}}, "bad", job.LaunchFailed, `asks for the interpreter "/no/such/shell", which is not there`},
		{"line ends of Windows", job.Spec{Command: []string{"./crlf"}}, "crlf", job.LaunchFailed, "save it with the line ends of Unix"},
		{"an interpreter without a path", job.Spec{Command: []string{"./relative"}}, "relative", job.LaunchFailed, "is no absolute path"},
		{"a script whose interpreter is not there", job.Spec{Script: "#!/no/such\n"}, "", job.LaunchFailed, `script: its first line asks for the interpreter "/no/such"`},
		{"its own exit code 127", shell("no-such-program"), "", job.ProgramFailed, "exit code 127"},
		{"its own exit code 126", shell("exit 126"), "", job.ProgramFailed, "exit code 126"},
		{"a signal", shell("kill -9 $$"), "", job.ProgramKilled, "signal 9 (killed)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.input != "" {
				test.spec.Inputs = []job.Input{{From: filepath.Join(h.dir, test.input)}}
			}
			h := open(t)
			j := h.end(h.submit(test.spec))
			if j.Code != test.code || !strings.Contains(j.Message, test.says) {
				t.Errorf("%s %s: %s; want %s: … %s", j.State, j.Code, j.Message, test.code, test.says)
			}
		})
	}
}

func TestEvidence(t *testing.T) {
	h := open(t)
	s := shell(`i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done; echo "last words" >&2; exit 3`)
	s.Env = map[string]string{"SECRET": "hidden"}
	j := h.end(h.submit(s))
	events, err := h.svc.History(h.ctx, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	var ev app.Evidence
	last := events[len(events)-1]
	if err := json.Unmarshal(last.Data, &ev); err != nil {
		t.Fatal(err)
	}
	folder, _ := app.Places(&j)
	if ev.Attempt != 1 || ev.Host != "m1" || ev.Folder != folder || *ev.ExitCode != 3 || ev.Ran == "" || ev.Ended.Before(ev.Began) || ev.Ended.IsZero() {
		t.Errorf("evidence %s", last.Data)
	}
	// A program begins after it was submitted and ends before the job does. Its clock has ticks of 10
	// ms.
	const tick = 20 * time.Millisecond
	if ev.Began.Before(j.Created.Add(-tick)) || ev.Ended.After(last.At.Add(tick)) {
		t.Errorf("submitted %v, began %v, ended %v, failed %v", j.Created, ev.Began, ev.Ended, last.At)
	}
	if ev.Usage == nil || ev.Usage.User+ev.Usage.System <= 0 {
		t.Errorf("it used %+v", ev.Usage)
	}
	if diff := cmp.Diff(append(s.Command, s.Arguments...), ev.Command); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if out := ev.Logs["stdout"]; !strings.HasPrefix(out, "line ") || !strings.HasSuffix(out, "line 999\n") || len(out) > 2048 || len(out) < 2000 {
		t.Errorf("last lines %q", out)
	}
	if ev.Logs["stderr"] != "last words\n" || strings.Contains(string(last.Data), "hidden") {
		t.Errorf("evidence %s", last.Data)
	}
}

// halting files stop the reading of an input half-way until they are let go on.
type halting struct {
	fileslocal.FS
	half, goOn chan struct{}
}

func (f halting) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	r, err := f.FS.Open(ctx, name)
	if strings.HasSuffix(name, "/slow") && err == nil {
		return &halted{ReadSeekCloser: r, halting: f}, nil
	}
	return r, err
}

type halted struct {
	io.ReadSeekCloser
	halting
	read int
}

func (h *halted) Read(p []byte) (int, error) {
	if h.read >= 500 {
		h.read = -1 << 20 // once
		h.half <- struct{}{}
		<-h.goOn
	}
	n, err := h.ReadSeekCloser.Read(p[:min(len(p), 500)])
	h.read += n
	return n, err
}

func TestProgress(t *testing.T) {
	f := halting{half: make(chan struct{}), goOn: make(chan struct{})}
	h := open(t, func(p *parts) { p.Files = f })
	h.write(strings.Repeat("x", 1000), h.dir, "slow")
	s := shell("exit 0")
	s.Inputs = []job.Input{{From: filepath.Join(h.dir, "slow")}}
	id := h.submit(s)
	h.await("the middle of the input", f.half)
	v, err := h.svc.View(h.ctx, id)
	if want := (job.Progress{What: "staging inputs", Done: 500, Total: 1000}); err != nil || v.Progress == nil || *v.Progress != want {
		t.Errorf("progress %+v, %v; want %+v", v.Progress, err, want)
	}
	later := v.Job
	later.Epoch += 2 // this process was frozen meanwhile, and another has the job
	if p, told := h.kind.Progress(&later); told {
		t.Errorf("of a job that it has lost: %+v", p)
	}
	close(f.goOn)
	if j := h.end(id); j.State != job.Finished {
		t.Fatalf("%s %s", j.State, j.Message)
	}
	if v, err := h.svc.View(h.ctx, id); err != nil || v.Progress != nil {
		t.Errorf("after the end: %+v, %v", v.Progress, err)
	}
}
