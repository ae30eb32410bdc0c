package api

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	swagger "github.com/swaggest/swgui/v5/static"

	"github.com/pawl-jobs/pawl/job"
)

// page is the page of /docs, around the files of Swagger UI.
//
//go:embed docs
var page embed.FS

// documents are the OpenAPI document in its two forms, which are made when somebody asks.
type documents struct {
	once       sync.Once
	json, yaml []byte
	err        error
}

func (d *documents) make(h *handler) error {
	d.once.Do(func() {
		doc := h.openAPI()
		if d.json, d.err = json.Marshal(doc); d.err == nil {
			d.yaml, d.err = doc.YAML()
		}
	})
	return d.err
}

// docsPolicy lets the page of /docs have its own scripts and styles, and ask this service, and
// nothing else.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// serveDocs adds what people and programs read about the API. It needs no login.
func (h *handler) serveDocs() {
	add := func(id, path string, answer http.HandlerFunc) {
		op := operation{id: id, method: http.MethodGet, path: path, public: true}
		h.add(&route{operation: op, answer: answer})
	}
	add("openapi", "/openapi.json", h.openAPIAs("application/openapi+json", func() []byte { return h.documents.json }))
	add("openapi", "/openapi.yaml", h.openAPIAs("application/openapi+yaml", func() []byte { return h.documents.yaml }))
	add("root", "/{$}", h.root)
	add("docs", "/docs", func(w http.ResponseWriter, r *http.Request) { docsFile(w, r, "index.html") })
	add("docs", "/docs/{file}", func(w http.ResponseWriter, r *http.Request) { docsFile(w, r, r.PathValue("file")) })
}

func (h *handler) openAPIAs(kind string, text func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.documents.make(h); err != nil {
			writeProblem(w, r, err)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Write(text()) //nolint:errcheck // the client has gone
	}
}

// docsFile answers a file of the page. Those of Swagger UI are compressed.
func docsFile(w http.ResponseWriter, r *http.Request, name string) {
	content, err := page.ReadFile("docs/" + name)
	packed := false
	if err != nil {
		content, err = swagger.FS.ReadFile(name)
	}
	if err != nil {
		content, err = swagger.FS.ReadFile(name + ".gz")
		packed = true
	}
	if err != nil || !fs.ValidPath(name) {
		writeProblem(w, r, job.Errorf(job.NotFound, "there is no file %s: begin at docs", name))
		return
	}
	head := w.Header()
	head.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	head.Set("Content-Security-Policy", docsPolicy)
	head.Set("Cache-Control", "no-cache")
	if packed && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		head.Set("Content-Encoding", "gzip")
		packed = false
	}
	head.Set("Vary", "Accept-Encoding")
	if !packed {
		w.Write(content) //nolint:errcheck // the client has gone
		return
	}
	in, err := gzip.NewReader(bytes.NewReader(content))
	if err == nil {
		_, err = io.Copy(w, in)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
