package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Events yields the events of one job, or of all jobs for the zero id, from a cursor on ("": from the first). With
// follow it waits for more until ctx ends, the job has ended, or the service stops, which is no error; without, it
// yields what is there. An error is yielded last.
func (c *Client) Events(ctx context.Context, id job.ID, cursor string, follow bool) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		path := "/v1/events"
		if !id.IsZero() {
			path = of(id) + "/events"
		}
		q := url.Values{}
		if cursor != "" {
			q.Set("after", cursor)
		}
		if follow {
			q.Set("follow", "true")
		}
		resp, err := c.open(ctx, with(path, q), http.Header{"Accept": {"text/event-stream"}})
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for {
			n, err := next(lines)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(store.Event{}, broken(ctx, err))
				return
			}
			if !yield(n, nil) {
				return
			}
		}
	}
}

// Cursor returns the cursor from which those events are had that are committed from now on.
func (c *Client) Cursor(ctx context.Context) (string, error) {
	resp, err := c.open(ctx, "/v1/events?after=end", http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	cursor, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "id: ")
	if err != nil || !ok {
		return "", job.Errorf(job.Unavailable, "the service sent no cursor: %w", broken(ctx, err))
	}
	return cursor, nil
}

// next reads one server-sent event. io.EOF: there is none left.
func next(r *bufio.Reader) (n store.Event, err error) {
	data := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return n, err
		}
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			n.Cursor = value
		case name == "data":
			data += value
		case line == "\n" && data != "":
			return n, json.Unmarshal([]byte(data), &n.Event)
		}
	}
}
