package remote

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// seed returns the seed of a test: a random one, unless $PAWL_TEST_SEED names one.
func seed(t *testing.T) *rand.Rand {
	n := rand.Uint64N(1 << 32)
	if v := os.Getenv("PAWL_TEST_SEED"); v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PAWL_TEST_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 0))
}

// The connection is cut at any byte of a job, in either direction: of its dial, its staging, its
// launch, its end, its archive. It is launched once, it finishes, and its result is whole.
// Some cuts fall into the middle of a step.
func TestCut(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	w := open(t)
	rnd, cuts := seed(t), 2
	switch {
	case testenv.Long():
		cuts = 100
	case testenv.Every():
		cuts = 4
	}
	var all sync.WaitGroup
	for i := range testenv.Times(2, 4) { // most bytes of the first two are of files
		name := fmt.Sprintf("lab%d", i)
		p := testenv.NewProxy(t, s.Addr())
		w.system(name, s, p.Port)
		way := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		all.Go(func() {
			d := testenv.Direction(i % 2)
			program := w.program(name, "")
			if i >= 2 {
				program.Inputs[0].From = w.small
			}
			p.Cut()
			w.finished(w.submit(program)...)
			before := p.Passed(d)
			p.Cut()
			w.finished(w.submit(program)...)
			passed := p.Passed(d) - before // with the dial
			moment, at := way.Float64(), map[job.State]int{}
			for n := 0; n < cuts || len(at) == 0 && i != answers; n++ {
				if n == cuts+maxMisses {
					t.Errorf("%s: none of %d cuts fell into a step", name, n)
					break
				}
				part := (float64(n) + moment) / float64(cuts)
				if n >= cuts {
					part = way.Float64()
				}
				p.Cut() // the job begins with a dial
				p.CutAfter(d, int64(part*float64(passed)))
				ids := w.submit(program)
				w.finished(ids...)
				if !p.Uncut(d) {
					continue // the job took fewer bytes
				}
				for _, state := range w.stoppedAt(ids[0]) {
					at[state]++
				}
			}
			w.empty(w.work(name, s))
			t.Logf("%s: steps met the cuts in %v", name, at)
		})
	}
	all.Wait()
}

const (
	// answers is the way of TestCut whose cuts seldom fall into a step: the input is small, and most
	// of what comes down answers the watch.
	answers = 3
	// maxMisses is how many more cuts TestCut tries on a way until one falls into a step.
	maxMisses = 40
)

// A program finds no halves of files among its inputs, which a cut may leave.
func TestCutInput(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	folder := filepath.Join(w.dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), make([]byte, 512<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := w.program("lab", "")
	program.Script = "ls -A folder | wc -l | tr -d '\n' >>names; " + program.Script
	program.Inputs = append(program.Inputs, job.Input{From: folder, To: "folder"})
	p.CutAfter(testenv.Up, 4<<20)
	ids := w.submit(program)
	w.finished(ids...)
	if !p.Uncut(testenv.Up) {
		t.Error("it took fewer bytes")
	}
	if at := w.stoppedAt(ids[0]); !slices.Contains(at, job.StagingInputs) {
		t.Errorf("the cut was not in the transfer of the inputs: it was blocked in %q", at)
	}
	j, err := w.Job(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	_, results := app.Places(&j)
	if got, err := os.ReadFile(filepath.Join(results, "names")); err != nil || string(got) != "16" {
		t.Errorf("it found %s names, %v", got, err)
	}
	w.empty(w.work("lab", s))
}

// What is sent arrives late.
func TestLatency(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	p.Delay(30 * time.Millisecond)
	w.finished(w.submit(w.program("lab", ""), w.program("lab", ""), w.program("lab", ""))...)
	w.empty(w.work("lab", s))
}

// Connections are reset before they begin, as by a server that has too many logins (MaxStartups),
// or by a firewall.
func TestResetDial(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	for _, n := range []int{1, 6} {
		p.Cut()
		p.Reset(n)
		w.finished(w.submit(w.program("lab", ""))...)
	}
	w.empty(w.work("lab", s))
}

// Nothing passes for a while: neither requests nor answers, or both. Then what was sent arrives.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	for name, held := range map[string][]testenv.Direction{
		"up": {testenv.Up}, "down": {testenv.Down}, "both": {testenv.Up, testenv.Down},
	} {
		p := testenv.NewProxy(t, s.Addr())
		w.system(name, s, p.Port)
		t.Run(name, func(t *testing.T) {
			goOn := w.dir + "/go-" + name
			before := w.submit(w.program(name, goOn), w.program(name, goOn))
			for _, id := range before {
				w.runs(id)
			}
			p.Hold(held...)
			if err := os.WriteFile(goOn, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			during := w.submit(w.program(name, ""), w.program(name, ""))
			for _, id := range during {
				w.until("it is at work", id, func(j *job.Job) bool { return j.Custody == job.Worker })
			}
			if testenv.Long() { // until the connection is given up
				w.until("the trouble is known", during[0], blocked)
				w.silent(before[0], name)
			}
			p.Hold()
			w.finished(append(before, during...)...)
			w.empty(w.work(name, s))
		})
	}
}

// silent waits until people see that a system does not answer.
func (w *world) silent(id job.ID, system string) {
	w.t.Helper()
	w.eventually("the system is silent", func() bool {
		v, err := w.View(w.t.Context(), id)
		return err == nil && v.SystemSilent != nil && v.SystemSilent.System == system
	})
}

// A connection is half open: the server is gone without a word. The keepalive notices, which takes
// so long that a short test only sees the job go on.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	if !testenv.Long() {
		t.Skip("it waits for keepalives: make test-long")
	}
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	goOn := w.dir + "/go"
	ids := w.submit(w.program("lab", goOn))
	w.runs(ids[0])
	p.Strand()
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ids = append(ids, w.submit(w.program("lab", ""))...)
	w.finished(ids...)
	w.empty(w.work("lab", s))
}
