package testers

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/pawl-jobs/pawl/recovery"
)

// Space tests whether a file system has room, for users other than root: so many bytes, and one
// more file. Parameters: path, an existing file or folder, and bytes, which is 1 by default. It
// ignores other parameters, which tell groups apart.
type Space struct{}

// readOnly is set in the flags of a file system that takes nothing (ST_RDONLY of statvfs).
const readOnly = 1

// Test implements [recovery.Tester].
func (Space) Test(_ context.Context, q recovery.Question) (recovery.Answer, error) {
	path, least := q.Params["path"], uint64(1)
	if path == "" {
		return recovery.Answer{}, missing(recovery.Space, "path")
	}
	if text := q.Params["bytes"]; text != "" {
		var err error
		if least, err = strconv.ParseUint(text, 10, 63); err != nil {
			return recovery.Answer{}, fmt.Errorf("tester %s: bytes is %q: give a number of bytes", recovery.Space, text)
		}
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return recovery.Answer{}, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	says := fmt.Sprintf("%d bytes are free on the file system of %s", free, path)
	switch {
	case fs.Flags&readOnly != 0:
		return recovery.Answer{Says: "the file system of " + path + " is read-only"}, nil
	case free < least:
		return recovery.Answer{Says: fmt.Sprintf("%s, and %d are needed", says, least)}, nil
	case fs.Files > 0 && fs.Ffree == 0: // some have no bound of files, and count none
		return recovery.Answer{Says: says + ", and no inode for another file"}, nil
	}
	return recovery.Answer{Clear: true, Says: says}, nil
}
