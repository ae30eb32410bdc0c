package slurm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/script"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

func (b bench) newJob(t *testing.T, script string) (runner.Key, runner.Plan) {
	t.Helper()
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 1}
	dir := b.Work + "/" + k.Job.String()
	if err := os.MkdirAll(dir+"/"+runner.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return k, runner.Plan{Dir: dir, Argv: []string{"/bin/sh", "-c", script}, Stdout: "stdout", Stderr: "stderr"}
}

func (b bench) launch(t *testing.T, k runner.Key, p runner.Plan) runner.Handle {
	t.Helper()
	h, err := b.runner.Launch(t.Context(), k, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.runner.Kill(context.Background(), h, 0) })
	return h
}

func (b bench) status(t *testing.T, h runner.Handle) runner.Status {
	t.Helper()
	all, err := b.runner.Probe(t.Context(), []runner.Handle{h})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// until waits for what no event announces.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience) // Slurm may wait for half a minute, more than once
	defer cancel()
	if !testenv.Until(ctx, done) {
		t.Fatalf("it does not come that %s", what)
	}
}

func read(name string) string {
	b, _ := os.ReadFile(name)
	return string(b)
}

func (b bench) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := b.slurm.Do(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return out
}

// requeue has Slurm run a job again, without the time that Slurm waits before it does.
func (b bench) requeue(t *testing.T, id string) {
	t.Helper()
	show := func() string { return b.do(t, "scontrol", "show", "job", id) }
	raw := strings.TrimSpace(b.do(t, "squeue", "-h", "-t", "all", "-j", id, "-o", "%A"))
	b.do(t, "scontrol", "requeue", id)
	until(t, "it is queued", func() bool { return strings.Contains(show(), "JobState=PENDING") })
	until(t, "the node has cleaned up", func() bool { return !b.slurm.Left(raw) })
	// A node does not run a job again that was ended in the same second.
	b.do(t, "scontrol", "update", "JobId="+id, "StartTime=now+2")
	until(t, "it goes on", func() bool { return !strings.Contains(show(), "JobState=PENDING") })
}

func idOf(t *testing.T, b bench, h runner.Handle) string {
	t.Helper()
	l, err := b.runner.find(h)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

// A launch that waits says why. A kill revokes it and takes it out of the queue.
func TestALaunchThatWaits(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "touch ran")
	p.Resources = job.Resources{Cores: 65} // more than the node has: Slurm takes it, and never runs it
	h, err := b.runner.Launch(t.Context(), k, p)
	if err != nil {
		t.Skip("this Slurm refuses it:", err)
	}
	until(t, "it says why", func() bool { return b.status(t, h).Reason != "" })
	s := b.status(t, h)
	if s.State != runner.Queued || !strings.Contains(s.Reason, "Slurm job "+idOf(t, b, h)+" in partition debug waits") {
		t.Errorf("%+v", s)
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || !f.Started || f.Handle != h {
		t.Errorf("Settle: %+v, %v", f, err)
	}
	if err := b.runner.Kill(t.Context(), h, time.Hour); err != nil {
		t.Fatal(err)
	}
	until(t, "it is lost", func() bool { return b.status(t, h).State == runner.Lost })
	if out := b.do(t, "squeue", "-h", "-n", h.Token); out != "" {
		t.Errorf("it is still queued: %s", out)
	}
	if _, err := os.Stat(p.Dir + "/ran"); err == nil {
		t.Error("it ran")
	}
}

// A launch that runs says where: by its script as soon as it has begun, and by squeue in the same
// words.
func TestALaunchThatRuns(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "sleep 600")
	h := b.launch(t, k, p)
	want := "Slurm job " + idOf(t, b, h) + " in partition debug on "
	until(t, "its script has told", func() bool {
		by, ok, err := b.runner.Roomed(t.Context(), k, 0)
		return err == nil && ok && strings.HasPrefix(whereOf(by), want)
	})
	by, _, err := b.runner.Roomed(t.Context(), k, 0)
	if err != nil || len(whereOf(by)) == len(want) {
		t.Errorf("no node: %q, %v", by.Rest, err)
	}
	until(t, "squeue has told", func() bool { return !b.status(t, h).Started.IsZero() })
	if s := b.status(t, h); s.State != runner.Active || s.Reason != whereOf(by) {
		t.Errorf("%+v, not %q", s, whereOf(by))
	}
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "it is over", func() bool { return b.status(t, h).State == runner.Ended })
}

// What Slurm takes and can never run is canceled, and says so.
func TestALaunchThatCanNeverBegin(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "touch ran")
	p.Resources = job.Resources{Partition: "short", Minutes: 30}
	h := b.launch(t, k, p)
	var s runner.Status
	until(t, "it is lost", func() bool { s = b.status(t, h); return s.State == runner.Lost })
	if s.Cause != job.SchedulerRejected || !strings.Contains(s.Said, "resources.minutes is more than the partition gives") {
		t.Errorf("%+v", s)
	}
	until(t, "it is out of the queue", func() bool { return b.do(t, "squeue", "-h", "-n", h.Token) == "" })
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}

// What a partition does not take can never begin, unless another one takes it.
func TestWhatAPartitionDoesNotTake(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.OwnSlurm(t)) // others need its node
	b.do(t, "scontrol", "update", "PartitionName=short", "MaxMemPerNode=1000")
	k, p := b.newJob(t, "true")
	p.Resources = job.Resources{Partition: "short", Minutes: 1, Memory: 2000 << 20}
	h := b.launch(t, k, p)
	var s runner.Status
	until(t, "it is lost", func() bool { s = b.status(t, h); return s.State == runner.Lost })
	if s.Cause != job.SchedulerRejected || !strings.Contains(s.Said, "resources.memory is more than the partition gives") {
		t.Errorf("%+v", s)
	}

	k, p = b.newJob(t, "sleep 600")
	p.Resources = job.Resources{Exclusive: true}
	first := b.launch(t, k, p)
	until(t, "the node is full", func() bool { return !b.status(t, first).Started.IsZero() })
	k, p = b.newJob(t, "true")
	p.Resources = job.Resources{Partition: "debug,short", Minutes: 30}
	h = b.launch(t, k, p)
	until(t, "Slurm tells of the short one", func() bool {
		if s = b.status(t, h); s.State != runner.Queued {
			t.Fatalf("%+v", s)
		}
		return strings.HasSuffix(s.Reason, ": one of them does not take it (PartitionTimeLimit)")
	})
	if err := b.runner.Kill(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "it has run", func() bool { s = b.status(t, h); return s.State == runner.Ended && s.End.Code == 0 })
}

// A program that somebody has suspended in Slurm runs, and its reason says so.
func TestSuspended(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "until [ -e go ]; do sleep 0.1; done")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return !b.status(t, h).Started.IsZero() })
	b.do(t, "scontrol", "suspend", idOf(t, b, h))
	until(t, "it is said", func() bool {
		s := b.status(t, h)
		return s.State == runner.Active && strings.Contains(s.Reason, " is suspended in partition debug on ")
	})
	b.do(t, "scontrol", "resume", idOf(t, b, h))
	if err := os.WriteFile(p.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "it has ended", func() bool { s := b.status(t, h); return s.State == runner.Ended && s.End.Code == 0 })
}

// What Slurm refuses is told in its words, and nothing of it is under way.
func TestARequestThatIsRefused(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "true")
	p.Resources = job.Resources{Partition: "nosuch"}
	_, err := b.runner.Launch(t.Context(), k, p)
	if err == nil || !strings.Contains(err.Error(), "Invalid partition name specified") {
		t.Errorf("%v", err)
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}

// small mounts a small file system.
func small(t *testing.T, at, options string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, options); err != nil {
		if os.Getenv("PAWL_TEST_REQUIRE") != "" && os.Geteuid() == 0 {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v (it takes root)", err)
	}
	t.Cleanup(func() { syscall.Unmount(at, syscall.MNT_DETACH) })
}

// scripts is a file system through which the script of a launch gets another text.
type scripts struct {
	files.FS
	text func(string) string
}

func (s scripts) Put(ctx context.Context, name string, r io.Reader, o files.PutOptions) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), "run.") {
		text = []byte(s.text(string(text)))
	}
	return s.FS.Put(ctx, name, bytes.NewReader(text), o)
}

func (s scripts) Space(ctx context.Context, name string) (files.Space, error) {
	return s.FS.(files.Sizer).Space(ctx, name)
}

// Where there is no room to tell the end, nothing is started, and Probe says why. That was no run:
// once there is room, Slurm may run it again.
func TestNoRoomForTheEnd(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	full := path.Join(b.Spool, spool.Rooms)
	small(t, full, "size=1m")
	if err := os.WriteFile(full+"/fill", make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	k, p := b.newJob(t, "echo ran >>ran")
	h := b.launch(t, k, p)
	k2, p2 := b.newJob(t, "echo ran >>ran")
	h2 := b.launch(t, k2, p2)
	for range 2 {
		var s runner.Status
		until(t, "it is over", func() bool {
			s = b.status(t, h)
			return s.State == runner.Ended || s.State == runner.Lost
		})
		if s.State != runner.Ended || s.End.NotStarted != runner.NoRoom+runner.NoRoomIn+full {
			t.Errorf("%+v, %+v", s, s.End)
		}
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
	id := idOf(t, b, h2)
	until(t, "Slurm knows", func() bool { return strings.Contains(b.do(t, "scontrol", "show", "job", id), "JobState=FAILED") })
	for _, name := range []string{p.Dir + "/ran", p2.Dir + "/ran", b.runner.RoomName(k, 0), b.runner.RoomName(k2, 0)} {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if err := os.Remove(full + "/fill"); err != nil {
		t.Fatal(err)
	}
	b.requeue(t, id)
	until(t, "it ends", func() bool {
		s := b.status(t, h2)
		return s.State == runner.Ended && s.End.Code == 0 && s.End.Run == 0
	})
	if got := read(p2.Dir + "/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
}

// The name that decides takes no room but its own. A script that cannot make it has not taken the
// launch.
func TestNoRoomToTakeALaunch(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	small(t, b.Work, "size=1m,nr_inodes=100")
	const mark, take = "# Which run is this?", "take() {"
	const room, names = "cat /dev/zero >fill", "while true >fill.$((n += 1)); do :; done"
	k, p := b.newJob(t, "exit 3")
	under := b.runner.FS
	for _, c := range []struct {
		fill, before string
		started      bool
	}{{room, mark, false}, {names, mark, false}, {room, take, true}, {names, take, false}} {
		b.runner.FS = scripts{under, func(text string) string {
			return strings.Replace(text, c.before, c.fill+" 2>/dev/null\n"+c.before, 1)
		}}
		h := b.launch(t, k, p)
		var s runner.Status
		until(t, "it says that there is no room", func() bool {
			s = b.status(t, h)
			return s.State == runner.Ended || s.State == runner.Lost || strings.HasSuffix(s.Reason, "no space left on device")
		})
		filled, _ := filepath.Glob(p.Dir + "/fill*")
		if len(filled) == 0 {
			t.Error("nothing was filled")
		}
		for _, name := range filled {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
		until(t, "it is over", func() bool {
			s = b.status(t, h)
			return s.State == runner.Ended || s.State == runner.Lost
		})
		if e := s.End; e == nil || c.started && e.Code != 3 || !c.started && e.NotStarted != runner.NoRoom {
			t.Errorf("%+v: %+v, %+v", c, s, e)
		}
		if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started != c.started {
			t.Errorf("%+v: Settle: %+v, %v", c, f, err)
		}
		k.Launch++
	}
}

// Nothing that a user gives begins a directive.
func TestDirectives(t *testing.T) {
	for name, q := range map[string]job.Resources{
		"a line":    {Partition: "debug\n#SBATCH --uid=0"},
		"a space":   {Account: "a --uid=0"},
		"a quote":   {Account: `a"`},
		"a comment": {Partition: "#x"},
	} {
		if text, err := script.Directives(runner.Plan{Resources: q}); job.KindOf(err) != job.Invalid {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	dir := "/it's a\n#SBATCH --uid=0"
	asks, err := script.Directives(runner.Plan{Resources: job.Resources{
		Nodes: 2, Tasks: 4, Cores: 3, Memory: 1<<30 + 1, GPUs: 1, Minutes: 1.5, Account: "a", Partition: "p",
	}})
	o := &order{Names: spool.Names{Token: "T"}, place: place{Dir: dir, Name: "T"}, asks: asks}
	head, rest, _ := strings.Cut(batchOf([]*order{o}), "\nset -- ")
	if want := "#!/bin/sh\n#SBATCH --job-name=T\n#SBATCH --output=/dev/null\n#SBATCH --requeue\n#SBATCH --nodes=2\n" +
		"#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=3\n#SBATCH --gpus-per-node=1\n#SBATCH --mem=1025M\n" +
		"#SBATCH --time=2\n#SBATCH --account=a\n#SBATCH --partition=p"; err != nil || head != want {
		t.Errorf("%v\n%s", err, head)
	}
	if !strings.HasPrefix(rest, spool.Quote(dir)) {
		t.Errorf("%s", rest)
	}
}

// A job that somebody cancels in Slurm, and one that was told to end by Slurm, say so.
func TestCanceledInSlurm(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { _, err := os.Stat(p.Dir + "/up"); return err == nil })
	b.do(t, "scancel", idOf(t, b, h))
	until(t, "it is over", func() bool {
		s := b.status(t, h)
		return s.State == runner.Ended && s.Cause == job.SchedulerCanceled
	})
}

// A run again is known by the token, only its end counts, and what is left of the run before goes.
func TestRunAgain(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	news, err := b.runner.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, p := b.newJob(t, `echo ran >>ran
		[ "$(wc -l <ran)" -gt 1 ] && { until [ -e go ]; do sleep 0.1; done; exit 3; }
		(trap '' TERM; exec sleep 1000)`)
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
	b.requeue(t, idOf(t, b, h))
	until(t, "it says that it runs again", func() bool {
		return strings.HasSuffix(b.status(t, h).Reason, ", run 2: Slurm runs it again")
	})
	touch(t, p.Dir+"/go")
	for ns := range news {
		for _, n := range ns {
			if n.End == nil {
				continue
			}
			if n.End.Run != 1 || n.End.Code != 3 || n.Key != k {
				t.Fatalf("%+v %+v", n, n.End)
			}
			if got := read(p.Dir + "/ran"); got != "ran\nran\n" {
				t.Errorf("it ran: %q", got)
			}
			if s := b.status(t, h); s.State != runner.Ended || s.End.Run != 1 {
				t.Errorf("%+v", s)
			}
			return
		}
	}
}

// A part of the first run that Slurm cannot find is gone before the program runs again.
func TestWhatARunLeftGoes(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, `if [ -e left ]; then grep '^State:.[^ZX]' "/proc/$(cat left)/status" >bad; exit 3; fi
		setsid -f sh -c 'echo $$ >pid; mv pid left; exec sleep 1000'; sleep 1000`)
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return exists(p.Dir + "/left") })
	id := idOf(t, b, h)
	_ = syscall.Kill(b.script(t, k).PID, syscall.SIGKILL) // so that it ends nothing itself
	until(t, "it is over", func() bool { return b.do(t, "squeue", "-h", "-j", id) == "" })
	if pid, err := strconv.Atoi(strings.TrimSpace(read(p.Dir + "/left"))); err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("Slurm has found what the program left, process %d: %v", pid, err)
	}
	b.requeue(t, id)
	if st := b.settled(t, h); st.End == nil || st.End.Run != 1 || st.End.Code != 3 || read(p.Dir+"/bad") != "" {
		t.Errorf("it is %+v, with the end %+v; what it left was in %q", st, st.End, read(p.Dir+"/bad"))
	}
}

// Slurm says that a job runs again before its script can say so, minutes after the run before. The
// end of that one is not the end of the job.
func TestARunAgainThatIsLate(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, `echo ran >>ran; [ "$(wc -l <ran)" -gt 1 ] && exit 3; sleep 1000`)
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
	id := idOf(t, b, h)
	raw := strings.TrimSpace(b.do(t, "squeue", "-h", "-t", "all", "-j", id, "-o", "%A"))
	b.do(t, "scontrol", "requeuehold", id)
	until(t, "it waits", func() bool { return b.status(t, h).State == runner.Queued })
	until(t, "the node has cleaned up", func() bool { return !b.slurm.Left(raw) })

	run := p.Dir + "/" + runner.Folder + "/run.1.1." + h.Token
	script := read(run)
	if err := errors.Join(os.Remove(run), syscall.Mkfifo(run, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.runner.doubt = 0 // as if the first run had ended long ago
	b.do(t, "scontrol", "update", "JobId="+id, "StartTime=now+2")
	b.do(t, "scontrol", "release", id)
	until(t, "Slurm runs it again", func() bool {
		s := b.status(t, h)
		if s.State == runner.Ended {
			t.Fatalf("it is over, by the end of the first run: %+v", s.End)
		}
		return s.State == runner.Active
	})
	if err := os.WriteFile(run, []byte(script), 0o600); err != nil { // the script that reads it goes on
		t.Fatal(err)
	}
	until(t, "it is over", func() bool { return b.status(t, h).State == runner.Ended })
	if s := b.status(t, h); s.End.Run != 1 || s.End.Code != 3 {
		t.Errorf("%+v, %+v", s, s.End)
	}
}

// A launch that is to run once does not run its program again. What is left of the run before goes.
func TestRunOnce(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, `echo ran >>ran; (trap '' TERM; exec sleep 1000)`)
	p.Once = true
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
	id := idOf(t, b, h)
	b.do(t, "scontrol", "update", "jobid="+id, "requeue=1") // as Slurm does by itself after a crash
	b.requeue(t, id)
	until(t, "it is over", func() bool {
		s := b.status(t, h)
		return s.State == runner.Ended && s.End.Run == 1
	})
	if s := b.status(t, h); s.End.NotStarted != runner.RanAgain || s.End.Code != 126 || b.Lives(t, h) {
		t.Errorf("%+v, %+v", s, s.End)
	}
	if got := read(p.Dir + "/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
}

// A program that has removed the folder of its notes before sbatch answers was launched.
func TestNotesAreRemovedEarly(t *testing.T) {
	testenv.Aside(t)
	gone := t.TempDir() + "/gone"
	b := newBench(t, testenv.Slurm(t), wrapped(t, "sbatch", `%s "$@"; until [ -e `+gone+` ]; do sleep 0.05; done`))
	k, p := b.newJob(t, "rm -rf .pawl; : >"+gone)
	b.launch(t, k, p)
}

// A program that ended by itself does not run again, whatever Slurm does.
func TestNotRunAgain(t *testing.T) {
	testenv.Aside(t)
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "echo ran >>ran; exit 3")
	h := b.launch(t, k, p)
	until(t, "it ends", func() bool { return b.status(t, h).State == runner.Ended })
	id := idOf(t, b, h)
	until(t, "Slurm knows", func() bool { return strings.Contains(b.do(t, "scontrol", "show", "job", id), "FAILED") })
	b.requeue(t, id)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := b.slurm.Do(context.Background(), "scontrol", "show", "job", id)
			t.Logf("%s\n%s\n%s", read(p.Dir+"/.pawl/log.1.1."+h.Token), out, b.slurm.NodeLog())
		}
	})
	until(t, "Slurm has run it again", func() bool {
		return strings.Contains(read(p.Dir+"/.pawl/log.1.1."+h.Token), "not run again")
	})
	if got := read(p.Dir + "/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
	if s := b.status(t, h); s.State != runner.Ended || s.End.Code != 3 || s.End.Run != 0 {
		t.Errorf("%+v", s)
	}
}

// A run that stops before it has a room hides none that comes after it. A program that ended by
// itself does not run again however often Slurm tries.
func TestARunWithoutARoom(t *testing.T) {
	testenv.Aside(t)
	const stops = "[ $run != 1 ] || kill -9 $$\n"
	for name, c := range map[string]struct {
		program, before string
		run, code       int
	}{
		"it was preempted":               {`[ "$(wc -l <ran)" -gt 1 ] || sleep 1000`, stops, 2, 0},
		"it ended by itself":             {"exit 3", stops, 0, 3},
		"it ended, and Slurm runs twice": {"exit 3", "", 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testenv.Slurm(t))
			b.runner.FS = scripts{b.runner.FS, func(text string) string {
				const owned = "# $clear are lines"
				return strings.Replace(text, owned, c.before+owned, 1)
			}}
			k, p := b.newJob(t, "echo ran >>ran; "+c.program)
			h := b.launch(t, k, p)
			id := idOf(t, b, h)
			until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
			if c.code != 0 {
				until(t, "Slurm knows its end", func() bool { return b.over(t, id) })
			}
			b.requeue(t, id)
			until(t, "the next run has stopped", func() bool { return b.over(t, id) })
			if exists(b.runner.RoomName(k, 1)) {
				t.Error("run 1 has a room")
			}
			b.requeue(t, id)
			until(t, "Slurm knows the last end", func() bool { return b.over(t, id) })
			if s := b.settled(t, h); s.State != runner.Ended || s.End.Run != c.run || s.End.Code != c.code {
				t.Errorf("it is %+v, with the end %+v", s, s.End)
			}
			want := "ran\n"
			if c.run > 0 {
				want += "ran\n"
			}
			if got := read(p.Dir + "/ran"); got != want {
				t.Errorf("it ran: %q", got)
			}
		})
	}
}

// over reports whether Slurm says that a job is over.
func (b bench) over(t *testing.T, id string) bool {
	t.Helper()
	state := strings.TrimSpace(b.do(t, "squeue", "-h", "-t", "all", "-j", id, "-o", "%T"))
	return squeue.Row{State: state}.Phase() == squeue.Over
}

// settled returns how a launch ended whose controller was killed. A node refuses what it still
// runs. Then Slurm holds it, and drains the node where it had no good answer, until an
// administrator comes. A node may also refuse what the controller takes to run from then on: Slurm
// sees that when the node registers again, which is once in half an hour, or as it is told to.
func (b bench) settled(t *testing.T, h runner.Handle) (st runner.Status) {
	t.Helper()
	id := idOf(t, b, h)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := b.slurm.Do(context.Background(), "scontrol", "show", "job", id)
			t.Logf("%+v\n%s, %v\nslurmctld: %s\nslurmd: %s", st, out, err, b.slurm.Log(), b.slurm.NodeLog())
		}
	})
	registered := time.Now()
	until(t, "it is settled", func() bool {
		switch st = b.status(t, h); {
		case st.State == runner.Queued:
			_, _ = b.slurm.Do(t.Context(), "scontrol", "release", id)
			b.slurm.Resume(t.Context())
		case st.State == runner.Active && time.Since(registered) > 20*time.Second:
			_, _ = b.slurm.Do(t.Context(), "scontrol", "reconfigure")
			registered = time.Now()
		}
		return st.State == runner.Ended || st.State == runner.Lost || st.State == runner.Dropped
	})
	return st
}

// A controller that is killed while a program runs loses no end and starts nothing twice, as far as
// Pawl can see to that: what Slurm runs again is told as another run.
func TestTheControllerIsKilled(t *testing.T) {
	s := testenv.OwnSlurm(t) // others would not find theirs
	b := newBench(t, s)
	k, p := b.newJob(t, `echo ran >>ran; while ! [ -e go ]; do sleep 0.1; done; exit 3`)
	h := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/ran") != "" })
	s.KillController()
	b.runner.client.Patience = time.Second
	if st := b.status(t, h); st.State != runner.Active {
		t.Errorf("without a controller it is %+v", st)
	}
	k2, p2 := b.newJob(t, "echo ran >>ran")
	_, err := b.runner.Launch(t.Context(), k2, p2)
	if job.KindOf(err) != job.Unavailable {
		t.Errorf("launched without a controller: %v", err)
	}
	b.runner.client.Patience = 20 * time.Second
	s.StartController(t)
	f, err := b.runner.Settle(t.Context(), k2, p2.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	st := b.settled(t, h)
	runs := strings.Count(read(p.Dir+"/ran"), "ran")
	t.Logf("%d runs, %+v; the other is started: %t", runs, st, f.Started)
	if st.State == runner.Ended && (st.End.Code != 3 || st.End.Run != runs-1) {
		t.Errorf("%+v %+v after %d runs", st, st.End, runs)
	}
	if !f.Started {
		if _, err := os.Stat(p2.Dir + "/ran"); err == nil {
			t.Error("a revoked launch ran")
		}
		k2.Launch++
		h2 := b.launch(t, k2, p2)
		until(t, "it ends", func() bool { return b.status(t, h2).State == runner.Ended })
	}
	if got := read(p2.Dir + "/ran"); !f.Started && got != "ran\n" {
		t.Errorf("the other ran: %q", got)
	}
}

// A job that Slurm has forgotten before it began is revoked, and may be launched again.
func TestForgotten(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, "touch ran")
	h := b.launch(t, k, p)
	_ = b.runner.Kill(t.Context(), h, 0)
	k.Launch++
	m, err := spool.NewNames(k, p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	at := place{Armed: time.Now().UnixMilli(), Dir: p.Dir, ID: "99999", Name: m.Token}
	for name, text := range map[string]string{
		m.Arming(): "armed " + m.Token + " 1 " + m.Token + "\n", m.Of("settled"): "submitted " + m.Token + " 99999\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lost := b.runner.Handle(k, m.Token, at)
	until(t, "it is dropped", func() bool { return b.status(t, lost).State == runner.Dropped })
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("%+v, %v", f, err)
	}
}

// After a crash of its controller Slurm may give the id of a job, or of an array, to somebody else.
// Nothing is done to that one.
func TestAStrangersJob(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	submit := func(options ...string) string {
		options = append(options, "--parsable", "--output=/dev/null", "--wrap=sleep 1000")
		id := strings.TrimSpace(b.do(t, "sbatch", options...))
		t.Cleanup(func() { _, _ = b.slurm.Do(context.Background(), "scancel", id) })
		return id
	}
	for id, name := range map[string]string{submit(): rand.Text(), submit("--array=0") + "_0": rand.Text() + "_0"} {
		k, p := b.newJob(t, "touch ran")
		m, err := spool.NewNames(k, p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		at := place{Armed: time.Now().UnixMilli(), Dir: p.Dir, ID: id, Name: name}
		for file, text := range map[string]string{
			m.Arming():      fmt.Sprintf("armed %s %d %s\n", m.Token, at.Armed, name),
			m.Of("settled"): "submitted " + m.Token + " " + id + "\n",
		} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ours := b.runner.Handle(k, m.Token, at)
		until(t, "it runs", func() bool { return b.do(t, "squeue", "-h", "-j", id, "-o", "%T") == "RUNNING\n" })
		if err := b.runner.Kill(t.Context(), ours, 0); err != nil {
			t.Error(err)
		}
		until(t, "ours is over", func() bool { return b.status(t, ours).State != runner.Queued })
		if st := b.status(t, ours); st.State == runner.Active || st.Cause != "" {
			t.Errorf("what %s says is told of another job: %+v", id, st)
		}
		if said := b.do(t, "squeue", "-h", "-j", id, "-o", "%T"); said != "RUNNING\n" {
			t.Errorf("job %s of somebody else is %q", id, said)
		}
	}
}

// Variables of sbatch in the environment of the host change nothing.
func TestVariablesOfSlurm(t *testing.T) {
	s := testenv.Slurm(t)
	b := newBench(t, s, "SBATCH_PARTITION=nosuch", "SBATCH_TIMELIMIT=x", "SLURM_EXPORT_ENV=NONE", "SRUN_EXPORT_ENV=NONE",
		"SQUEUE_FORMAT=%i", "SQUEUE_PARTITION=short", "SLURM_JOB_ID=1", "OF_THE_HOST=1")
	k, p := b.newJob(t, `[ "$OF_THE_HOST" = 1 ] && [ -z "$SLURM_EXPORT_ENV$SRUN_EXPORT_ENV" ] &&
		[ -n "$SLURM_JOB_ID" ] && exit 3`)
	h := b.launch(t, k, p)
	until(t, "it ends", func() bool { s := b.status(t, h); return s.State == runner.Ended && s.End.Code == 3 })
}

// Several tasks are started by srun, in the environment of the program.
func TestSrun(t *testing.T) {
	b := newBench(t, testenv.Slurm(t))
	k, p := b.newJob(t, `srun --overlap sh -c 'echo $SLURM_PROCID $OWN'`)
	p.Env = map[string]string{"OWN": "it"}
	p.Resources = job.Resources{Tasks: 3, Cores: 2}
	h := b.launch(t, k, p)
	until(t, "it ends", func() bool { return b.status(t, h).State == runner.Ended })
	if e := b.status(t, h).End; e.Code != 0 || strings.Count(read(p.Dir+"/stdout"), " it\n") != 3 {
		t.Errorf("%+v\n%s%s", e, read(p.Dir+"/stdout"), read(p.Dir+"/stderr"))
	}
}

// Slurm has forgotten these jobs. The files tell enough: an end that was told, a program that is
// lost, a launch that never began.
func TestAfterMinJobAge(t *testing.T) {
	testenv.Aside(t)
	s := testenv.OwnSlurm(t)
	conf := strings.Replace(read(s.Conf), "MinJobAge=300", "MinJobAge=2", 1)
	if err := os.WriteFile(s.Conf, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, s)
	b.do(t, "scontrol", "reconfigure")
	k, p := b.newJob(t, "exit 3")
	ended := b.launch(t, k, p)
	k, p = b.newJob(t, "echo $$ >.pid && mv .pid pid && exec sleep 1000")
	lost := b.launch(t, k, p)
	until(t, "it runs", func() bool { return read(p.Dir+"/pid") != "" })
	taken := strings.Fields(read(p.Dir + "/.pawl/take.1.1." + lost.Token))
	for _, text := range []string{taken[3], strings.TrimSpace(read(p.Dir + "/pid"))} { // its script first
		pid, err := strconv.Atoi(text)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	k, p = b.newJob(t, "touch ran")
	p.Resources = job.Resources{Cores: 65} // more than the node has
	never := b.launch(t, k, p)
	b.do(t, "scancel", idOf(t, b, never))
	until(t, "Slurm has forgotten them", func() bool { return b.do(t, "squeue", "-h", "-t", "all", "-o", "%i") == "" })

	if st := b.status(t, ended); st.State != runner.Ended || st.End.Code != 3 {
		t.Errorf("%+v", st)
	}
	for name, h := range map[string]runner.Handle{"killed": lost, "never begun": never} {
		until(t, name, func() bool { return b.status(t, h).State == runner.Lost })
	}
	if f, err := b.runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Errorf("Settle: %+v, %v", f, err)
	}
}
