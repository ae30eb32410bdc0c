package target

import (
	"context"
	"net/http"
	"sync"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/node"
)

// A folderTransport asks the process that runs jobs in a folder. If that does not answer any more,
// it reads the folder itself. A process may stop between any two calls: pawl run does so at the end
// of its last job. A stream ends there.
type folderTransport struct {
	process http.RoundTripper
	dir     string

	mu     sync.Mutex
	folder *node.Node // guarded by mu; nil: it was not needed yet
}

// RoundTrip implements [http.RoundTripper].
func (r *folderTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.process.RoundTrip(req)
	if err == nil || req.Method != http.MethodGet || req.Context().Err() != nil {
		return resp, err
	}
	n, unreadable := r.open(req.Context())
	if unreadable != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	q := req.URL.Query()
	q.Del("follow")
	req.URL.RawQuery = q.Encode()
	return n.Transport().RoundTrip(req)
}

func (r *folderTransport) open(ctx context.Context) (_ *node.Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder == nil {
		r.folder, err = node.OpenReader(ctx, r.dir)
	}
	return r.folder, err
}

func (r *folderTransport) close() error {
	client.New(r.process).Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder == nil {
		return nil
	}
	return r.folder.Close()
}
