package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func (h *handler) registerFiles() {
	of := func(id, path, summary, about string) operation {
		return operation{
			id: id, tag: "files", method: http.MethodGet, path: "/v1/jobs/{id}/" + path,
			summary: summary, about: about, peer: PeerRead,
		}
	}
	register(h, of("list-output", "output", "List the files of a job",
		"It lists its folder while that exists, and later its results."), h.output)
	open := of("get-output", "output/{path...}", "Get a file of a job",
		"Range, If-Range, If-Modified-Since, If-Unmodified-Since and HEAD work. Its media type is what the end of "+
			"its name says, or application/octet-stream. A path that leads out of the job's folder is refused.")
	open.kind, open.answers = "*/*", plain(huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}})
	open.others = map[int]string{
		http.StatusPartialContent: "A range of it; of several ranges multipart/byteranges.",
		http.StatusNotModified:    "It was not written since If-Modified-Since.",
	}
	open.errors = []int{http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable}
	open.headers = map[string]*header{
		"Content-Disposition": inHeader("The name of the file.", `attachment; filename=counts.txt`),
		"Last-Modified":       inHeader("When it was last written.", "Sat, 31 Jan 2026 08:00:00 GMT"),
	}
	register(h, open, h.openOutput)
	logs := of("get-logs", "logs", "Get what the program of a job wrote",
		"With follow the answer goes on until the job has ended.")
	logs.kind, logs.answers = "text/plain", textAnswer
	register(h, logs, h.logs)
}

// stream answers with what write writes, of a media type. An error after that cuts the answer off,
// so that its reader knows. For HEAD there is only the header.
func stream(kind string, write func(http.ResponseWriter, *http.Request) error, done func()) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer done()
		r, w := humago.Unwrap(c)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Accel-Buffering", "no")
		if r.Method == http.MethodHead {
			return
		}
		if err := write(w, r); err != nil {
			panic(http.ErrAbortHandler)
		}
	}}
}

type outputOutput struct{ Body fileList }

type fileList struct {
	// The files, by path.
	Files []service.File `json:"files"`
}

func (h *handler) output(ctx context.Context, in *target) (*outputOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	files, err := serviceOf(ctx).Output(ctx, id)
	return &outputOutput{fileList{files}}, err
}

type fileInput struct {
	// The id of the job.
	ID string `path:"id"`

	// The path of the file in the job's folder. Slashes need no escape.
	Path string `path:"path" example:"counts.txt"`
}

func (h *handler) openOutput(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	file, content, err := serviceOf(ctx).OpenOutput(ctx, id, in.Path)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer content.Close()
		r, w := humago.Unwrap(c)
		// A job's files are not to be trusted by a browser: beside its sandbox it is told to keep
		// them.
		w.Header().Set("Content-Disposition", disposition(file.Path))
		if mime.TypeByExtension(path.Ext(file.Path)) == "" {
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		http.ServeContent(&ranged{ResponseWriter: w, r: r, of: file}, r, "", file.Modified, content)
	}}, nil
}

// ranged makes a problem of the answer to a range that is not within a file, and to a condition
// that does not hold.
type ranged struct {
	http.ResponseWriter
	r       *http.Request
	of      service.File
	refused bool // what is written is not sent: the problem has been
}

func (w *ranged) WriteHeader(status int) {
	if w.refused = status >= http.StatusBadRequest; !w.refused {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	for _, name := range []string{"Content-Disposition", "Last-Modified", "Content-Length"} {
		w.Header().Del(name)
	}
	err := job.Errorf(job.Conflict, "the file is not as If-Match or If-Unmodified-Since wants it: read it again")
	if status == http.StatusRequestedRangeNotSatisfiable {
		err = invalid("Range", w.r.Header.Get("Range"), "is not within the file",
			fmt.Sprintf("ask for bytes=0-%d or a part of them", max(0, w.of.Size-1)))
	}
	writeProblem(w.ResponseWriter, w.r, withStatus(status, err))
}

func (w *ranged) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// disposition tells a browser to keep a file under the last name of its path.
func disposition(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(`"\/:*?<>|`, r) {
			return '_'
		}
		return r
	}, path.Base(name))
	return mime.FormatMediaType("attachment", map[string]string{"filename": strings.ToValidUTF8(name, "_")})
}

type logsInput struct {
	// The id of the job.
	ID string `path:"id"`

	// Which output.
	Stream string `query:"stream" enum:"stdout,stderr" default:"stdout"`

	// Only this many of the last lines; all by default. It reads at most 1 MiB for each of them,
	// and 64 MiB in all. If they are longer, a line says that the beginning is cut.
	Tail int `query:"tail" minimum:"1"`

	// Go on with new output until the job has ended. If the job is tried again, the answer has the
	// log of the present attempt and then those of later attempts.
	Follow bool `query:"follow" default:"false"`
}

func (h *handler) logs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	release := func() {}
	if in.Follow {
		if release, err = h.stream(); err != nil {
			return nil, err
		}
	}
	log, err := serviceOf(ctx).Log(ctx, id,
		service.LogQuery{Stderr: in.Stream == "stderr", Tail: in.Tail, Follow: in.Follow, Until: h.Stopping})
	if err != nil {
		release()
		return nil, err
	}
	return stream("text/plain; charset=utf-8", func(w http.ResponseWriter, _ *http.Request) error {
		return copyAtOnce(w, log)
	}, func() {
		log.Close()
		release()
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
