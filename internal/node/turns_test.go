package node

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// TestTurnsOfAFolder: how many programs run at once in a folder, when it is new, and when a process
// has it with --jobs.
func TestTurnsOfAFolder(t *testing.T) {
	dir := t.TempDir()
	open := func(o Options) *Node {
		t.Helper()
		n, err := Open(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		return n
	}
	want := func(n *Node, most int) { // -1: there is no limit
		t.Helper()
		l, err := n.turnsSet(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case l == nil && most != -1, l != nil && l.Most != most:
			t.Errorf("the limit is %v; want %d", l, most)
		}
	}
	closing := func(n *Node) {
		t.Helper()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	set := func(n *Node, l job.Limit) {
		t.Helper()
		l.Key = LocalTurns
		if err := n.SetLimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}

	n := open(Options{})
	want(n, runtime.GOMAXPROCS(0))
	closing(n)

	n = open(Options{Jobs: 7})
	want(n, 7)
	closing(n)
	n = open(Options{})
	want(n, runtime.GOMAXPROCS(0))

	// One that was removed stays away.
	if err := n.RemoveLimit(t.Context(), LocalTurns); err != nil {
		t.Fatal(err)
	}
	closing(n)
	n = open(Options{Jobs: 1})
	want(n, 1)
	closing(n)
	n = open(Options{})
	want(n, -1)

	// All that it says comes back.
	set(n, job.Limit{Most: 5, Ahead: 3, Weights: map[string]int{"ada": 2}})
	closing(n)
	closing(open(Options{Jobs: 9}))
	n = open(Options{})
	if l, err := n.turnsSet(t.Context()); err != nil || l == nil || l.Most != 5 || l.Ahead != 3 || l.Weights["ada"] != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	closing(n)

	// So it does after a process that died.
	n = open(Options{Jobs: 9})
	kept, err := os.ReadFile(filepath.Join(dir, asideFile))
	if err != nil {
		t.Fatal(err)
	}
	closing(n)
	n = open(Options{})
	set(n, job.Limit{Most: 9})
	closing(n)
	if err := os.WriteFile(filepath.Join(dir, asideFile), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	n = open(Options{Jobs: 2})
	want(n, 2)

	// One that was set meanwhile is there to stay.
	set(n, job.Limit{Most: 4})
	closing(n)
	n = open(Options{})
	want(n, 4)
	closing(n)

	if err := os.WriteFile(filepath.Join(dir, asideFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, Options{}); job.KindOf(err) != job.Corrupt {
		t.Errorf("with a damaged %s: %v", asideFile, err)
	}
}

func TestTurnsOfABenchmark(t *testing.T) {
	n, err := Open(t.Context(), t.TempDir(), Options{Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if l, err := n.turnsSet(t.Context()); err != nil || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}
