package remote

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// largeSize is the size of an input that jobs share.
const largeSize = 3 << 20

// large makes the input of a world large. Nothing of it repeats, so a connection cannot compress
// it.
func (w *world) large() {
	w.t.Helper()
	content := make([]byte, largeSize)
	random := rand.NewChaCha8([32]byte{byte(time.Now().UnixNano())})
	random.Read(content)
	if err := os.WriteFile(w.input, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// shared returns the shared copies on a system. A test may change one of them.
func (w *world) shared(name string, s *testenv.SSH) []string {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.work(name, s), "work", ".shared", "*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// spoils is a program that writes to its input once it has read it.
func (w *world) spoils(system string) job.Spec {
	spec := w.program(system, "")
	spec.Script += "; echo spoiled >> in/input; : > in/input"
	spec.Archive.Include = []string{"result"}
	return spec
}

// sent returns how much was sent while something was done, in sizes of the large input.
func sent(p *testenv.Proxy, do func()) float64 {
	before := p.Passed(testenv.Up)
	do()
	return float64(p.Passed(testenv.Up)-before) / largeSize
}

// An input of many jobs is sent once. Each of them has a file of its own, which it may write to.
func TestSharedInput(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.large()
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	var specs []job.Spec
	for range 8 {
		specs = append(specs, w.spoils("lab"))
	}
	if n := sent(p, func() { w.finished(w.submit(specs...)...) }); n > 1.2 {
		t.Errorf("the input of 8 jobs was sent %.1f times", n)
	}
	if n := sent(p, func() { w.finished(w.submit(specs[0])...) }); n > 0.1 {
		t.Errorf("the input of a later job was sent %.1f times", n)
	}
	all := w.shared("lab", s)
	if len(all) != 1 {
		t.Fatalf("shared copies: %q", all)
	}

	// The service is another process now, and finds it.
	w.stop()
	w.start()
	if n := sent(p, func() { w.finished(w.submit(specs[0])...) }); n > 0.1 {
		t.Errorf("after a new start the input was sent %.1f times", n)
	}

	// The hour is over. It may be over twice while this is tried.
	const hours = "2006-01-02T15"
	now := time.Now().UTC()
	before := filepath.Join(filepath.Dir(filepath.Dir(all[0])), now.Add(-time.Hour).Format(hours))
	if err := os.Rename(filepath.Dir(w.shared("lab", s)[0]), before); err != nil {
		t.Fatal(err)
	}
	n := sent(p, func() { w.finished(w.submit(specs[0])...) })
	if n > 0.1 && time.Now().UTC().Format(hours) == now.Format(hours) {
		t.Errorf("an hour later the input was sent %.1f times", n)
	}

	// A program has changed it, in whatever way.
	for what, change := range map[string]func(string) error{
		"written to": func(name string) error { return os.WriteFile(name, make([]byte, largeSize), 0o400) },
		"cut":        func(name string) error { return os.Truncate(name, 1000) },
		"removed":    os.Remove,
	} {
		if err := change(w.shared("lab", s)[0]); err != nil {
			t.Fatal(err)
		}
		if n := sent(p, func() { w.finished(w.submit(specs[:5]...)...) }); n < 0.9 || n > 1.2 {
			t.Errorf("after it was %s the input was sent %.1f times", what, n)
		}
	}

	// It is another file under the same name, of the same size and time.
	info, err := os.Stat(w.input)
	if err != nil {
		t.Fatal(err)
	}
	w.large()
	if err := os.Chtimes(w.input, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if n := sent(p, func() { w.finished(w.submit(specs[:5]...)...) }); n < 0.9 || n > 1.2 {
		t.Errorf("another input was sent %.1f times", n)
	}

	// What nobody has used for long goes.
	w.stop()
	old := filepath.Join(w.work("lab", s), "work", ".shared", "2001-01-01T00")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(old, s.UID, s.GID); err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	w.start()
	w.eventually("an old copy goes", func() bool {
		_, err := os.Stat(old)
		return os.IsNotExist(err)
	})
}

// The connection is cut while a shared input is sent. What is there of it is used by nobody.
func TestSharedInputCut(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.large()
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	small := w.program("lab", "")
	small.Inputs[0].From = w.small
	w.finished(w.submit(small)...)
	p.CutAfter(testenv.Up, largeSize/2)
	ids := w.submit(w.spoils("lab"), w.spoils("lab"), w.spoils("lab"))
	w.eventually("the cut", func() bool { return p.IsCut(testenv.Up) })
	p.Uncut(testenv.Up)
	w.finished(ids...)
}

// Two processes of one machine stage the same input at the same time. Each sends it once at most.
func TestSharedInputTwoProcesses(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	dsn := testenv.Postgres(t).Database(t)
	shared := func(o *node.Options) { o.DB, o.Migrate = node.DatabaseConfig{DSN: dsn}, true }
	w := open(t, shared)
	w.large()
	other := *w
	other.start(shared)
	t.Cleanup(other.stop)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	var specs []job.Spec
	for range 8 {
		specs = append(specs, w.spoils("lab"))
	}
	if n := sent(p, func() { w.finished(w.submit(specs...)...) }); n > 2.2 {
		t.Errorf("the input of 8 jobs was sent %.1f times", n)
	}
	if all := w.shared("lab", s); len(all) != 1 {
		t.Errorf("shared copies: %q", all)
	}
}

// There is no room for a shared copy beside those of jobs. Jobs get on without it.
func TestSharedInputFull(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.large()
	full := mount(t, s, "lab", fmt.Sprintf("size=%d", 3*largeSize))
	w.system("lab", s, s.Port)
	program := w.program("lab", "")
	program.Script = strings.ReplaceAll(program.Script, "cat in/input > result", "mv in/input result")
	w.finished(w.submit(program)...)
	if len(w.shared("lab", s)) != 1 {
		t.Error("it is not shared")
	}
	if err := os.WriteFile(filepath.Join(full, "fill"), bytes.Repeat([]byte("x"), largeSize+largeSize/2), 0o644); err != nil {
		t.Fatal(err)
	}
	w.finished(w.submit(program)...)
	if all := w.shared("lab", s); len(all) != 0 {
		t.Errorf("shared copies where there is no room: %q", all)
	}
}
