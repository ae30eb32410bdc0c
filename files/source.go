package files

import (
	"context"
	"io"
)

// A Source reads inputs that a URL names, for example from the web. Nothing can be written there.
// It has single files: a folder is of kind [job.Invalid]. It is asked for URLs of its schemes, with
// macros replaced. Nobody else checks where a URL leads, as package app does for paths. So a source
// that goes to servers goes by the rule of package internal/egress that it is opened with. A source
// of files of this machine would have to keep jobs away from those of the service and of other
// tenants.
//
// Workers call it from many goroutines at once, and repeat a call that failed. Errors: something
// missing is [fs.ErrNotExist], in an [fs.PathError] whose Path is the URL as it was asked for.
// Something that may not be read is [fs.ErrPermission]. A URL or an answer that cannot be right is
// of kind [job.Invalid]. Trouble that may clear by itself is a [job.Block]. It names one of the
// testers that package recovery lists, as text, since a backend does not import that package. A
// "url" for the tester http is of http: or https:, whatever the input's is. When a context ends,
// its error is returned.
type Source interface {
	// Stat returns the size of the content in bytes, without reading it. It is below 0 if the
	// source does not tell.
	Stat(ctx context.Context, url string) (size int64, err error)

	// Open reads the content from its beginning. A reader that returns [io.EOF] has returned all of
	// it. Other errors of the reader are like those of the source.
	Open(ctx context.Context, url string) (io.ReadCloser, error)
}

// Fetch copies the content of a URL to dst, as [Copy] copies a file. The default mode is 0644.
func Fetch(ctx context.Context, to FS, dst string, from Source, url string, o CopyOptions) (Copied, error) {
	r, err := from.Open(ctx, url)
	if err != nil {
		return Copied{}, err
	}
	defer r.Close()
	return put(ctx, to, dst, r, url, o)
}
