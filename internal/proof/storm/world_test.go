package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// A world is what a storm leaves: here one without any weather, of a process on a folder and a few
// jobs.
type world struct {
	*storm
	said *bytes.Buffer
}

// The jobs of a world, by their names.
const (
	task     = "storm-0" // a task that has finished
	broke    = "storm-1" // one that has failed, three times
	program  = "storm-2" // a program that has finished
	lasting  = "storm-3" // one that was canceled while it ran
	deleted  = "storm-4" // a task that was deleted
	twice    = "storm-5" // one that was resubmitted
	delayed  = "storm-6" // one that was canceled before it ran
	notKnown = "storm-7" // one that nobody was told of: it is no promise
	ahead    = "storm-8" // a task that has finished, in order before
	behind   = "storm-9" // this one
)

// sound returns the folder of a sound world, and what people know of it. It was recorded once; who
// changes the schema, or what a check looks at, has it recorded anew:
//
//	go test ./internal/proof/storm -run 'TestTheCheckSeesWhatIsBroken$' -update
//
// The long tests live one.
func sound(t *testing.T) *world {
	if testing.Short() {
		t.Skip("it is copied again and again")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	dir = filepath.Join(dir, "sound")
	if *update || testenv.Long() {
		w := live(t, dir)
		if *update {
			w.record(t)
		}
		return w
	}
	return recorded(t, dir)
}

// live lets the jobs of a world run, in the folder of dir, and has the world checked.
func live(t *testing.T, dir string) *world {
	ctx := t.Context()
	w := newWorld(dir)
	s := w.storm
	must(t, os.Mkdir(dir, 0o700))
	var err error
	s.binaries, err = build(ctx, t.TempDir(), "", false)
	must(t, err)
	s.net, err = newNetwork(s.binaries.proxy, s.printf)
	must(t, err)
	s.disks = &disks{storm: s}
	t.Cleanup(s.net.close)
	s.book, err = newBook(s)
	must(t, err)
	t.Cleanup(s.book.close)
	must(t, os.Mkdir(s.folder("m0"), 0o700))
	n, err := s.newNode("m0.0", "m0", "serve")
	must(t, err)
	s.nodes = []*node{n}
	t.Cleanup(func() { must(t, checks.End(s.dir)) })
	s.living.Go(func() { n.live(ctx) })
	must(t, n.up(ctx))
	for i := range 2 {
		e := newEar(s, i)
		s.ears = append(s.ears, e)
		go e.follow(ctx)
	}

	rnd := s.random("world")
	all := w.orders()
	s.accepted(rnd, job.NewID().String(), all[:7])
	for _, o := range all[7:] {
		o.since = ledger.Now()
		s.accepted(rnd, job.NewID().String(), []order{o})
	}
	c, err := n.client(1)
	must(t, err)
	for _, name := range []string{deleted, twice} {
		until(t, name+" has ended", func() bool {
			v, err := c.Job(ctx, w.promise(name).id)
			return err == nil && v.State.Terminal()
		})
	}
	s.remove(ctx, c, w.promise(deleted))
	s.resubmit(ctx, c, w.promise(twice))
	s.cancel(ctx, c, w.promise(delayed), 10*time.Second)
	until(t, "the program was started", func() bool {
		did, err := s.deeds()
		return err == nil && did.Launches[w.promise(lasting).id] != nil
	})
	s.cancel(ctx, c, w.promise(lasting), 10*time.Second)
	theirs, err := n.strangerClient()
	must(t, err)
	s.strangers.submit(ctx, theirs, 0)
	stranger, _ := s.strangers.pick(rnd)
	for what := range touches {
		s.strangers.keepsOut(ctx, what, theirs, "a stranger", w.promise(task).id)
		s.strangers.keepsOut(ctx, what, c, "somebody", stranger)
	}
	if want := 2 * len(touches); s.sum.Strangers != want {
		t.Errorf("%d calls of strangers were answered, want %d", s.sum.Strangers, want)
	}
	must(t, s.drain(ctx))
	must(t, s.check(ctx))
	if len(s.sum.Broken) > 0 {
		t.Fatalf("a sound world is found broken: %q\n%s", s.sum.Broken, w.said)
	}
	return w
}

// orders are what is asked of the jobs of a world.
func (w *world) orders() []order {
	retry := `"retry": {"max_attempts": 3, "backoff": {"kind": "constant", "base": "1ms"}}`
	return []order{
		{
			name: task, spec: []byte(`{"name": "storm-0", "kind": "storm", "args": {}}`), state: job.Finished,
			attempts: 1,
		},
		{
			name: broke, spec: []byte(`{"name": "storm-1", "kind": "storm", "args": {"fails": 9}, ` + retry + `}`),
			state: job.Failed, attempts: 3,
		},
		{
			name: program, spec: fmt.Appendf(nil, `{"name": "storm-2", "script": %q}`, w.script(0, "0")),
			state: job.Finished, attempts: 1, program: true,
		},
		{
			name: lasting, spec: fmt.Appendf(nil, `{"name": "storm-3", "script": %q}`, w.script(1_000_000, "0")),
			state: job.Finished, attempts: 1, program: true, endless: true,
		},
		{
			name: deleted, spec: []byte(`{"name": "storm-4", "kind": "storm", "args": {}}`), state: job.Finished,
			attempts: 1,
		},
		{
			name: twice, spec: []byte(`{"name": "storm-5", "kind": "storm", "args": {}}`), state: job.Finished,
			attempts: 1,
		},
		{
			name: delayed, spec: []byte(`{"name": "storm-6", "kind": "storm", "args": {}, "delay": "1h"}`),
			state: job.Finished, attempts: 1,
		},
		{
			name: ahead, state: job.Finished, attempts: 1, ordered: "order/k",
			spec: []byte(`{"name": "storm-8", "kind": "storm", "args": {"millis": 500}, "order": {"key": "k"}}`),
		},
		{
			name: behind, state: job.Finished, attempts: 1, ordered: "order/k",
			spec: []byte(`{"name": "storm-9", "kind": "storm", "args": {"millis": 0}, "order": {"key": "k"}}`),
		},
	}
}

func newWorld(dir string) *world {
	w := &world{said: &bytes.Buffer{}}
	w.storm = newStorm(options{db: "sqlite", jobs: 9, sweep: true, out: w.said}, dir)
	return w
}

// copied returns a copy of a world that is over, to be spoiled.
func (w *world) copied(t *testing.T) *world {
	c := &world{said: &bytes.Buffer{}}
	o := w.options
	o.out = c.said
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	s := newStorm(o, filepath.Join(dir, "storm"))
	c.storm = s
	s.patience = patience{
		still: 50 * time.Millisecond, stop: 50 * time.Millisecond, gone: 50 * time.Millisecond,
		idling: time.Second,
	}
	must(t, os.CopyFS(s.dir, os.DirFS(w.dir)))
	s.disks = &disks{storm: s}
	s.strangers.accepted = w.strangers.accepted
	was := w.nodes[0]
	s.nodes = []*node{{s: s, name: was.name, machine: was.machine, role: was.role, api: was.api, rnd: s.random("copy")}}
	s.book, err = newBook(s)
	must(t, err)
	t.Cleanup(s.book.close)
	for _, p := range w.book.all {
		p := *p
		s.book.all, s.book.byID[p.id] = append(s.book.all, &p), &p
	}
	for _, e := range w.ears {
		e := *e
		e.s, e.jobs = s, map[job.ID][]job.Event{}
		for id, events := range w.earOf(e.name).jobs {
			e.jobs[id] = slices.Clone(events)
		}
		s.ears = append(s.ears, &e)
	}
	// Archives stand where the row says.
	c.execute(t, `UPDATE specs SET resolved = replace(resolved, ?1, ?2) WHERE resolved IS NOT NULL`, w.dir, s.dir)
	return c
}

func (w *world) earOf(name string) *ear {
	return w.ears[slices.IndexFunc(w.ears, func(e *ear) bool { return e.name == name })]
}

// promise returns the first job of a name.
func (w *world) promise(name string) *promise {
	return w.book.where(func(p *promise) bool { return p.name == name })[0]
}

func (w *world) database(t *testing.T) *sql.DB {
	db, err := checks.Open("", w.folder("m0"), "rw")
	must(t, err)
	return db
}

// execute runs a statement that changes something.
func (w *world) execute(t *testing.T, statement string, args ...any) {
	t.Helper()
	db := w.database(t)
	defer db.Close()
	result, err := db.Exec(statement, args...)
	must(t, err)
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-t.Context().Done():
			t.Fatalf("it did not come to pass that %s", what)
		}
	}
}
