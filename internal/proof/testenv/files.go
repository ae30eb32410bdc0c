package testenv

import (
	"errors"
	"os"
	"sync"
	"testing"
)

const filesPrefix = "pawl-files-"

// files is the folder of this process in memory.
var files struct {
	sync.Mutex
	dir  string
	lock *os.File
	err  error // why there is none; it is not tried again
}

// Dir is [testing.TB.TempDir] in memory, where there is room: for a test that makes many files, or
// many small writes, and to which a disk means nothing. A process that is killed leaves its files
// to the next one, which removes them.
func Dir(tb testing.TB) string {
	tb.Helper()
	base, roomy := inMemory()
	if !roomy {
		return tb.TempDir()
	}
	dir, err := newDir(base)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// newDir makes a folder in that of this process, which it makes first.
func newDir(base string) (string, error) {
	files.Lock()
	defer files.Unlock()
	if files.dir == "" && files.err == nil {
		sweep(base, filesPrefix)
		if files.dir, files.err = os.MkdirTemp(base, filesPrefix); files.err == nil {
			files.lock, files.err = lockDir(files.dir)
		}
	}
	if files.err != nil {
		return "", files.err
	}
	return os.MkdirTemp(files.dir, "")
}

// removeFiles removes the folder of this process, and then gives up its lock.
func removeFiles() error {
	files.Lock()
	defer files.Unlock()
	if files.dir == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(files.dir), files.lock.Close())
}
