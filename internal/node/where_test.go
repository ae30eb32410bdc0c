package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Of the processes that share a folder one goes after the other; those that stay can still be
// found.
func TestSayWhere(t *testing.T) {
	dir := t.TempDir()
	said := func() string {
		b, _ := os.ReadFile(filepath.Join(dir, ServerFile))
		return string(b)
	}
	for name, last := range map[string]string{"another address": "http://b", "the same address": "http://a"} {
		t.Run(name, func(t *testing.T) {
			// A process has one note, under its pid: that of the first one gets another name.
			one, two := &serving{dir: dir, url: "http://a"}, &serving{dir: dir, url: last}
			goOne, err := one.sayWhere()
			if err != nil {
				t.Fatal(err)
			}
			mine := filepath.Join(dir, fmt.Sprintf(".server-%d", os.Getpid()))
			if err := os.Rename(mine, filepath.Join(dir, ".server-1")); err != nil {
				t.Fatal(err)
			}
			goTwo, err := two.sayWhere()
			if err != nil {
				t.Fatal(err)
			}
			if got := said(); got != last+"\n" {
				t.Errorf("%q is said", got)
			}
			goTwo()
			goTwo()
			if got := said(); got != "http://a\n" {
				t.Errorf("the second one went, and %q is said", got)
			}
			goOne()
			os.Remove(filepath.Join(dir, ".server-1"))
		})
	}
	// What a process left that died is swept.
	if err := os.WriteFile(filepath.Join(dir, ".server-1"), []byte("http://dead\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &serving{dir: dir, url: "http://c"}
	gone, err := s.sayWhere()
	if err != nil {
		t.Fatal(err)
	}
	gone()
	if left, _ := filepath.Glob(filepath.Join(dir, ".server*")); said() != "" || len(left) > 0 {
		t.Errorf("all have gone, and %q is said; left are %v", said(), left)
	}
}
