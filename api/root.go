package api

import (
	"bytes"
	"encoding/json"
	"html/template"
	"net/http"
)

// A place is a path that is worth a link on the first page.
type place struct{ Name, Path, About string }

var places = []place{
	{"docs", "/docs", "the API, to read and to try"},
	{"openapi", "/openapi.json", "the same for programs, as /openapi.yaml too"},
	{"jobs", "/v1/jobs", "the jobs (with a token)"},
	{"events", "/v1/events", "what happens to them (with a token)"},
	{"health", "/healthz", "whether the process is there"},
	{"ready", "/readyz", "whether it can do its work, and what it lacks"},
	{"metrics", "/metrics", "numbers for Prometheus (with a token)"},
}

var rootPage = template.Must(template.New("root").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Pawl</title></head>
<body>
<h1>Pawl {{.Version}}</h1>
<p>A job service. This is its API; here is where things are:</p>
<ul>
{{range .Places}}<li><a href="{{$.Prefix}}{{.Path}}">{{$.Prefix}}{{.Path}}</a>: {{.About}}</li>
{{end}}</ul>
<p>The token is in the file <code>token</code> of the service's data folder. From a shell:</p>
<pre>export PAWL_SERVER={{.URL}} PAWL_TOKEN=...
pawl list
pawl submit job.yaml
pawl --help</pre>
</body>
</html>
`))

// root says where things are: to a person as a page, to programs as JSON.
func (h *handler) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if !callOf(r.Context()).html {
		links := map[string]string{}
		for _, p := range places {
			links[p.Name] = h.Prefix + p.Path
		}
		w.Header().Set("Content-Type", jsonType)
		answer := map[string]any{"service": "pawl", "version": h.Version, "links": links}
		json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client has gone
		return
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	var page bytes.Buffer
	if err := rootPage.Execute(&page, map[string]any{
		"Version": h.Version, "Places": places, "Prefix": h.Prefix, "URL": scheme + "://" + r.Host + h.Prefix,
	}); err != nil {
		writeProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", docsPolicy)
	w.Write(page.Bytes()) //nolint:errcheck // the client has gone
}
