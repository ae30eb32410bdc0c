package folder

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	alone, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(string) (*Lock, error){"taken": Take, "joined": Join} {
		if _, err := f(dir); job.KindOf(err) != job.Locked {
			t.Errorf("a folder that is taken is %s: %v", name, err)
		}
	}
	if Shared(dir) {
		t.Error("a folder is shared that one has for itself")
	}
	alone.Close()

	one, err := Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	one.Close()
	if _, err := Take(dir); job.KindOf(err) != job.Locked {
		t.Errorf("a folder that somebody has joined is taken: %v", err)
	}
	if Shared(dir) {
		t.Error("a folder is shared that nobody has marked")
	}
	if err := Mark(dir); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if !Shared(dir) {
		t.Error("a folder has forgotten that it was shared")
	}
}

func TestMachine(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			id, err := Machine(dir)
			mu.Lock()
			defer mu.Unlock()
			if ids[id] = true; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || ids[""] {
		t.Errorf("a folder is machines %v", ids)
	}
	if err := os.WriteFile(filepath.Join(dir, "machine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Machine(dir); job.KindOf(err) != job.Corrupt {
		t.Errorf("a folder that has lost its id is %q, %v", id, err)
	}
}

// A system may name a machine without quotes.
func TestMachineIsNoNumber(t *testing.T) {
	for range 64 {
		id, err := Machine(t.TempDir())
		if err != nil || id[0] < 'a' {
			t.Fatalf("%q, %v", id, err)
		}
	}
}
