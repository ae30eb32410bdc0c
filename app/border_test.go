package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// guarded is a house whose service has a folder of its own, with everything in it.
func guarded(t *testing.T) (h *house, own string) {
	h = open(t)
	own = filepath.Join(h.dir, "service")
	h.stop()
	h.start(func(p *parts) {
		p.Own = []string{own, h.spool()}
		p.Local.Work, p.Archive = filepath.Join(own, "work"), filepath.Join(own, "archive")
	})
	h.write("secret", own, "token")
	return h, own
}

// link makes a symbolic link and returns its name.
func (h *house) link(target string, elem ...string) string {
	h.Helper()
	name := filepath.Join(elem...)
	if err := os.Symlink(target, name); err != nil {
		h.Fatal(err)
	}
	return name
}

// TestOwnPlaces: what a spec names is refused at submit where it is the service's own, by whatever
// name.
func TestOwnPlaces(t *testing.T) {
	h, own := guarded(t)
	first := h.end(h.submit(shell("echo hello >out.txt")))
	_, results := app.Places(&first)
	h.write("mine", h.dir, "user", "data")
	other := job.NewID().String()
	both := []string{
		own, own + "/", own + "/x/y", own + "/work", own + "/archive", own + "/archive/default", own + "/archive/.staging",
		own + "/archive/other/" + other, own + "/archive/default/../../token", h.dir, "/", "file://" + own, h.dir + "/user/../service", h.spool(),
		h.link(own, h.dir, "to own"), h.link("to own", h.dir, "to link") + "/x", h.link(own+"/archive/not yet", h.dir, "dangling"),
		h.link(".", h.dir, "up") + "/service/archive", h.link("/", h.dir, "root"), h.dir + "/root" + own,
		"/proc/self/root" + own, "/proc/self/cwd", "/proc/1/cwd", h.link("/proc/self/cwd", h.dir, "cwd") + "/x",
	}
	for field, names := range map[string][]string{
		"archive.to": append([]string{results, results + "/sub"}, both...),
		"inputs[1].from": append([]string{
			own + "/token", "/proc", "/proc/self/environ", "/proc/thread-self/environ", "/proc/self/fd/0", "/proc/cpuinfo", "/dev/fd", "/dev/fd/0",
			"/dev/stdin", h.link("/proc/self", h.dir, "self") + "/environ", h.link(own+"/token", h.dir, "key"), "/proc/self/root" + h.dir + "/user/data",
		}, both...),
	} {
		for _, name := range names {
			for _, inPlace := range []bool{false, true} {
				s := shell("echo ran")
				if field == "archive.to" {
					s.Archive = &job.Archive{To: name, Overwrite: true}
				} else {
					s.Inputs = []job.Input{{From: h.dir + "/user/data"}, {From: name, To: "in", InPlace: inPlace}}
				}
				if _, err := h.svc.Submit(h.ctx, service.Request{Spec: s}); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), field+" (") {
					t.Errorf("%s: %s: %v, want it to be Invalid", field, name, err)
				}
			}
		}
	}
	// What lies beside them, and the results of a job, are no places of the service.
	beside := own + "-mine"
	s := shell("cat a in/* b/out.txt c/out.txt; echo x >out")
	s.Inputs = []job.Input{
		{From: results + "/out.txt", To: "a"}, {From: h.dir + "/user", To: "in"}, {From: results, To: "b", InPlace: true}, {From: results, To: "c"},
	}
	s.Archive = &job.Archive{To: beside}
	if j := h.end(h.submit(s)); j.State != job.Finished || h.read(beside, "stdout") != "hello\nminehello\nhello\n" {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
}

// TestOwnPlacesByMount: a folder has as many names as it is mounted under.
func TestOwnPlacesByMount(t *testing.T) {
	h, own := guarded(t)
	at := h.T.TempDir()
	if err := syscall.Mount(own, at, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("bind a folder: %v (it takes root)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	in, to := shell(""), shell("")
	in.Inputs = []job.Input{{From: at + "/token"}}
	to.Archive = &job.Archive{To: at + "/archive/default"}
	for _, s := range []job.Spec{in, to} {
		if _, err := h.svc.Submit(h.ctx, service.Request{Spec: s}); job.KindOf(err) != job.Invalid {
			t.Errorf("%+v %+v: %v", s.Inputs, s.Archive, err)
		}
	}
}

// TestOwnPlacesByMacro: what stands for a macro is known when the job is prepared.
func TestOwnPlacesByMacro(t *testing.T) {
	h, own := guarded(t)
	h.write("mine", h.dir, "data")
	for name, spec := range map[string]job.Spec{
		"target":   {Archive: &job.Archive{To: own + "/archive/${PAWL_TENANT}", Overwrite: true}},
		"way up":   {Archive: &job.Archive{To: h.dir + "/${PAWL_JOB_NAME}/../service", Overwrite: true}},
		"input":    {Inputs: []job.Input{{From: own + "/${PAWL_JOB_NAME}"}}},
		"in place": {Inputs: []job.Input{{From: own + "/${PAWL_JOB_NAME}", InPlace: true}}},
		"optional": {Inputs: []job.Input{{From: own + "/${PAWL_JOB_NAME}", Optional: true}}},
		"process":  {Inputs: []job.Input{{From: "/proc/${PAWL_ATTEMPT}/environ"}}},
		"its own":  {Inputs: []job.Input{{From: "${PAWL_JOB_DIR}", To: "in"}}},
		"its part": {Inputs: []job.Input{{From: h.dir + "/data", To: "d"}, {From: "${PAWL_JOB_DIR}/d", To: "e"}}},
	} {
		spec.Name, spec.Command = "token", []string{"/bin/sh", "-c", "echo changed >token"}
		j := h.end(h.submit(spec))
		if j.State != job.Failed || j.Code != job.InvalidDefinition || strings.Contains(h.history(j.ID), string(job.Running)) {
			t.Errorf("%s: %s %s: %s", name, j.State, j.Code, j.Message)
		}
	}
	if got := h.read(own, "token"); got != "secret" {
		t.Errorf("the token is %q", got)
	}
}

// TestOwnPlacesMeanwhile: links are made while the job runs, or lie in the user's folder from
// before.
func TestOwnPlacesMeanwhile(t *testing.T) {
	h, own := guarded(t)
	before, err := os.Stat(own)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"its folder":                `rmdir "$0"; ln -s "$1" "$0"; echo changed >token`,
		"a folder in it":            `ln -s "$1" "$0/sub"; mkdir -m 0700 sub; echo changed >sub/token`,
		"a folder in it that hangs": `ln -s "$1/archive/default/new" "$0/sub"; mkdir sub; echo changed >sub/token`,
		"that of the copies":        `for n in 1 2 3 4 5 6 7 8 9; do ln -s "$1" "$0/.pawl-$PAWL_JOB_ID-$n"; done; echo changed >token`,
	} {
		to := filepath.Join(h.dir, "results", name)
		s := scripted(script, to, own)
		s.Archive = &job.Archive{To: to, Overwrite: true}
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		j := h.end(h.submit(s))
		if j.State != job.Failed || j.Code != job.InvalidDefinition || !strings.Contains(j.Message, "which is the service's own") {
			t.Errorf("%s: %s %s: %s", name, j.State, j.Code, j.Message)
		}
		if got := h.read(own, "token"); got != "secret" {
			t.Errorf("%s: the token is %q", name, got)
		}
		if exists(own, "archive", "default", "new") || exists(own, app.ManifestFile) {
			t.Errorf("%s: something was put among the service's own", name)
		}
		if after, err := os.Stat(own); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: %v, %v; the mode was %v", name, after, err, before.Mode())
		}
	}
}

// TestInputThroughInput: an input in place is a link, and what goes into it leaves the job's
// folder.
func TestInputThroughInput(t *testing.T) {
	h, _ := guarded(t)
	first := h.end(h.submit(shell("echo hello >out.txt")))
	_, results := app.Places(&first)
	h.write("changed", h.dir, "user", "sub", "out.txt")
	for name, test := range map[string]struct {
		second job.Input
		stdout string
	}{
		"a file":      {job.Input{From: h.dir + "/user/sub/out.txt", To: "in/sub/out.txt"}, ""},
		"a folder":    {job.Input{From: h.dir + "/user", To: "in"}, ""},
		"the output":  {job.Input{From: h.dir + "/user", To: "x"}, "in/sub/out.txt"},
		"in place in": {job.Input{From: h.dir + "/user", To: "in/sub/new", InPlace: true}, ""},
	} {
		s := shell("echo changed")
		s.Inputs, s.Stdout = []job.Input{{From: results, To: "in/sub", InPlace: true}, test.second}, test.stdout
		answer, err := h.svc.Submit(h.ctx, service.Request{Spec: s})
		if job.KindOf(err) == job.Invalid && err != nil {
			continue // it is seen by the paths alone
		}
		if j := h.end(answer[0].ID); j.Code != job.InvalidDefinition {
			t.Errorf("%s: %s %s: %s", name, j.State, j.Code, j.Message)
		}
	}
	if got := h.read(results, "out.txt"); got != "hello\n" || exists(results, "new") {
		t.Errorf("the results of another job are %q", got)
	}
}

// TestLinksOfAnEarlierAttempt: what a program leaves in the place of folders leads the next attempt
// nowhere.
func TestLinksOfAnEarlierAttempt(t *testing.T) {
	h, own := guarded(t)
	h.write("changed", h.dir, "data")
	intact := func(name string) {
		t.Helper()
		if got := h.read(own, "token"); got != "secret" || exists(own, "new") || exists(own, ".pawl") || exists(own, "job.json") {
			t.Errorf("%s: the token is %q", name, got)
		}
	}
	for name, test := range map[string]struct {
		script string
		spec   job.Spec
	}{
		"that of the output":   {`rm -r logs; ln -s "$0" logs`, job.Spec{Stdout: "logs/token"}},
		"that of an input":     {`rm -r in; ln -s "$0" in`, job.Spec{Inputs: []job.Input{{From: h.dir + "/data", To: "in/token"}}}},
		"that of a new folder": {`rm -r in; ln -s "$0/new" in`, job.Spec{Inputs: []job.Input{{From: h.dir + "/data", To: "in/token"}}}},
	} {
		s := test.spec
		s.Command, s.Arguments = []string{"/bin/sh", "-c", `echo changed; ` + test.script + `; exit 1`}, []string{own}
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
		j := h.end(h.submit(s))
		if j.Code != job.ProgramFailed {
			t.Errorf("%s: %s %s: %s\n%s", name, j.State, j.Code, j.Message, h.history(j.ID))
		}
		intact(name)
	}
	for name, link := range map[string]struct{ at, target string }{
		"the job's folder": {"", own}, "nothing": {"", h.dir + "/nothing"}, "the runner's": {".pawl", own},
	} {
		id := job.NewID()
		at := filepath.Join(own, "work", "default", id.String(), link.at)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		h.link(link.target, at)
		s := shell("cat token")
		s.Inputs = []job.Input{{From: h.dir + "/data", To: "token"}}
		if _, err := h.svc.Submit(h.ctx, service.Request{ID: id, Spec: s}); err != nil {
			t.Fatal(err)
		}
		j := h.end(id)
		if got := h.stdout(&j); got != "changed" {
			t.Errorf("%s: stdout %q", name, got)
		}
		intact(name)
	}
}

// TestLinkInThePlaceOfTheFolder: what a program puts in the place of its folder leads nobody to
// other files, neither for results nor to remove them.
func TestLinkInThePlaceOfTheFolder(t *testing.T) {
	h, own := guarded(t)
	h.write("mine", h.dir, "user", "data")
	for _, to := range []string{own, filepath.Join(h.dir, "user"), "/"} {
		j := h.end(h.submit(scripted(`cd /; rm -r "$PAWL_JOB_DIR"; ln -s "$0" "$PAWL_JOB_DIR"; exit 3`, to)))
		folder, results := app.Places(&j)
		if j.Code != job.ProgramFailed {
			t.Errorf("%s: %s %s: %s", to, j.State, j.Code, j.Message)
		}
		if got := h.archived(results); len(got) > 0 {
			t.Errorf("%s: archived %q", to, got)
		}
		if got := h.skipped(results); len(got) != 1 || !strings.Contains(got[0], "a link to "+to) {
			t.Errorf("%s: skipped %q", to, got)
		}
		if list, err := h.svc.Output(h.ctx, j.ID); err != nil || len(list) > 1 {
			t.Errorf("%s: its files are %v: %v", to, list, err)
		}
		for _, name := range []string{"token", "user/data", "data", filepath.Join(h.dir, "user", "data")[1:]} {
			if _, _, err := h.svc.OpenOutput(h.ctx, j.ID, name); job.KindOf(err) != job.NotFound {
				t.Errorf("%s: opened %s: %v", to, name, err)
			}
		}
		if v, err := h.svc.View(h.ctx, j.ID); err != nil || v.Folder != "" {
			t.Errorf("%s: its folder is %s: %v", to, v.Folder, err)
		}
		if err := h.kind.Remove(h.ctx, &j); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		if _, err := os.Lstat(folder); err == nil {
			t.Errorf("%s: the link is left", to)
		}
		if h.read(own, "token") != "secret" || h.read(h.dir, "user", "data") != "mine" {
			t.Errorf("%s: something of it is gone", to)
		}
	}
}

// TestLinkInThePlaceOfALog: what is shown of a log is of a file in the job's folder.
func TestLinkInThePlaceOfALog(t *testing.T) {
	h, own := guarded(t)
	for _, put := range []string{
		`ln -sf "$0/token" "$PAWL_JOB_DIR/stderr.txt"`,
		`cd /; rm -r "$PAWL_JOB_DIR"; ln -s "$0" "$PAWL_JOB_DIR"`,
		`cd /; rm -r "$PAWL_JOB_DIR"; mkdir "$PAWL_JOB_DIR"; ln -s "$0/token" "$PAWL_JOB_DIR/stderr.txt"`,
	} {
		s := scripted(put+"; exit 3", own)
		s.Stderr = "stderr.txt"
		if strings.Contains(put, `"$0" `) {
			s.Stderr = "token"
		}
		j := h.end(h.submit(s))
		events, err := h.svc.History(h.ctx, j.ID)
		if err != nil || j.Code != job.ProgramFailed {
			t.Fatalf("%s: %s, %v", put, j.Code, err)
		}
		for _, e := range events {
			if strings.Contains(string(e.Data), "secret") {
				t.Errorf("%s: evidence %s", put, e.Data)
			}
		}
	}
}

// TestRemoveWhatWasMade: rows may say of their results what nobody would take today.
func TestRemoveWhatWasMade(t *testing.T) {
	h, own := guarded(t)
	others := h.end(h.submit(shell("echo hello >out.txt")))
	_, results := app.Places(&others)
	archive, user := filepath.Join(own, "archive"), filepath.Join(h.dir, "user")
	h.write("mine", user, "data")
	for _, to := range []string{
		archive + "/default", archive, own, results, archive + "/x/..", archive + "/default/../../../user", archive + "/../../user", user, archive + "/.staging",
	} {
		for _, asked := range []string{to, ""} {
			j := job.Job{ID: job.NewID(), Tenant: "default", Kind: job.KindApp}
			id := j.ID.String()
			spec := job.Spec{Command: []string{"true"}, Archive: &job.Archive{To: asked}}
			resolved, err := json.Marshal(app.Resolved{Spec: spec, Folder: to, Results: to})
			if err != nil {
				t.Fatal(err)
			}
			j.Resolved = resolved
			h.write("x", own, "work", "default", id, "out")
			h.write("x", archive, "default", id, "out")
			if err := h.kind.Remove(h.ctx, &j); err != nil {
				t.Errorf("%s: %v", to, err)
			}
			if exists(own, "work", "default", id) || exists(archive, "default", id) {
				t.Errorf("%s: what was made for the job is left", to)
			}
		}
	}
	for _, name := range []string{results + "/out.txt", own + "/token", user + "/data", h.tables()} {
		if !exists(name) {
			t.Errorf("%s was removed", name)
		}
	}
	for _, tenant := range []string{"", ".", "..", "*", "../..", "../../user", "default/x"} {
		j := job.Job{ID: job.NewID(), Tenant: tenant, Request: json.RawMessage(`{"command":["true"]}`)}
		if err := h.kind.Remove(h.ctx, &j); job.KindOf(err) != job.Conflict {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
}

// tables is the file of the database.
func (h *house) tables() string {
	h.Helper()
	all, err := filepath.Glob(filepath.Join(h.dir, "db", "*.db"))
	if err != nil || len(all) == 0 {
		h.Fatalf("%v %v", all, err)
	}
	return all[0]
}

// TestSharedTarget: of jobs that are submitted together each has a folder of its own for its
// results.
func TestSharedTarget(t *testing.T) {
	h := open(t)
	if err := os.MkdirAll(filepath.Join(h.dir, "to"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := h.link("to", h.dir, "link")
	to := filepath.Join(h.dir, "to")
	request := func(name, to string, change ...func(*job.Spec)) service.Request {
		s := shell("echo x >out")
		s.Name, s.Archive = name, &job.Archive{To: to}
		for _, f := range change {
			f(&s)
		}
		return service.Request{Spec: s}
	}
	for name, second := range map[string]string{
		"the same": to, "with a slash": to + "/", "with a way back": h.dir + "/x/../to", "as a URL": "file://" + to, "by a link": link,
		"by a macro": h.dir + "/${PAWL_TENANT}/../to",
	} {
		_, err := h.svc.Submit(h.ctx, request("one", to), request("two", h.dir+"/else"), request("three", second))
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "jobs[2].archive.to") || !strings.Contains(err.Error(), "jobs[0] (one)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := "${PAWL_SYSTEM}/${ENV:NOWHERE}/${PAWL_OWNER}"
	if _, err := h.svc.Submit(h.ctx, request("one", to+same), request("two", to+same)); job.KindOf(err) != job.Invalid {
		t.Errorf("by macros that stand for the same: %v", err)
	}
	never := func(s *job.Spec) { s.Archive.On = job.ArchiveNever }
	ids := []job.ID{}
	for _, together := range [][]service.Request{
		{request("a", to+"/${PAWL_JOB_NAME}"), request("b", to+"/${PAWL_JOB_NAME}"), request("", to+"/${PAWL_JOB_ID}"), request("", to+"/${PAWL_JOB_ID}")},
		{request("c", to+"/c"), request("d", to+"/c/d"), request("e", to+"/c", never)},
		{request("f", ""), request("g", "")},
	} {
		answers, err := h.svc.Submit(h.ctx, together...)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			ids = append(ids, a.ID)
		}
	}
	for _, id := range ids {
		if j := h.end(id); j.State != job.Finished {
			t.Errorf("%s: %s %s: %s", j.Name, j.State, j.Code, j.Message)
		}
	}
}
