package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	filesfake "github.com/pawl-jobs/pawl/files/fake"
	fileslocal "github.com/pawl-jobs/pawl/files/local"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
)

// A machine has other files than its own.
type machine struct {
	host.Host
	fs files.FS
}

func (m machine) Files() files.FS { return m.fs }

// A humble file system reads as an owner who is not root: what may not be read cannot be.
type humble struct{ fileslocal.FS }

// humbly calls f in a thread that has given away for a while what lets root pass by the rights of
// files.
func humbly[T any](f func() (T, error)) (T, error) {
	runtime.LockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		panic(err)
	}
	less := caps
	less[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&head, &less[0]); err != nil {
		panic(err)
	}
	defer func() {
		if err := unix.Capset(&head, &caps[0]); err != nil {
			panic(err) // the thread goes with its goroutine, which keeps it locked
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

func (h humble) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	return humbly(func() (io.ReadSeekCloser, error) { return h.FS.Open(ctx, name) })
}

func (h humble) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	return humbly(func() ([]fs.FileInfo, error) { return h.FS.List(ctx, name) })
}

func (h humble) Names(ctx context.Context, name string) ([]string, error) {
	return humbly(func() ([]string, error) { return h.FS.Names(ctx, name) })
}

func (h humble) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return humbly(func() (fs.FileInfo, error) { return h.FS.Stat(ctx, name) })
}

// readsHumbly has the service read files of jobs as an owner does who is not root.
func readsHumbly(t *testing.T) func(*parts) {
	t.Helper()
	return func(p *parts) { p.Local.Host = machine{p.Local.Host, humble{}} }
}

// skipped returns what the manifest of an archive says that is not in it.
func (h *house) skipped(results string) []string {
	h.Helper()
	var m struct{ Skipped []string }
	if err := json.Unmarshal([]byte(h.read(results, app.ManifestFile)), &m); err != nil {
		h.Error(err)
	}
	return m.Skipped
}

const unreadable = `mkdir d x; echo 1 > good; echo 2 > d/inside; echo 3 > bad; echo 4 > x/named; chmod 0 d bad; chmod 400 x; : > z`

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	t.Run("and the rest is archived", func(t *testing.T) {
		h := open(t, readsHumbly(t))
		j := h.end(h.submit(shell(unreadable)))
		if j.State != job.Finished {
			t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
		}
		folder, results := app.Places(&j)
		if diff := cmp.Diff([]string{"good", "stderr", "stdout", "z"}, h.archived(results)); diff != "" {
			t.Errorf("archived (-want +got):\n%s", diff)
		}
		want := []string{"d (permission denied)", "x/named (permission denied)", "bad (permission denied)"}
		if diff := cmp.Diff(want, h.skipped(results)); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
		if !strings.Contains(j.Message, "left in "+folder) || !strings.Contains(j.Message, "bad (permission denied)") {
			t.Errorf("it says %q", j.Message)
		}
		if got := h.read(folder, "d", "inside"); got != "2\n" {
			t.Errorf("in its folder is %q", got)
		}
	})
	for required, code := range map[string]job.Code{
		"good": job.NormalCompletion, "bad": job.OutputMissing, "d": job.OutputMissing, "d/*": job.OutputMissing, "x/named": job.OutputMissing, "*a*": job.OutputMissing,
	} {
		t.Run("required is "+required, func(t *testing.T) {
			h := open(t, readsHumbly(t))
			s := shell(unreadable)
			s.Archive = &job.Archive{Required: []string{required}}
			j := h.end(h.submit(s))
			_, results := app.Places(&j)
			if j.Code != code || !slices.Contains(h.archived(results), "good") {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
		})
	}
	t.Run("files of a folder that is left are listed", func(t *testing.T) {
		h := open(t, readsHumbly(t), func(p *parts) { p.Files = humble{} })
		j := h.end(h.submit(shell(unreadable + "; exit 1")))
		list, err := h.svc.Output(h.ctx, j.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			got = append(got, strings.TrimSpace(f.Path+" "+f.Problem))
		}
		if diff := cmp.Diff([]string{"bad", "d permission denied", "good", "stderr", "stdout", "x/named permission denied", "z"}, got); diff != "" {
			t.Errorf("listed (-want +got):\n%s", diff)
		}
	})
	t.Run("a folder of a job that its program has locked", func(t *testing.T) {
		h := open(t, readsHumbly(t))
		j := h.end(h.submit(shell("echo 1 > good; chmod 0 .")))
		_, results := app.Places(&j)
		if j.State != job.Finished && j.Code != job.ArchiveFailed || j.State == job.Finished && !exists(results, "good") {
			t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
		}
	})
}

// An input is what it was staged as, or else a result.
func TestInputsThatWereReplacedAreResults(t *testing.T) {
	h := open(t)
	from := filepath.Join(h.dir, "from")
	for _, name := range []string{"sed", "same", "linked", "kept", "folder/x", "dir/a", "dir/b", "copy", "back", "plain"} {
		h.write("before", from, name)
	}
	s := scripted(`sed -i s/before/after/ sed; cp same t; rm same; mv t same; ln -sf kept other; ln -sf "$0/kept" linked
		rm folder; mkdir folder; echo new > folder/x
		cp -pr dir new; echo after0 > t; touch -r dir/a t; mv t new/a; rm -r dir; mv new dir
		printf AFTER! > t; touch -r back t; cat t > back; touch -r t back; rm t; chmod +x plain`, from)
	s.Inputs = []job.Input{
		{From: from + "/sed", InPlace: true},
		{From: from + "/same", InPlace: true},
		{From: from + "/linked", InPlace: true},
		{From: from + "/kept", InPlace: true},
		{From: from + "/folder", InPlace: true},
		{From: from + "/dir"},
		{From: from + "/copy"},
		{From: from + "/back"},
		{From: from + "/plain"},
	}
	j := h.end(h.submit(s))
	if j.State != job.Finished {
		t.Fatalf("%s %s", j.State, j.Message)
	}
	_, results := app.Places(&j)
	want := []string{"back", "dir/a", "dir/b", "folder/x", "same", "sed", "stderr", "stdout"}
	if diff := cmp.Diff(want, h.archived(results)); diff != "" {
		t.Errorf("archived (-want +got):\n%s", diff)
	}
	if got := h.read(results, "sed") + h.read(results, "folder", "x") + h.read(results, "dir", "a") + h.read(results, "back"); got != "afternew\nafter0\nAFTER!" {
		t.Errorf("they have %q", got)
	}
	if got := h.read(from, "sed"); got != "before" {
		t.Errorf("the input was changed to %q", got)
	}
	if diff := cmp.Diff([]string{"linked (a link to " + from + "/kept, outside of the job's folder)", "other (a link to " + from + "/kept, outside of the job's folder)"}, h.skipped(results)); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}

// Folders that are linked with one another, so that there are 2^40 ways through them.
const maze = `i=0; while [ $i -lt 40 ]; do mkdir -p $i; echo $i > $i/file; ln -s ../$((i+1)) $i/one; ln -s ../$((i+1)) $i/two; i=$((i+1)); done; mkdir 40; echo end > 40/file`

func TestWaysWithoutNumber(t *testing.T) {
	t.Run("through results", func(t *testing.T) {
		h := open(t)
		j := h.end(h.submit(shell(maze)))
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		_, results := app.Places(&j)
		if got := h.archived(results); len(got) != 43 {
			t.Errorf("archived %d files: %q", len(got), got)
		}
		if got := h.skipped(results); len(got) != 80 || got[0] != "0/one (a link to 1, which is archived under that name)" {
			t.Errorf("skipped %q", got)
		}
	})
	t.Run("through an input", func(t *testing.T) {
		h := open(t)
		from := filepath.Join(h.dir, "from")
		h.write("", from, "x")
		if out, err := shellIn(from, maze); err != nil {
			t.Fatal(err, out)
		}
		s := shell("cat in/0/one/two/one/file; cat in/0" + strings.Repeat("/one", 20) + strings.Repeat("/two", 19) + "/file; readlink in/0/one")
		s.Inputs = []job.Input{{From: from, To: "in"}}
		j := h.end(h.submit(s))
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		_, results := app.Places(&j)
		if got := h.read(results, "stdout"); got != "3\n39\n../1\n" {
			t.Errorf("the program found %q", got)
		}
		if got := h.archived(results); !slices.Equal(got, []string{"stderr", "stdout"}) {
			t.Errorf("archived %q", got)
		}
	})
}

func TestHolesStayHoles(t *testing.T) {
	h := openOn(t, memory{})
	small := h.tmpfs("16m")
	h.stop()
	h.start(func(p *parts) { p.Local.Work, p.Archive = small+"/work", small+"/archive" })
	core := h.submit(shell("truncate -s 1T core; echo x | dd of=core seek=7 conv=notrunc; exit 1"))
	to := shell("truncate -s 1T core; truncate -s 4E a b c; echo y >> core")
	to.Archive = &job.Archive{To: h.dir + "/results"}
	elsewhere := h.submit(to)
	h.write("", h.dir, "in")
	if err := os.Truncate(h.dir+"/in", 3<<30); err != nil {
		t.Fatal(err)
	}
	from := shell("stat -c '%s %b' in")
	from.Inputs = []job.Input{{From: h.dir + "/in"}}
	staged := h.submit(from)
	if j := h.end(core); j.Code != job.ProgramFailed {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	} else if _, results := app.Places(&j); !exists(results, "core") {
		t.Error("it was not archived")
	}
	j := h.end(elsewhere)
	if j.State != job.Finished {
		t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
	}
	info, err := os.Stat(h.dir + "/results/core")
	if err != nil || info.Size() != 1<<40+2 || files.Allocated(info) > 1<<20 {
		t.Errorf("%v, %v", info, err)
	}
	var m struct {
		Files []struct {
			Name, SHA256 string
			Blocks       string `json:"sha256_blocks"`
			Size, Holes  int64
		}
	}
	if err := json.Unmarshal([]byte(h.read(h.dir, "results", app.ManifestFile)), &m); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		if f.Name == "core" && (f.Size != 1<<40+2 || f.Holes < 1<<39 || f.SHA256 != "" || len(f.Blocks) != 64) {
			t.Errorf("the manifest says %+v", f)
		}
	}
	if j = h.end(staged); j.State != job.Finished {
		t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
	}
	if _, results := app.Places(&j); h.read(results, "stdout") != "3221225472 0\n" {
		t.Errorf("the program found %q", h.read(results, "stdout"))
	}
}

// What one job needs and has not is in nobody's way. What can never be there is told at once.
func TestRoomForOneJob(t *testing.T) {
	for name, db := range map[string]database{"memory": memory{}, "sqlite": sqliteFolder{}} {
		t.Run(name, func(t *testing.T) {
			h := openOn(t, db)
			small := h.tmpfs("16m")
			h.stop()
			h.start(func(p *parts) { p.Local.Work = small })
			if err := h.svc.SetLimit(h.ctx, job.Limit{Key: job.SystemKey(job.SystemLocal), Most: 1, Ahead: 1}); err != nil {
				t.Fatal(err)
			}
			empty := h.fill(small, 4<<20)
			h.write(strings.Repeat("x", 8<<20), h.dir, "large")
			s := shell("wc -c < large")
			s.Inputs = []job.Input{{From: filepath.Join(h.dir, "large")}}
			large := []job.ID{h.submit(s), h.submit(s)}
			g := h.blocked(2)
			h.space(g, small, 8<<20, "")
			for range 3 {
				h.finish(h.submit(shell("echo here")))
			}
			if g = h.blocked(2); g.Behind != 0 {
				t.Errorf("%d jobs wait behind it", g.Behind)
			}
			empty()
			for _, id := range large { // both at once do not fit
				if errs, err := h.svc.ActOnJobs(h.ctx, groups.Release, id); err != nil || errs[0] != nil {
					t.Fatal(errs, err)
				}
				h.finish(id)
			}
		})
	}
}

// Inputs that fit, and leave no room for anything else, take no room while their job waits: two
// such jobs would wait for each other.
func TestInputsThatFillTheFileSystem(t *testing.T) {
	h := openOn(t, memory{})
	small := h.tmpfs("16m")
	h.stop()
	h.start(func(p *parts) { p.Local.Work = small })
	empty := h.fill(small, 8<<20)
	h.write(strings.Repeat("x", 8<<20), h.dir, "large")
	s := shell("test $(wc -c < large) = 8388608")
	s.Inputs = []job.Input{{From: filepath.Join(h.dir, "large")}}
	large := h.submit(s)
	g := h.blocked(1)
	h.space(g, small, 10<<20, "")
	if !strings.HasPrefix(g.Message, "write the job's description: no space left") {
		t.Errorf("blocked: %s", g.Message)
	}
	if _, err := os.Stat(filepath.Join(small, "default", large.String(), "large")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its input has taken room: %v", err)
	}
	empty()
	h.release(g)
	h.finish(large)
}

func TestResultThatNeverFits(t *testing.T) {
	h := openOn(t, memory{})
	small := h.tmpfs("2m")
	h.stop()
	h.start(func(p *parts) { p.Archive = small })
	large := h.submit(shell("head -c 3000000 /dev/zero | tr '\\0' x > large"))
	j := h.end(large)
	want := "on the file system of " + small + " there would be room for 2097152 at most: name what is to stay in archive.exclude, or another folder in archive.to"
	if j.State != job.Failed || j.Code != job.FilesystemFull || !strings.HasSuffix(j.Message, want) || j.Recoveries != 0 {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
	if left := h.copies(filepath.Join(small, ".staging")); len(left) > 0 {
		t.Errorf("copies are left: %q", left)
	}
	h.finish(h.submit(shell("echo here")))
}

const shelved = `umask 0; mkdir -p a/b c t r; chmod 0700 a; chmod 2775 a/b; chmod 1777 t; chmod 0750 c; chmod 0555 r.d 2>/dev/null
echo 1 > a/b/file; echo 2 > c/file; echo 3 > t/file; echo 4 > r/file; chmod 640 c/file; chmod 0555 r`

func TestRightsOfFolders(t *testing.T) {
	check := func(t *testing.T, root string) {
		t.Helper()
		for name, want := range map[string]fs.FileMode{
			"a": 0o700 | fs.ModeDir, "a/b": 0o775 | fs.ModeDir | fs.ModeSetgid, "c": 0o750 | fs.ModeDir, "t": 0o777 | fs.ModeDir | fs.ModeSticky, "r": 0o555 | fs.ModeDir, "c/file": 0o640,
		} {
			if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v; want %v", name, info, err, want)
			}
		}
	}
	t.Run("of results", func(t *testing.T) {
		h := open(t)
		s := shell(shelved)
		s.Archive = &job.Archive{To: h.dir + "/to"}
		one, two := h.end(h.submit(shell(shelved))), h.end(h.submit(s))
		if one.State != job.Finished || two.State != job.Finished {
			t.Fatalf("%s, %s", one.Message, two.Message)
		}
		_, results := app.Places(&one)
		check(t, results)
		check(t, h.dir+"/to")
	})
	t.Run("of inputs, at each attempt", func(t *testing.T) {
		h := open(t)
		from := filepath.Join(h.dir, "from")
		h.write("", from, "x")
		if out, err := shellIn(from, shelved); err != nil {
			t.Fatal(err, out)
		}
		s := shell("cp -a in out; test $PAWL_ATTEMPT = 2")
		s.Inputs = []job.Input{{From: from, To: "in"}}
		s.Retry = &job.RetryPolicy{MaxAttempts: 2, Backoff: job.Backoff{Base: 1}}
		j := h.end(h.submit(s))
		if j.State != job.Finished {
			t.Fatal(j.Message)
		}
		_, results := app.Places(&j)
		check(t, results+"/out")
	})
	t.Run("of results that are taken back", func(t *testing.T) {
		h := open(t)
		to := h.dir + "/to"
		s := scripted(`mkdir r; echo 4 > r/file; chmod 0555 r; echo theirs > "$0/pawl-manifest.json"`, to)
		s.Archive = &job.Archive{To: to}
		h.write("", to, "x")
		if j := h.end(h.submit(s)); j.Code != job.ArchiveExists || exists(to, "r", "file") {
			t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
		}
	})
	t.Run("a folder of the user's keeps its own", func(t *testing.T) {
		h := open(t)
		h.write("", h.dir, "to", "c", "mine")
		s := shell(shelved)
		s.Archive = &job.Archive{To: h.dir + "/to"}
		if j := h.end(h.submit(s)); j.State != job.Finished {
			t.Fatal(j.Message)
		}
		if info, err := os.Stat(h.dir + "/to/c"); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%v, %v", info, err)
		}
	})
}

func TestNamesThatAreNoText(t *testing.T) {
	h := open(t)
	j := h.end(h.submit(shell(`echo raw > "$(printf 'a\377b')"; echo not > 'a\xffb'; mkdir "$(printf 'd\303')"; echo in > "$(printf 'd\303/x')"`)))
	if j.State != job.Finished {
		t.Fatal(j.Message)
	}
	_, results := app.Places(&j)
	want := []string{`a\x5cxffb`, `a\xffb`, `d\xc3/x`, "stderr", "stdout"}
	if diff := cmp.Diff(want, h.archived(results)); diff != "" {
		t.Errorf("archived (-want +got):\n%s", diff)
	}
	list, err := h.svc.Output(h.ctx, j.ID)
	if err != nil || len(list) != 6 {
		t.Fatalf("%v, %v", list, err)
	}
	for name, content := range map[string]string{`a\xffb`: "raw\n", `a\x5cxffb`: "not\n", `d\xc3/x`: "in\n"} {
		f, r, err := h.svc.OpenOutput(h.ctx, j.ID, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b, err := io.ReadAll(r)
		if r.Close(); string(b) != content || err != nil || f.Path != name {
			t.Errorf("%s is %q with %q, %v", name, f.Path, b, err)
		}
	}
}

func TestPathsThatAreTooLong(t *testing.T) {
	h := open(t)
	long := strings.Repeat("n", 200)
	s := scripted(`mkdir x; cd x; i=0; while [ $i -lt 40 ]; do mkdir $0; cd -P $0 2>/dev/null || exit 0; echo $i > file; i=$((i+1)); done`, long)
	s.Archive = &job.Archive{Required: []string{"x/" + long + "/file"}}
	j := h.end(h.submit(s))
	_, results := app.Places(&j)
	if j.State != job.Finished || !exists(results, "x", long, "file") {
		t.Fatalf("%s %s: %s", j.State, j.Code, j.Message)
	}
	if got := h.skipped(results); len(got) == 0 || !strings.HasSuffix(got[0], "(file name too long)") {
		t.Errorf("skipped %d: %.300q", len(got), got)
	}
	if _, err := h.svc.Output(h.ctx, j.ID); err != nil {
		t.Error(err)
	}
	os.RemoveAll(h.dir) // t.TempDir does not get so deep
}

// A file system that hangs: a call about some names returns when the test says so.
type hanging struct {
	fileslocal.FS
	gate string // a pipe that nobody writes to
	at   string
}

func (f hanging) hang(name string) {
	if name == f.at {
		if g, err := os.OpenFile(f.gate, os.O_RDONLY, 0); err == nil {
			g.Close()
		}
	}
}

func (f hanging) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	f.hang(name)
	return f.FS.Stat(ctx, name)
}

func (f hanging) Link(ctx context.Context, from, to string) error {
	f.hang(to)
	return f.FS.Link(ctx, from, to)
}

func TestFileSystemThatHangs(t *testing.T) {
	for _, tt := range []struct {
		name, at string
		stall    time.Duration
		cancel   bool
		want     string
	}{
		{"a cancel while an input is looked for", "in", time.Hour, true, "CANCELED CANCELED_BY_USER"},
		{"an input, for long", "in", time.Second, false, "FAILED STAGING_FAILED"},
		{"a cancel while results are published", "to/stdout", time.Hour, true, "CANCELED CANCELED_BY_USER"},
		{"an archive, for long", "to/stdout", time.Second, false, "FAILED ARCHIVE_FAILED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := open(t)
			h.stop()
			gate := h.gate()
			h.write("", h.dir, "in")
			h.start(func(p *parts) {
				p.Files = hanging{gate: gate, at: filepath.Join(h.dir, tt.at)}
				p.Stall, p.Leave = tt.stall, time.Millisecond
				p.slots = map[job.Lane]int{job.LanePrepare: 1, job.LaneLaunch: 1, job.LaneFinish: 1}
			})
			s := shell("echo here")
			s.Inputs = []job.Input{{From: h.dir + "/in"}}
			s.Archive = &job.Archive{To: h.dir + "/to"}
			id := h.submit(s)
			if tt.cancel {
				state := map[string]job.State{"in": job.ProcessingInputs, "to/stdout": job.Archiving}[tt.at]
				h.until(id, func(e job.Event) bool { return e.State == state })
				if _, err := h.svc.Cancel(h.ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			j := h.end(id)
			if got := fmt.Sprint(j.State, " ", j.Code); got != tt.want {
				t.Errorf("%s: %s", got, j.Message)
			}
			next := shell("echo there") // the one slot is free
			next.Retry = &job.RetryPolicy{MaxAttempts: 10, Backoff: job.Backoff{Base: 1}}
			if j := h.end(h.submit(next)); j.State != job.Finished {
				t.Errorf("the next job: %s %s", j.State, j.Message)
			}
			left := h.kind.Stalled()
			if !tt.cancel && (len(left) != 1 || !left[0].Left || left[0].Job != id || left[0].Path != filepath.Join(h.dir, tt.at)) {
				t.Errorf("left behind: %v", left)
			}
			for _, one := range left {
				if !one.Left {
					t.Errorf("%v", one)
				}
			}
			w, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // whoever hangs there goes on
			if err != nil && !errors.Is(err, syscall.ENXIO) {
				t.Fatal(err)
			}
			h.poll("the step that was left behind", func() bool { return len(h.kind.Stalled()) == 0 })
			if err == nil {
				w.Close()
			}
		})
	}
}

func TestInputsThatAreNoFiles(t *testing.T) {
	h := open(t)
	pipe := h.gate()
	for _, from := range []string{pipe, "/dev/zero", "/dev/null"} {
		s := shell("exit 0")
		s.Inputs = []job.Input{{From: from, To: "in"}}
		if j := h.end(h.submit(s)); j.Code != job.InputUnreadable || !strings.Contains(j.Message, "is not a regular file but a ") {
			t.Errorf("%s %s: %s", from, j.Code, j.Message)
		}
	}
}

// shellIn runs a script in a folder.
func shellIn(dir, script string) (string, error) {
	c := exec.Command("/bin/sh", "-c", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

// What cannot be read of one job, or of one tenant, keeps nobody from comparing the others.
func TestCompareNamesWhatCannotBeRead(t *testing.T) {
	h := open(t, readsHumbly(t), func(p *parts) {
		p.on(p.Local.Host)
	})
	locked, other := h.submit(shell("exit 1")), h.submit(shell("exit 1"))
	j := h.end(locked)
	h.end(other)
	folder, _ := app.Places(&j)
	h.write("", h.dir, "work", "secret", "x")
	h.stop()
	for _, name := range []string{folder + "/.pawl", h.dir + "/work/secret"} {
		if err := os.Chmod(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := h.kind.Compare(h.ctx, h.kind.Local(), h.store, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the folder of tenant secret: " + h.dir + "/work/secret: permission denied",
		"job " + locked.String() + ": " + folder + "/.pawl: permission denied",
	}
	if diff := cmp.Diff(want, rep.Unread); diff != "" || rep.Agree+len(rep.Unknown) != 1 || len(rep.Behind) > 0 {
		t.Errorf("%+v; what could not be read (-want +got):\n%s", rep, diff)
	}
}

// Copies of one job that cannot be removed keep nobody from removing those of others.
func TestSweepGoesOn(t *testing.T) {
	f := filesfake.New()
	h := open(t, func(p *parts) { p.Files = f })
	ids := []job.ID{h.submit(shell("exit 1")), h.submit(shell("exit 1"))}
	staged := h.dir + "/archive/.staging"
	for _, id := range ids {
		h.end(id)
		if err := f.Mkdir(h.ctx, staged+"/.pawl-"+id.String()+"-9"); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids { // whichever comes first
		heal := f.Inject(filesfake.Fault{Op: "Remove", Name: ".pawl-" + id.String() + "-9", Err: fs.ErrPermission})
		if err := h.kind.RemoveLeftovers(h.ctx, h.kind.Local(), h.store); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("it says %v", err)
		}
		left, err := f.List(h.ctx, staged)
		if err != nil || len(left) != 1 || left[0].Name() != ".pawl-"+id.String()+"-9" {
			t.Errorf("left behind: %v, %v", left, err)
		}
		heal()
		for _, again := range ids {
			if err := f.Mkdir(h.ctx, staged+"/.pawl-"+again.String()+"-9"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
