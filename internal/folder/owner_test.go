package folder

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// Of many that want a folder at once, one gets it, whatever was there before. Locks play no part
// here: other machines do not see them.
func TestClaim(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.CommandContext(t.Context(), "true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dead, reused, booted, other, cloned, contained := me, me, me, me, me, me
	dead.PID, reused.Start, booted.Boot = gone.Process.Pid, "1", "earlier"
	other.Host, cloned.MachineID, contained.Space = "other", "another", "pid:[1]"
	for what, c := range map[string]struct {
		before *Owner
		says   string
	}{
		"nobody":                         {},
		"a dead process":                 {before: &dead},
		"a process whose pid is reused":  {before: &reused},
		"a process before the last boot": {before: &booted},
		"this process":                   {&me, "is in use by process"},
		"one of another host":            {&other, "on other since"},
		"one of a host of the same name": {&cloned, "in use by"},
		"one of another container":       {&contained, "in use by"},
	} {
		t.Run(what, func(t *testing.T) {
			dir, sockets := t.TempDir(), t.TempDir()
			t.Setenv("TMPDIR", sockets)
			if c.before != nil {
				if err := link(dir, c.before); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			var got []Owner
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					o, err := claim(dir, false)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						got = append(got, o)
					case job.KindOf(err) != job.Locked || !strings.Contains(err.Error(), c.says):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if want := len(c.says) == 0; len(got) > 1 || (len(got) == 1) != want {
				t.Fatalf("%d have the folder", len(got))
			}
			for _, o := range got {
				if err := dismiss(dir, &o); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(o.Sockets); !os.IsNotExist(err) {
					t.Errorf("the folder of its socket is left: %v", err)
				}
			}
			if left, err := os.ReadDir(sockets); err != nil || len(left) != 0 {
				t.Errorf("folders of sockets are left: %v, %v", left, err)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(got) == 1 && len(left) != 0 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

// Who reads has the folder for a moment, wherever that is: the others wait.
func TestReader(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	other := me
	other.Host = "other"
	for what, o := range map[string]*Owner{"here": &me, "on another host": &other} {
		dir := t.TempDir()
		if err := link(dir, o); err != nil {
			t.Fatal(err)
		}
		_, err := claim(dir, false)
		_, wait := errors.AsType[*readingError](err)
		if !wait || job.KindOf(err) != job.Locked || (Away(err) != nil) != (o == &other) {
			t.Errorf("%s: %v", what, err)
		}
		o.Sockets = "/nowhere"
		if err := errors.Join(os.Remove(filepath.Join(dir, ownerFile)), link(dir, o)); err != nil {
			t.Fatal(err)
		}
		_, err = claim(dir, false)
		if _, wait := errors.AsType[*readingError](err); wait || job.KindOf(err) != job.Locked {
			t.Errorf("%s, and it writes: %v", what, err)
		}
	}
}

// An owner is dismissed only where it still is the owner.
func TestDismiss(t *testing.T) {
	dir := t.TempDir()
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	before := me
	before.PID = 2
	if err := link(dir, &me); err != nil {
		t.Fatal(err)
	}
	if err := dismiss(dir, &before); err != nil {
		t.Fatal(err)
	}
	if o, err := readOwner(dir); err != nil || o == nil || !o.is(&me) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, text := range []string{"", "{}", "null", `{"host":"x"}`, "process 3 on x"} {
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := claim(dir, true); job.KindOf(err) != job.Corrupt || !strings.Contains(err.Error(), "remove that file") {
			t.Errorf("%s: %v", text, err)
		}
	}
	b, err := json.Marshal(&before)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, ownerFile), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(dir, true); err == nil || !strings.Contains(err.Error(), "others than its owner may write") {
		t.Errorf("a file that others may write is believed: %v", err)
	}
}
