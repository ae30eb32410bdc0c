package ssh_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// The files of a host are a file system, also where the shell takes many at once.
func TestFiles(t *testing.T) {
	shells := []string{"sh", "csh"}
	if testenv.Long() {
		shells = append(shells, "bash", "fish")
	}
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, testenv.SSHOptions{Shell: shell})
			h := open(t, config(s))
			open := folders(h, s)
			filestest.Run(t, func(t *testing.T) (files.FS, string) {
				_, dir := open(t)
				return h.Files(), dir
			})
		})
	}
}
