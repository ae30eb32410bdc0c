package client

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Output lists the files of a job.
func (c *Client) Output(ctx context.Context, id job.ID) ([]service.File, error) {
	answer, err := fetch[struct {
		Files []service.File `json:"files"`
	}](ctx, c, of(id)+"/output", nil)
	return answer.Files, err
}

// OpenOutput opens a file of a job. The caller closes it.
func (c *Client) OpenOutput(ctx context.Context, id job.ID, name string) (service.File, io.ReadCloser, error) {
	return c.openOutput(ctx, id, name, nil)
}

// OpenOutputFrom opens a file of a job at byte from, counted from 0. It goes on with a file that
// was read up to there. The size in its answer is that of the rest. The caller closes the file.
func (c *Client) OpenOutputFrom(ctx context.Context, id job.ID, name string, from int64) (service.File, io.ReadCloser,
	error,
) {
	return c.openOutput(ctx, id, name, http.Header{"Range": {fmt.Sprintf("bytes=%d-", from)}})
}

func (c *Client) openOutput(ctx context.Context, id job.ID, name string, header http.Header) (service.File,
	io.ReadCloser, error,
) {
	if name == "" {
		return service.File{}, nil, job.Errorf(job.Invalid,
			"the path of the file is empty: give one that the list of files has")
	}
	escaped := strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
	if !fs.ValidPath(name) || name == "." { // it is for the service to refuse, and must arrive as it is
		escaped = strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
	}
	resp, err := c.open(ctx, of(id)+"/output/"+escaped, nil, header)
	if err != nil {
		return service.File{}, nil, err
	}
	f := service.File{Path: path.Clean(name), Size: resp.ContentLength}
	f.Modified, _ = time.Parse(http.TimeFormat, resp.Header.Get("Last-Modified")) // to the second
	return f, resp.Body, nil
}

// Log opens the log of a job. The caller closes it. It does not send q.Until: close the log
// instead.
func (c *Client) Log(ctx context.Context, id job.ID, q service.LogQuery) (io.ReadCloser, error) {
	v := url.Values{}
	if q.Stderr {
		v.Set("stream", "stderr")
	}
	if q.Tail > 0 {
		v.Set("tail", strconv.Itoa(q.Tail))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	resp, err := c.open(ctx, of(id)+"/logs", v, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
