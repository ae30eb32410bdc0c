package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func (h *handler) registerEvents() {
	const about = "Each event has its cursor as id, the state in capitals or the name of the user's event as " +
		"event, and the event as JSON in data. " +
		"The stream begins with an id alone, from which a client goes on that comes again before the first " +
		"event. While nothing happens a comment comes every 15 s."
	sent := plain(huma.MediaType{
		Schema: &huma.Schema{Type: huma.TypeString},
		Example: "id: 0f3a\nevent: RUNNING\ndata: " +
			"{\"job\":\"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77\",\"n\":7,\"state\":\"RUNNING\"}\n\n",
	})
	one := operation{
		id: "job-events", tag: "events", method: http.MethodGet, path: "/v1/jobs/{id}/events",
		summary: "Follow what happens to a job", about: about + " It ends after the end of the job.",
		kind: eventStream, answers: sent,
	}
	register(h, one, h.jobEvents)
	all := operation{
		id: "events", tag: "events", method: http.MethodGet, path: "/v1/events",
		summary: "Follow what happens to all jobs", about: about, kind: eventStream, answers: sent,
	}
	register(h, all, h.allEvents)
	register(h, operation{
		id: "add-event", tag: "events", method: http.MethodPost, path: "/v1/jobs/{id}/events",
		summary: "Write an event into the history of a job",
		about: "A user writes it, or the program of the job itself with the token that it was given. The " +
			"job must not have ended. What a program names progress, such as 3/7 epochs, becomes the progress " +
			"of its job, and is no part of the history.",
		status: http.StatusCreated,
		body: &body{
			schema: of[job.CustomEvent],
			examples: map[string]example{"epoch": {
				"how far a program has come",
				`{"name": "epoch", "message": "epoch 3 of 10", "data": {"loss": 0.25}}`,
			}},
		},
		errors: []int{http.StatusConflict},
		ofJob:  true,
	}, h.addEvent)
}

const eventStream = "text/event-stream"

type jobEventsInput struct {
	// The id of the job.
	ID string `path:"id"`

	// Only events of these types: states, and names of users' events, separated by commas.
	Type string `query:"type" example:"RUNNING,epoch"`

	// Only events after this cursor; end: only events that are yet to come. All by default.
	After string `query:"after"`

	// The same for a client that reconnects. It overrides after.
	Last string `header:"Last-Event-ID"`

	// Go on with events that happen from now on.
	Follow bool `query:"follow" default:"false"`
}

type eventsInput struct {
	// Only events of the jobs that it chooses. For state, custody, code and message it looks at the
	// event.
	Filter string `query:"filter" example:"owner=ada state=FAILED"`

	// Only events of these types: states, and names of users' events, separated by commas.
	Type string `query:"type" example:"FINISHED,FAILED"`

	// Only events after this cursor; end: only events that are yet to come. All by default.
	After string `query:"after"`

	// The same for a client that reconnects. It overrides after.
	Last string `header:"Last-Event-ID"`

	// Go on with events that happen from now on.
	Follow bool `query:"follow" default:"false"`
}

func (h *handler) jobEvents(ctx context.Context, in *jobEventsInput) (*huma.StreamResponse, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	j, err := serviceOf(ctx).Job(ctx, id)
	if err != nil {
		return nil, err
	}
	follow := in.Follow && !j.State.Terminal() // nothing comes after the end
	return h.events(ctx, service.NewsQuery{Job: id},
		&eventsInput{Type: in.Type, After: in.After, Last: in.Last, Follow: follow})
}

func (h *handler) allEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	f, err := job.ParseFilter(in.Filter, time.Now())
	if err != nil {
		return nil, err
	}
	return h.events(ctx, service.NewsQuery{Filter: f}, in)
}

// cursorEnd stands for the cursor of what is yet to come.
const cursorEnd = "end"

// typeOf fits what an event may be called: a state, or the name of a [job.CustomEvent].
var typeOf = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// events sends events as they come, as server-sent events of the HTML standard.
func (h *handler) events(ctx context.Context, q service.NewsQuery, in *eventsInput) (*huma.StreamResponse, error) {
	svc := serviceOf(ctx)
	if in.Type != "" {
		q.Types = strings.Split(in.Type, ",")
		for _, t := range q.Types {
			if !typeOf.MatchString(t) {
				return nil, invalid("type", t, "is not the type of an event",
					"give a state such as RUNNING, or the name of an event, with commas between several")
			}
		}
	}
	q.Cursor = in.After
	if in.Last != "" {
		q.Cursor = in.Last
	}
	if q.Cursor == cursorEnd {
		var err error
		if q.Cursor, err = svc.Cursor(ctx); err != nil {
			return nil, err
		}
	}
	now := make(chan struct{})
	close(now)
	for _, err := range svc.News(ctx, service.NewsQuery{Job: q.Job, Cursor: q.Cursor, Until: now}) {
		if err != nil {
			return nil, err // such as a cursor that is none: it is said before the stream begins
		}
		break
	}
	release := func() {}
	q.Until = now
	if in.Follow {
		q.Until = h.Stopping
		var err error
		if release, err = h.stream(); err != nil {
			return nil, err
		}
	}
	return stream(eventStream, func(w http.ResponseWriter, r *http.Request) error {
		return send(r.Context(), w, svc, q)
	}, release), nil
}

const (
	pingEvery = 15 * time.Second
	// retryAfter is when a client reconnects after its stream broke, in milliseconds.
	retryAfter = 3000
)

// news is an event, or why there are no more.
type news struct {
	store.Event
	err error
}

// send writes events until there are no more, the client has gone, or ctx ends.
func send(ctx context.Context, w http.ResponseWriter, svc *service.Service, q service.NewsQuery) error {
	out := http.NewResponseController(w)
	write := func(format string, args ...any) error {
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
		return out.Flush()
	}
	// a client that reconnects before the first event goes on from here
	if err := write("id: %s\nretry: %d\n\n", q.Cursor, retryAfter); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	coming := make(chan news)
	go func() {
		defer close(coming)
		for e, err := range svc.News(ctx, q) {
			select {
			case coming <- news{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		stop()
		for range coming { // until the goroutine has ended
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ping.C:
			if err := write(": ping\n\n"); err != nil {
				return err
			}
		case n, more := <-coming:
			if !more {
				return ctx.Err()
			}
			if n.err != nil {
				return n.err
			}
			data, err := json.Marshal(n.Event.Event)
			if err != nil {
				return err
			}
			name := string(n.State)
			if n.Sub > 0 {
				name = n.Name
			}
			if err := write("id: %s\nevent: %s\ndata: %s\n\n", n.Cursor, name, data); err != nil {
				return err
			}
		}
	}
}

type eventOutput struct{ Body job.Event }

func (h *handler) addEvent(ctx context.Context, in *target) (*eventOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	var n job.CustomEvent
	if err := strict(callOf(ctx).body, &n, `"name": "epoch"`); err != nil {
		return nil, err
	}
	svc, caller := serviceOf(ctx), callOf(ctx).caller
	if caller.Job.IsZero() {
		e, err := svc.AddEvent(ctx, id, n)
		return &eventOutput{e.Event}, err
	}
	e, err := svc.AddProgramEvent(ctx, id, caller.Launch, n)
	return &eventOutput{e.Event}, err
}
