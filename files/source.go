package files

import (
	"context"
	"io"
)

// A Source is where inputs come from that a URL names, such as the web. Nothing can be written
// there.
//
// Workers call it, from many goroutines at once, and repeat what failed. Errors: what is not there
// is [fs.ErrNotExist], what may not be read is [fs.ErrPermission], a URL or an answer that cannot
// be right is of kind [job.Invalid], and what may clear by itself is a [job.Block]. A context that
// ends gives its error.
type Source interface {
	// Stat returns the size of what a URL names, without reading it; below 0: the source does not
	// tell.
	Stat(ctx context.Context, url string) (size int64, err error)

	// Open reads what a URL names, from its beginning. A reader that is at its end has given all of
	// it. Its errors are those of the source.
	Open(ctx context.Context, url string) (io.ReadCloser, error)
}

// Fetch copies what a URL names as [Copy] copies a file. The mode is 0644 by default.
func Fetch(ctx context.Context, to FS, dst string, from Source, url string, o CopyOptions) (Copied, error) {
	r, err := from.Open(ctx, url)
	if err != nil {
		return Copied{}, err
	}
	defer r.Close()
	return put(ctx, to, dst, r, url, o)
}
