package ssh

import (
	"context"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/sftp"
	fileshell "github.com/pawl-jobs/pawl/files/shell"
)

// allFiles are the files of the machine, over SFTP. The shell takes many small ones at once.
type allFiles struct {
	*sftp.FS
	*fileshell.Files
}

var _ files.FS = (*allFiles)(nil)

func newAllFiles(h *Host) *allFiles {
	far := &sftp.FS{Client: h.sftp, Shell: h.script}
	all := &allFiles{far, &fileshell.Files{Rest: far}}
	all.Run = func(ctx context.Context, script string) ([]byte, error) {
		out, _, err := h.ask(ctx, script)
		return out, err
	}
	return all
}
