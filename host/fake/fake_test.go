package fake

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/hosttest"
	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/job"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

func open(t *testing.T) (*Host, string) {
	t.Helper()
	h, err := local.Open(local.Config{ID: "test-machine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return New(h), t.TempDir()
}

func Test(t *testing.T) {
	hosttest.Run(t, func(t *testing.T) (host.Host, string) { return open(t) })
}

func TestFiles(t *testing.T) {
	filestest.Run(t, func(t *testing.T) (files.FS, string) {
		h, dir := open(t)
		return h.Files(), dir
	})
}

// sleeper starts a program that leaves a file when it begins and runs until the test ends.
func sleeper(t *testing.T, h *Host, dir string) (host.Process, error) {
	t.Helper()
	p, err := h.Start(t.Context(), host.Command{
		Argv: []string{"/bin/sh", "-c", ": >up; echo $$ >temp; mv temp pid; exec sleep 1000"}, Dir: dir, Stdout: dir + "/out", Stderr: dir + "/err",
	})
	if err == nil {
		t.Cleanup(func() {
			if err := h.under.Signal(context.WithoutCancel(t.Context()), []host.Process{p}, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
	}
	return p, err
}

func (h *Host) alive(t *testing.T, p host.Process) bool {
	t.Helper()
	alive, err := h.Alive(t.Context(), []host.Process{p})
	if err != nil {
		t.Fatal(err)
	}
	return alive[0]
}

func write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAStartThatFails(t *testing.T) {
	h, dir := open(t)
	own := errors.New("no more processes")
	h.Fail("Start", own)
	if _, err := sleeper(t, h, dir); !errors.Is(err, own) {
		t.Errorf("Start: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("something happened: %v, %v", names, err)
	}
	if p, err := sleeper(t, h, dir); err != nil || !h.alive(t, p) {
		t.Errorf("the next one: %v", err)
	}
}

func TestAStartThatIsNotHeardOf(t *testing.T) {
	h, dir := open(t)
	events, err := h.Watch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Lose("Start")
	if p, err := sleeper(t, h, dir); job.KindOf(err) != job.Unavailable || p != (host.Process{}) {
		t.Errorf("Start: %+v, %v", p, err)
	}
	for e := range events {
		if e.Name == "pid" { // it runs all the same
			break
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	c := host.Command{Argv: []string{"/bin/kill", "-9", strings.TrimSpace(string(text))}, Dir: dir, Stdout: dir + "/out", Stderr: dir + "/err"}
	if _, err := h.Start(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestAnOpenThatIsNotHeardOf(t *testing.T) {
	h, dir := open(t)
	write(t, dir+"/file")
	h.Lose("Open")
	if f, err := h.Files().Open(t.Context(), dir+"/file"); job.KindOf(err) != job.Unavailable || f != nil {
		t.Errorf("Open: %v, %v", f, err)
	}
}

func TestLies(t *testing.T) {
	h, dir := open(t)
	p, err := sleeper(t, h, dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Lie(p, false)
	if h.alive(t, p) {
		t.Error("it is alive, want a lie")
	}
	other := host.Process{PID: p.PID, Start: p.Start + 1, Boot: p.Boot}
	if h.alive(t, other) {
		t.Error("another is alive")
	}
	h.Truth(p)
	if !h.alive(t, p) {
		t.Error("it is dead, want the truth")
	}
}

func TestAWatchThatMissesNames(t *testing.T) {
	h, dir := open(t)
	events, err := h.Watch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Drop(func(name string) bool { return strings.HasPrefix(name, "secret") })
	write(t, dir+"/secret1")
	write(t, dir+"/plain")
	if e := <-events; e.Name != "plain" {
		t.Errorf("%+v", e)
	}
	h.Overflow()
	if e := <-events; e != (host.Event{Overflow: true}) {
		t.Errorf("%+v", e)
	}
	h.Drop(nil)
	write(t, dir+"/secret2")
	if e := <-events; e.Name != "secret2" {
		t.Errorf("%+v", e)
	}
}

func TestASlowHost(t *testing.T) {
	h, dir := open(t)
	waiting, release := h.Hold("Start")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := h.Start(ctx, host.Command{Argv: []string{"/bin/true"}, Dir: dir, Stdout: dir + "/out", Stderr: dir + "/err"})
		done <- err
	}()
	<-waiting
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("something happened: %v, %v", names, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	go func() {
		_, err := sleeper(t, h, dir)
		done <- err
	}()
	<-waiting
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHostThatDies(t *testing.T) {
	h, dir := open(t)
	events, err := h.Watch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	h.DieAfter(1)
	p, err := sleeper(t, h, dir)
	if err != nil {
		t.Fatal(err)
	}
	for range events { // until it is closed
	}
	_, boot := h.Boot(t.Context())
	_, uptime := h.Uptime(t.Context())
	_, environ := h.Environ(t.Context())
	_, start := sleeper(t, h, dir)
	_, alive := h.Alive(t.Context(), []host.Process{p})
	_, members := h.Members(t.Context(), []host.Family{{Leader: p}})
	_, locks := h.LockLimit(t.Context())
	_, watch := h.Watch(t.Context(), dir)
	_, file := files.ReadFile(t.Context(), h.Files(), dir+"/up", 1<<20)
	_, stat := h.Files().Stat(t.Context(), dir)
	_, list := h.Files().List(t.Context(), dir)
	for name, err := range map[string]error{
		"Boot": boot, "Uptime": uptime, "Environ": environ, "Start": start, "Alive": alive, "Members": members, "LockLimit": locks, "Watch": watch, "Open": file, "Stat": stat, "List": list,
		"Signal": h.Signal(t.Context(), []host.Process{p}, syscall.SIGKILL),
		"Put":    h.Files().Put(t.Context(), dir+"/x", strings.NewReader(""), files.PutOptions{}),
		"Mkdir":  h.Files().Mkdir(t.Context(), dir+"/x"),
		"Rename": h.Files().Rename(t.Context(), dir+"/up", dir+"/x"),
		"Link":   h.Files().Link(t.Context(), dir+"/up", dir+"/x"),
		"Remove": h.Files().Remove(t.Context(), dir+"/up"),
	} {
		if job.KindOf(err) != job.Unavailable {
			t.Errorf("%s of a dead host: %v", name, err)
		}
	}
	h.Revive()
	if !h.alive(t, p) {
		t.Error("the program did not outlive the death")
	}
	if _, err := h.Watch(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
