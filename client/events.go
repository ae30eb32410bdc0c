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

// An EventQuery says which events are wanted. The zero value means all events.
type EventQuery struct {
	// Job, if it is set, asks for the events of this job only.
	Job job.ID
	// Filter asks for the events of the jobs that it chooses. For the fields state and code it
	// looks at the event. It cannot be used together with Job.
	Filter job.Filter
	// Types asks for events that lead to one of these states, or were written under one of these
	// names. It cannot be used together with Job.
	Types []string
	// After asks for events after a cursor. Each event has its cursor.
	After string
	// Follow waits for more events, until ctx ends or the one Job has ended.
	Follow bool
}

func (q *EventQuery) request() (path string, v url.Values) {
	path, v = "/v1/events", url.Values{}
	if !q.Job.IsZero() {
		path = of(q.Job) + "/events"
	}
	if len(q.Filter) > 0 {
		v.Set("filter", q.Filter.String())
	}
	if len(q.Types) > 0 {
		v.Set("type", strings.Join(q.Types, ","))
	}
	if q.After != "" {
		v.Set("after", q.After)
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	return path, v
}

// Events yields events in the order in which they were committed, each one once. An error is the
// last that it yields.
//
// If the stream breaks, or the service ends it because it stops, Events goes on after the last
// event. It gives up after [Options].Tries tries without an event. If that is one, as with [New],
// the end of the service ends the events without an error.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		s := stream{cursor: q.After}
		for fruitless := 0; ; fruitless++ {
			if fruitless > 0 {
				if err := sleep(ctx, pause(fruitless)); err != nil {
					yield(store.Event{}, err)
					return
				}
			}
			err := c.listen(ctx, q, &s, func(n store.Event) bool {
				fruitless = 0
				return yield(n, nil)
			})
			switch {
			case s.over, err == nil && (!q.Follow || c.tries == 1):
				return
			case err != nil && (ctx.Err() != nil || s.refused || fruitless+1 >= c.tries):
				yield(store.Event{}, err)
				return
			}
		}
	}
}

// A stream is how far the events of a query have been read.
type stream struct {
	cursor  string // behind which it goes on
	over    bool   // there is nothing more to come, or nobody wants it
	refused bool   // the service does not answer with events
}

// listen reads one answer to its end.
func (c *Client) listen(ctx context.Context, q EventQuery, s *stream, yield func(store.Event) bool) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.cursor != "" && s.cursor != q.After {
		header.Set("Last-Event-ID", s.cursor)
	}
	path, v := q.request()
	resp, err := c.open(ctx, path, v, header)
	if err != nil {
		s.refused = true
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		n, err := next(lines)
		switch {
		case errors.Is(err, errNoEvent):
			s.refused = true
			return err
		case n.Cursor != "" && n.N == 0: // it only says where to go on
			s.cursor = n.Cursor
		case err == nil && n.Cursor != s.cursor:
			s.cursor = n.Cursor
			if !yield(n) || !q.Job.IsZero() && n.State.Terminal() {
				s.over = true
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(ctx, err)
		}
	}
}

// Cursor returns a cursor that is followed by the events that are committed from now on.
func (c *Client) Cursor(ctx context.Context) (string, error) {
	resp, err := c.open(ctx, "/v1/events", url.Values{"after": {"end"}}, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	n, err := next(bufio.NewReader(resp.Body))
	if n.Cursor == "" {
		return "", job.Errorf(job.Unavailable, "the service sent no cursor: %w", broken(ctx, err))
	}
	return n.Cursor, nil
}

// errNoEvent says that something else came where an event had to.
var errNoEvent = errors.New("the service sent something that is not an event")

// next reads one server-sent event (HTML standard, section 9.2). One without data has only a
// cursor. io.EOF: there is none left.
func next(r *bufio.Reader) (n store.Event, err error) {
	data := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return store.Event{}, err // of an event that is not whole nothing counts
		}
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != "":
			if json.Unmarshal([]byte(data), &n.Event) != nil {
				return n, errNoEvent
			}
			return n, nil
		case line == "" && n.Cursor != "":
			return n, nil
		case name == "id":
			n.Cursor = value
		case name == "data":
			data += value
		}
	}
}

// AddEvent writes an event into the history of a job. Without a key it gets one, so that the call
// is repeated.
func (c *Client) AddEvent(ctx context.Context, id job.ID, n job.CustomEvent) (job.Event, error) {
	if n.Key == "" {
		n.Key = job.NewID().String()
	}
	var e job.Event
	_, err := c.call(ctx, request{method: http.MethodPost, path: of(id) + "/events", body: n}, &e)
	return e, err
}
