package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
)

// stream answers with what write writes. What goes wrong then cuts the answer off, so that its reader knows.
func stream(write func(http.ResponseWriter, *http.Request) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		// A job's files are not to be trusted by a browser.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "sandbox")
		if err := write(w, r); err != nil {
			panic(http.ErrAbortHandler)
		}
	}}
}

type outputOutput struct {
	Body struct {
		Files []pawl.File `json:"files"`
	}
}

func (h *handler) output(ctx context.Context, in *target) (*outputOutput, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	var out outputOutput
	out.Body.Files, err = h.svc.Output(ctx, id)
	return &out, err
}

type fileInput struct {
	ID   string `path:"id"`
	Path string `path:"path"`
}

func (h *handler) openOutput(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	file, content, err := h.svc.OpenOutput(ctx, id, in.Path)
	if err != nil {
		return nil, err
	}
	return stream(func(w http.ResponseWriter, r *http.Request) error {
		defer content.Close()
		if mime.TypeByExtension(path.Ext(file.Path)) == "" {
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		http.ServeContent(w, r, file.Path, file.Modified, content)
		return nil
	}), nil
}

type logsInput struct {
	ID     string `path:"id"`
	Stream string `query:"stream" enum:"stdout,stderr"`
	Tail   int    `query:"tail" minimum:"1"`
	Follow bool   `query:"follow"`
}

func (h *handler) logs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	log, err := h.svc.Log(ctx, id, pawl.LogQuery{Stderr: in.Stream == "stderr", Tail: in.Tail, Follow: in.Follow, Until: h.stopping})
	if err != nil {
		return nil, err
	}
	return stream(func(w http.ResponseWriter, _ *http.Request) error {
		defer log.Close()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return copyAtOnce(w, log)
	}), nil
}

// copyAtOnce copies and keeps nothing back.
func copyAtOnce(w http.ResponseWriter, r io.Reader) error {
	out := http.NewResponseController(w)
	buf := make([]byte, 64<<10)
	for {
		if err := out.Flush(); err != nil { // also before the first piece, which may take long to come
			return err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cursorEnd stands for the cursor of what is yet to come.
const cursorEnd = "end"

type eventsInput struct {
	After  string `query:"after"`
	Last   string `header:"Last-Event-ID"` // of a client that comes again; it is newer than After
	Follow bool   `query:"follow"`
}

type jobEventsInput struct {
	ID     string `path:"id"`
	After  string `query:"after"`
	Last   string `header:"Last-Event-ID"`
	Follow bool   `query:"follow"`
}

func (h *handler) jobEvents(ctx context.Context, in *jobEventsInput) (*huma.StreamResponse, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := h.svc.Job(ctx, id); err != nil {
		return nil, err
	}
	return h.events(ctx, id, &eventsInput{in.After, in.Last, in.Follow})
}

func (h *handler) allEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	return h.events(ctx, job.ID{}, in)
}

// events sends events as they come, as server-sent events of the HTML standard.
func (h *handler) events(ctx context.Context, id job.ID, in *eventsInput) (*huma.StreamResponse, error) {
	after := in.After
	if in.Last != "" {
		after = in.Last
	}
	if after == cursorEnd {
		var err error
		if after, err = h.svc.Cursor(ctx); err != nil {
			return nil, err
		}
	}
	now := make(chan struct{})
	close(now)
	for _, err := range h.svc.News(ctx, pawl.NewsQuery{Job: id, Cursor: after, Until: now}) {
		if err != nil {
			return nil, err // such as a cursor that is none: it is said before the stream begins
		}
		break
	}
	until := h.stopping
	if !in.Follow {
		until = now
	}
	return stream(func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		out := http.NewResponseController(w)
		if _, err := fmt.Fprintf(w, "id: %s\n\n", after); err != nil { // who comes again before the first event goes on from here
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		for n, err := range h.svc.News(r.Context(), pawl.NewsQuery{Job: id, Cursor: after, Until: until}) {
			if err != nil {
				return err
			}
			data, err := json.Marshal(n.Event)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", n.Cursor, n.State, data); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
		return nil
	}), nil
}
