package sftp

import (
	"context"
	"path"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/files"
)

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// paths is where a script finds the programs of coreutils, whatever the account has set.
const paths = "PATH=/usr/bin:/bin:$PATH; "

const (
	// rounds is how often rm is asked to go on with a folder. A round takes 2 s at most, so that
	// others get a turn in the shell.
	rounds = 100
	// late is what timeout says if there is more to do.
	late = "124"
)

// rm removes what rm can remove of a folder, and reports whether that is all. What is mounted
// stays.
func (f *FS) rm(ctx context.Context, name string) (gone bool, err error) {
	for range rounds {
		code, err := f.Shell(ctx, paths+"timeout --foreground 2 rm -rf --one-file-system --preserve-root=all -- "+
			quote(name)+" >/dev/null; echo $?")
		if code = strings.TrimSpace(code); err != nil || code != late {
			return code == "0", err
		}
	}
	return false, nil
}

// lack writes a file in a folder to find out why that fails; nil: it does not, or nobody knows.
func (f *FS) lack(ctx context.Context, dir string) error {
	if f.Shell == nil {
		return nil
	}
	name := quote("./" + path.Base(files.TemporaryFor(dir)))
	said, err := f.Shell(ctx, paths+"LC_ALL=C; export LC_ALL; cd "+quote(dir)+" && { dd if=/dev/zero of="+name+
		" bs=131072 count=8 conv=fsync 2>&1; rm -f "+name+"; }")
	if err != nil {
		return nil //nolint:nilerr // the first error counts
	}
	return reasonIn(said)
}

// reasonIn finds a reason in what a program of coreutils says in the locale C.
func reasonIn(said string) error {
	for line := range strings.Lines(said) {
		switch {
		case strings.HasSuffix(line, "uota exceeded\n"): // glibc says of what it is a quota
			return syscall.EDQUOT
		case strings.HasSuffix(line, ": No space left on device\n"):
			return syscall.ENOSPC
		case strings.HasSuffix(line, ": Read-only file system\n"):
			return syscall.EROFS
		}
	}
	return nil
}
