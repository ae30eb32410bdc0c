package remote

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A world is a service, and the machines on which it runs programs.
type world struct {
	*node.Node
	t      *testing.T
	dir    string // with the ledger, where all accounts may write
	ledger string
	input  string // a file of this machine
	small  string // another one
	log    *said
	stop   func()
}

// said is what a service told operators.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// inputSize is the size of an input. It is so large that a transfer can be caught in the middle.
const inputSize = 300_000

// open starts a service. Whatever blocks a job is tested every 100 ms.
func open(t *testing.T, change ...func(*node.Options)) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "pawl-remote-") //nolint:usetesting // other accounts write there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, ledger: filepath.Join(dir, "ledger"), input: filepath.Join(dir, "input"), log: &said{}}
	w.small = w.input + "-small"
	text := bytes.Repeat([]byte("what the program reads\n"), inputSize/23)
	for name, text := range map[string][]byte{w.ledger: nil, w.input: text, w.small: text[:500]} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]fs.FileMode{dir: 0o711, w.ledger: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	w.start(change...)
	w.tested("100ms")
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Logf("the service said:\n%s", w.log)
		}
	})
	return w
}

// start starts the service, again after stop.
func (w *world) start(change ...func(*node.Options)) {
	w.t.Helper()
	o := node.Options{Log: w.log}
	for _, f := range change {
		f(&o)
	}
	n, err := node.Open(w.t.Context(), filepath.Join(w.dir, "data"), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Node = n
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the service: %v", err)
		}
		n.Close()
	})
}

// apply applies a policy.
func (w *world) apply(policy string) {
	w.t.Helper()
	if _, _, err := w.Policies().Apply(w.t.Context(), []byte(policy), service.AnyVersion); err != nil {
		w.t.Fatal(err)
	}
}

// tested has whatever blocks a job be tested so often.
func (w *world) tested(every string) {
	w.t.Helper()
	for _, c := range job.Codes {
		if c.Recoverable {
			w.apply(fmt.Sprintf(`{"name": %q, "stages": [{"every": %q}], "max_wait": "48h"}`, c.Code, every))
		}
	}
}

// untested has nobody test what blocks a job, but a test that asks for it.
func (w *world) untested() {
	w.t.Helper()
	w.tested("1h")
}

// write writes a file of this machine.
func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// system makes a system of a server, which is reached by a port of this machine.
func (w *world) system(name string, s *testenv.SSH, port int) {
	w.t.Helper()
	w.document(w.text(name, s, port))
}

// text is the document of a system.
func (w *world) text(name string, s *testenv.SSH, port int) string {
	return fmt.Sprintf(`{"name": %q, "work": %q, "host": {"kind": "ssh", "address": "127.0.0.1",
		"port": %d, "user": %q, "identities": [%q], "host_keys": [%q], "keys": "everywhere"}}`,
		name, w.work(name, s), port, s.User, s.Key, s.HostKey)
}

func (w *world) document(doc string) {
	w.t.Helper()
	if _, _, err := w.Systems().Apply(w.t.Context(), []byte(doc), service.AnyVersion); err != nil {
		w.t.Fatal(err)
	}
}

// work is the work folder of a system.
func (w *world) work(name string, s *testenv.SSH) string { return filepath.Join(s.Work, name) }

// program is a job that reads its input, notes in the ledger that it ran, and leaves a result. It
// runs until the file until is there; empty: it ends at once.
func (w *world) program(system, until string) job.Spec {
	wait := ""
	if until != "" {
		wait = fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; ", until)
	}
	return job.Spec{
		System: system,
		Script: `echo "launch $PAWL_JOB_ID $PAWL_ATTEMPT $$" >> "$LEDGER"; ` + wait + `cat in/input > result; ` +
			`echo "done $PAWL_JOB_ID $PAWL_ATTEMPT 0" >> "$LEDGER"`,
		Env:     map[string]string{"LEDGER": w.ledger},
		Inputs:  []job.Input{{From: w.input, To: "in/input"}},
		Archive: &job.Archive{Required: []string{"result"}},
	}
}

// machine returns the id of the machine of the world.
func (w *world) machine() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dir, "machine"))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (w *world) submit(specs ...job.Spec) (ids []job.ID) {
	w.t.Helper()
	reqs := make([]service.Request, len(specs))
	for i := range specs {
		reqs[i] = service.Request{Spec: specs[i]}
	}
	answers, err := w.Submit(w.t.Context(), reqs...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range answers {
		ids = append(ids, a.ID)
	}
	return ids
}

// until waits until a job is as it should be.
func (w *world) until(what string, id job.ID, is func(*job.Job) bool) {
	w.t.Helper()
	w.eventually(what, func() bool {
		j, err := w.Job(w.t.Context(), id)
		return err == nil && is(&j)
	})
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	if !testenv.Until(ctx, is) {
		w.t.Fatalf("%s: not within %s", what, testenv.Patience)
	}
}

// runs waits until a job is RUNNING, and its program has begun: the job is RUNNING when there is a
// script that takes the launch.
func (w *world) runs(id job.ID) {
	w.t.Helper()
	w.until("it is RUNNING", id, func(j *job.Job) bool { return j.State == job.Running && j.Custody == job.Monitor })
	w.eventually("its program runs", func() bool {
		l, err := ledger.Read(w.ledger)
		return err == nil && len(l.Launches[id]) > 0
	})
}

func blocked(j *job.Job) bool { return j.State == job.Blocked }

// finished waits until jobs have FINISHED. Each was launched once, and has all of its result.
func (w *world) finished(ids ...job.ID) {
	w.t.Helper()
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
		j, err := w.Wait(ctx, id)
		cancel()
		if err != nil || j.State != job.Finished {
			w.t.Fatalf("job %s: %s (%s: %s), %v\n%s", id, j.State, j.Code, j.Message, err, w.history(id))
		}
		spec, err := job.ParseSpec(j.Request)
		if err != nil {
			w.t.Fatal(err)
		}
		_, results := app.Places(&j)
		want, err := os.ReadFile(spec.Inputs[0].From)
		got, err2 := os.ReadFile(filepath.Join(results, "result"))
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			w.t.Errorf("job %s: its result has %d bytes, want %d: %v, %v", id, len(got), len(want), err, err2)
		}
	}
	l, err := ledger.Read(w.ledger)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, id := range ids {
		if n := l.Launches[id][1]; n != 1 || len(l.Launches[id]) != 1 {
			w.t.Errorf("job %s was launched %v times\n%s", id, l.Launches[id], w.history(id))
		}
	}
}

// history is what happened to a job, in lines.
func (w *world) history(id job.ID) string {
	page, err := w.Store.Events(context.Background(), store.EventQuery{Tenant: "default", Job: id, Limit: 1000})
	if err != nil {
		return err.Error()
	}
	var lines strings.Builder
	for _, e := range page.Events {
		fmt.Fprintf(&lines, "  %s %s/%s %s %s %s\n", e.At.Format("05.000"), e.State, e.Custody, e.Cause, e.Code, e.Message)
	}
	return lines.String()
}

// stoppedAt returns the states in which a job met trouble: it was blocked, or its launch was tried
// again at once.
func (w *world) stoppedAt(id job.ID) (states []job.State) {
	page, err := w.Store.Events(w.t.Context(), store.EventQuery{Tenant: "default", Job: id, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	last := job.Pending
	for _, e := range page.Events {
		switch {
		case e.State == job.Blocked:
			states = append(states, last)
		case strings.HasPrefix(e.Message, "not started: "):
			states = append(states, e.State)
		}
		last = e.State
	}
	return states
}

// empty waits until nothing is left of any job in the work folder of a system, and no message.
func (w *world) empty(work string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	var left []string
	if !testenv.Until(ctx, func() bool {
		left = nil
		for _, top := range []string{"work", "ends"} {
			err := filepath.WalkDir(filepath.Join(work, top), func(name string, d fs.DirEntry, err error) error {
				own := d == nil || d.Name() == host.Bell || d.Name() == ".reserve" || strings.HasPrefix(d.Name(), ".machine.")
				if err == nil && !d.IsDir() && !own { // what is there for all jobs stays
					left = append(left, name)
				}
				return nil // it may just have been removed
			})
			if err != nil {
				left = append(left, err.Error())
			}
		}
		return len(left) == 0
	}) {
		w.t.Errorf("left there: %s", strings.Join(left, "\n"))
	}
}
