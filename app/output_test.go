package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func TestWhatIsArchived(t *testing.T) {
	const left = `mkdir -p out/deep logs; echo 1 >out/a.csv; echo 2 >out/deep/b.csv; echo 3 >c.csv; echo 4 >out/notes.txt
		echo 5 >logs/x.log; echo 6 >"odd
name'\".csv"; ln -s c.csv latest; ln -s /etc/passwd secret`
	all := []string{"c.csv", "latest", "logs/x.log", "odd\nname'\".csv", "out/a.csv", "out/deep/b.csv", "out/notes.txt", "stderr", "stdout"}
	for name, test := range map[string]struct {
		archive job.Archive
		want    []string
	}{
		"everything":                       {job.Archive{}, all},
		"a glob for names in any folder":   {job.Archive{Include: []string{"*.csv"}}, []string{"c.csv", "odd\nname'\".csv", "out/a.csv", "out/deep/b.csv"}},
		"a glob for one folder":            {job.Archive{Include: []string{"out/*.csv"}}, []string{"out/a.csv"}},
		"a folder":                         {job.Archive{Include: []string{"out"}}, []string{"out/a.csv", "out/deep/b.csv", "out/notes.txt"}},
		"exclude comes first":              {job.Archive{Include: []string{"out"}, Exclude: []string{"**/deep", "*.txt"}}, []string{"out/a.csv"}},
		"a regular expression":             {job.Archive{Include: []string{`re:(std(out|err)|.*\.log)`}}, []string{"logs/x.log", "stderr", "stdout"}},
		"required, and there":              {job.Archive{Required: []string{"*.csv", "out/deep"}, Exclude: []string{"logs", "std*"}}, []string{"c.csv", "latest", "odd\nname'\".csv", "out/a.csv", "out/deep/b.csv", "out/notes.txt"}},
		"nothing that is named":            {job.Archive{Include: []string{"*.none"}}, nil},
		"what is required may be excluded": {job.Archive{Required: []string{"c.csv"}, Include: []string{"stdout"}}, []string{"stdout"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			s := shell(left)
			s.Archive = &test.archive
			j := h.end(h.submit(s))
			if j.State != job.Finished {
				t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
			}
			folder, results := app.Places(&j)
			if diff := cmp.Diff(test.want, h.archived(results)); diff != "" {
				t.Errorf("archived (-want +got):\n%s", diff)
			}
			if exists(folder) {
				t.Error("the folder is still there")
			}
			if said := strings.Contains(h.history(j.ID), "left out: secret (a link to /etc/passwd, outside of the job's folder)"); said != slices.Contains(test.want, "latest") {
				t.Errorf("a link out of the folder:\n%s", h.history(j.ID))
			}
		})
	}
}

func TestManifest(t *testing.T) {
	h := open(t)
	s := shell("printf 12345 >five")
	s.Name = "five"
	j := h.end(h.submit(s))
	h.stdout(&j)
	_, results := app.Places(&j)
	want := `{
  "job": "` + j.ID.String() + `",
  "name": "five",
  "attempt": 1,
  "files": [
    {
      "name": "five",
      "size": 5,
      "sha256": "` + sum("12345") + `"
    },
    {
      "name": "stderr",
      "size": 0,
      "sha256": "` + sum("") + `"
    },
    {
      "name": "stdout",
      "size": 0,
      "sha256": "` + sum("") + `"
    }
  ]
}`
	if diff := cmp.Diff(want, h.read(results, app.ManifestFile)); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	var r struct {
		ExitCode int    `json:"exit_code"`
		Ran      string `json:"ran"`
		Archive  string `json:"archive"`
		Size     app.Size
	}
	if err := json.Unmarshal(j.Result, &r); err != nil || r.Archive != results || r.Size != (app.Size{Files: 3, Bytes: 5}) || r.Ran == "" {
		t.Errorf("result %s (%v)", j.Result, err)
	}
}

func TestArchiveOn(t *testing.T) {
	for _, test := range []struct {
		on       job.ArchiveOn
		exit     string
		archived bool
		folder   bool
	}{
		{job.ArchiveAlways, "exit 0", true, false},
		{job.ArchiveAlways, "exit 3", true, true},
		{job.ArchiveSuccess, "exit 0", true, false},
		{job.ArchiveSuccess, "exit 3", false, true},
		{job.ArchiveNever, "exit 0", false, true},
		{job.ArchiveNever, "exit 3", false, true},
	} {
		t.Run(string(test.on)+", "+test.exit, func(t *testing.T) {
			h := open(t)
			s := shell(test.exit)
			s.Archive = &job.Archive{On: test.on}
			j := h.end(h.submit(s))
			if failed := test.exit != "exit 0"; failed != (j.State == job.Failed) {
				t.Fatalf("%s %s", j.State, j.Message)
			}
			folder, results := app.Places(&j)
			if exists(results, app.ManifestFile) != test.archived || exists(folder) != test.folder {
				t.Errorf("archived: %v, folder there: %v", exists(results), exists(folder))
			}
			if exists(h.dir, "work", ".archiving", j.ID.String()) {
				t.Error("the note of the archive is left")
			}
		})
	}
}

// TestFolderThatIsGone: a program whose folder was removed is no success, for what it left is lost.
func TestFolderThatIsGone(t *testing.T) {
	gone := "the job's folder is gone"
	for _, test := range []struct {
		on     job.ArchiveOn
		script string
		code   job.Code
		says   string
	}{
		{job.ArchiveAlways, `rm -rf "$PAWL_JOB_DIR"`, job.ArchiveFailed, gone},
		{job.ArchiveAlways, `rm -rf "$PAWL_JOB_DIR"; ln -s nowhere "$PAWL_JOB_DIR"`, job.ArchiveFailed, gone},
		{job.ArchiveNever, `rm -rf "$PAWL_JOB_DIR"`, job.ArchiveFailed, gone},
		{job.ArchiveAlways, `rm -rf "$PAWL_JOB_DIR"; exit 3`, job.ProgramFailed, "exit code 3"},
	} {
		t.Run(string(test.on)+", "+test.script, func(t *testing.T) {
			h := open(t)
			s := shell(test.script)
			s.Archive = &job.Archive{On: test.on}
			j := h.end(h.submit(s))
			if j.State != job.Failed || j.Code != test.code || !strings.Contains(j.Message, test.says) {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
			said := h.history(j.ID)
			if !strings.Contains(said, "the job's folder") || strings.Contains(said, "0 bytes) copied\n") {
				t.Errorf("the history does not say that the folder is gone:\n%s", said)
			}
		})
	}
	t.Run("the next attempt has a new one", func(t *testing.T) {
		h := open(t)
		s := shell(`test $PAWL_ATTEMPT = 2 || rm -rf "$PAWL_JOB_DIR"`)
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
		if j := h.end(h.submit(s)); j.State != job.Finished || j.Attempt != 2 {
			t.Errorf("%s %s in attempt %d: %s", j.State, j.Code, j.Attempt, j.Message)
		}
	})
}

func TestRequired(t *testing.T) {
	h := open(t)
	h.write("x", h.dir, "result.csv")
	s := shell("exit 0")
	s.Inputs = []job.Input{{From: filepath.Join(h.dir, "result.csv")}} // what was there before is no result
	s.Archive = &job.Archive{Required: []string{"stdout", "*.csv", "re:out/.*"}}
	s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
	j := h.end(h.submit(s))
	if j.Code != job.OutputMissing || j.Attempt != 2 || !strings.Contains(j.Message, "fits archive.required: *.csv, re:out/.*") {
		t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
	}
	if _, results := app.Places(&j); !exists(results, "stdout") {
		t.Error("what there was is not archived")
	}
}

func TestLaunchFiles(t *testing.T) {
	h := open(t)
	s := job.Spec{Script: "exit 0", Archive: &job.Archive{LaunchFiles: true, Include: []string{"stdout"}}}
	j := h.end(h.submit(s))
	h.stdout(&j)
	_, results := app.Places(&j)
	names := strings.Join(h.archived(results), " ")
	for _, want := range []string{".pawl/job.json", ".pawl/script", ".pawl/run.1.1.", ".pawl/taken.1.1"} {
		if !strings.Contains(names, want) {
			t.Errorf("no %s among %s", want, names)
		}
	}
}

// A link does not make Pawl's own files results: the environment of the launch is among them.
func TestLinkToLaunchFiles(t *testing.T) {
	h := open(t)
	j := h.end(h.submit(shell("ln -s .pawl all; ln -s .pawl/job.json one")))
	h.stdout(&j)
	_, results := app.Places(&j)
	if got := h.archived(results); len(got) != 2 {
		t.Errorf("archived %q", got)
	}
}

func TestOverwrite(t *testing.T) {
	h := open(t)
	to := filepath.Join(h.dir, "results")
	h.write("mine", to, "kept")
	run := func(script string, overwrite bool) job.Job {
		s := shell(script)
		s.Archive = &job.Archive{To: to, Overwrite: overwrite}
		return h.end(h.submit(s))
	}
	first := run("echo 1 >out", false)
	h.stdout(&first)
	second := run("echo ran >"+h.dir+"/ran; echo 2 >out", false)
	if second.Code != job.ArchiveExists || !strings.Contains(second.Message, "holds the archive of another job") || exists(h.dir, "ran") {
		t.Errorf("%s %s: %s; ran: %v", second.State, second.Code, second.Message, exists(h.dir, "ran"))
	}
	if third := run("echo 3 >out", true); third.State != job.Finished {
		t.Fatalf("%s %s", third.State, third.Message)
	}
	if h.read(to, "out") != "3\n" || h.read(to, "kept") != "mine" || len(h.copies(to)) > 0 {
		t.Errorf("out %q, kept %q, copies %q", h.read(to, "out"), h.read(to, "kept"), h.copies(to))
	}
	if got := h.archived(to); len(got) != 3 {
		t.Errorf("the manifest tells of %q", got)
	}
}

// What a job published before it met a file of another's is taken back: the next attempt brings
// other content.
func TestArchiveThatFailsHalfWay(t *testing.T) {
	h := open(t)
	to := filepath.Join(h.dir, "results")
	h.write("mine", to, "b")
	s := scripted(`echo $PAWL_ATTEMPT >a; echo b >b; [ $PAWL_ATTEMPT = 1 ] || mv "$0" "$0.away"`, to+"/b")
	s.Archive = &job.Archive{To: to}
	s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
	j := h.end(h.submit(s))
	if j.State != job.Finished || !strings.Contains(h.history(j.ID), "ARCHIVE_EXISTS") {
		t.Fatalf("%s %s\n%s", j.State, j.Message, h.history(j.ID))
	}
	if h.read(to, "a") != "2\n" || h.read(to, "b.away") != "mine" {
		t.Errorf("a is %q", h.read(to, "a"))
	}
}

func TestArchiveFolder(t *testing.T) {
	h := open(t)
	h.write("a file", h.dir, "file")
	for name, test := range map[string]struct {
		to   string
		code job.Code
		says string
	}{
		"a file stands in the way":       {h.dir + "/file/results", job.ArchiveFailed, "cannot be written"},
		"in the job's own folder":        {h.dir + "/work/default/${PAWL_JOB_ID}/out", job.InvalidDefinition, "lies in the job's own folder, which is removed: name another folder"},
		"the system takes nothing there": {"/sys/results", job.ArchiveFailed, "archive.to /sys/results cannot be written"},
		"a relative one":                 {"${PAWL_JOB_NAME}/results", job.InvalidDefinition, "is not absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shell("echo ran")
			s.Archive = &job.Archive{To: test.to}
			j := h.end(h.submit(s))
			if j.Code != test.code || !strings.Contains(j.Message, test.says) {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
			if strings.Contains(h.history(j.ID), "RUNNING") {
				t.Errorf("it is told after the program has run:\n%s", h.history(j.ID))
			}
		})
	}
	spec := shell("exit 0")
	spec.Inputs = []job.Input{{From: "data.csv"}, {From: "file:///etc/hosts"}, {From: "${ENV:HOME}/x"}}
	spec.Archive = &job.Archive{To: "results", Include: []string{"["}, Exclude: []string{"ok", "re:("}, Required: []string{"../x"}}
	_, err := h.svc.Submit(h.ctx, service.Request{Spec: spec})
	if err != nil && (strings.Contains(err.Error(), "inputs[1]") || strings.Contains(err.Error(), "inputs[2]")) {
		t.Errorf("Submit: %v", err)
	}
	for _, want := range []string{
		"inputs[0].from (data.csv): is no absolute path: give a path that begins with /", "archive.to (results): is no absolute path",
		"archive.include[0] ([): is no glob", "archive.exclude[1] (re:(): is no regular expression", "archive.required[0] (../x): leaves the folder",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Submit: %v; want %s", err, want)
		}
	}
}

// tmpfs mounts a small file system.
func (h *house) tmpfs(size string) string {
	h.Helper()
	dir := h.T.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("PAWL_TEST_REQUIRE") != "" && os.Geteuid() == 0 {
			h.Fatalf("mount a small file system: %v", err)
		}
		h.Skipf("mount a small file system: %v (it takes root)", err)
	}
	h.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			h.Error(err)
		}
	})
	return dir
}

func TestProgramWithoutRoom(t *testing.T) {
	h := open(t)
	full := h.tmpfs("1m")
	h.stop()
	h.start(func(p *parts) { p.Local.Work = full })
	j := h.end(h.submit(shell("head -c 2000000 /dev/zero >large || exit 4")))
	if j.Code != job.ProgramFailed {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
}

func TestUnwritableFolder(t *testing.T) {
	h := open(t)
	h.write("a file", h.dir, "not a folder")
	h.stop()
	h.start(func(p *parts) { p.Local.Work = h.dir + "/not a folder" })
	j := h.end(h.submit(shell("exit 0")))
	if j.Code != job.StagingFailed || !strings.Contains(j.Message, "make the job's folder: "+h.dir+"/not a folder: not a directory") {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
}

// A log may be very large: what is kept of it is its end, and nobody reads the rest.
func TestLargeLog(t *testing.T) {
	h := open(t)
	s := shell(`truncate -s 2G stdout; echo "the last line" >>stdout; exit 3`)
	s.Archive = &job.Archive{Exclude: []string{"stdout"}}
	j := h.end(h.submit(s))
	events, err := h.svc.History(h.ctx, j.ID)
	if err != nil || j.Code != job.ProgramFailed {
		t.Fatalf("%s %s, %v", j.State, j.Code, err)
	}
	var ev app.Evidence
	if err := json.Unmarshal(events[len(events)-1].Data, &ev); err != nil || !strings.HasSuffix(ev.Logs["stdout"], "the last line\n") || len(ev.Logs["stdout"]) > 2048 || strings.Contains(ev.Logs["stdout"], "\x00") {
		t.Errorf("evidence %.3000s, %v", events[len(events)-1].Data, err)
	}
}

// What an attempt leaves in the place of its logs does not hold the next one.
func TestLogsThatAnAttemptSpoiled(t *testing.T) {
	for name, script := range map[string]string{
		"a folder":             `rm stdout && mkdir stdout`,
		"a pipe":               `rm stderr && mkfifo stderr`,
		"a link":               `mkdir elsewhere && ln -sf elsewhere/kept stdout`,
		"a link to nowhere":    `ln -sf /nowhere/at/all stderr`,
		"what may not be read": `chmod 000 stdout stderr`,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			s := shell(`[ -e been ] && { echo again; [ ! -e elsewhere/kept ]; exit; }; : >been; ` + script + `; exit 1`)
			s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
			j := h.end(h.submit(s))
			if j.State != job.Finished || j.Attempt != 2 {
				t.Fatalf("%s %s in attempt %d: %s", j.State, j.Code, j.Attempt, j.Message)
			}
			if got := h.stdout(&j); got != "again\n" {
				t.Errorf("stdout %q", got)
			}
		})
	}
}

// Inputs are put in place anew for each attempt, whatever the one before left there. What is not in
// the way stays.
func TestPlacesThatAnAttemptSpoiled(t *testing.T) {
	testenv.Aside(t)
	for name, script := range map[string]string{
		"a folder for a file":           `rm in place; mkdir -p in/x place/x; chmod 0 in place`,
		"a pipe for a file":             `rm in place; mkfifo in place`,
		"a file for a link in place":    `rm place; echo spoiled > place`,
		"a file for a folder":           `rm -r tree; echo spoiled > tree`,
		"a link for a folder":           `mv tree kept; ln -s kept tree`,
		"a link that leads out":         `rm -r tree sub; ln -s /etc tree; ln -s /etc sub`,
		"a folder for a file in one":    `rm tree/d/file; mkdir tree/d/file`,
		"a file for a folder in one":    `rm -r tree/d; echo spoiled > tree/d`,
		"a file for a link in one":      `rm tree/to; echo spoiled > tree/to`,
		"a file above an input":         `rm -r sub; echo spoiled > sub`,
		"rights of inputs":              `chmod 0 tree/d/file tree/d tree in sub/deep sub`,
		"rights of the job's folder":    `chmod 0 .`,
		"a folder that is only read":    `chmod 0500 .`,
		"rights of the runner's folder": `chmod 0 .pawl`,
		"a file for the runner's":       `rm -r .pawl; echo spoiled > .pawl`,
		"a link for the runner's":       `mv .pawl kept; ln -s kept .pawl`,
		"folders for Pawl's files":      `rm -f .pawl/job.json .pawl/script; mkdir -p .pawl/job.json/x .pawl/script/x`,
		"a file for the job's folder":   `cd ..; rm -r "$OLDPWD"; echo spoiled > "$OLDPWD"`,
		"nothing":                       `cd ..; rm -r "$OLDPWD"`,
		"a folder for that of a log":    `rm -r logs; mkdir -p logs/out/x; chmod 0 logs`,
		"a file for that of a log":      `rm -r logs; echo spoiled > logs`,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, readsHumbly(t))
			for _, in := range []string{"in", "tree/d/file", "tree/e/file"} {
				h.write("good\n", h.dir, "from", in)
			}
			h.link("../e", h.dir, "from", "tree", "d", "e")
			h.link("d", h.dir, "from", "tree", "to")
			s := job.Spec{
				Script: `if [ $PAWL_ATTEMPT = 1 ]; then echo 1 > mine; echo 2 > tree/mine; ` + script + `; exit 1; fi
					cat in place tree/d/file tree/to/file tree/d/e/file sub/deep/in; [ ! -e mine ] || cat mine`,
				Stdout: "logs/out",
				Inputs: []job.Input{
					{From: h.dir + "/from/in"},
					{From: h.dir + "/from/in", To: "place", InPlace: true},
					{From: h.dir + "/from/tree"},
					{From: h.dir + "/from/in", To: "sub/deep/in"},
				},
				Retry: &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}},
			}
			j := h.end(h.submit(s))
			if j.State != job.Finished || j.Attempt != 2 {
				t.Fatalf("%s %s in attempt %d: %s", j.State, j.Code, j.Attempt, j.Message)
			}
			want := strings.Repeat("good\n", 6) + "1\n"
			if strings.Contains(script, "OLDPWD") {
				want = strings.TrimSuffix(want, "1\n")
			}
			_, results := app.Places(&j)
			if got := h.read(results, "logs", "out"); got != want {
				t.Errorf("stdout %q", got)
			}
			if got := h.read(h.dir, "from", "in"); got != "good\n" {
				t.Errorf("the input was changed to %q", got)
			}
		})
	}
}
