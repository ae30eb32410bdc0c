package local

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/files"
)

// A program that was just written can be executed, however many processes are being started
// meanwhile.
func TestWrittenProgramsCanBeExecuted(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				name := filepath.Join(dir, fmt.Sprintf("%d.%d", i, n))
				if err := (FS{}).Put(t.Context(), name, strings.NewReader("#!/bin/sh\n"), files.PutOptions{Mode: 0o700, NoSync: true}); err != nil {
					t.Error(err)
					return
				}
				if err := exec.Command(name).Run(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
