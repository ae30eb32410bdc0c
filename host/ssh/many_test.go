package ssh_test

import (
	"crypto/rand"
	"path"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/filestest"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// The files of a host are a file system, also where the shell takes many at once.
func TestFiles(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "csh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := testenv.SSHD(t, testenv.SSHOptions{Shell: shell})
			h := open(t, config(s))
			filestest.Run(t, func(t *testing.T) (files.FS, string) {
				dir := path.Join(s.Work, rand.Text())
				if err := h.Files().Mkdir(t.Context(), dir); err != nil {
					t.Fatal(err)
				}
				return h.Files(), dir
			})
		})
	}
}
